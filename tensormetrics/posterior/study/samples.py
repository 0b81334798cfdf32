"""The interface of a study that reports, comparisons and figures use."""

from collections.abc import Sequence
from typing import Any, Protocol, cast

from torch import Tensor

from ..metrics.quantity import Quantity
from ..sampling.confusion_sums import Method
from .config import AGGREGATED, split_name
from .experiment import ExperimentAggregationResult, ExperimentResult

Label = int | str | None
Result = ExperimentResult | ExperimentAggregationResult


class Samples(Protocol):
    """Samples of metrics for experiments "group/experiment" and for aggregates of groups, "group/aggregated".

    `class_label` is the number or the name of a class; it is needed where a metric has one value per class.
    """

    @property
    def ci_probability(self) -> float:
        """The mass of intervals."""

    @property
    def seed(self) -> int:
        """The seed of all draws."""

    @property
    def zero_division(self) -> float | None:
        """The value of 0 / 0."""

    @property
    def metrics(self) -> dict[str, Any]:
        """Metrics by name."""

    def __getitem__(self, key: str) -> Any:
        """Return an experiment by its name "group/experiment"."""

    def list_experiments(self) -> list[str]:
        """List the names "group/experiment", group by group, in the order of insertion."""

    def find_metric(self, metric: str | Quantity) -> Quantity:
        """Return a metric, by any of its names."""

    def get_metric_samples(
        self, metric: str | Quantity, experiment_name: str, sampling_method: Method = "posterior"
    ) -> Result:
        """Return the samples (S, C) or (S, 1) of a metric."""

    def column(
        self, metric: str | Quantity, class_label: Label, experiment: str, method: Method = "posterior"
    ) -> Tensor:  # (S,)
        """Return the samples of one value of a metric."""

    def class_index(self, metric: str | Quantity, class_label: Label, experiments: Sequence[str]) -> int:
        """Return the index of a class of these experiments; 0 for a metric with one value for all classes."""

    def titled(self, metric: str, class_label: Label, experiments: Sequence[str], title: str | None = None) -> str:
        """Return `title`, by default the metric's name, with the name of the class if each class has a value."""

    def paired(self, pairs: Sequence[Sequence[str]]) -> list[bool]:
        """Return which pairs of experiments have samples of the same items."""


def pooled_samples(source: Samples, metric: str, group: str) -> ExperimentAggregationResult:
    """Return the pooled samples of a group."""
    return cast(ExperimentAggregationResult, source.get_metric_samples(metric, f"{group}/{AGGREGATED}"))


def experiments_by_group(source: Samples) -> dict[str, list[str]]:
    """Return the names of each group's experiments, without the group, in the order of insertion."""
    names: dict[str, list[str]] = {}
    for name in source.list_experiments():
        group, experiment = split_name(name)
        names.setdefault(group, []).append(experiment)
    return names
