"""Names and arguments of WEFE: a program written for it runs with imports from `tensormetrics.compat.wefe`.

Arguments of WEFE 1.0 and of earlier versions: `word_embedding` is `model`, and `preprocessor_args=p,
secondary_preprocessor_args=s` are `preprocessors=[p, s]`, by position too. Figures are matplotlib's.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import association
from ..association import (
    DoubleHardDebias,
    HalfSiblingRegression,
    HardDebias,
    MulticlassHardDebias,
    PreprocessorArgs,
    QueryScores,
    RepulsionAttractionNeutralization,
    calculate_ranking_correlations,
    create_ranking,
    fetch_debias_multiclass,
    fetch_debiaswe,
    fetch_eds,
    fetch_gn_glove,
    load_bingliu,
    load_weat,
    load_weat_w2v,
    plot_queries_results,
    plot_ranking,
    plot_ranking_correlations,
    preprocess_word,
)
from ..association.debias.base import Debias as BaseDebias
from ..association.embeddings.lookup import UNCHANGED, check_threshold, log, look_up
from ..association.embeddings.model import check_model
from ..association.embeddings.query import Template, check_query, check_word_sets, check_words
from ..association.metrics._call import ORDER, Call
from ..core.arguments import checks

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "BaseDebias",
    "BaseMetric",
    "DoubleHardDebias",
    "ECT",
    "EmbeddingDict",
    "EmbeddingSets",
    "HalfSiblingRegression",
    "HardDebias",
    "MAC",
    "MulticlassHardDebias",
    "PreprocessorArgs",
    "Query",
    "RIPA",
    "RND",
    "RNSB",
    "RepulsionAttractionNeutralization",
    "WEAT",
    "WordEmbeddingModel",
    "calculate_ranking_correlations",
    "create_ranking",
    "fetch_debias_multiclass",
    "fetch_debiaswe",
    "fetch_eds",
    "fetch_gn_glove",
    "generate_subqueries_from_queries_list",
    "get_embeddings_from_query",
    "get_embeddings_from_set",
    "get_embeddings_from_tuples",
    "load_bingliu",
    "load_weat",
    "load_weat_w2v",
    "plot_queries_results",
    "plot_ranking",
    "plot_ranking_correlations",
    "preprocess_word",
    "run_queries",
]

EmbeddingDict = dict[str, np.ndarray]  # word -> (D,)
EmbeddingSets = dict[str, EmbeddingDict]  # name of a set -> its words
FORMER = ("preprocessor_args", "secondary_preprocessor_args")  # of WEFE before `preprocessors`


def renamed(options: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """Rename options to the names of `tensormetrics.association`; raise a TypeError if an option has both names."""
    options = dict(options)
    for name, ours in names.items():
        if name in options:
            if ours in options:
                raise TypeError(f"{ours}, {name}: got both, wanted one")
            options[ours] = options.pop(name)
    former = {name: options.pop(name) for name in FORMER if name in options}
    if given := [name for name, value in former.items() if value is not None]:
        if options.get("preprocessors", UNCHANGED) is not UNCHANGED:
            raise TypeError(f"preprocessors, {given[0]}: got both, wanted one; write preprocessors=[first, second]")
        first, second = (former.get(name) for name in FORMER)
        options["preprocessors"] = [first or {}] if second is None else [first or {}, second]
    return options


def by_name(owner: str, names: tuple[str, ...], args: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
    """Name arguments by position, in the order of either version of WEFE: `preprocessors` is a list, or two dicts."""
    at = names.index("preprocessors")
    if len(args) > at and not isinstance(args[at], list):
        names = (*names[:at], *FORMER, "warn_not_found_words")
    if len(args) > len(names):
        raise TypeError(f"{owner}: got {len(args)} arguments by position, wanted at most {len(names)}")
    named = dict(zip(names, args, strict=False))
    if twice := sorted(named.keys() & options.keys()):
        raise TypeError(f"{owner}: got {', '.join(twice)} by position and by name, wanted one")
    return named | options


class Query(association.Query):
    """`association.Query` with the arguments of WEFE."""

    def get_subqueries(self, new_template: Template) -> list[association.Query]:  # type: ignore[override]
        return super().get_subqueries(new_template)


class BaseMetric(association.BaseMetric):
    """Base class of metrics written for WEFE: `association.BaseMetric` with the arguments of WEFE's `run_query`."""

    option_names: dict[str, str] = {"word_embedding": "model"}  # WEFE's name -> ours
    first_options: tuple[str, ...] = ()  # that WEFE takes by position between the model and the threshold
    call_options = (*ORDER, *FORMER, "word_embedding")

    def bind(self, *args: Any, **options: Any) -> tuple[association.BaseMetric, Call]:
        names = (*ORDER[:2], *self.first_options, *ORDER[2:])
        options = by_name(f"{self.metric_short_name}.run_query", names, args, options)
        return super().bind(**renamed(options, self.option_names))


class WEAT(BaseMetric, association.WEAT):
    """`association.WEAT` with the arguments of WEFE."""

    first_options = ("return_effect_size", "calculate_p_value", "p_value_test_type", "p_value_method",
                     "p_value_iterations", "p_value_verbose")  # fmt: skip


class RND(BaseMetric, association.RND):
    """`association.RND` with the arguments of WEFE."""

    option_names = {**BaseMetric.option_names, "distance_type": "distance"}
    first_options = ("distance",)


class RNSB(BaseMetric, association.RNSB):
    """`association.RNSB` with the arguments of WEFE."""

    first_options = ("estimator", "estimator_params", "n_iterations", "random_state", "holdout",
                     "print_model_evaluation")  # fmt: skip


class RIPA(BaseMetric, association.RIPA):
    """`association.RIPA` with the arguments of WEFE."""


class ECT(BaseMetric, association.ECT):
    """`association.ECT` with the arguments of WEFE."""


class MAC(BaseMetric, association.MAC):
    """`association.MAC` with the arguments of WEFE."""


class WordEmbeddingModel(association.WordEmbeddingModel):
    """`association.WordEmbeddingModel` with the method by which metrics of earlier versions of WEFE read vectors."""

    def get_embeddings_from_query(
        self, query: association.Query, *args: Any, **options: Any
    ) -> tuple[EmbeddingSets, EmbeddingSets] | None:
        """Call the function of this name, also with `preprocessor_args` and `secondary_preprocessor_args`."""
        options = by_name("get_embeddings_from_query", (*ORDER[2:], "verbose"), args, options)
        return get_embeddings_from_query(self, query, **renamed(options, {}))


def run_queries(
    metric: association.BaseMetric | type[association.BaseMetric],
    queries: Sequence[association.Query],
    *args: Any,
    **options: Any,
) -> "pd.DataFrame | QueryScores":
    """Call `association.run_queries`; `word_embeddings_models` is `models`."""
    return association.run_queries(metric, queries, *args, **renamed(options, {"word_embeddings_models": "models"}))


def generate_subqueries_from_queries_list(
    metric: type[association.BaseMetric], queries: Sequence[association.Query]
) -> list[association.Query]:
    """Return the sub-queries of all queries by the metric's template, the first of each name."""
    subqueries: dict[str, association.Query] = {}
    for query in queries:
        for subquery in query.get_subqueries(metric.metric_template):
            subqueries.setdefault(subquery.query_name, subquery)
    return [*subqueries.values()]


def get_embeddings_from_set(
    model: association.WordEmbeddingModel,
    word_set: Sequence[str],
    preprocessors: list[PreprocessorArgs] = UNCHANGED,
    strategy: str = "first",
    normalize: bool = False,
    verbose: bool = False,
) -> tuple[list[str], EmbeddingDict]:
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
    model: association.WordEmbeddingModel,
    query: association.Query,
    lost_vocabulary_threshold: float = 0.2,
    preprocessors: list[PreprocessorArgs] = UNCHANGED,
    strategy: str = "first",
    normalize: bool = False,
    warn_not_found_words: bool = False,
    verbose: bool = False,
) -> tuple[EmbeddingSets, EmbeddingSets] | None:
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
    model: association.WordEmbeddingModel,
    sets: Sequence[Sequence[str]],
    sets_name: str | None = None,
    preprocessors: list[PreprocessorArgs] = UNCHANGED,
    strategy: str = "first",
    normalize: bool = False,
    discard_incomplete_sets: bool = True,
    warn_lost_sets: bool = True,
    verbose: bool = False,
) -> list[EmbeddingDict]:
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
