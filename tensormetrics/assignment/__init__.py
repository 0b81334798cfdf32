"""Linear assignment, solved in batches on the device."""

from .solver import Assignment as Assignment
from .solver import linear_sum_assignment as linear_sum_assignment
