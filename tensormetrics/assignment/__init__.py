"""Linear assignment, solved in batches on the device."""

from .matcher import HungarianMatcher as HungarianMatcher
from .solver import Assignment as Assignment
from .solver import LinearAssignment as LinearAssignment
from .solver import linear_sum_assignment as linear_sum_assignment
from .solver import pairs as pairs

# Whatever is imported above: what `import *` brings and the reference shows.
__all__ = [name for name, value in vars().items() if getattr(value, "__module__", "").startswith(__name__)]
