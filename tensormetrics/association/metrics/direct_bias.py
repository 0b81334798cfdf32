"""Direct bias."""

from typing import Literal, overload

import torch
from torch import Tensor
from typing_extensions import Unpack  # torch brings it

from ...core.arguments import checks
from ..sets import marks, word_sets
from ..sets.word_sets import Vectors, WordSet
from .base import AssociationOptions, BaseMetric

Direction = Literal["pca", "mean_difference"]


@overload
def direct_bias(
    t: Vectors,
    groups: Vectors,
    strictness: float = ...,
    n_components: int = ...,
    direction: Direction = ...,
    *,
    per_word: Literal[False] = ...,
) -> Tensor: ...
@overload
def direct_bias(
    t: Vectors,
    groups: Vectors,
    strictness: float = ...,
    n_components: int = ...,
    direction: Direction = ...,
    *,
    per_word: Literal[True],
) -> tuple[Tensor, Tensor]: ...
@marks.score(tuples=("groups",), grouped=("groups",), range=(0, 1))
def direct_bias(
    t: Vectors,
    groups: Vectors,
    strictness: float = 1.0,
    n_components: int = 1,
    direction: Direction = "pca",
    *,
    per_word: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Measure the part of the target words in the bias subspace: mean_t (sum_j cos(t, g_j)^2)^(strictness / 2).

    Shapes: t: (..., T, D); groups: (..., G, P, D), tuples by position; tensors or `WordSet`s -> (...).

    "pca": g are the first `n_components` right singular vectors of the unit vectors of the P tuples, each tuple
    centered; "mean_difference": g is the difference of the two groups' means of unit vectors. In [0, 1], 0 is no bias;
    float64. NaN if the subspace has fewer dimensions than requested: if singular values are below 1e-10 of the first,
    or g is not longer than a rounding error (the epsilon of the dtype, at least 2^-40, per unit vector).
    `per_word=True` also returns the values of the words (..., T). Empty sets, zero vectors and errors as in `weat`;
    ValueError for invalid options. Bolukbasi et al. 2016, arXiv:1607.06520.

    >>> groups = torch.tensor([[[2.0, 1.0], [3.0, 1.0]], [[1.0, 2.0], [1.0, 3.0]]])  # he, him; she, her
    >>> direct_bias(torch.tensor([[1.0, -1.0], [1.0, 1.0]]), groups)  # along the difference, orthogonal
    tensor(0.5000, dtype=torch.float64)
    """
    check_options(strictness, n_components, direction)
    k = n_components
    group_set = WordSet.of(groups)
    checks.tensor("groups", group_set.values)
    shape = group_set.values.shape
    if shape[-3:-2] < (2,):
        raise ValueError(f"groups: got shape {tuple(shape)}, wanted (..., G, P, D) with G >= 2")
    if direction == "mean_difference" and (shape[-3] != 2 or k != 1):
        raise ValueError(f"direction: got 'mean_difference' for {shape[-3]} groups and {k} components, wanted 2 and 1")
    size, pairs, dims = shape[-3:]
    if direction == "pca" and k > (limit := min((size - 1) * pairs, dims)):
        raise ValueError(
            f"n_components: got {k}, wanted at most {limit} for {size} groups of {pairs} words with {dims} dimensions"
        )
    t, groups = word_sets.read("groups", t=t, groups=group_set)
    min_length = word_sets.resolution(group_set.values)
    vectors, count = word_sets.unit(groups.vectors), groups.weights
    if groups.counts is not None:  # a tuple has the count of its words, 0 if a word is absent
        count = groups.counts.amin(-2)
        vectors = vectors.where((count > 0)[..., None, :, None], 0)
    if direction == "pca":
        basis = _principal(vectors, count, k, min_length)
    else:
        first, second = word_sets.Words(vectors, count.unsqueeze(-2)).mean().unbind(-2)
        length = torch.linalg.vector_norm(first - second, dim=-1, keepdim=True)
        basis = word_sets.unit(first - second).masked_fill(length <= min_length, torch.nan).unsqueeze(-2)
    cosines = t.unit().project_all(basis)
    squares = cosines.square().sum(-1)
    # A power below 1 has no gradient at 0.
    bias = squares.masked_fill(squares == 0, 1).pow(strictness / 2).masked_fill(squares == 0, 0)
    score = t.average(bias)
    return (score, t.mask_absent(bias)) if per_word else score


def check_options(strictness: float, n_components: int, direction: str) -> None:
    checks.check_choice("direction", direction, ("pca", "mean_difference"))
    checks.check_int("n_components", n_components, 1)
    checks.check_number("strictness", strictness, "a number > 0", lambda x: x > 0)


def _principal(groups: Tensor, count: Tensor, k: int, min_length: float) -> Tensor:
    # groups: (..., G, P, D) unit vectors  count: (..., P)  ->  (..., k, D), NaN if the rank is below k
    centered = groups - groups.mean(-3, keepdim=True)
    rows = (centered * count.sqrt()[..., None, :, None]).flatten(-3, -2)
    needs_all = rows.is_cpu or (torch.is_grad_enabled() and rows.requires_grad)
    with torch.no_grad():
        finite = rows.isfinite().all(-1).all(-1)[..., None, None]  # the decomposition refuses NaN
        finite_rows = rows.where(finite, 0)
        if needs_all:
            _, singular, axes = torch.linalg.svd(finite_rows, full_matrices=False)
        else:
            singular, axes = _first_axes(finite_rows, k)
        noise = min_length * (count.sum(-1) * groups.shape[-3]).sqrt()
        exists = (singular[..., k - 1] > noise.clamp(min=1e-10 * singular[..., 0]))[..., None, None]
        basis = axes[..., :k, :]
        if not needs_all:
            return basis.where(exists & finite, torch.nan)
        power = singular.square().unsqueeze(-2)
        eigengap = power[..., :k].mT - power
        # First-order perturbation of the k-dimensional space; rotations within it do not change the score.
        weight = (1 / eigengap).masked_fill(eigengap == 0, 0)
        weight[..., :k] = 0
        rest = 1 / power[..., :k].mT
    moved = (basis @ rows.mT) @ rows
    projected = moved @ axes.mT
    step = (weight * projected) @ axes + rest * (moved - projected @ axes)
    return (basis + step - step.detach()).where(exists & finite, torch.nan)


def _first_axes(rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    # rows: (..., n, D)  ->  (..., k), (..., k, D)
    """Compute the first singular values and right vectors by powers of a Gram matrix, which wait for no GPU.

    The power 2^54 holds the first vector alone wherever float64 can tell it from the second.
    """
    batch_shape, rows = rows.shape[:-2], rows.reshape(-1, *rows.shape[-2:])
    axes = rows[:, :0]
    for _ in range(k):
        rest = rows - (rows @ axes.mT) @ axes
        is_tall = rows.shape[1] > rows.shape[2]
        power = rest.mT @ rest if is_tall else rest @ rest.mT
        for squaring in range(54):
            if squaring % 6 == 0:  # powers of numbers near 1 / n are far from underflow
                power = power / torch.linalg.matrix_norm(power, keepdim=True)
            power = torch.bmm(power, power)
        largest = power.diagonal(dim1=1, dim2=2).argmax(1)[:, None, None]
        column = power.take_along_dim(largest, 1)
        axis = word_sets.unit(column if is_tall else column @ rest)
        axes = torch.cat([axes, word_sets.unit(axis - (axis @ axes.mT) @ axes)], 1)
    singular = torch.linalg.vector_norm(rows @ axes.mT, dim=1)
    return singular.view(*batch_shape, k), axes.view(*batch_shape, k, -1)


class DirectBias(BaseMetric):
    """Part of the target words in the bias subspace of aligned groups, in [0, 1]; see `direct_bias`.

    Args:
        strictness: Exponent of the length of the part of a unit vector in the subspace.
        n_components: Dimensions of the subspace.
        direction: ``"pca"``, the first principal components of the groups, or ``"mean_difference"``.
    """

    metric_template = (1, "n")
    metric_name = "Direct Bias"
    metric_short_name = "DB"
    compares_groups = True
    function = staticmethod(direct_bias)
    function_options = ("strictness", "n_components", "direction")
    paired = True
    no_score = "the tuples span fewer than n_components dimensions, or a vector is not finite"
    values_by_word = {"bias_by_word": 0}

    def __init__(
        self,
        *,
        strictness: float = 1.0,
        n_components: int = 1,
        direction: Direction = "pca",
        **kwargs: Unpack[AssociationOptions],
    ) -> None:
        super().__init__(**kwargs)
        check_options(strictness, n_components, direction)
        self.strictness, self.n_components = strictness, n_components
        self.direction: Direction = direction

    def measure(self, t: Vectors, groups: Vectors) -> dict[str, Tensor]:
        options = (self.strictness, self.n_components, self.direction)
        score, bias = direct_bias(t, groups, *options, per_word=True)
        return {"direct_bias": score, "bias_by_word": bias}
