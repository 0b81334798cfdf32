"""Two metrics on the same items, or one against a number: which is better, and how sure is that?"""

import inspect
from typing import Any, cast

import torch

from .. import _checks
from .._distributed import described, options_of
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

    Options that say how a model answers, such as the distance or the search of embeddings, may differ.
    Each item (or group of items) has the same weight on both sides, so that what both find hard is no noise: see
    `Metric.interval`, also for the options. The p-value is that of a paired randomisation test in which the items, or
    whole groups, of a and b are swapped at random (Noreen 1989; Yeh 2000, doi:10.3115/992730.992783), its resolution
    1 / (1 + replicates). `rope`: differences up to it do not matter in practice, and `p_rope` is their probability.
    Metrics of several values give a `Comparison` for each by name. ValueError for different kinds or items.

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


def check_same_scores(a: torch.nn.Module, b: torch.nn.Module) -> None:
    """Raise a ValueError where an option differs that says what is scored, rather than how a model answers."""
    metrics, others = ([part for part in side.modules() if isinstance(part, Metric)] for side in (a, b))
    if len(metrics) != len(others):
        raise ValueError(f"b: got {len(others)} metrics, wanted {len(metrics)} as a has")
    for metric, other in zip(metrics, others, strict=True):
        options, other_options = _scoring_options(metric), _scoring_options(other)
        for name in (*options, *other_options):
            option, other_option = (side.get(name, "nothing") for side in (options, other_options))
            if option != other_option:
                raise ValueError(f"{name}: got {option} for a and {other_option} for b, wanted the same for both")


def _scoring_options(metric: Metric) -> dict[str, str]:
    """Return in words what the constructor was given, and the defaults of what it was not."""
    options = options_of(metric, *metric._arguments)
    for base in type(metric).__mro__:  # `**options` of a constructor go to that of a base
        for name, parameter in inspect.signature(cast(Any, base).__init__).parameters.items():
            if parameter.default is not parameter.empty:
                options.setdefault(name, described(parameter.default))
    return {name: option for name, option in options.items() if name not in type(metric).model_options}
