"""Associations of target words with two attribute sets, on which several metrics are built."""

from collections.abc import Sequence
from typing import cast

from torch import Tensor
from typing_extensions import Unpack  # torch brings it

from ..resampling.null_distribution import NullDistribution
from ..resampling.permutation import partition_null
from ..sets import word_sets
from ..sets.word_sets import Values, XYABMasks


def units_of(x: Tensor, y: Tensor, a: Tensor, b: Tensor, **masks: Unpack[XYABMasks]) -> tuple[word_sets.Words, ...]:
    return word_sets.units(*read_sets(x, y, a, b, **masks))


def read_sets(
    x: Tensor,
    y: Tensor,
    a: Tensor,
    b: Tensor,
    x_mask: Tensor | None = None,
    y_mask: Tensor | None = None,
    a_mask: Tensor | None = None,
    b_mask: Tensor | None = None,
) -> tuple[word_sets.Words, ...]:
    return word_sets.read(x=(x, x_mask), y=(y, y_mask), a=(a, a_mask), b=(b, b_mask))


def associations(
    x: word_sets.Words, y: word_sets.Words, a: word_sets.Words, b: word_sets.Words
) -> tuple[word_sets.Values, word_sets.Values]:
    # ->  s of the words of x (..., X) and of y (..., Y), with their counts
    if word_sets.resampled(x, y, a, b):
        u, v = _resampled_associations(x, y, a, b)
        return (u, x.counts), (v, y.counts)
    if not word_sets.are_many(x, y, a, b):
        x, y, a, b = word_sets.units(x, y, a, b)
    axis = a.unit().mean() - b.unit().mean()
    return (x.unit().project(axis), x.counts), (y.unit().project(axis), y.counts)


def _resampled_associations(
    x: word_sets.Words, y: word_sets.Words, a: word_sets.Words, b: word_sets.Words
) -> Sequence[Tensor]:
    # ->  (..., X), (..., Y), from cosines that all replicates share
    targets, attributes = (word_sets.unit(word_sets.join(s.vectors, t.vectors, dim=-2)) for s, t in ((x, y), (a, b)))
    weights = word_sets.join(a.shares(), -b.shares())
    both = word_sets.times(word_sets.products(targets, attributes), weights)
    return both.split_with_sizes([x.vectors.shape[-2], y.vectors.shape[-2]], -1)


class XYABWords(XYABMasks, total=False):
    """Also the numbers of the words that have several rows."""

    x_words: Tensor | None
    y_words: Tensor | None
    a_words: Tensor | None
    b_words: Tensor | None


def masks_of(sides: XYABWords) -> XYABMasks:
    return cast(XYABMasks, {name: side for name, side in sides.items() if name.endswith("_mask")})


def null_of(u: Values, v: Values, sides: XYABWords, names: str, seed: int | None) -> NullDistribution:
    """Return the null distribution of associations with words of two sets, such as "xy", that are exchanged."""
    given = cast(dict[str, Tensor | None], sides)
    (u_mask, v_mask), (u_words, v_words) = (
        [given.get(f"{name}_{kind}") for name in names] for kind in ("mask", "words")
    )
    return partition_null(u[0], v[0], seed=seed, u_mask=u_mask, v_mask=v_mask, u_words=u_words, v_words=v_words)
