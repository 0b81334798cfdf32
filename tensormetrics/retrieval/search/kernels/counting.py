"""Triton kernels of the ranks: they sort the positives and count the references before each without storing products.

Imported only for CUDA tensors, or if TRITON_INTERPRET=1 interprets them on a CPU. Tables of (P, Q) hold the positives
of a query in a column, so that the rows of a tile of products read them at once.
"""

import os

import torch
import triton
import triton.language as tl
from torch import Tensor

from ....core.native.triton import launch
from .canonical import distance
from .finish import _sort
from .nearest import DEPTH, STRIP, TILE, product, tile_of
from .prepare import _LIFT, _columns, _moved, _unit
from .tables import Float16Queries, Float16References

_INF = tl.constexpr(float("inf"))
_PROGRAMS = 2 if os.environ.get("TRITON_INTERPRET") == "1" else 512  # that share the undecided entries


@triton.jit(do_not_specialize=["width", "total"])
def _sort_positives(
    query, query_row, query_step, reference, reference_row, reference_step, index, listed, listed_delta, delta,
    positive, relevant, dim, width, total,
    KIND: tl.constexpr, WIDTH: tl.constexpr, CHUNK: tl.constexpr, RUN: tl.constexpr, COUNT: tl.constexpr,
    SIZE: tl.constexpr, LOG: tl.constexpr,
):  # fmt: skip
    # The positives of a query by (distance, index); listed, listed_delta: two lists, the second `total` entries later
    q, n = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH)
    listed += q * width
    listed_delta += q * width
    j = tl.load(index + q * width + n, mask=n < width, other=-1)
    is_positive = (j >= 0).to(tl.int32)
    slot, count = tl.cumsum(is_positive, 0) - is_positive, tl.sum(is_positive, axis=0)
    tl.store(listed + slot, j.to(tl.int32), mask=is_positive > 0)
    tl.debug_barrier()
    c, x = tl.arange(0, COUNT), query + q * query_row + tl.zeros((COUNT, 1), dtype=tl.int64)
    for start in range(0, count, COUNT):
        is_entry = start + c < count
        y = tl.load(listed + start + c, mask=is_entry, other=0).to(tl.int64)[:, None] * reference_row + reference
        d = distance(x, query_step, y, reference_step, is_entry[:, None], dim, KIND, COUNT, SIZE, LOG)
        tl.store(listed_delta + start + c, tl.where(d == d, d, _INF), mask=is_entry)
    tl.debug_barrier()
    side = _sort(listed_delta, listed, count, total, CHUNK, RUN)
    is_entry_of = n < count
    found = tl.load(listed_delta + side * total + n, mask=is_entry_of, other=_INF)
    tl.store(delta + q * width + n, found, mask=n < width)
    j = tl.load(listed + side * total + n, mask=is_entry_of, other=-1).to(tl.int64)
    tl.store(positive + q * width + n, j, mask=n < width)
    tl.store(relevant + q, tl.sum((found < _INF).to(tl.int32), axis=0).to(tl.int64))


@triton.jit(do_not_specialize=["queries", "left_size", "width"])
def _intervals(
    query, query_row, query_step, center, sizes, query_scale, left, left_size, is_bounded, largest, delta, low, high,
    top, queries, dim, width,
    factor: tl.constexpr, UNIT: tl.constexpr, ROWS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    # Values of the positives, as `Float16Filter.affine_map`, with their largest error, rounded outwards.
    # largest: (3,), of `right`  delta: (Q, P)  low, high: (P, Q)  top: (Q,), the largest `high` of each query
    n = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    centered: tl.constexpr = factor == 2
    is_query = n < queries
    valid, rows = is_query[:, None], query + (n * query_row)[:, None]
    unit = _unit(rows, query_step, valid, dim, SIZE, UNIT)
    total = tl.zeros((ROWS,), dtype=tl.float64)
    for start in range(0, dim, SIZE):
        d = start + tl.arange(0, SIZE)[None, :]
        a = _moved(rows, query_step, d, valid, dim, unit, center, UNIT, centered)
        b = a if centered else tl.load(center + d, mask=d < dim, other=0.0)
        total += tl.sum(a * b, axis=1)
    scale = tl.load(sizes) * (_LIFT * _LIFT)
    if centered:
        slope = scale * tl.load(sizes) + tl.zeros_like(total)
        shift = -slope * total
    else:
        slope = scale * tl.load(query_scale + n, mask=is_query, other=1.0)
        shift = slope * (total - (1.0 if UNIT else 0.0))
    error = tl.load(left + n, mask=is_query, other=0.0).to(tl.float64) * tl.load(largest)
    error += tl.load(left + left_size + n, mask=is_query, other=0.0).to(tl.float64) * tl.load(largest + 1)
    error += tl.load(largest + 2) + tl.load(left + 2 * left_size + n, mask=is_query, other=0.0).to(tl.float64) / 2
    error = tl.where(tl.load(is_bounded + n, mask=is_query, other=0) != 0, error, 1e30)
    most = tl.full((ROWS,), float("-inf"), dtype=tl.float32)
    for p in range(width):
        at = tl.load(delta + n * width + p, mask=is_query, other=_INF)
        exists = at < _INF
        middle = slope * tl.where(exists, at, 0.0) + shift
        lower, upper = middle - error, middle + error
        lower -= tl.abs(lower) * 2.0**-23 + 2.0**-120
        upper += tl.abs(upper) * 2.0**-23 + 2.0**-120
        end = tl.where(exists, upper, -_INF).to(tl.float32)
        tl.store(low + p * queries + n, tl.where(exists, lower, _INF).to(tl.float32), mask=is_query)
        tl.store(high + p * queries + n, end, mask=is_query)
        most = tl.maximum(most, end)
    tl.store(top + n, most, mask=is_query)


@triton.jit(do_not_specialize=["queries", "width", "capacity"])
def _count_below(
    x, y, bias, self_index, place, low, high, top, below, row_of, position, values, num_undecided, queries, size, dim,
    width, capacity,
    factor: tl.constexpr, TILE: tl.constexpr, DEPTH: tl.constexpr, STRIP: tl.constexpr,
):  # fmt: skip
    # Counts the values below each `low`, (P, Q), and lists those within an interval.
    row, column = tile_of(tl.program_id(0), tl.cdiv(queries, TILE), size // TILE, False, STRIP)
    if column >= size // TILE:
        return
    i, j = row * TILE + tl.arange(0, TILE), column * TILE + tl.arange(0, TILE)
    value = tl.load(bias + j)[None, :] - factor * product(x, i.to(tl.int64), y, j.to(tl.int64), dim, DEPTH)
    own = tl.load(self_index + i, mask=i < queries, other=-1)
    own = tl.load(place + own, mask=own >= 0, other=-1)
    value = tl.where(own[:, None] == j[None, :], _INF, value)
    highest = tl.load(top + i, mask=i < queries, other=-_INF)[:, None]
    if tl.max(tl.max((value <= highest).to(tl.int32), axis=1), axis=0) > 0:
        undecided = value < -_INF
        cell = i.to(tl.int64)
        for _ in range(width):
            lower = tl.load(low + cell, mask=i < queries, other=-_INF)[:, None]
            upper = tl.load(high + cell, mask=i < queries, other=-_INF)[:, None]
            is_below = value < lower
            undecided = undecided | ((value <= upper) & (value >= lower))
            tl.atomic_add(below + cell, tl.sum(is_below.to(tl.int32), axis=1), mask=i < queries, sem="relaxed")
            cell += queries
        # Undecided entries are rare: one of each row is stored per iteration, which needs no sums over the tile.
        remaining = tl.sum(undecided.to(tl.int32), axis=1)
        total = num_undecided + tl.zeros_like(remaining)
        slot = tl.atomic_add(total, remaining.to(tl.int64), mask=remaining > 0, sem="relaxed")
        last = column * TILE - 1 + tl.zeros_like(remaining)
        while tl.max(remaining, axis=0) > 0:
            last = tl.min(tl.where(undecided & (j[None, :] > last[:, None]), j[None, :], size), axis=1)
            fits = (remaining > 0) & (slot < capacity)
            tl.store(row_of + slot, i, mask=fits)
            tl.store(position + slot, last, mask=fits)
            tl.store(values + slot, tl.sum(tl.where(j[None, :] == last[:, None], value, 0.0), axis=1), mask=fits)
            slot += 1
            remaining -= 1


@triton.jit
def _num_before(delta, positive, first, step, count, d, j, width, TIES: tl.constexpr):
    # ->  (N,) int32, how many of the first `count` entries of each list come before (d, j)
    low, high, left = tl.zeros_like(count), count, width
    while left > 0:
        mid, is_open = (low + high) // 2, low < high
        other = tl.load(delta + first + mid * step, mask=is_open, other=0.0)
        before = other < d
        if TIES == 0:
            before = before | ((other == d) & (tl.load(positive + first + mid * step, mask=is_open, other=0) < j))
        if TIES == 1:
            before = before | (other == d)
        before = before & is_open
        high, low = tl.where(before, high, mid), tl.where(before, mid + 1, low)
        left = left // 2
    return low


@triton.jit(do_not_specialize=["queries", "width", "capacity"])
def _place_undecided(
    query, query_row, query_step, reference, reference_row, reference_step, order, row_of, position, values,
    num_undecided, low, delta, positive, relevant, before, dim, queries, width, capacity,
    KIND: tl.constexpr, TIES: tl.constexpr, COUNT: tl.constexpr, SIZE: tl.constexpr, LOG: tl.constexpr,
):  # fmt: skip
    # Moves each undecided entry to the first positive that it precedes; a positive itself is no entry.
    total = tl.minimum(tl.load(num_undecided), capacity).to(tl.int32)
    for start in range(tl.program_id(0) * COUNT, total, tl.num_programs(0) * COUNT):
        n = start + tl.arange(0, COUNT)
        valid = n < total
        q = tl.load(row_of + n, mask=valid, other=0).to(tl.int64)
        j = tl.load(order + tl.load(position + n, mask=valid, other=0), mask=valid, other=0).to(tl.int64)
        x, y = query + (q * query_row)[:, None], reference + (j * reference_row)[:, None]
        d = distance(x, query_step, y, reference_step, valid[:, None], dim, KIND, COUNT, SIZE, LOG)
        count = tl.where(valid, tl.load(relevant + q, mask=valid, other=0), 0).to(tl.int32)
        value = tl.load(values + n, mask=valid, other=0.0)
        counted = _num_before(low, low, q, queries, count, value, j, width, 1)
        to = _num_before(delta, positive, q * width, 1, count, d, j, width, 0)
        is_own = tl.load(positive + q * width + to, mask=to < count, other=-1) == j
        if TIES != 0:
            to = _num_before(delta, positive, q * width, 1, count, d, j, width, TIES)
        one = (n >= 0).to(tl.int64)
        tl.atomic_add(before + q * (width + 1) + counted, -one, mask=valid, sem="relaxed")
        tl.atomic_add(before + q * (width + 1) + to, one, mask=valid & (is_own == 0), sem="relaxed")


def sorted_positives(query: Tensor, reference: Tensor, index: Tensor, kind: int) -> tuple[Tensor, Tensor, Tensor]:
    # query: (Q, D)  reference: (R, D)  index: (Q, P) int64, -1 = none
    # ->  (Q, P) float64 canonical distances, (Q, P) int64 by (distance, index), (Q,) int64, the number of distances
    (count, width), dim = index.shape, query.shape[1]
    listed = torch.empty(2, count, width, dtype=torch.int32, device=index.device)
    deltas = torch.empty(3, count, width, dtype=torch.float64, device=index.device)
    positive, relevant = torch.empty_like(index), torch.empty(count, dtype=torch.int64, device=index.device)
    size, length = max(triton.next_power_of_2(width), 16), max(triton.next_power_of_2(dim), 16)
    # Fused multiply-adds would change the bits; loads must not be moved before the stores of another loop.
    launch(
        _sort_positives, (count,), query, *query.stride(), reference, *reference.stride(), index.contiguous(), listed,
        deltas, deltas[2], positive, relevant, dim, width, count * width,
        KIND=kind, WIDTH=size, CHUNK=min(size, 256), RUN=min(size, 64), COUNT=max(min(4096 // length, 16), 1),
        SIZE=length, LOG=length.bit_length() - 1, num_warps=4, num_stages=1, enable_fp_fusion=False,
    )  # fmt: skip
    return deltas[2], positive, relevant


def before(
    rows: tuple[Tensor, Tensor, Tensor], positives: tuple[Tensor, Tensor, Tensor], queries: Float16Queries,
    references: Float16References, normalization: tuple[Tensor, Tensor, Tensor], kind: int, ties: int, capacity: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    # rows: queries (Q, D), references (R, D), (Q,) int64, the reference that is each query, -1 = none
    # positives: from `sorted_positives`
    # normalization: center (D,) and sizes (3,) float64 of the filter, (3,) float32, the largest of `references.right`
    # ->  (Q, P + 1) int64, (1,) int64, the number of undecided entries; if it is above `capacity`, counts are wrong
    """Count the references between each positive and the previous one, as `RankCounter.before`."""
    query, reference, self_index = rows
    delta, positive, relevant = (part.contiguous() for part in positives)
    (count, width), device, dim = delta.shape, delta.device, query.shape[1]
    low, high = torch.empty(2, width, count, dtype=torch.float32, device=device)
    top = torch.empty(count, dtype=torch.float32, device=device)
    below = torch.zeros(width, count, dtype=torch.int32, device=device)
    row, position = torch.empty(2, capacity, dtype=torch.int32, device=device)
    values = torch.empty(capacity, dtype=torch.float32, device=device)
    num_undecided = torch.zeros(1, dtype=torch.int64, device=device)  # all entries may be undecided, more than 2^31
    size, depth = references.rows.shape
    columns, (center, sizes, largest) = _columns(dim, 256), normalization
    launch(
        _intervals, (triton.cdiv(count, 2048 // columns),), query, *query.stride(), center, sizes,
        sizes if queries.scale is None else queries.scale, queries.left, queries.left.shape[1],
        queries.is_bounded.view(torch.int8), largest, delta, low, high, top, count, dim, width,
        factor=references.factor, UNIT=kind == 2, ROWS=2048 // columns, SIZE=columns, enable_fp_fusion=False,
    )  # fmt: skip
    launch(
        _count_below, (STRIP * (size // TILE) * triton.cdiv(count, STRIP * TILE),),
        queries.rows, references.rows, references.bias, self_index.contiguous(), references.position, low, high, top,
        below, row, position, values, num_undecided, count, size, depth, width, capacity,
        factor=references.factor, TILE=TILE, DEPTH=DEPTH, STRIP=STRIP, num_warps=8, num_stages=3,
        enable_fp_fusion=True,
    )  # fmt: skip
    result = torch.diff(below, dim=0, prepend=torch.zeros_like(below[:1]), append=below[-1:]).mT
    result = result.to(torch.int64, memory_format=torch.contiguous_format)
    length = max(triton.next_power_of_2(dim), 16)
    launch(
        _place_undecided, (_PROGRAMS,), query, *query.stride(), reference, *reference.stride(), references.order, row,
        position, values, num_undecided, low, delta, positive, relevant, result, dim, count, width, capacity,
        KIND=kind, TIES=ties, COUNT=max(min(4096 // length, 32), 1), SIZE=length, LOG=length.bit_length() - 1,
        num_warps=4, enable_fp_fusion=False,
    )  # fmt: skip
    return result, num_undecided
