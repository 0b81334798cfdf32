"""Two metrics on the same items, or one against a number: which is better, and how sure is that?"""

from typing import Any

from .. import _checks
from .._distributed import options_of
from .._metric import Metric
from .engine.estimates import check_confidence
from .engine.paired import comparisons


def compare(
    a: Metric,
    b: Metric,
    *,
    confidence: float = 0.95,
    replicates: int | None = None,
    seed: int | None = None,
    rope: float | None = None,
) -> Any:
    """Compare two metrics of one kind that were updated with the same items.

    The interval, `p_better` and `p_value` are one statement: the interval excludes 0 exactly where p_value <= 1 -
    confidence, and p_better beyond .975 never stands beside a p_value above .1. Each item (or group of items) has the
    same weight on both sides, so that what both find hard is no noise: see `Metric.interval`. p_value is the larger of
    the swap test's, in which items, or whole groups, of a and b are exchanged (Noreen 1989; Yeh 2000,
    doi:10.3115/992730.992783), and the draws'. With U pairs that differ it cannot fall below 2^(1-U).

    Args:
        a: A metric.
        b: Another one of the same class. Options that say what is scored must be equal; those that say how a model
            answers, such as `distance` or `threshold`, may differ.
        confidence: Mass of the interval, in (0, 1).
        replicates: Number of random draws; see `Metric.interval`.
        seed: Seed of the draws.
        rope: Differences up to it do not matter in practice; `p_rope` is the probability of such a difference.

    Returns:
        A `Comparison` of a minus b, or several by name.

    Raises:
        ValueError: If the classes, scoring options, items, groups or targets differ.
        TypeError: If one is no metric of this package.

    Example:
        >>> from tensormetrics.retrieval import HitRate
        >>> generator = torch.Generator().manual_seed(0)
        >>> labels = torch.arange(60) % 3
        >>> a, b = HitRate(1), HitRate(1)
        >>> a.update(torch.eye(3)[labels] + 0.3 * torch.randn(60, 3, generator=generator), labels)
        >>> b.update(torch.eye(3)[labels] + 0.6 * torch.randn(60, 3, generator=generator), labels)
        >>> print(f"{compare(a, b):.2f}")
        +0.43 [+0.30, +0.56], p = 0.002
    """
    for name, metric in (("a", a), ("b", b)):
        if not hasattr(metric, "_resampled"):
            raise TypeError(f"{name}: got a {type(metric).__name__}, wanted a metric of this package, or Uncertain(it)")
    if type(a) is not type(b):
        raise ValueError(f"b: got a {type(b).__name__}, wanted a {type(a).__name__} as a is")
    confidence = check_confidence(confidence)
    if rope is not None:
        _checks.number("rope", rope, "None or a number >= 0", lambda x: x >= 0)
    check_same_scores(a, b)
    first, second = (metric._resampled("comparison", replicates, seed) for metric in (a, b))
    return comparisons(first, second, confidence, rope, a._better)


def check_same_scores(a: Metric, b: Metric) -> None:
    """Raise a ValueError where an option differs that says what is scored, rather than how a model answers."""
    if not isinstance(a, Metric):  # families and suites, whose members are compared one by one
        return
    options, others = (options_of(metric, *metric._arguments) for metric in (a, b))
    for name, option in options.items():
        if name not in type(a).model_options and option != others.get(name):
            raise ValueError(f"{name}: got {option} for a and {others.get(name)} for b, wanted the same for both")
