"""Linear assignment, solved in batches on the device."""

from . import trials  # noqa: F401  it registers the trials of the GPU kernels
from .matcher import HungarianMatcher as HungarianMatcher
from .solver import Assignment as Assignment
from .solver import LinearAssignment as LinearAssignment
from .solver import linear_sum_assignment as linear_sum_assignment
from .solver import pairs as pairs

__all__ = [
    "Assignment",
    "HungarianMatcher",
    "LinearAssignment",
    "linear_sum_assignment",
    "pairs",
]


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
