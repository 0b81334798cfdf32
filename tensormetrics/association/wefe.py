"""Compatibility with WEFE: metrics, models and functions that accept its arguments.

Metrics of this module accept `word_embedding` for `model` and `preprocessor_args=p, secondary_preprocessor_args=s` for
`preprocessors=[p, s]`, by position too; `RND` accepts `distance_type` for `distance`. Metrics written for WEFE derive
from this `BaseMetric`. Everything else is in `tensormetrics.association`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.arguments import checks
from .embeddings import model as models
from .embeddings.lookup import UNCHANGED, PreprocessorArgs, check_threshold, log, look_up
from .embeddings.model import check_model
from .embeddings.query import Query, check_query, check_word_sets, check_words
from .metrics import base, ect, mac, ripa, rnd, rnsb, weat
from .metrics._call import ORDER, Call
from .queries import run_queries as batch_queries

FORMER = ("preprocessor_args", "secondary_preprocessor_args")
Vectors = dict[str, np.ndarray]  # word -> (D,)


def renamed(options: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """Rename options to the names of `tensormetrics.association`; raise a TypeError if an option has both names."""
    options = dict(options)
    for former, current in names.items():
        if former in options:
            if current in options:
                raise TypeError(f"{current}, {former}: got both, wanted one")
            options[current] = options.pop(former)
    former_args = {name: options.pop(name) for name in FORMER if name in options}
    if any(value is not None for value in former_args.values()):
        if options.get("preprocessors", UNCHANGED) is not UNCHANGED:
            other = next(name for name, value in former_args.items() if value is not None)
            raise TypeError(f"preprocessors, {other}: got both, wanted one; write preprocessors=[first, second]")
        first, second = (former_args.get(name) for name in FORMER)
        options["preprocessors"] = [first or {}] if second is None else [first or {}, second]
    return options


class FormerNames(base.BaseMetric):
    """Metric whose `run_query` also accepts the arguments of WEFE, by name and in their order."""

    former_options: dict[str, str] = {"word_embedding": "model"}
    call_options = (*ORDER, *FORMER, "word_embedding")

    def bind(self, *args: Any, **options: Any) -> tuple[base.BaseMetric, Call]:
        if self.by_position and 3 < len(args) <= 6 and not isinstance(args[3], list):
            by_position = dict(zip((*FORMER, "warn_not_found_words"), args[3:], strict=False))
            if twice := sorted(by_position.keys() & options.keys()):
                short = self.metric_short_name
                raise TypeError(f"{short}.run_query: got {', '.join(twice)} by position and by name, wanted one")
            args, options = args[:3], options | by_position
        if len(args) > 1 and "word_embedding" in options:
            raise TypeError("model, word_embedding: got both, wanted one")
        return super().bind(*args, **renamed(options, self.former_options))


class BaseMetric(FormerNames):
    """Base class of metrics written for WEFE; see `association.BaseMetric`."""


class WEAT(FormerNames, weat.WEAT):
    """`association.WEAT` with the arguments of WEFE."""


class RND(FormerNames, rnd.RND):
    """`association.RND` with the arguments of WEFE."""

    former_options = {**FormerNames.former_options, "distance_type": "distance"}


class RNSB(FormerNames, rnsb.RNSB):
    """`association.RNSB` with the arguments of WEFE."""


class RIPA(FormerNames, ripa.RIPA):
    """`association.RIPA` with the arguments of WEFE."""


class ECT(FormerNames, ect.ECT):
    """`association.ECT` with the arguments of WEFE."""


class MAC(FormerNames, mac.MAC):
    """`association.MAC` with the arguments of WEFE."""


class WordEmbeddingModel(models.WordEmbeddingModel):
    """`association.WordEmbeddingModel` with the method that metrics of WEFE use."""

    def get_embeddings_from_query(
        self,
        query: Query,
        lost_vocabulary_threshold: float = 0.2,
        preprocessors: list[PreprocessorArgs] = UNCHANGED,
        strategy: str = "first",
        normalize: bool = False,
        warn_not_found_words: bool = False,
        verbose: bool = False,
        **former: Any,
    ) -> tuple[dict[str, Vectors], dict[str, Vectors]] | None:
        """Call the function of this name; `former`: `preprocessor_args`, `secondary_preprocessor_args`."""
        if unknown := sorted(former.keys() - {*FORMER}):
            raise TypeError(f"get_embeddings_from_query: got the unknown keyword {unknown[0]!r}")
        preprocessors = renamed({"preprocessors": preprocessors, **former}, {})["preprocessors"]
        rules = lost_vocabulary_threshold, preprocessors, strategy, normalize, warn_not_found_words, verbose
        return get_embeddings_from_query(self, query, *rules)


def run_queries(
    metric: base.BaseMetric | type[base.BaseMetric], queries: Sequence[Query], *args: Any, **options: Any
) -> Any:
    """Call `association.run_queries`; `word_embeddings_models` is `models`."""
    if args and "word_embeddings_models" in options:
        raise TypeError("models, word_embeddings_models: got both, wanted one")
    options = renamed(options, {"word_embeddings_models": "models"})
    kind = metric if isinstance(metric, type) else type(metric)
    if "metric_params" in options and not issubclass(kind, FormerNames):
        options["metric_params"] = renamed(options["metric_params"], {})
    return batch_queries.run_queries(metric, queries, *args, **options)


def get_embeddings_from_set(
    model: models.WordEmbeddingModel,
    word_set: Sequence[str],
    preprocessors: list[PreprocessorArgs] = UNCHANGED,
    strategy: str = "first",
    normalize: bool = False,
    verbose: bool = False,
) -> tuple[list[str], Vectors]:
    """Return the forms that were not found, in order, and `{key: vector}` of the found keys; see `index_query`.

    >>> vectors = torch.tensor([[2.0, 1], [3, 1], [1, 2], [1, 3], [1, 0], [0, 1]])
    >>> model = WordEmbeddingModel.from_tensor(vectors, ["he", "him", "she", "her", "work", "home"])
    >>> get_embeddings_from_set(model, ["he", "hers"])
    (['hers'], {'he': array([2., 1.], dtype=float32)})
    """
    check_model(model)
    checks.check_flag("normalize", normalize)
    checks.check_flag("verbose", verbose)
    matches = model.search(preprocessors, strategy).words(check_words("word_set", word_set))
    if verbose:
        print(f"found {len(matches.keys)} keys for {matches.total} words: {matches.keys}, lost: {matches.lost}")
    return list(matches.not_found), model.arrays(matches.keys, normalize)


def get_embeddings_from_query(
    model: models.WordEmbeddingModel,
    query: Query,
    lost_vocabulary_threshold: float = 0.2,
    preprocessors: list[PreprocessorArgs] = UNCHANGED,
    strategy: str = "first",
    normalize: bool = False,
    warn_not_found_words: bool = False,
    verbose: bool = False,
) -> tuple[dict[str, Vectors], dict[str, Vectors]] | None:
    """Return targets and attributes as `{set name: {word: vector}}` on the host; None for an unusable query.

    Options are those of `WordEmbeddingModel.index_query`; `normalize` returns unit vectors, `verbose` prints the found
    words.

    >>> vectors = torch.tensor([[2.0, 1], [3, 1], [1, 2], [1, 3], [1, 0], [0, 1]])
    >>> model = WordEmbeddingModel.from_tensor(vectors, ["he", "him", "she", "her", "work", "home"])
    >>> targets, attributes = get_embeddings_from_query(model, Query([["he"], ["she"]], [["work", "home"]]))
    >>> list(targets), list(attributes["Attribute set 0"])
    (['Target set 0', 'Target set 1'], ['work', 'home'])
    """
    check_model(model)
    check_query(query)
    check_threshold(lost_vocabulary_threshold)
    checks.check_flag("normalize", normalize)
    checks.check_flag("warn_not_found_words", warn_not_found_words)
    checks.check_flag("verbose", verbose)
    search = model.search(preprocessors, strategy)
    words, _, lost, reason = look_up(query, search, model.name, lost_vocabulary_threshold, False, warn_not_found_words)
    names = (query.target_sets_names, query.attribute_sets_names)
    if verbose:
        for name, keys, missing in zip(sum(names, []), sum(words, []), sum(lost, []), strict=True):
            print(f"{name}: found {keys}, lost {missing}")
    if reason:
        return None
    arrays = model.arrays(dict.fromkeys(key for set_names in words for keys in set_names for key in keys), normalize)
    targets, attributes = (
        {name: {key: arrays[key] for key in keys} for name, keys in zip(*set_names, strict=True)}
        for set_names in zip(names, words, strict=True)
    )
    return targets, attributes


def get_embeddings_from_tuples(
    model: models.WordEmbeddingModel,
    sets: Sequence[Sequence[str]],
    sets_name: str | None = None,
    preprocessors: list[PreprocessorArgs] = UNCHANGED,
    strategy: str = "first",
    normalize: bool = False,
    discard_incomplete_sets: bool = True,
    warn_lost_sets: bool = True,
    verbose: bool = False,
) -> list[Vectors]:
    """Return `{key: vector}` for each small set of related words, such as definitional pairs.

    Sets with a lost word are left out unless `discard_incomplete_sets=False`. ValueError if no set remains. Messages
    call the sets `sets_name`, by default "sets"; `warn_lost_sets` logs incomplete sets, `verbose` prints found words.

    >>> vectors = torch.tensor([[2.0, 1], [3, 1], [1, 2], [1, 3], [1, 0], [0, 1]])
    >>> model = WordEmbeddingModel.from_tensor(vectors, ["he", "him", "she", "her", "work", "home"])
    >>> get_embeddings_from_tuples(model, [["he", "she"], ["him", "hers"]], warn_lost_sets=False)
    [{'he': array([2., 1.], dtype=float32), 'she': array([1., 2.], dtype=float32)}]
    """
    check_model(model)
    if not isinstance(sets_name, str | None):
        raise TypeError(f"sets_name: got a {type(sets_name).__name__}, wanted a str or None")
    for flag, value in (
        ("normalize", normalize),
        ("discard_incomplete_sets", discard_incomplete_sets),
        ("warn_lost_sets", warn_lost_sets),
        ("verbose", verbose),
    ):
        checks.check_flag(flag, value)
    search, sets = model.search(preprocessors, strategy), check_word_sets("sets", sets)
    name, selected = "sets" if sets_name is None else sets_name, []
    for words in sets:
        matches = search.words(words)
        complete = not matches.lost
        if not complete and warn_lost_sets:
            log.warning("%s: %s of %s are not in the vocabulary of %r", name, matches.lost, words, model.name)
        if verbose:
            print(f"{words}: found {matches.keys}, lost {matches.lost}")
        if matches.keys and (complete or not discard_incomplete_sets):
            selected.append(model.arrays(matches.keys, normalize))
    if verbose:
        print(f"{name}: {len(selected)} of {len(sets)} sets found")
    if not selected:
        raise ValueError(f"{name}: got {len(sets)} sets, none of which is complete in the vocabulary of {model.name!r}")
    return selected
