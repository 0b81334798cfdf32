"""Functions behind the classes of `tensormetrics.uncertainty`, and the types of tensors that they take."""

from .battles.bradley_terry import bradley_terry
from .metrics.calibration import brier_score, calibration_error
from .metrics.delong import delong
from .metrics.passes import pass_at_k
from .metrics.ranked import binary_auroc, binary_average_precision
from .statistics.cross_validation import five_by_two_p_value
from .statistics.samples import hdi

__all__ = ["binary_auroc", "binary_average_precision", "brier_score", "calibration_error", "delong", "pass_at_k"]
__all__ += ["bradley_terry", "five_by_two_p_value", "hdi"]
