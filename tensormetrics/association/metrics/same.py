"""SAME score."""

import math
from typing import Literal, get_args, overload

import torch
from torch import Tensor
from typing_extensions import Unpack  # torch brings it

from ...core.arguments import checks
from ..sets import marks, word_sets
from ..sets.word_sets import Vectors, WordSet
from .base import AssociationOptions, BaseMetric

Weighting = Literal["length", "unit"]


@overload
def same(
    t: Vectors,
    groups: Vectors,
    weighting: Weighting = ...,
    *,
    per_word: Literal[False] = ...,
    terms: Literal[False] = ...,
) -> Tensor: ...
@overload
def same(
    t: Vectors, groups: Vectors, weighting: Weighting = ..., *, per_word: Literal[True], terms: bool = ...
) -> tuple[Tensor, ...]: ...
@overload
def same(
    t: Vectors, groups: Vectors, weighting: Weighting = ..., *, per_word: Literal[False] = ..., terms: Literal[True]
) -> tuple[Tensor, Tensor]: ...


@marks.score(grouped=("groups",), range=(0, math.inf))
def same(
    t: Vectors, groups: Vectors, weighting: Weighting = "length", *, per_word: bool = False, terms: bool = False
) -> Tensor | tuple[Tensor, ...]:
    """Measure the target words along the directions between groups: mean_t sum_j |cos(t, b_j)| l_j.

    Shapes: t: (..., T, D); groups: (..., G, W, D), tensors or `WordSet`s -> (...) float64.

    b_1 = m_1 - m_2 and b_j = m_1 - m_(j+1), orthogonalized against the previous ones; m are means of unit vectors.
    l_1 = 1 and l_j = |b_j| with `weighting` "length", 1 with "unit". >= 0, 0 is no bias, and at most 1 for two groups.
    A direction of length 0 (at most 1e-10, or the epsilon of the dtype) adds nothing. `per_word=True` also returns the
    sums of the words (..., T), `terms=True` also the signed terms (..., T, G - 1): for two groups their mean over the
    words is the skew, their standard deviation the stereotype. Empty sets, zero vectors and errors as in `weat`;
    ValueError for another weighting and fewer than two groups. Schröder et al. 2022, arXiv:2203.14603.

    >>> groups = torch.tensor([[[2.0, 1.0], [3.0, 1.0]], [[1.0, 2.0], [1.0, 3.0]]])
    >>> same(torch.tensor([[1.0, -1.0], [1.0, 1.0]]), groups)
    tensor(0.5000, dtype=torch.float64)
    """
    checks.check_choice("weighting", weighting, get_args(Weighting))
    values = WordSet.of(groups).values
    t, groups = word_sets.read("groups", t=t, groups=groups)
    min_length = max(1e-10, word_sets.resolution(values))
    if groups.vectors.shape[-3] < 2:
        raise ValueError(f"groups: got shape {tuple(groups.vectors.shape)}, wanted (..., G, W, D) with G >= 2")
    centers = groups.unit().mean()
    basis = _orthogonal(centers[..., :1, :] - centers[..., 1:, :], min_length)
    axes = word_sets.unit(basis)
    if weighting == "length":
        axes = torch.cat([axes[..., :1, :], basis[..., 1:, :]], -2)
    signed = t.unit().project_all(axes)
    by_word = signed.abs().sum(-1)
    results = (t.average(by_word),)
    if per_word:
        results += (t.mask_absent(by_word),)
    if terms:
        results += (signed.masked_fill((t.weights == 0).unsqueeze(-1), torch.nan),)
    return results if len(results) > 1 else results[0]


def _orthogonal(directions: Tensor, min_length: float) -> Tensor:
    # directions: (..., N, D)  ->  (..., N, D), orthogonalized in order, 0 for dependent directions
    basis: list[Tensor] = []
    for direction in directions.unbind(-2):
        for axis in map(word_sets.unit, basis):
            direction = direction - word_sets.dot(direction, axis).unsqueeze(-1) * axis
        length = torch.linalg.vector_norm(direction, dim=-1, keepdim=True)
        basis.append(direction.masked_fill(length <= min_length, 0))
    return torch.stack(basis, -2)


class SAME(BaseMetric):
    """Mean association of target words with the directions between attribute groups (SAME); see `same`.

    Only for two groups `details` of `run_query` has the `skew` and the `stereotype`.

    Args:
        weighting: ``"length"`` weights further directions by their length, ``"unit"`` all equally.
    """

    metric_template = (1, "n")
    metric_name = "SAME Score"
    metric_short_name = "SAME"
    compares_groups = True
    function = staticmethod(same)
    function_options = ("weighting",)
    values_by_word = {"same_by_word": 0}

    def __init__(self, *, weighting: Weighting = "length", **kwargs: Unpack[AssociationOptions]) -> None:
        super().__init__(**kwargs)
        checks.check_choice("weighting", weighting, get_args(Weighting))
        self.weighting: Weighting = weighting

    def measure(self, t: Vectors, groups: Vectors) -> dict[str, Tensor]:
        score, by_word, terms = same(t, groups, self.weighting, per_word=True, terms=True)
        values = {"same": score}
        if terms.shape[-1] == 1:
            (words,) = word_sets.read(t=t)
            signed = words.by_word(terms.squeeze(-1).masked_fill(words.weights == 0, 0))
            skew = words.average(signed)
            squares = (signed - skew.unsqueeze(-1)).square()
            values |= {"skew": skew, "stereotype": words.average(squares).sqrt()}
        return {**values, "same_by_word": by_word}
