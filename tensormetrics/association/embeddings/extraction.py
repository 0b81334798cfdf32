"""Words to vectors on the host, for metrics that are written word by word."""

from collections.abc import Sequence

import numpy as np

from .lookup import AS_THEY_STAND, PreprocessorArgs, check_flag, log
from .model import WordEmbeddingModel, check_model
from .query import Query, check_word_sets, check_words

Vectors = dict[str, np.ndarray]  # word -> (D,)


def get_embeddings_from_set(
    model: WordEmbeddingModel,
    word_set: Sequence[str],
    preprocessors: list[PreprocessorArgs] = AS_THEY_STAND,
    strategy: str = "first",
    normalize: bool = False,
    verbose: bool = False,
) -> tuple[list[str], Vectors]:
    """Every form that was tried in vain, in order, and `{key: vector}` of what was found; see `index_query`.

    >>> vectors = torch.tensor([[2.0, 1], [3, 1], [1, 2], [1, 3], [1, 0], [0, 1]])
    >>> model = WordEmbeddingModel.from_tensor(vectors, ["he", "him", "she", "her", "work", "home"])
    >>> get_embeddings_from_set(model, ["he", "hers"])
    (['hers'], {'he': array([2., 1.], dtype=float32)})
    """
    check_model(model)
    check_flag("normalize", normalize)
    check_flag("verbose", verbose)
    found = model.search(preprocessors, strategy).words(check_words("word_set", word_set))
    if verbose:
        print(f"found {len(found.keys)} keys for {found.total} words: {found.keys}, lost: {found.lost}")
    return list(found.not_found), model.arrays(found.keys, normalize)


def get_embeddings_from_query(
    model: WordEmbeddingModel,
    query: Query,
    lost_vocabulary_threshold: float = 0.2,
    preprocessors: list[PreprocessorArgs] = AS_THEY_STAND,
    strategy: str = "first",
    normalize: bool = False,
    warn_not_found_words: bool = False,
    verbose: bool = False,
) -> tuple[dict[str, Vectors], dict[str, Vectors]] | None:
    """The method of `WordEmbeddingModel` as a function.

    >>> vectors = torch.tensor([[2.0, 1], [3, 1], [1, 2], [1, 3], [1, 0], [0, 1]])
    >>> model = WordEmbeddingModel.from_tensor(vectors, ["he", "him", "she", "her", "work", "home"])
    >>> targets, attributes = get_embeddings_from_query(model, Query([["he"], ["she"]], [["work", "home"]]))
    >>> list(targets), list(attributes["Attribute set 0"])
    (['Target set 0', 'Target set 1'], ['work', 'home'])
    """
    check_model(model)
    return model.get_embeddings_from_query(
        query, lost_vocabulary_threshold, preprocessors, strategy, normalize, warn_not_found_words, verbose
    )


def get_embeddings_from_tuples(
    model: WordEmbeddingModel,
    sets: Sequence[Sequence[str]],
    sets_name: str | None = None,
    preprocessors: list[PreprocessorArgs] = AS_THEY_STAND,
    strategy: str = "first",
    normalize: bool = False,
    discard_incomplete_sets: bool = True,
    warn_lost_sets: bool = True,
    verbose: bool = False,
) -> list[Vectors]:
    """`{key: vector}` for each small set of words that belong together, such as definitional pairs.

    One that lost a word is left out, unless `discard_incomplete_sets=False`. ValueError if none is left.

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
        check_flag(flag, value)
    search, sets = model.search(preprocessors, strategy), check_word_sets("sets", sets)
    kept = []
    for words in sets:
        found = search.words(words)
        complete = not found.lost
        if not complete and warn_lost_sets:
            log.warning("%s: %s of %s are not in the vocabulary of %r", sets_name, found.lost, words, model.name)
        if verbose:
            print(f"{words}: found {found.keys}, lost {found.lost}")
        if found.keys and (complete or not discard_incomplete_sets):
            kept.append(model.arrays(found.keys, normalize))
    name = "sets" if sets_name is None else sets_name
    if verbose:
        print(f"{name}: {len(kept)} of {len(sets)} sets found")
    if not kept:
        raise ValueError(f"{name}: got {len(sets)} sets, none of which is whole in the vocabulary of {model.name!r}")
    return kept
