"""Trials of the kernels that draw sums of subsets, and that sum scores."""

import torch
from torch import Tensor

from ..core.native.gpu_kernels import is_equal_on, register_trial, sample_input


def try_drawn_sums(device: torch.device) -> bool:
    from .resampling.permutation import permutation_p_value, sign_flip_p_value

    def compute(u: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        p_value = permutation_p_value(u, v, method="approximate", replicates=300)
        signs = sign_flip_p_value(u, method="approximate", replicates=300)
        return tuple((301 * p).round() for p in (p_value, signs))  # counts, whatever a division rounds

    return is_equal_on(device, compute, *sample_input(2, 3, 20))


register_trial("drawn sums", "Triton", "permutation_p_value and sign_flip_p_value", try_drawn_sums)


def try_score_sums(device: torch.device) -> bool:
    from .metrics._score_sums import SCORE_SUMS

    def compute(scores: Tensor, state: Tensor) -> tuple[Tensor, ...]:
        return (SCORE_SUMS(scores, state),)

    scores = sample_input(1500).double().masked_fill(sample_input(1500) > 1, torch.nan)
    return is_equal_on(device, compute, scores, torch.arange(5, dtype=torch.float64, device="cpu"))


register_trial("score sums", "Triton", "association metrics", try_score_sums)
