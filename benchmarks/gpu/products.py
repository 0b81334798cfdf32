"""Tile of float16 products summed in float32 as in the search, to probe the tensor cores."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from tensormetrics.retrieval.search.kernels.nearest import product


@triton.jit
def _tile(x, out, dim, TILE: tl.constexpr, DEPTH: tl.constexpr):
    i = tl.arange(0, TILE)
    tl.store(out + i[:, None] * TILE + i[None, :], product(x, i, x, i, dim, DEPTH))


def products_of(x: Tensor) -> Tensor:
    # x: (128, D) float16, D a multiple of 64  ->  (128, 128) float32
    out = torch.empty(128, 128, device=x.device)
    _tile[(1,)](x, out, x.shape[1], TILE=128, DEPTH=64, num_warps=4)
    return out
