"""Trial of the kernel that groups equal rows."""

import torch
from torch import Tensor

from ..core.native.gpu_kernels import is_equal_on, register_trial, sample_input


def try_groups(device: torch.device) -> bool:
    from .tensors._groups import GROUP_ROWS

    def compute(keys: Tensor) -> tuple[Tensor, ...]:
        return (GROUP_ROWS(keys),)

    return is_equal_on(device, compute, sample_input(2, 150, 2).round().long())


register_trial("groups", "Triton", "structured metrics of items that are equal or not", try_groups)
