"""How many items does an answer need? Further items are taken to be answered as those at hand."""

import math
from typing import Any

import torch
from torch import Tensor

from ... import _checks
from ...uncertainty.statistics.samples import check_probability, hdi
from ..metrics.sample_metrics import sample_metrics
from ..sampling.confusion_matrix import validate_confusion_matrix
from .pairwise import PairwiseComparisonResult

STEPS = 30
CLOSE = 0.01  # the search ends when the number of items changes by less
MOST = 1e12  # items: the draws, of float32, tell no shares apart that more of them would


def items_needed(
    matrix: Any,  # (C, C)
    metric: str,
    width: float,
    *,
    confidence: float = 0.95,
    num_samples: int = 10_000,
    label: int | None = None,
    **draws: Any,
) -> int:
    """About how many items in all make the interval of a metric at most `width` wide, from high to low end.

    The posterior is that of `matrix` with all its counts multiplied alike, its highest density intervals of mass
    `confidence`; of one value per class that of `label`, or the widest. `draws` are the priors and the seed of
    `sample_sums`. From 1 on; drawn, hence exact to some 3 %. ValueError for a width that is not positive or that 1e12
    items do not reach, as of a class without any, and for a matrix of zeros, or whose metric is undefined.

    >>> round(items_needed([[90, 10], [20, 80]], "acc", 0.04), -2)  # the interval of these 200 is 0.1 wide
    1200
    """
    _checks.number("width", width, "a number > 0", lambda x: 0 < x < math.inf)
    check_probability("confidence", confidence)
    counts = validate_confusion_matrix(matrix, allow_empty_rows=True)
    total = float(counts.sum())
    if not total:
        raise ValueError("matrix: got no items, wanted some to tell from")
    _checks.integer_at_least("num_samples", num_samples, 2)
    if label is not None and _checks.integer_at_least("label", label, 0) >= len(counts):
        raise ValueError(f"label: got {label}, wanted None or 0 to {len(counts) - 1}")
    items = total
    for _ in range(STEPS):
        (samples,) = sample_metrics(counts * (items / total), metric, num_samples, **draws)
        low, high = hdi(samples[:, 0].double(), confidence)
        widths = high - low
        found = float(widths.amax() if label is None or len(widths) == 1 else widths[label])
        if math.isnan(found):
            raise ValueError(f"metric: {metric!r} is undefined for this matrix")
        before, items = items, max(1.0, items * min(max((found / width) ** 2, 0.01), 100.0))
        if abs(items - before) <= CLOSE * before:
            break
        if items > MOST:
            raise ValueError(f"width: got {width:g}, which even {MOST:g} items would not reach")
    return math.ceil(items)


def p_better_after(comparison: PairwiseComparisonResult, items: float, more: float | Tensor) -> Tensor:
    """The probability that left is better once `more` items are added to the `items` that were compared.

    Shapes: more: (...), broadcasts against the differences -> (...) float64.

    The difference is taken to stay and its spread to shrink as 1 / sqrt(items), of a normal law: also where both sides
    share their items, or whole groups of them. In [0, 1]; 1/2 for no difference. A metric without a better direction
    counts larger values as better. ValueError for `items` below 1 and for `more` below 0.

    >>> study = Study(seed=0, metrics={"acc": {}})
    >>> study.add_experiment("a", [[90, 10], [12, 88]])
    >>> study.add_experiment("b", [[93, 7], [12, 88]])
    >>> found = study.get_pairwise_comparison("acc", experiment_a="b", experiment_b="a")
    >>> print(f"{found.p_greater:.2f}, after 1,000 more {p_better_after(found, items=200, more=1000):.2f}")
    0.69, after 1,000 more 0.88
    """
    _checks.number("items", items, "a number >= 1", lambda x: 1 <= x < math.inf)
    distance = _distance(comparison)
    added = torch.as_tensor(more, dtype=torch.float64, device=distance.device)
    if not (added >= 0).all():
        raise ValueError(f"more: got {more}, wanted numbers >= 0")
    grown = ((items + added) / items).sqrt()
    return torch.special.ndtr(distance * grown)


def items_to_decide(comparison: PairwiseComparisonResult, items: float, confidence: float = 0.95) -> Tensor:
    """How many items must be added until one side is better with the probability `confidence`; see `p_better_after`.

    Shapes: -> (...) float64, whole numbers or infinity.

    0 where it is so already, infinity where there is no difference.

    >>> study = Study(seed=0, metrics={"acc": {}})
    >>> study.add_experiment("a", [[90, 10], [12, 88]])
    >>> study.add_experiment("b", [[93, 7], [12, 88]])
    >>> found = study.get_pairwise_comparison("acc", experiment_a="b", experiment_b="a")
    >>> round(float(items_to_decide(found, items=200)), -3)
    2000.0
    """
    _checks.number("items", items, "a number >= 1", lambda x: 1 <= x < math.inf)
    check_probability("confidence", confidence)
    wanted = torch.special.ndtri(torch.tensor(max(confidence, 0.5), dtype=torch.float64, device="cpu"))
    distance = _distance(comparison)
    more = items * ((wanted / distance).square() - 1)
    return more.ceil().clamp(min=0).masked_fill((distance == 0) & (wanted == 0), 0)


def _distance(comparison: PairwiseComparisonResult) -> Tensor:
    # ->  (...), of the mean difference from 0 in standard deviations, positive where left is better
    samples = comparison.diff_dist.double()
    mean = samples.nanmean(0)
    spread = (samples - mean).square().nanmean(0).sqrt()
    sign = -1.0 if comparison.higher_is_better is False else 1.0
    return sign * torch.where(mean == 0, 0.0, mean / spread)
