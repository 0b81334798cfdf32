"""DeLong's test: areas under the ROC curve of several models on the same items, and their covariance."""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.arguments.checks import takes_arrays
from ...core.numbers.exact_sums import scatter_add
from ...core.resampling.units import numbered
from ...core.resampling.weights import units
from ._labels import check_labels
from .ranked import last_of_equals, previous_steps

MIN_RELATIVE_VARIANCE = 1e-12  # of a difference, relative to both areas' variances; below, it is rounding


class DeLong(NamedTuple):
    """Areas under the ROC curves of M models on the same items, see `delong`; shapes ``(..., M)``, ``(..., M, M)``."""

    auroc: Tensor  # (..., M) float64
    covariance: Tensor  # (..., M, M), of the areas
    p_value: Tensor  # (..., M, M), two-sided, that the areas of two models are equal


@takes_arrays
def delong(preds: Tensor, target: Tensor, groups: Tensor | Sequence[Hashable] | None = None) -> DeLong:
    """Compare the areas under the ROC curve of models on the same items by DeLong's test.

    The test is asymptotic; `compare` of two `BinaryAUROC` reweights the items and is reliable for few of them too.

    Args:
        preds: Scores of M models on the same N items.
        target: Class of each item, 0 or 1.
        groups: Integer or name of what each item belongs to, such as a patient with several images.

    Shape:
        - preds: ``(..., M, N)`` floating
        - target: ``(..., N)`` integer or bool
        - groups: ``(N,)``, or integers ``(..., N)``
        - Output: `auroc` ``(..., M)``, `covariance` and `p_value` ``(..., M, M)``, float64

    Returns:
        The areas, their covariance and the p-value of each pair of models: 1 where both areas are equal, NaN where they
        differ without any variance. The covariance is NaN if a class has fewer than two items, or occurs in fewer than
        two groups. A model whose scores are not all finite has NaN throughout; on a GPU and compiled a target other
        than 0 or 1 makes all results NaN.

    Raises:
        ValueError: If a shape or dtype is not as listed under Shape, or a target is not 0 or 1.

    Example:
        >>> target = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1, 1, 1])
        >>> a = torch.tensor([0.1, 0.3, 0.2, 0.5, 0.4, 0.6, 0.9, 0.7, 0.8, 0.45])
        >>> b = torch.tensor([0.4, 0.3, 0.8, 0.5, 0.1, 0.6, 0.2, 0.7, 0.9, 0.45])
        >>> result = delong(torch.stack([a, b]), target)
        >>> result.auroc
        tensor([0.9600, 0.6800], dtype=torch.float64)
        >>> round(float(result.p_value[0, 1]), 3)
        0.144

    References:
        DeLong, DeLong & Clarke-Pearson 1988, doi:10.2307/2531595
        Sun & Xu 2014, doi:10.1109/LSP.2014.2337313 (by sorting)
        Obuchowski 1997, doi:10.2307/2533958 (groups)
    """
    checks.floating("preds", preds)
    checks.shape("preds", preds, "...", "M", "N")
    checks.integral("target", target)
    checks.shape("target", target, *preds.shape[:-2], preds.shape[-1])
    checks.same_device(preds=preds, target=target)
    check_labels(target)
    is_positive = (target == 1)[..., None, :]
    counts = [cls.double().sum(-1) for cls in (is_positive, ~is_positive)]  # (..., 1) each
    num_above = _count_other_class_above(preds, is_positive)
    positives, negatives = counts
    area = 1 - (num_above * is_positive).sum(-1) / (positives * negatives)
    # Structural component of each item minus their mean, the area; 0 for items of the other class. That of a positive
    # is the fraction of negatives below it, that of a negative the fraction of positives above it.
    positive_part = torch.where(is_positive, 1 - num_above / negatives[..., None] - area[..., None], 0)
    negative_part = torch.where(is_positive, 0, num_above / positives[..., None] - area[..., None])
    components = [positive_part / positives[..., None], negative_part / negatives[..., None]]
    if groups is None:
        of_positives, of_negatives = (
            _covariance_of_mean(part, part, count) for part, count in zip(components, counts, strict=True)
        )
        covariance = of_positives + of_negatives
    else:
        covariance = _clustered_covariance(components, is_positive, _dense_groups(groups, preds))
    is_valid = preds.isfinite().all(-1) & ((target == 0) | (target == 1)).all(-1, keepdim=True)
    area = area.where(is_valid, torch.nan)
    covariance = covariance.where(is_valid[..., None] & is_valid[..., None, :], torch.nan)
    return DeLong(area, covariance, _p_values(area, covariance))


def _count_other_class_above(preds: Tensor, is_positive: Tensor) -> Tensor:
    # preds: (..., M, N)  is_positive: (..., 1, N)  ->  (..., M, N) float64
    """Return the number of items of the other class that score above each item, ties counting half."""
    ordered, order = preds.sort(-1, descending=True)
    positive = is_positive.expand(preds.shape).gather(-1, order)
    last = last_of_equals(ordered)
    counts = []
    for of_class in (~positive, positive):
        sums = of_class.cumsum(-1).double()  # of integers: floating-point sums on a GPU are not deterministic
        above = previous_steps(sums.where(last, 0), last)
        # The sum at the last of equal scores belongs to all of them.
        at_or_above = sums.where(last, torch.inf).flip(-1).cummin(-1).values.flip(-1) if sums.shape[-1] else sums
        counts.append((above + at_or_above) / 2)
    return torch.empty_like(counts[0]).scatter_(-1, order, torch.where(positive, counts[0], counts[1]))


def _covariance_of_mean(a: Tensor, b: Tensor, num_units: Tensor) -> Tensor:
    # a, b: (..., M, U) components of items or groups, divided by the size of their class  num_units: (..., 1)
    # ->  (..., M, M)
    factor = torch.where(num_units > 1, num_units / (num_units - 1), torch.nan)
    return (a @ b.mT) * factor[..., None]


def _clustered_covariance(components: list[Tensor], is_positive: Tensor, groups: Tensor) -> Tensor:
    # components: (..., M, N) each, of positives and of negatives  groups: (..., 1, N)  ->  (..., M, M)
    sums = [scatter_add(torch.zeros_like(part), groups.expand(part.shape), part) for part in components]
    members = [is_positive.double(), 1 - is_positive.double()]
    sizes = [torch.zeros_like(member).scatter_add_(-1, groups, member) for member in members]
    of_positives, of_negatives = (
        _covariance_of_mean(part, part, (size > 0).double().sum(-1)) for part, size in zip(sums, sizes, strict=True)
    )
    crossed = _covariance_of_mean(sums[0], sums[1], (sizes[0] + sizes[1] > 0).double().sum(-1))
    return of_positives + of_negatives + crossed + crossed.mT


def _dense_groups(groups: Tensor | Sequence[Hashable], preds: Tensor) -> Tensor:
    # ->  (..., 1, N) int64 in [0, N), numbered from 0 in each item of the batch
    if not isinstance(groups, Tensor) or groups.ndim < 2:
        groups = units("groups", groups, preds.shape[-1], preds.device)
    checks.integral("groups", groups)
    checks.same_device(preds=preds, groups=groups)
    shape = (*preds.shape[:-2], preds.shape[-1])
    if groups.shape not in ((preds.shape[-1],), shape):
        raise ValueError(f"groups: got shape {tuple(groups.shape)}, wanted {(preds.shape[-1],)} or {shape}")
    return numbered(groups.long().expand(shape))[..., None, :]


def _p_values(area: Tensor, covariance: Tensor) -> Tensor:
    # area: (..., M)  covariance: (..., M, M)  ->  (..., M, M)
    variances = covariance.diagonal(dim1=-2, dim2=-1)
    total = variances[..., None] + variances[..., None, :]
    difference, variance = area[..., None] - area[..., None, :], total - covariance - covariance.mT
    z = difference / torch.where(variance > MIN_RELATIVE_VARIANCE * total, variance, torch.nan).sqrt()
    p_value = 2 * torch.special.ndtr(-z.abs())
    return torch.where(difference == 0, torch.ones_like(p_value), p_value)
