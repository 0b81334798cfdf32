"""What an entry of the table of public ways says."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Generator, Tensor

from tensormetrics._metric import Metric

Way = Callable[..., Any]  # (*data) -> a number, a tensor of them, or an `Estimate`


@dataclass(frozen=True)
class Number:
    """A number that several public names give.

    data: the arguments that all ways are given, ordinary and hostile, by what is special about them.
    ways, intervals: "domain.Name, how" -> the number, or an `Estimate` of it; the name is what the way belongs to.
    without: "domain.Name, how" -> {data: why this way says nothing about them}.
    """

    data: Mapping[str, Callable[[Generator], tuple[Any, ...]]]
    ways: Mapping[str, Way]
    intervals: Mapping[str, Way] = field(default_factory=dict)
    without: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    rtol: float = 1e-9


def fed(metric: Metric, *data: Any) -> Metric:
    metric.update(*data)
    return metric


def name_of(way: str) -> str:
    return way.partition(",")[0]


def mean(scores: Tensor) -> Tensor:
    """The mean over what has a score."""
    return scores.nanmean()
