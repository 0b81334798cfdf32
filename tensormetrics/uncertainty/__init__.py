"""How sure is a number, and is one model better than another? The words and functions that all domains share.

Every metric has `interval()`. Two metrics that were fed with the same items are compared by `compare`. Here are also
the metrics of scores of two classes and of probabilities.
"""

from .._uncertainty.corrections import correct_p_values as correct_p_values
from .._uncertainty.estimates import Comparison as Comparison
from .._uncertainty.estimates import Estimate as Estimate
from .._uncertainty.estimates import as_scalars as as_scalars
from .calibration import BrierScore as BrierScore
from .calibration import CalibrationError as CalibrationError
from .calibration import brier_score as brier_score
from .calibration import calibration_error as calibration_error
from .compare import compare as compare
from .ranked import BinaryAUROC as BinaryAUROC
from .ranked import BinaryAveragePrecision as BinaryAveragePrecision
from .ranked import auroc as auroc
from .ranked import average_precision as average_precision
from .uncertain import Uncertain as Uncertain

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
