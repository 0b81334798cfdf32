"""Triton kernels of small searches: float32 distances of all pairs exclude most of them, canonical ones order the rest.

Imported only for CUDA tensors, or if TRITON_INTERPRET=1 interprets them on a CPU. No list has a capacity that could
overflow, so nothing is left for the host to check. Items of a batch are consecutive in every table.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ....core.native.triton import launch
from .canonical import distance

_QUERIES, _REFERENCES = 64, 128  # of a tile
_INF = tl.constexpr(float("inf"))
_HUGE = tl.constexpr(3e38)  # below every sum that overflows
_LAST = tl.constexpr(2**31 - 1)


@triton.jit(do_not_specialize=["count", "flag"])
def _transposed(
    x, x_row, x_step, table, status, count, dim, pitch, flag,
    HAS_STATUS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    # x: (B count, D)  table: (B, D, pitch), 0 after the rows
    # status: int32, the first gets the flag if a value is not finite
    n, d = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    item = tl.program_id(2).to(tl.int64)
    valid = (n < count)[:, None] & (d < dim)[None, :]
    rows = x + ((item * count + n) * x_row)[:, None]
    a = tl.load(rows + d.to(tl.int64)[None, :] * x_step, mask=valid, other=0).to(table.dtype.element_ty)
    to = table + (item * dim + d)[None, :] * pitch + n[:, None]
    tl.store(to, a, mask=(d < dim)[None, :] & (n < pitch)[:, None])
    if HAS_STATUS:
        is_bad = tl.max(tl.max((tl.abs(a) < _INF).to(tl.int32) ^ 1, axis=1), axis=0)
        tl.atomic_or(status, flag, mask=is_bad > 0, sem="relaxed")


@triton.jit(do_not_specialize=["first", "queries", "size"])
def _bounds(
    x, x_pitch, y, y_pitch, self_index, first, ignored, ignored_row, ignored_step, lower, minima, queries, size, dim,
    relative, tiny,
    KIND: tl.constexpr, IS_SELF: tl.constexpr, HAS_SELF: tl.constexpr, HAS_MASK: tl.constexpr,
    TQ: tl.constexpr, TR: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    # x: (B, D, x_pitch)  y: (B, D, y_pitch)  self_index: (B queries,)  ignored: (B queries, size)
    # lower: (B queries, y_pitch) lower bounds of distances, NaN = no candidate
    # minima: (B queries, y_pitch / BLOCK), the smallest upper bound of each block
    q, j = tl.program_id(0) * TQ + tl.arange(0, TQ), tl.program_id(1) * TR + tl.arange(0, TR)
    item = tl.program_id(2).to(tl.int64)
    xs, ys = x + item * dim * x_pitch + q, y + item * dim * y_pitch + j
    total = tl.zeros((TQ, TR), dtype=tl.float32)
    x_square, y_square = tl.zeros((TQ,), dtype=tl.float32), tl.zeros((TR,), dtype=tl.float32)
    for _ in range(dim):
        a, b = tl.load(xs), tl.load(ys)
        if KIND == 0:
            t = (a[:, None] - b[None, :]).to(tl.float32)
            total += t * t
        else:
            total += (a[:, None] * b[None, :]).to(tl.float32)
            x_square += (a * a).to(tl.float32)
            y_square += (b * b).to(tl.float32)
        xs += x_pitch
        ys += y_pitch
    if KIND == 0:
        # A sum that overflows is at least _HUGE.
        low = tl.where(total < _INF, total * (1 - relative) - tiny, tl.where(total == _INF, _HUGE, total))
        high = tl.where(total < _INF, total * (1 + relative) + tiny, _INF)
    else:
        if KIND == 1:
            value = -total
            error = relative * tl.sqrt(x_square + tiny)[:, None] * tl.sqrt(y_square + tiny)[None, :] + tiny
        else:
            is_safe = ((x_square > 2.0**-80) & (x_square < 2.0**120))[:, None]
            is_safe = is_safe & ((y_square > 2.0**-80) & (y_square < 2.0**120))[None, :]
            norms = tl.sqrt(x_square)[:, None] * tl.sqrt(y_square)[None, :]
            value = 1 - total / tl.where(is_safe, norms, 1.0)
            error = tl.where(is_safe, relative, _INF)
        is_known = (tl.abs(value) < _INF) & (error < _INF)  # others may be anywhere
        low, high = tl.where(is_known, value - error, -_INF), tl.where(is_known, value + error, _INF)
    out = item * queries + q
    excluded = tl.broadcast_to((j >= size)[None, :], (TQ, TR))
    if IS_SELF:
        excluded = excluded | ((q + first)[:, None] == j[None, :])
    if HAS_SELF:
        excluded = excluded | (tl.load(self_index + out, mask=q < queries, other=-1)[:, None] == j[None, :])
    if HAS_MASK:
        valid = (q < queries)[:, None] & (j < size)[None, :]
        pairs = ignored + out[:, None] * ignored_row + j.to(tl.int64)[None, :] * ignored_step
        excluded = excluded | (tl.load(pairs, mask=valid, other=0) != 0)
    tl.store(
        lower + out[:, None] * y_pitch + j[None, :], tl.where(excluded, float("nan"), low), mask=(q < queries)[:, None]
    )
    high = tl.reshape(tl.where(excluded, _INF, high), (TQ, BLOCK, TR // BLOCK))
    n = tl.program_id(1) * (TR // BLOCK) + tl.arange(0, TR // BLOCK)
    to = minima + out[:, None] * (y_pitch // BLOCK) + n[None, :]
    tl.store(to, tl.min(high, axis=1), mask=(q < queries)[:, None])


@triton.jit
def _num_before(d, j, other_d, other_j):
    # ->  (N,) int32, how many of the others come before each
    before = (other_d[None, :] < d[:, None]) | ((other_d[None, :] == d[:, None]) & (other_j[None, :] < j[:, None]))
    return tl.sum(before.to(tl.int32), axis=1)


@triton.jit(do_not_specialize=["queries", "size", "k", "width"])
def _nearest(
    query, query_row, query_step, reference, reference_row, reference_step, lower, minima, listed, best_delta, best,
    distances, indices, queries, size, dim, pitch, k, width,
    KIND: tl.constexpr, IS_ROOT: tl.constexpr, HAS_DISTANCES: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
    CHUNK: tl.constexpr, BEST: tl.constexpr, COUNT: tl.constexpr, SIZE: tl.constexpr, LOG: tl.constexpr,
):  # fmt: skip
    # listed: (B queries, pitch) int32, best_delta, best: (B queries, BEST), scratch
    # distances, indices: (B queries, width)
    q = tl.program_id(0).to(tl.int64)
    item, n, blocks = q // queries, tl.arange(0, WIDTH), pitch // BLOCK
    # Floats have the order of these integers, and bisection finds the k-th of them without sorting.
    key = tl.load(minima + q * blocks + n, mask=n < blocks, other=_INF).to(tl.int32, bitcast=True)
    key = tl.where(key < 0, key ^ 0x7FFFFFFF, key)
    low, high = tl.min(key, axis=0), tl.max(key, axis=0)
    while low < high:
        mid = (low & high) + ((low ^ high) >> 1)
        is_enough = tl.sum((key <= mid).to(tl.int32), axis=0) >= k
        high, low = tl.where(is_enough, mid, high), tl.where(is_enough, low, mid + 1)
    limit = tl.where(high < 0, high ^ 0x7FFFFFFF, high).to(tl.float32, bitcast=True)
    count = 0
    for start in range(0, pitch, CHUNK):
        m = start + tl.arange(0, CHUNK)
        hit = (tl.load(lower + q * pitch + m, mask=m < pitch, other=float("nan")) <= limit).to(tl.int32)
        tl.store(listed + q * pitch + count + tl.cumsum(hit, 0) - hit, m, mask=hit > 0)
        count += tl.sum(hit, axis=0)
    c, n = q * BEST + tl.arange(0, BEST), tl.arange(0, COUNT)
    tl.store(best_delta + c, tl.full((BEST,), float("inf"), dtype=tl.float64))
    tl.store(best + c, tl.full((BEST,), _LAST, dtype=tl.int32))
    tl.debug_barrier()
    x = query + q * query_row + tl.zeros((COUNT, 1), dtype=tl.int64)
    for start in range(0, count, COUNT):
        j = tl.load(listed + q * pitch + start + n, mask=start + n < count, other=0)
        valid, y = start + n < count, reference + ((item * size + j) * reference_row)[:, None]
        d = distance(x, query_step, y, reference_step, valid[:, None], dim, KIND, COUNT, SIZE, LOG)
        valid = valid & (d == d)  # rows that are not finite have no neighbors and are none
        d, j = tl.where(valid, d, float("inf")), tl.where(valid, j, _LAST)
        old_d, old_j = tl.load(best_delta + c), tl.load(best + c)
        rank = _num_before(d, j, d, j) + _num_before(d, j, old_d, old_j)
        old_rank = tl.arange(0, BEST) + _num_before(old_d, old_j, d, j)
        tl.debug_barrier()
        tl.store(best_delta + q * BEST + old_rank, old_d, mask=old_rank < BEST)
        tl.store(best + q * BEST + old_rank, old_j, mask=old_rank < BEST)
        tl.store(best_delta + q * BEST + rank, d, mask=valid & (rank < BEST))
        tl.store(best + q * BEST + rank, j, mask=valid & (rank < BEST))
        tl.debug_barrier()
    slot, d, j = tl.arange(0, BEST), tl.load(best_delta + c), tl.load(best + c)
    tl.store(indices + q * width + slot, tl.where(j == _LAST, -1, j).to(tl.int64), mask=slot < width)
    if HAS_DISTANCES:
        if IS_ROOT:
            d = tl.sqrt(d)
        if KIND == 1:
            d = -d
        tl.store(distances + q * width + slot, d, mask=slot < width)


def transposed(rows: Tensor, items: int, status: Tensor | None, flag: int) -> Tensor:
    # rows: (B N, D)  status: int32 or None  ->  (B, D, N'), N' a multiple of the tiles; half types as float32
    (count, dim), dtype = rows.shape, torch.promote_types(rows.dtype, torch.float32)
    count //= items
    pitch = triton.cdiv(count, _REFERENCES) * _REFERENCES
    table = torch.empty(items, dim, pitch, dtype=dtype, device=rows.device)
    launch(
        _transposed, (pitch // 64, triton.cdiv(dim, 32), items), rows, *rows.stride(), table,
        table if status is None else status, count, dim, pitch, flag,
        HAS_STATUS=status is not None, ROWS=64, COLUMNS=32,
    )  # fmt: skip
    return table


def neighbors(
    query: Tensor, reference: Tensor, x: Tensor, y: Tensor, own: Tensor | int | None, ignored: Tensor | None, k: int,
    width: int, kind: int, is_root: bool, dtype: torch.dtype | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    # query: (B Q, D)  reference: (B R, D)  x, y: from `transposed`
    # own: (B Q,) int64, or the reference that is the first query
    # ignored: (B Q, R) bool  dtype: of distances, None = none  ->  (B Q, width), or (B Q, 0); (B Q, width) int64
    """Search the k nearest references of each query among those of its item; width is at least k."""
    (items, dim, x_pitch), pitch, device = x.shape, y.shape[2], query.device
    queries, size = len(query) // items, len(reference) // items
    block = next((block for block in (32, 4) if 4 * k * block <= 3 * size), 1)
    lower = torch.empty(len(query), pitch, dtype=torch.float32, device=device)
    minima = torch.empty(len(query), pitch // block, dtype=torch.float32, device=device)
    relative = (1.01 if kind < 2 else 2.02) * (dim + 8) * 2.0**-24
    has_self, mask = isinstance(own, Tensor), lower if ignored is None else ignored.view(torch.int8)
    first = own if isinstance(own, int) else 0
    launch(
        _bounds, (triton.cdiv(queries, _QUERIES), pitch // _REFERENCES, items), x, x_pitch, y, pitch,
        own if isinstance(own, Tensor) else lower, first, mask, *mask.stride(), lower, minima, queries, size, dim,
        relative, dim * 2.0**-125, KIND=kind, IS_SELF=isinstance(own, int), HAS_SELF=has_self,
        HAS_MASK=ignored is not None, TQ=_QUERIES, TR=_REFERENCES, BLOCK=block, num_warps=4, enable_fp_fusion=True,
    )  # fmt: skip
    best, length = max(triton.next_power_of_2(width), 16), max(triton.next_power_of_2(dim), 16)
    listed = torch.empty(len(query), pitch, dtype=torch.int32, device=device)
    best_delta = torch.empty(len(query), best, dtype=torch.float64, device=device)
    best_index = torch.empty(len(query), best, dtype=torch.int32, device=device)
    indices = torch.empty(len(query), width, dtype=torch.int64, device=device)
    distances = torch.empty(len(query), 0 if dtype is None else width, dtype=dtype or torch.float32, device=device)
    # Fused multiply-adds would change the bits; loads of the next candidates must not be moved before a merge.
    launch(
        _nearest, (len(query),), query, *query.stride(), reference, *reference.stride(), lower, minima, listed,
        best_delta, best_index, distances, indices, queries, size, dim, pitch, k, width,
        KIND=kind, IS_ROOT=is_root, HAS_DISTANCES=dtype is not None, BLOCK=block,
        WIDTH=triton.next_power_of_2(pitch // block), CHUNK=min(triton.next_power_of_2(pitch), 1024), BEST=best,
        COUNT=min(max(4096 // length, 1), 16), SIZE=length, LOG=length.bit_length() - 1, num_warps=4, num_stages=1,
        enable_fp_fusion=False,
    )  # fmt: skip
    return distances, indices
