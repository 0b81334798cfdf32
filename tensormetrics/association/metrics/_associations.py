"""Associations of target words with two attribute sets, shared by several metrics."""

from collections.abc import Sequence

from torch import Tensor

from ..resampling.null_distribution import NullDistribution
from ..resampling.permutation import partition_null
from ..sets import marks, word_sets
from ..sets.word_sets import Values, Vectors, WordSet


def associations(
    x: word_sets.Words, y: word_sets.Words, a: word_sets.Words, b: word_sets.Words
) -> tuple[word_sets.Values, word_sets.Values]:
    # ->  associations s of the words of x (..., X) and of y (..., Y), with their counts
    if word_sets.has_several_counts(x, y, a, b):
        u, v = _resampled_associations(x, y, a, b)
        return (x.by_word(u), x.counts), (y.by_word(v), y.counts)
    if not word_sets.is_large(x, y, a, b):
        x, y, a, b = word_sets.units(x, y, a, b)
    axis = a.unit().mean() - b.unit().mean()
    return (x.by_word(x.unit().project(axis)), x.counts), (y.by_word(y.unit().project(axis)), y.counts)


def _resampled_associations(
    x: word_sets.Words, y: word_sets.Words, a: word_sets.Words, b: word_sets.Words
) -> Sequence[Tensor]:
    # ->  (..., X), (..., Y), from cosines that all replicates share
    targets, attributes = (word_sets.unit(word_sets.join(s.vectors, t.vectors, dim=-2)) for s, t in ((x, y), (a, b)))
    weights = word_sets.join(a.mean_weights(), -b.mean_weights())
    scores = word_sets.matvec(word_sets.products(targets, attributes), weights)
    return scores.split_with_sizes([x.vectors.shape[-2], y.vectors.shape[-2]], -1)


@marks.effect_size_of_sets("x", "y")
def effect_size(x: Vectors, y: Vectors, a: Vectors, b: Vectors, correction: int) -> Tensor:
    """Compute `weat_effect_size`."""
    words = word_sets.units(*word_sets.read(x=x, y=y, a=a, b=b))
    return word_sets.effect_size(*associations(*words), correction)[1]


def null_of(u: Values, v: Values, first: Vectors, second: Vectors, seed: int | None) -> NullDistribution:
    """Return the null distribution of associations under permutations of the words of two sets."""
    (u, v) = (WordSet.of(vectors)._replace(values=scores) for (scores, _), vectors in ((u, first), (v, second)))
    return partition_null(u, v, seed)
