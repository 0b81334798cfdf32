"""Posteriors of classification metrics, given a confusion matrix."""

# Subpackages, each built on those before it:
#   sampling: draws of confusion matrices
#   metrics: metrics as functions of confusion matrices
#   plots: densities and differences
#   study: studies of many experiments, and the metric for training loops
from . import extend as extend
from . import functional as functional
from . import trials  # noqa: F401  it registers the trials of the GPU kernels
from .metrics.parse import get_metric
from .sampling.errors import ConfigError, ConfigWarning, PosteriorWarning
from .sampling.matrix_files import load_csv
from .study.confusion_posterior import ConfusionPosterior
from .study.experiment import Experiment
from .study.sample_size import items_needed
from .study.study import Study

__all__ = ["ConfusionPosterior", "Study", "Experiment", "get_metric", "load_csv", "items_needed"]
__all__ += ["ConfigError", "ConfigWarning", "PosteriorWarning"]


def __dir__() -> list[str]:
    return [*__all__, "extend", "functional", *(name for name in globals() if name.startswith("__"))]
