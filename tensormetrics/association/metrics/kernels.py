"""Triton kernel of sums of scores. Imported only for CUDA tensors, or if TRITON_INTERPRET=1 lets it run on a CPU."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...core.native.triton import launch
from ...core.numbers.exact_sums import GRIDS

_SIZE = 1024  # scores at a time
_COARSE, _MIDDLE, _FINE = (tl.constexpr(1.5 * 2.0**52 * grid) for grid in GRIDS)


@triton.jit
def _score_sums(scores, state, out, n, SIZE: tl.constexpr):
    # Sums of the parts are exact, so they have the bits of those in any other order.
    coarse = tl.zeros((SIZE,), tl.float64)
    middle, fine = coarse, coarse
    count = tl.zeros((SIZE,), tl.int64)
    for first in range(0, n, SIZE):
        index = first + tl.arange(0, SIZE)
        x = tl.load(scores + index, mask=index < n, other=float("inf"))
        is_finite = tl.abs(x) < float("inf")
        x = tl.where(is_finite, x, 0.0)
        count += is_finite.to(tl.int64)
        part = (x + _COARSE) - _COARSE
        coarse += part
        x -= part
        part = (x + _MIDDLE) - _MIDDLE
        middle += part
        fine += ((x - part) + _FINE) - _FINE
    finite = tl.sum(count, 0)
    tl.store(out, tl.load(state) + tl.sum(coarse, 0))
    tl.store(out + 1, tl.load(state + 1) + tl.sum(middle, 0))
    tl.store(out + 2, tl.load(state + 2) + tl.sum(fine, 0))
    tl.store(out + 3, tl.load(state + 3) + finite)
    tl.store(out + 4, tl.load(state + 4) + (n - finite))


def score_sums(scores: Tensor, state: Tensor) -> Tensor:
    # scores: (N,) float64  state: (5,) float64  ->  (5,)
    out = torch.empty_like(state)
    launch(_score_sums, (1,), scores.contiguous(), state, out, len(scores), SIZE=_SIZE, enable_fp_fusion=False)
    return out
