"""Types of the entries in the table of public entry points."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Generator, Tensor

from tensormetrics.core.metric.base import Metric

EntryPoint = Callable[..., Any]  # (*data) -> a scalar, a tensor or an `Estimate`


@dataclass(frozen=True)
class Quantity:
    """Quantity that several public names compute.

    data: name of the data -> function that samples the arguments of all entry points, ordinary or invalid ones.
    entry_points, intervals: "domain.Name, how" -> function that returns the quantity, or an `Estimate` of it.
    skip_reasons: "domain.Name, how" -> {name of the data: why this entry point is not compared with them}.
    """

    data: Mapping[str, Callable[[Generator], tuple[Any, ...]]]
    entry_points: Mapping[str, EntryPoint]
    intervals: Mapping[str, EntryPoint] = field(default_factory=dict)
    skip_reasons: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    rtol: float = 1e-9


def updated(metric: Metric, *data: Any) -> Metric:
    metric.update(*data)
    return metric


def identity(*data: Any) -> tuple[Any, ...]:
    return data


def computed(make: Callable[[], Metric], key: str = "", inputs: Callable[..., Any] = identity) -> EntryPoint:
    """Make an entry point that updates a metric with what `inputs` makes of the data, and computes."""

    def value(*data: Any) -> Any:
        result = updated(make(), *inputs(*data)).compute()
        return result[key] if key else result

    return value


def estimated(
    make: Callable[[], Metric], key: str = "", inputs: Callable[..., Any] = identity, **options: Any
) -> EntryPoint:
    """Make an entry point as `computed` does, of the interval with these options."""

    def interval(*data: Any) -> Any:
        result = updated(make(), *inputs(*data)).interval(**options)
        return result[key] if key else result

    return interval


def public_name(entry_point_name: str) -> str:
    return entry_point_name.partition(",")[0]


def mean(scores: Tensor) -> Tensor:
    """Average the scores that are not NaN."""
    return scores.nanmean()
