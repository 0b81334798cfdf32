"""Relational Inner Product Association."""

from typing import Literal, overload

import torch
from torch import Tensor
from typing_extensions import Unpack  # torch brings it

from ...core.arguments import checks
from ..resampling.null_distribution import NullDistribution
from ..resampling.permutation import sign_null
from ..sets import marks, word_sets
from ..sets.set_checks import check_mask
from ..sets.word_ids import joint_mask, joint_words, mixed_words
from ..sets.word_sets import Vectors, WordSet
from .base import AssociationOptions, BaseMetric


@overload
def ripa(
    x: Vectors, y: Vectors, a: Vectors, normalize_direction: bool = ..., *, per_word: Literal[False] = ...
) -> Tensor: ...
@overload
def ripa(
    x: Vectors, y: Vectors, a: Vectors, normalize_direction: bool = ..., *, per_word: Literal[True]
) -> tuple[Tensor, Tensor]: ...
@marks.score(tuples=("x", "y"))
def ripa(
    x: Vectors, y: Vectors, a: Vectors, normalize_direction: bool = True, *, per_word: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """Compute the mean inner product of attribute words and directions of pairs: mean of a . (x - y) / |x - y|.

    Shapes: x, y: (..., P, D), pairs by position; a: (..., A, D), tensors or `WordSet`s -> (...) float64.

    In units of the attribute vectors, which are not normalized; positive values are towards x; swapping x and y changes
    the sign. A pair is valid if both words are, and rows belong to one pair if they belong to the same two words. If
    two words have different numbers of rows, rows are repeated until all rows of a word are used equally often.
    `normalize_direction=False` keeps the length |x - y| of the direction. A pair of equal vectors has no direction and
    is ignored (equal: up to the epsilon of the dtype, at least 2^-40, times the longer one); without a pair or a word
    the score is NaN. `per_word=True` also returns all products (..., A, P), NaN for invalid ones. ValueError if x and y
    have different lengths, else as in `weat`. Ethayarajh, Duvenaud & Hirst 2019, doi:10.18653/v1/P19-1166.

    >>> x, y = torch.tensor([[2.0, 1.0], [3.0, 1.0]]), torch.tensor([[1.0, 2.0], [1.0, 3.0]])
    >>> a = torch.tensor([[1.0, 0.0], [2.0, 1.0], [0.0, 1.0]])
    >>> ripa(x, y, a)
    tensor(0.2357, dtype=torch.float64)
    """
    a, pair = _directions(x, y, a, normalize_direction)
    score = word_sets.dot(a.mean(), pair.mean())
    if not per_word:
        return score
    is_invalid = (a.weights == 0).unsqueeze(-1) | (pair.weights == 0).unsqueeze(-2)
    return score, (a.vectors @ pair.vectors.mT).masked_fill(is_invalid, torch.nan)


def _directions(x: Vectors, y: Vectors, a: Vectors, normalize: bool) -> tuple[word_sets.Words, word_sets.Words]:
    # ->  attribute words (..., A, D), directions (..., P, D)
    first, second = map(WordSet.of, (x, y))
    x, y, a = word_sets.read(x=first.values, y=second.values, a=a)
    for name, word_set in (("x", first), ("y", second)):
        if word_set.mask is not None:
            check_mask(f"{name}.mask", word_set.mask, word_set.values)
    shapes = first.values.shape, second.values.shape
    if shapes[0][-2:] != shapes[1][-2:]:
        got = " and ".join(str(tuple(shape)) for shape in shapes)
        raise ValueError(f"x, y: got {got}, wanted pairs by position: equal (P, D)")
    tolerance = word_sets.resolution(first.values, second.values)
    longer = torch.linalg.vector_norm(x.vectors, dim=-1).maximum(torch.linalg.vector_norm(y.vectors, dim=-1))
    words = joint_words(first.words, second.words)
    (pair,) = word_sets.read(pair=WordSet(x.vectors - y.vectors, joint_mask(first.mask, second.mask), words))
    length = torch.linalg.vector_norm(pair.vectors, dim=-1)
    equal = (length <= tolerance * longer) & longer.isfinite()
    directions = pair.vectors * word_sets.inverse(length).unsqueeze(-1) if normalize else pair.vectors
    return a, pair._replace(vectors=directions, counts=pair.weights * ~equal)


class RIPA(BaseMetric):
    """Inner products of the attribute words with the directions of target pairs (RIPA); see `ripa`.

    `details` of `run_query` has the mean and the standard deviation of each attribute word over the `pairs`, the number
    of pairs of unequal vectors.

    Args:
        normalize_direction: Whether the directions are scaled to length 1.
    """

    metric_template = (2, 1)
    metric_name = "Relational Inner Product Association"
    metric_short_name = "RIPA"
    function = staticmethod(ripa)
    function_options = ("normalize_direction",)
    paired = True
    no_score = "no pair of unequal vectors, or a vector is not finite"
    values_by_word = {"mean_by_word": 1, "std_by_word": 1}

    def __init__(self, *, normalize_direction: bool = True, **kwargs: Unpack[AssociationOptions]) -> None:
        super().__init__(**kwargs)
        checks.check_flag("normalize_direction", normalize_direction)
        self.normalize_direction = normalize_direction

    def measure(self, x: Vectors, y: Vectors, a: Vectors) -> dict[str, Tensor]:
        a, pair = _directions(x, y, a, self.normalize_direction)
        products, count = pair.by_rows_of_others(a.vectors @ pair.vectors.mT), pair.weights.unsqueeze(-2)
        pairs = count.sum(-1)
        mean = (products * count).sum(-1) / pairs
        std = ((products - mean.unsqueeze(-1)).square() * count).sum(-1).div(pairs).sqrt()
        score = word_sets.dot(a.mean(), pair.mean())
        return {
            "ripa": score,
            "mean_by_word": a.mask_absent(mean),
            "std_by_word": a.mask_absent(std),
            "pairs": pairs.squeeze(-1).round(),
        }

    def null_distributions(self, x: Vectors, y: Vectors, a: Vectors) -> dict[str, NullDistribution]:
        a, pair = _directions(x, y, a, self.normalize_direction)
        words = mixed_words(WordSet.of(x).words, WordSet.of(y).words)
        return {"p_value": sign_null(WordSet(pair.project(a.mean()), pair.weights > 0, words), self.seed)}
