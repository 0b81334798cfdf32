"""Triton kernels of the search: block minima of a product, the values of chosen blocks, and counting.

Only read for CUDA tensors, or where TRITON_INTERPRET=1 lets them run on a CPU.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 32  # columns of one minimum


@triton.jit
def _product(x, rows, i, j, rows_x, rows_y, dim, DEPTH: tl.constexpr, precision: tl.constexpr):
    # x: (Q, D)  rows: (R, D)  i: (M,)  j: (N,)  ->  (M, N) float32
    tile = tl.zeros((i.shape[0], j.shape[0]), dtype=tl.float32)
    for start in range(0, dim, DEPTH):
        d = start + tl.arange(0, DEPTH)
        a = tl.load(x + i[:, None] * dim + d, mask=(i[:, None] < rows_x) & (d < dim), other=0.0)
        b = tl.load(rows + j[:, None] * dim + d, mask=(j[:, None] < rows_y) & (d < dim), other=0.0)
        tile = tl.dot(a, b.T, tile, input_precision=precision)
    return tile


@triton.jit
def _block_minima(
    x, rows, bias, own, least, queries, size, dim,
    halved: tl.constexpr, SIDE: tl.constexpr, DEPTH: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    row, column = tl.program_id(0), tl.program_id(1)
    if halved and row > column:
        return
    i, j = (row * SIDE + tl.arange(0, SIDE)).to(tl.int64), (column * SIDE + tl.arange(0, SIDE)).to(tl.int64)
    tile = _product(x, rows, i, j, queries, size, dim, DEPTH, "ieee")
    blocks = size // B
    hidden = tl.load(own + i, mask=i < queries, other=-1)[:, None] == j[None, :]
    value = tile + tl.load(bias + j, mask=j < size, other=float("inf"))[None, :]
    value = tl.where(hidden, float("inf"), value)
    minima = tl.min(tl.reshape(value, (SIDE, SIDE // B, B)), axis=2)
    block = column * (SIDE // B) + tl.arange(0, SIDE // B)
    tl.store(least + i[:, None] * blocks + block, minima, mask=(i[:, None] < queries) & (block < blocks))
    if halved and row < column:
        across = tile + tl.load(bias + i, mask=i < size, other=float("inf"))[:, None]
        across = tl.min(tl.reshape(across, (SIDE // B, B, SIDE)), axis=1)
        behind = row * (SIDE // B) + tl.arange(0, SIDE // B)
        there = (j[None, :] < queries) & (behind[:, None] < blocks)
        tl.store(least + j[None, :] * blocks + behind[:, None], across, mask=there)


@triton.jit
def _chosen_values(x, rows, bias, own, chosen, values, dim, count, DEPTH: tl.constexpr, B: tl.constexpr):
    q, n = tl.program_id(0).to(tl.int64), tl.program_id(1)
    j = tl.load(chosen + q * count + n) * B + tl.arange(0, B)
    value = tl.zeros((B,), dtype=tl.float32)
    for start in range(0, dim, DEPTH):
        d = start + tl.arange(0, DEPTH)
        a = tl.load(x + q * dim + d, mask=d < dim, other=0.0).to(tl.float32)
        b = tl.load(rows + j[:, None] * dim + d, mask=d < dim, other=0.0).to(tl.float32)
        value += tl.sum(a * b, axis=1)
    value += tl.load(bias + j)
    value = tl.where(j == tl.load(own + q), float("inf"), value)
    tl.store(values + (q * count + n) * B + tl.arange(0, B), value)


@triton.jit
def _count(
    x, rows, bias, own, low, high, below, entry, number, queries, size, dim, width, capacity,
    SIDE: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    i = (tl.program_id(0) * SIDE + tl.arange(0, SIDE)).to(tl.int64)
    j = (tl.program_id(1) * SIDE + tl.arange(0, SIDE)).to(tl.int64)
    value = _product(x, rows, i, j, queries, size, dim, DEPTH, "ieee")
    value += tl.load(bias + j, mask=j < size, other=float("inf"))[None, :]
    hidden = tl.load(own + i, mask=i < queries, other=-1)[:, None] == j[None, :]
    shown = (i[:, None] < queries) & (value < float("inf")) & (hidden == 0)
    value = tl.where(shown, value, float("inf"))
    open_ = tl.zeros((SIDE, SIDE), dtype=tl.int32)
    for p in range(width):
        near = tl.load(low + i * width + p, mask=i < queries, other=float("inf"))[:, None]
        far = tl.load(high + i * width + p, mask=i < queries, other=float("-inf"))[:, None]
        open_ |= (shown & (value >= near) & (value <= far)).to(tl.int32)
    sure = tl.where(open_ > 0, float("inf"), value)
    for p in range(width):
        near = tl.load(low + i * width + p, mask=i < queries, other=float("-inf"))[:, None]
        tl.atomic_add(below + i * width + p, tl.sum((sure < near).to(tl.int32), axis=1), mask=i < queries)
    flat = tl.reshape(open_, (SIDE * SIDE,))
    place = tl.cumsum(flat, 0) - flat + tl.atomic_add(number, tl.sum(flat, axis=0))
    there = (flat > 0) & (place < capacity)
    tl.store(entry + place, tl.reshape(i[:, None] * size + j[None, :], (SIDE * SIDE,)), mask=there)


def least_values(
    x: Tensor, rows: Tensor, bias: Tensor, own: Tensor, count: int, minima: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    # x: (Q, D)  rows: (R, D), R a multiple of BLOCK  bias: (R,) float32  own: (Q,) int64  minima: (Q, R / BLOCK)
    # ->  (Q, C) float32 ascending, (Q, C) int64, C = min(count, R)
    """The least of `x @ rows.T + bias` but for `own`. Values above the least of the blocks left out are cut to it."""
    minima = block_minima(x, rows, bias, own) if minima is None else minima
    kept = min(count, minima.shape[1])
    bound, chosen = minima.topk(min(kept + 1, minima.shape[1]), largest=False)
    bound = bound[:, -1:] if kept < minima.shape[1] else torch.full_like(bound[:, -1:], torch.inf)
    chosen = chosen[:, :kept].contiguous()
    values = bias.new_empty(len(x), kept * BLOCK)
    _chosen_values[(len(x), kept)](x, rows, bias, own, chosen, values, x.shape[1], kept, DEPTH=64, B=BLOCK)
    columns = (chosen[:, :, None] * BLOCK + torch.arange(BLOCK, device=x.device)).flatten(1)
    values, order = torch.minimum(values, bound).topk(min(count, values.shape[1]), largest=False)
    return values, columns.gather(1, order)


def block_minima(x: Tensor, rows: Tensor, bias: Tensor, own: Tensor, halved: bool = False) -> Tensor:
    # as in `least_values`  ->  (Q, R / BLOCK) float32
    """`halved`: query i is reference i, so that a tile of products serves its rows and its columns."""
    side = 64 if len(x) <= 64 else 128
    least = bias.new_empty(len(x), len(rows) // BLOCK)
    grid = triton.cdiv(len(x), side), triton.cdiv(len(rows), side)
    _block_minima[grid](
        x, rows, bias, own, least, len(x), len(rows), x.shape[1], halved=halved, SIDE=side, DEPTH=32, B=BLOCK
    )
    return least


def counts(
    x: Tensor, rows: Tensor, bias: Tensor, own: Tensor, low: Tensor, high: Tensor, capacity: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    # low, high: (Q, P) float32, ascending  ->  (Q, P) int32, (n,) int64, (n,) int64, () int32
    """How many values of `x @ rows.T + bias` lie below each `low` and in no interval [low, high]; row and column of
    those in one, in any order, and the number of these: what exceeds `capacity` is lost."""
    below = torch.zeros(low.shape, dtype=torch.int32, device=x.device)
    entry = torch.empty(capacity, dtype=torch.int64, device=x.device)
    number = below.new_zeros(1)
    side = 32
    _count[(triton.cdiv(len(x), side), triton.cdiv(len(rows), side))](
        x, rows, bias, own, low, high, below, entry, number, len(x), len(rows), x.shape[1], low.shape[1], capacity,
        SIDE=side, DEPTH=32,
    )  # fmt: skip
    # How many there are has to be known on the host.
    entry = entry[: int(number)]
    return below, entry // len(rows), entry % len(rows), number[0]
