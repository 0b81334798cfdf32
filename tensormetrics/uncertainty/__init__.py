"""How sure is a number, and is one model better than another? The words and functions that all domains share.

Every metric has `interval()`. Two metrics that were fed with the same items are compared by `compare`.
"""

from .._uncertainty.corrections import correct_p_values as correct_p_values
from .._uncertainty.estimates import Comparison as Comparison
from .._uncertainty.estimates import Estimate as Estimate
from .._uncertainty.estimates import as_scalars as as_scalars
from .compare import compare as compare
from .uncertain import Uncertain as Uncertain

__all__ = ["Comparison", "Estimate", "Uncertain", "as_scalars", "compare", "correct_p_values"]
