"""Trial of the sampler's CUDA kernel."""

import torch
from torch import Tensor

from ..core.native.gpu_kernels import is_equal_on, register_trial, sample_input


def try_sampler(device: torch.device) -> bool:
    from .sampling.confusion_sums import sample_sums

    def compute(counts: Tensor) -> tuple[Tensor, ...]:
        sums = sample_sums(counts.long().abs(), 20, seed=0)
        assert sums.fp is not None  # as always with margins
        return sums.tp, sums.fp

    return is_equal_on(device, compute, 10 * sample_input(3, 3), rtol=1e-5)


register_trial("sampler", "CUDA", "posterior samples", try_sampler)
