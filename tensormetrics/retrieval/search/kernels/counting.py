"""Triton kernel of the ranks: counts the references before each positive without storing the products."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ....core.native.triton import launch
from .nearest import DEPTH, STRIP, TILE, product, tile_of
from .tables import Float16Queries, Float16References


@triton.jit(do_not_specialize=["queries", "width", "capacity"])
def _count(
    x, y, bias, self_index, low, high, below, query, reference, num_undecided, queries, size, dim, width, capacity,
    factor: tl.constexpr, TILE: tl.constexpr, DEPTH: tl.constexpr, STRIP: tl.constexpr,
):  # fmt: skip
    row, column = tile_of(tl.program_id(0), tl.cdiv(queries, TILE), size // TILE, False, STRIP)
    if column >= size // TILE:
        return
    i, j = row * TILE + tl.arange(0, TILE), column * TILE + tl.arange(0, TILE)
    value = tl.load(bias + j)[None, :] - factor * product(x, i.to(tl.int64), y, j.to(tl.int64), dim, DEPTH)
    value = tl.where(tl.load(self_index + i, mask=i < queries, other=-1)[:, None] == j[None, :], float("inf"), value)
    undecided = value < float("-inf")
    for p in range(width):
        lower = tl.load(low + i * width + p, mask=i < queries, other=float("inf"))[:, None]
        upper = tl.load(high + i * width + p, mask=i < queries, other=float("-inf"))[:, None]
        undecided = undecided | ((value >= lower) & (value <= upper))
    value = tl.where(undecided, float("inf"), value)
    for p in range(width):
        lower = tl.load(low + i * width + p, mask=i < queries, other=float("-inf"))[:, None]
        num_below = tl.sum((value < lower).to(tl.int32), axis=1)
        tl.atomic_add(below + i * width + p, num_below, mask=i < queries, sem="relaxed")
    # Undecided entries are rare: one of each row is stored per iteration, which needs no sums over the tile.
    remaining = tl.sum(undecided.to(tl.int32), axis=1)
    total = num_undecided + tl.zeros_like(remaining)
    slot = tl.atomic_add(total, remaining.to(tl.int64), mask=remaining > 0, sem="relaxed")
    last = column * TILE - 1 + tl.zeros_like(remaining)
    while tl.max(remaining, axis=0) > 0:
        last = tl.min(tl.where(undecided & (j[None, :] > last[:, None]), j[None, :], size), axis=1)
        fits_slot = (remaining > 0) & (slot < capacity)
        tl.store(query + slot, i, mask=fits_slot)
        tl.store(reference + slot, last, mask=fits_slot)
        slot += 1
        remaining -= 1


def counts(
    queries: Float16Queries, self_index: Tensor, references: Float16References, low: Tensor, high: Tensor, capacity: int
) -> tuple[Tensor, Tensor, Tensor, int]:
    # self_index: (Q,) int64, position of a reference to exclude  low, high: (Q, P) float32, ascending, high -inf if
    # there is no positive  ->  (Q, P) int32, (n,) int32, (n,) int32, n
    """Count the values below each `low` that lie in no interval [low, high], and list those within an interval.

    The rows and positions of the latter are in any order, followed by their number; those beyond `capacity` are lost.
    """
    below = torch.zeros(low.shape, dtype=torch.int32, device=low.device)
    query, reference = torch.empty(2, capacity, dtype=torch.int32, device=low.device)
    num_undecided = torch.zeros(1, dtype=torch.int64, device=low.device)  # all entries may be undecided, more than 2^31
    size, dim = references.rows.shape
    tiles = STRIP * (size // TILE) * triton.cdiv(len(self_index), STRIP * TILE)
    launch(
        _count, (tiles,),
        queries.rows, references.rows, references.bias, self_index, low.contiguous(), high.contiguous(), below, query,
        reference, num_undecided, len(self_index), size, dim, low.shape[1], capacity,
        factor=references.factor, TILE=TILE, DEPTH=DEPTH, STRIP=STRIP, num_warps=8, num_stages=3,
        enable_fp_fusion=True,
    )  # fmt: skip
    count = int(num_undecided)  # the host needs the count
    return below, query[:count], reference[:count], count
