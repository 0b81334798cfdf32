"""Sample size for an interval of a given width; further items are assumed to be like the observed ones."""

import math
from typing import Any

from ...core.arguments import checks
from ...uncertainty.statistics.samples import check_probability, hdi
from ..metrics.sample_metrics import sample_metrics
from ..sampling.confusion_matrix import validate_confusion_matrix

STEPS = 30
CLOSE = 0.01  # the search ends when the number of items changes by less
MAX_ITEMS = 1e12  # items: float32 draws resolve no finer proportions


def items_needed(
    matrix: Any,  # (C, C)
    metric: str,
    width: float,
    *,
    confidence: float = 0.95,
    replicates: int = 10_000,
    label: int | None = None,
    **draws: Any,
) -> int:
    """Estimate the total number of items for which the interval of a metric is at most `width` wide.

    The posterior is that of `matrix` with all its counts multiplied alike.

    Args:
        matrix: Counts (C, C) of a pilot, rows are the truth.
        metric: Name of the metric, see `get_metric`.
        width: Largest width of the interval, above 0.
        confidence: Mass of the highest density interval, in (0, 1].
        replicates: Number of samples.
        label: Number of the class, of one value per class; by default that of the widest interval.
        **draws: `prevalence_prior`, `confusion_prior` and `seed`, as in a `Study`.

    Returns:
        The number of items, at least 1; drawn, hence exact to some 3 %.

    Raises:
        ValueError: If 1e12 items do not reach the width, as of a class without any, the metric is undefined, or an
            argument out of range.

    >>> round(items_needed([[90, 10], [20, 80]], "acc", 0.04), -2)  # the interval of these 200 is 0.1 wide
    1200
    """
    checks.check_number("width", width, "a number > 0", lambda x: 0 < x < math.inf)
    check_probability("confidence", confidence)
    counts = validate_confusion_matrix(matrix, allow_empty_rows=True)
    total = float(counts.sum())
    if not total:
        raise ValueError("matrix: got no items, wanted at least one")
    checks.check_int("replicates", replicates, 2)
    if label is not None and checks.check_int("label", label, 0) >= len(counts):
        raise ValueError(f"label: got {label}, wanted None or 0 to {len(counts) - 1}")
    items = total
    for _ in range(STEPS):
        (samples,) = sample_metrics(counts * (items / total), metric, replicates, **draws)
        low, high = hdi(samples[:, 0].double(), confidence)
        widths = high - low
        current_width = float(widths.amax() if label is None or len(widths) == 1 else widths[label])
        if math.isnan(current_width):
            raise ValueError(f"metric: {metric!r} is undefined for this matrix")
        previous, items = items, max(1.0, items * min(max((current_width / width) ** 2, 0.01), 100.0))
        if abs(items - previous) <= CLOSE * previous:
            break
        if items > MAX_ITEMS:
            raise ValueError(f"width: got {width:g}, which even {MAX_ITEMS:g} items would not reach")
    return math.ceil(items)
