"""Linear assignment, solved in batches on the device."""

from . import trials  # noqa: F401  it registers the trials of the GPU kernels
from .matcher import HungarianMatcher
from .solver import Assignment, LinearAssignment, linear_sum_assignment, pairs

__all__ = ["linear_sum_assignment", "Assignment", "pairs", "LinearAssignment", "HungarianMatcher"]


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
