"""Posteriors of classification metrics, given a confusion matrix."""

from types import ModuleType as _ModuleType

# Subpackages, each built on those before it:
#   sampling: draws of confusion matrices
#   metrics: metrics as functions of confusion matrices
#   plots: densities and differences
#   study: studies of many experiments, and the metric for training loops
from ..uncertainty.statistics.heterogeneity import HeterogeneityResult as HeterogeneityResult
from ..uncertainty.statistics.heterogeneity import estimate_i2 as estimate_i2
from ..uncertainty.statistics.heterogeneity import interpret_i2 as interpret_i2
from . import trials  # noqa: F401  it registers the trials of the GPU kernels
from .metrics.parse import AveragedMetric as AveragedMetric
from .metrics.parse import get_metric as get_metric
from .metrics.quantity import RootMetric as RootMetric
from .metrics.registry import AGGREGATION_REGISTRY as AGGREGATION_REGISTRY
from .metrics.registry import AVERAGING_REGISTRY as AVERAGING_REGISTRY
from .metrics.registry import METRIC_REGISTRY as METRIC_REGISTRY
from .metrics.registry import Averaging as Averaging
from .metrics.registry import ExperimentAggregator as ExperimentAggregator
from .metrics.registry import get_experiment_aggregator as get_experiment_aggregator
from .metrics.registry import temporary_registrations as temporary_registrations
from .metrics.sample_metrics import sample_metrics as sample_metrics
from .plots.distributions import plot_distributions as plot_distributions
from .sampling.confusion_matrix import compute_confusion_matrix as compute_confusion_matrix
from .sampling.confusion_matrix import validate_confusion_matrix as validate_confusion_matrix
from .sampling.confusion_sums import ConfusionSums as ConfusionSums
from .sampling.confusion_sums import sample_confusion_matrices as sample_confusion_matrices
from .sampling.confusion_sums import sample_sums as sample_sums
from .sampling.confusion_sums import sums_from_matrices as sums_from_matrices
from .sampling.dirichlet import dirichlet_prior as dirichlet_prior
from .sampling.dirichlet import sample_dirichlet as sample_dirichlet
from .sampling.dirichlet import sample_log_gamma as sample_log_gamma
from .sampling.errors import ConfigError as ConfigError
from .sampling.errors import ConfigWarning as ConfigWarning
from .sampling.errors import ConfMatIOError as ConfMatIOError
from .sampling.errors import ConfMatIOWarning as ConfMatIOWarning
from .sampling.errors import PosteriorWarning as PosteriorWarning
from .sampling.errors import UnknownNameError as UnknownNameError
from .sampling.matrix_files import load_csv as load_csv
from .sampling.paired import PairedItems as PairedItems
from .sampling.paired import sample_paired_matrices as sample_paired_matrices
from .study.confusion_posterior import ConfusionPosterior as ConfusionPosterior
from .study.experiment import Experiment as Experiment
from .study.sample_size import items_needed as items_needed
from .study.study import Study as Study

__all__ = sorted(name for name in globals() if name[0] != "_" and not isinstance(globals()[name], _ModuleType))


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
