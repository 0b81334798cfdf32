"""What reports, comparisons and figures ask of a study."""

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
    """Samples of metrics for experiments "group/experiment" and for what a group is pooled to, "group/aggregated".

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
        """What 0 / 0 is."""

    @property
    def metrics(self) -> dict[str, Any]:
        """Metrics by name."""

    def __getitem__(self, key: str) -> Any:
        """An experiment by its name "group/experiment"."""

    def list_experiments(self) -> list[str]:
        """Names "group/experiment" in the order of insertion."""

    def find_metric(self, metric: str | Quantity) -> Quantity:
        """A metric, by any of its spellings."""

    def get_metric_samples(
        self, metric: str | Quantity, experiment_name: str, sampling_method: Method = "posterior"
    ) -> Result:
        """Samples (S, C) or (S, 1) of a metric, with what else is known of them."""

    def column(
        self, metric: str | Quantity, class_label: Label, experiment: str, method: Method = "posterior"
    ) -> Tensor:  # (S,)
        """Samples of one value of a metric."""

    def class_index(self, metric: str | Quantity, class_label: Label, experiments: Sequence[str]) -> int:
        """The number of the class, which these experiments have; 0 for a metric with one value for all classes."""

    def titled(self, metric: str, class_label: Label, experiments: Sequence[str], title: str | None = None) -> str:
        """`title`, by default the metric's name, followed by the name of the class where there is one for each."""

    def paired(self, pairs: Sequence[Sequence[str]]) -> list[bool]:
        """Were the samples of two experiments drawn for the same items?"""


def pooled_samples(source: Samples, metric: str, group: str) -> ExperimentAggregationResult:
    """What the experiments of a group are pooled to."""
    return cast(ExperimentAggregationResult, source.get_metric_samples(metric, f"{group}/{AGGREGATED}"))


def experiments_by_group(source: Samples) -> dict[str, list[str]]:
    """The names of each group's experiments, without the group, in the order of insertion."""
    found: dict[str, list[str]] = {}
    for name in source.list_experiments():
        group, experiment = split_name(name)
        found.setdefault(group, []).append(experiment)
    return found
