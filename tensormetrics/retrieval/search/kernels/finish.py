"""Triton kernel that ends a search: canonical distances of the candidates of each query, sorted by merging runs.

Imported only for CUDA tensors, or if TRITON_INTERPRET=1 interprets them on a CPU.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ....core.native.triton import launch
from .canonical import distance
from .nearest import UNLIMITED, error_of
from .tables import CandidateReferences, Float16Queries, Float16References

_RUN = 64  # entries that are sorted by comparing all pairs
_INF = tl.constexpr(float("inf"))


@triton.jit
def _is_before(d, j, other_d, other_j):
    return (d < other_d) | ((d == other_d) & (j < other_j))


@triton.jit
def _kth_smallest(value, k):
    # value: (N,) float32  ->  (), as `kth_smallest`: a dimension of size 1 would repeat the values in every warp
    key = value.to(tl.int32, bitcast=True)
    key = tl.where(key < 0, key ^ 0x7FFFFFFF, key)
    low, high = tl.min(key, axis=0), tl.max(key, axis=0)
    while low < high:
        mid = (low & high) + ((low ^ high) >> 1)
        below = tl.sum((key <= mid).to(tl.int32), axis=0)
        high = tl.where(below >= k, mid, high)
        low = tl.where(below == k, high, tl.where(below > k, low, tl.minimum(mid + 1, high)))
    kth = tl.max(tl.where(key <= high, key, -0x80000000), axis=0)
    return tl.where(kth < 0, kth ^ 0x7FFFFFFF, kth).to(tl.float32, bitcast=True)


@triton.jit
def _merged_position(delta, index, d, j, first, length, is_open, width):
    # first, length: (N,), a sorted run  ->  (N,), the number of its entries before each (d, j)
    low, high, left = tl.zeros_like(length), length, width
    while left > 0:
        mid, is_open = (low + high) // 2, is_open & (low < high)
        other_d = tl.load(delta + first + mid, mask=is_open, other=0.0)
        other_j = tl.load(index + first + mid, mask=is_open, other=0)
        before = is_open & _is_before(other_d, other_j, d, j)
        high, low = tl.where(before, high, mid), tl.where(before, mid + 1, low)
        left = left // 2
    return low


@triton.jit
def _sort(delta, index, count, total, CHUNK: tl.constexpr, RUN: tl.constexpr):
    # delta, index: two lists of `count` entries, the second `total` entries later
    # ->  1 if the second list is in order at last, else 0
    r, m, side, width = tl.arange(0, RUN), tl.arange(0, CHUNK), 1, RUN
    for start in range(0, count, RUN):
        in_run = start + r < count
        run_d = tl.load(delta + start + r, mask=in_run, other=_INF)
        run_j = tl.load(index + start + r, mask=in_run, other=0x7FFFFFFF)
        before = _is_before(run_d[None, :], run_j[None, :], run_d[:, None], run_j[:, None])
        rank = total + start + tl.sum(before.to(tl.int32), axis=1)
        tl.store(delta + rank, run_d, mask=in_run)
        tl.store(index + rank, run_j, mask=in_run)
    while width < count:
        tl.debug_barrier()
        for start in range(0, count, CHUNK):
            p, is_listed = start + m, start + m < count
            d = tl.load(delta + side * total + p, mask=is_listed, other=_INF)
            i_of = tl.load(index + side * total + p, mask=is_listed, other=0)
            first = (p // width ^ 1) * width
            length = tl.minimum(tl.maximum(count - first, 0), width)
            to = _merged_position(delta + side * total, index + side * total, d, i_of, first, length, is_listed, width)
            to += (1 - side) * total + p // (2 * width) * (2 * width) + p % width
            tl.store(delta + to, d, mask=is_listed)
            tl.store(index + to, i_of, mask=is_listed)
        side = 1 - side
        width = 2 * width
    tl.debug_barrier()
    return side


@triton.jit(do_not_specialize=["total", "k"])
def _finish(
    query, query_row, query_step, reference, reference_row, reference_step, source, left, queries, row_bounds, order,
    size, self_index, is_bounded, limit, num_hits, values, index, delta, nearest, is_proven, dim, total, k,
    SAMPLED: tl.constexpr, KIND: tl.constexpr, CAPACITY: tl.constexpr, CHUNK: tl.constexpr, RUN: tl.constexpr,
    COUNT: tl.constexpr, SIZE: tl.constexpr, LOG: tl.constexpr,
):  # fmt: skip
    # index, delta: two lists of each query, of CAPACITY entries; the second is `total` entries later
    q, n = tl.program_id(0).to(tl.int64), tl.arange(0, CAPACITY)
    i, own, found = tl.load(source + q), tl.load(self_index + q), tl.load(num_hits + q)
    index += q * CAPACITY
    delta += q * CAPACITY
    valid = n < tl.where(found <= CAPACITY, found, 0)
    position = tl.load(index + n, mask=valid, other=0)
    value = tl.load(values + q * CAPACITY + n, mask=valid, other=0.0)
    j = tl.load(order + position, mask=valid, other=-1)
    valid = valid & (j != own)
    proven = (found <= CAPACITY) & (tl.load(is_bounded + q) != 0)
    keep = valid.to(tl.int32)
    if SAMPLED or CAPACITY > RUN:
        error = error_of(left, i, queries, row_bounds, position, size)
        upper = tl.where(valid, value + error, _INF)
        if CAPACITY > RUN:
            kth = _kth_smallest(upper, k)
        else:
            num_before = tl.sum(_is_before(upper[None, :], n[None, :], upper[:, None], n[:, None]).to(tl.int32), axis=1)
            kth = tl.max(tl.where(num_before < k, upper, -_INF), axis=0)
        bound = kth + tl.load(left + 2 * queries + i)
        keep = (valid & (value - error <= bound)).to(tl.int32)
        if SAMPLED:
            # Else k nearer references may be missing, and with them the limit of the sample was too low.
            proven = proven & ((bound <= tl.load(limit + q)) | (tl.load(limit + q) >= UNLIMITED))
    tl.store(is_proven + q, proven)
    keep = tl.where(proven, keep, 0)
    slot, count = tl.cumsum(keep, 0) - keep, tl.sum(keep, axis=0)
    tl.debug_barrier()
    tl.store(index + slot, j, mask=keep > 0)
    tl.debug_barrier()
    # Variables of a loop keep their shape, so each loop has its own.
    c, x = tl.arange(0, COUNT), query + q * query_row + tl.zeros((COUNT, 1), dtype=tl.int64)
    for start in range(0, count, COUNT):
        is_entry = start + c < count
        y = tl.load(index + start + c, mask=is_entry, other=0).to(tl.int64)[:, None] * reference_row + reference
        delta_of = distance(x, query_step, y, reference_step, is_entry[:, None], dim, KIND, COUNT, SIZE, LOG)
        tl.store(delta + start + c, tl.where(delta_of == delta_of, delta_of, _INF), mask=is_entry)
    tl.debug_barrier()
    m, side = tl.arange(0, CHUNK), _sort(delta, index, count, total, CHUNK, RUN)
    for start in range(0, k, CHUNK):
        is_found = start + m < tl.minimum(count, k)
        found_d = tl.load(delta + side * total + start + m, mask=is_found, other=_INF)
        found_j = tl.load(index + side * total + start + m, mask=is_found, other=-1)
        to_user = nearest + q * k + start + m
        tl.store(to_user, tl.where(found_d < _INF, found_j, -1).to(tl.int64), mask=start + m < k)


def nearest(
    query: Tensor, reference: Tensor, lists: CandidateReferences, queries: Float16Queries, source: Tensor,
    references: Float16References, self_index: Tensor, is_bounded: Tensor, k: int, kind: int, is_sampled: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    # query: (Q, D)  reference: (R, D)  source, self_index, is_bounded: (Q,)
    # ->  (Q, k) int64 by (distance, index), -1 where fewer exist; (Q,) bool, whether they are proven
    """Sort the candidates of each query and return the first k."""
    (count, capacity), dim = lists.values.shape, query.shape[1]
    delta = torch.empty(2, count, capacity, dtype=torch.float64, device=query.device)
    result = torch.empty(count, k, dtype=torch.int64, device=query.device)
    is_proven = torch.empty(count, dtype=torch.bool, device=query.device)
    length = max(triton.next_power_of_2(dim), 16)
    # Fused multiply-adds would change the bits; loads must not be moved before the stores of another loop.
    launch(
        _finish, (count,),
        query, *query.stride(), reference, *reference.stride(), source, queries.left, queries.left.shape[1],
        references.row_bounds, references.order, references.row_bounds.shape[1], self_index,
        is_bounded.view(torch.int8), lists.limit, lists.num_hits, lists.values, lists.position, delta, result,
        is_proven.view(torch.int8), dim, count * capacity, k,
        SAMPLED=is_sampled, KIND=kind, CAPACITY=capacity, CHUNK=min(capacity, 256), RUN=min(capacity, _RUN),
        COUNT=max(min(4096 // length, 16), 2048 // length, 1), SIZE=length, LOG=length.bit_length() - 1,
        num_warps=min(max(capacity // 128, 4), 16), num_stages=1, enable_fp_fusion=False,
    )  # fmt: skip
    return result, is_proven
