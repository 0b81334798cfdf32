"""Trial of the solver's CUDA kernel."""

import torch
from torch import Tensor

from ..core.native.gpu_kernels import is_equal_on, register_trial, sample_input


def try_solver(device: torch.device) -> bool:
    from .solver import linear_sum_assignment

    def compute(cost: Tensor) -> tuple[Tensor, ...]:
        assignment = linear_sum_assignment(cost)
        return assignment.col_of_row, assignment.cost

    return is_equal_on(device, compute, sample_input(3, 5, 7))


register_trial("solver", "CUDA", "linear_sum_assignment", try_solver)
