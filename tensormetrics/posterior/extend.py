"""Base classes, registries and types for those who add to `tensormetrics.posterior`."""

from .metrics.parse import AveragedMetric
from .metrics.quantity import RootMetric
from .metrics.registry import (
    AGGREGATION_REGISTRY,
    AVERAGING_REGISTRY,
    METRIC_REGISTRY,
    Averaging,
    ConfusionMetric,
    ExperimentAggregator,
    get_experiment_aggregator,
    temporary_registrations,
)
from .sampling.errors import ConfMatIOError, ConfMatIOWarning, UnknownNameError

__all__ = ["AGGREGATION_REGISTRY", "AVERAGING_REGISTRY", "METRIC_REGISTRY", "temporary_registrations"]
__all__ += ["AveragedMetric", "Averaging", "ConfusionMetric", "RootMetric"]
__all__ += ["ExperimentAggregator", "get_experiment_aggregator"]
__all__ += ["ConfMatIOError", "ConfMatIOWarning", "UnknownNameError"]
