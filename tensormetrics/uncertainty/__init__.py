"""Intervals, comparisons and probabilistic scores: how sure is a number, and is one model better than another?

Every metric has `interval()`. Two metrics that were updated with the same items are compared by `compare`.
"""

# Subpackages and files, each built on those before it; `_metric.py` stands between `engine` and the others:
#   engine: weights of items, intervals and comparisons of weighted sums; imports only files below all domains
#   metrics: metrics of binary scores and probabilities, and the wrapper of torchmetrics' metrics
#   comparison: the comparison of two metrics

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .comparison import compare as compare
    from .engine.corrections import correct_p_values as correct_p_values
    from .engine.estimates import Comparison as Comparison
    from .engine.estimates import Estimate as Estimate
    from .engine.estimates import as_scalars as as_scalars
    from .metrics.calibration import BrierScore as BrierScore
    from .metrics.calibration import CalibrationError as CalibrationError
    from .metrics.calibration import brier_score as brier_score
    from .metrics.calibration import calibration_error as calibration_error
    from .metrics.ranked import BinaryAUROC as BinaryAUROC
    from .metrics.ranked import BinaryAveragePrecision as BinaryAveragePrecision
    from .metrics.ranked import auroc as auroc
    from .metrics.ranked import average_precision as average_precision
    from .metrics.uncertain import Uncertain as Uncertain

__all__ = [
    "BinaryAUROC",
    "BinaryAveragePrecision",
    "BrierScore",
    "CalibrationError",
    "Comparison",
    "Estimate",
    "Uncertain",
    "as_scalars",
    "auroc",
    "average_precision",
    "brier_score",
    "calibration_error",
    "compare",
    "correct_p_values",
]

# Importing the engine runs this file, and the files below import what is built on the engine: hence lazily.
_MODULES = {
    "comparison": ("compare",),
    "engine.corrections": ("correct_p_values",),
    "engine.estimates": ("Comparison", "Estimate", "as_scalars"),
    "metrics.calibration": ("BrierScore", "CalibrationError", "brier_score", "calibration_error"),
    "metrics.ranked": ("BinaryAUROC", "BinaryAveragePrecision", "auroc", "average_precision"),
    "metrics.uncertain": ("Uncertain",),
}

if not TYPE_CHECKING:  # a type checker would take every name for one that exists

    def __getattr__(name: str) -> Any:
        for module, names in _MODULES.items():
            if name in names:
                return getattr(import_module(f"{__name__}.{module}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
