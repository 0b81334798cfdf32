"""Triton kernel of the ranks: how many references come before each positive, from products that are never stored."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...._triton import on_its_device
from .nearest import DEPTH, SIDE, STRIP, product, tile_of
from .tables import HalfTable, Halves


@triton.jit(do_not_specialize=["queries", "width", "capacity"])
def _count(
    x, y, bias, own, low, high, below, query, reference, number, queries, size, dim, width, capacity,
    factor: tl.constexpr, SIDE: tl.constexpr, DEPTH: tl.constexpr, STRIP: tl.constexpr,
):  # fmt: skip
    row, column = tile_of(tl.program_id(0), tl.cdiv(queries, SIDE), size // SIDE, False, STRIP)
    if column >= size // SIDE:
        return
    i, j = row * SIDE + tl.arange(0, SIDE), column * SIDE + tl.arange(0, SIDE)
    value = tl.load(bias + j)[None, :] - factor * product(x, i.to(tl.int64), y, j.to(tl.int64), dim, DEPTH)
    value = tl.where(tl.load(own + i, mask=i < queries, other=-1)[:, None] == j[None, :], float("inf"), value)
    undecided = value < float("-inf")
    for p in range(width):
        near = tl.load(low + i * width + p, mask=i < queries, other=float("inf"))[:, None]
        far = tl.load(high + i * width + p, mask=i < queries, other=float("-inf"))[:, None]
        undecided = undecided | ((value >= near) & (value <= far))
    value = tl.where(undecided, float("inf"), value)
    for p in range(width):
        near = tl.load(low + i * width + p, mask=i < queries, other=float("-inf"))[:, None]
        tl.atomic_add(below + i * width + p, tl.sum((value < near).to(tl.int32), axis=1), mask=i < queries)
    # Few entries of a tile are open: they are taken one of each row at a time, which needs no sums over the tile.
    left = tl.sum(undecided.to(tl.int32), axis=1)
    place = tl.atomic_add(number + tl.zeros_like(left), left.to(tl.int64), mask=left > 0)
    last = column * SIDE - 1 + tl.zeros_like(left)
    while tl.max(left, axis=0) > 0:
        last = tl.min(tl.where(undecided & (j[None, :] > last[:, None]), j[None, :], size), axis=1)
        here = (left > 0) & (place < capacity)
        tl.store(query + place, i, mask=here)
        tl.store(reference + place, last, mask=here)
        place += 1
        left -= 1


@on_its_device
def counts(
    queries: Halves, own: Tensor, references: HalfTable, low: Tensor, high: Tensor, capacity: int
) -> tuple[Tensor, Tensor, Tensor, int]:
    # own: (Q,) int64, place of a reference to leave out  low, high: (Q, P) float32, ascending, high -inf where there is
    # none  ->  (Q, P) int32, (n,) int32, (n,) int32, how many there are
    """How many values lie below each `low` and in no interval [low, high]; row and place of those in one, in any order,
    and the number of these: what exceeds `capacity` is lost."""
    below = torch.zeros(low.shape, dtype=torch.int32, device=low.device)
    query, reference = torch.empty(2, capacity, dtype=torch.int32, device=low.device)
    number = torch.zeros(1, dtype=torch.int64, device=low.device)  # all entries may be open, more than 2^31
    size, dim = references.rows.shape
    tiles = STRIP * (size // SIDE) * triton.cdiv(len(own), STRIP * SIDE)
    _count[(tiles,)](
        queries.rows, references.rows, references.bias, own, low.contiguous(), high.contiguous(), below, query,
        reference, number, len(own), size, dim, low.shape[1], capacity,
        factor=references.factor, SIDE=SIDE, DEPTH=DEPTH, STRIP=STRIP, num_warps=8, num_stages=3,
        enable_fp_fusion=True,
    )  # fmt: skip
    found = int(number)  # has to be known on the host
    return below, query[:found], reference[:found], found
