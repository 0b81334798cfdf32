"""Triton kernels of scores of neighbors: ranks from their labels, and exact means.

Imported only for CUDA tensors, or if TRITON_INTERPRET=1 interprets them on a CPU.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ....core.native.triton import launch

_INF = tl.constexpr(float("inf"))


@triton.jit
def _position(ordered, label, size, RIGHT: tl.constexpr):
    # ordered: (size,)  label: (N,)  ->  (N,), the number of labels below (or up to) each
    low = tl.zeros(label.shape, dtype=tl.int32)
    high, left = low + size, size
    while left > 0:
        mid, is_open = (low + high) // 2, low < high
        other = tl.load(ordered + mid, mask=is_open, other=0)
        before = is_open & ((other <= label) if RIGHT else (other < label))
        high = tl.where(is_open & (before == 0), mid, high)
        low = tl.where(before, mid + 1, low)
        left = left // 2
    return low


@triton.jit(do_not_specialize=["queries", "size", "k", "first"])
def _matches(
    indices, query_labels, reference_labels, ordered, self_index, rank, relevant, candidates, status,
    queries, size, k, first,
    IS_SELF: tl.constexpr, HAS_STATUS: tl.constexpr, IS_FLOAT: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
    LONE: tl.constexpr, SCORED: tl.constexpr, NOT_FINITE: tl.constexpr,
):  # fmt: skip
    q, c = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    valid, label = q < queries, tl.load(query_labels + q, mask=q < queries, other=0)
    own = q + first if IS_SELF else tl.load(self_index + q, mask=valid, other=-1)
    is_reference = valid & (own >= 0)
    is_own_match = is_reference & (tl.load(reference_labels + own, mask=is_reference, other=0) == label)
    num_equal = _position(ordered, label, size, True) - _position(ordered, label, size, False)
    num_relevant = num_equal - is_own_match.to(tl.int32)
    tl.store(relevant + q, num_relevant.to(tl.int64), mask=valid)
    tl.store(candidates + q, (size - is_reference.to(tl.int32)).to(tl.int64), mask=valid)
    cells, in_table = q.to(tl.int64)[:, None] * k + c[None, :], valid[:, None] & (c < k)[None, :]
    j = tl.load(indices + cells, mask=in_table, other=-1)
    match = (j >= 0) & (tl.load(reference_labels + j, mask=j >= 0, other=0) == label[:, None])
    tl.store(rank + cells, tl.where(match, c[None, :] + 1, 0), mask=in_table)
    if HAS_STATUS:
        lone = tl.max((valid & (num_relevant == 0)).to(tl.int32), axis=0)
        word = lone * LONE + tl.max((valid & (num_relevant > 0)).to(tl.int32), axis=0) * SCORED
        if IS_FLOAT:  # the smallest and the largest label come first and last, and NaN after them
            ends = tl.load(ordered + tl.arange(0, 2) * (size - 1))
            is_bad = tl.max((valid & ((tl.abs(label) < _INF) == 0)).to(tl.int32), axis=0)
            is_bad = tl.maximum(is_bad, tl.max(((tl.abs(ends) < _INF) == 0).to(tl.int32), axis=0))
            word += is_bad * NOT_FINITE
        tl.atomic_or(status, word, sem="relaxed")
        tl.atomic_max(status + 1, tl.max(tl.where(valid, num_relevant, 0), axis=0), sem="relaxed")


@triton.jit
def _multiples(value, shift):
    # The multiple of a power of two that is nearest to each value; see `exact_sums`.
    return (value + shift) - shift


@triton.jit(do_not_specialize=["queries", "classes"])
def _means(
    scores, relevant, codes, means, queries, classes, ZERO: tl.constexpr, HAS_CODES: tl.constexpr, SIZE: tl.constexpr
):  # fmt: skip
    # One program for each row of scores: as `query_metric.means`, with the same bits.
    # With codes, means: (M, 4, C), exact sums of the three parts and counts for each class, which have no order.
    m, n = tl.program_id(0).to(tl.int64), tl.arange(0, SIZE)
    largest = tl.zeros((SIZE,), dtype=tl.float64)
    for start in range(0, queries, SIZE):
        value = tl.load(scores + m * queries + start + n, mask=start + n < queries, other=0)
        is_scored = tl.load(relevant + start + n, mask=start + n < queries, other=0) > 0
        value = tl.where(is_scored & (tl.abs(value) < _INF), tl.abs(value), 0.0)
        largest = tl.where(value > largest, value, largest)
    most = tl.max(largest, axis=0)
    exponent = (most.to(tl.int64, bitcast=True) >> 52) & 0x7FF
    exponent = tl.where(most > 0, tl.maximum(exponent - 17, 1), 1005)
    shift = (exponent << 52).to(tl.float64, bitcast=True) * (1.5 * 2.0**44)  # of the coarsest grid, 2^-8
    high, count = tl.zeros((SIZE,), dtype=tl.float64), tl.zeros((SIZE,), dtype=tl.int32)
    mid, low = high, high
    for start in range(0, queries, SIZE):
        valid = start + n < queries
        value = tl.load(scores + m * queries + start + n, mask=valid, other=float("nan"))
        is_lone = tl.load(relevant + start + n, mask=valid, other=0) <= 0
        if ZERO:
            value = tl.where(is_lone & valid, 0.0, value)
        else:
            value = tl.where(is_lone, float("nan"), value)
        is_defined = value == value
        count += is_defined.to(tl.int32)
        value = tl.where(is_defined, value, 0.0)
        first = tl.where(tl.abs(value) < _INF, _multiples(value, shift), value)
        high += first
        value = tl.where(first == value, 0.0, value - first)
        second = _multiples(value, shift * 2.0**-26)
        mid += second
        third = _multiples(value - second, shift * 2.0**-52)
        low += third
        if HAS_CODES:
            code = tl.load(codes + start + n, mask=valid, other=-1)
            to, is_in = means + 4 * m * classes + code, is_defined & (code >= 0)
            tl.atomic_add(to, first, mask=is_in, sem="relaxed")
            tl.atomic_add(to + classes, second, mask=is_in, sem="relaxed")
            tl.atomic_add(to + 2 * classes, third, mask=is_in, sem="relaxed")
            tl.atomic_add(to + 3 * classes, is_defined.to(tl.float64), mask=is_in, sem="relaxed")
    if not HAS_CODES:
        total = (tl.sum(low, axis=0) + tl.sum(mid, axis=0)) + tl.sum(high, axis=0)
        tl.store(means + m, total / tl.sum(count, axis=0).to(tl.float64))


@triton.jit
def _halving_sum(value, SIZE: tl.constexpr, STEPS: tl.constexpr):
    # value: (SIZE,)  ->  (1,), as `halving_sum`
    for step in tl.static_range(STEPS):
        value = tl.sum(tl.reshape(value, (2, SIZE >> (step + 1))), axis=0)
    return value


@triton.jit(do_not_specialize=["size", "depth", "num_best"])
def _rank_scores(
    rank, divisor, terms, ideal, gain, best, scores, size, depth, num_best,
    IS_PRECISION: tl.constexpr, HAS_GAIN: tl.constexpr, WIDTH: tl.constexpr, LOG: tl.constexpr,
):  # fmt: skip
    # One program for each query: as `average_precision` or `ndcg`, with the same bits.
    q, c = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH)
    r = tl.load(rank + q * size + c, mask=c < size, other=0)
    is_hit = (r > 0) & (r <= depth)
    slot = tl.where(is_hit, tl.cumsum(is_hit.to(tl.int32), axis=0) - 1, -1)
    hit = tl.sum(tl.where(slot[:, None] == c[None, :], c[:, None], 0), axis=0)  # hits come first, in their order
    is_hit = c < tl.sum(is_hit.to(tl.int32), axis=0)
    r = tl.load(rank + q * size + hit, mask=is_hit, other=0).to(tl.int32)
    total = tl.load(divisor + q).to(tl.float64)
    if IS_PRECISION:
        value = tl.where(is_hit, (c + 1).to(tl.float64) / tl.maximum(r, 1).to(tl.float64), 0.0)
    else:
        value = tl.load(terms + r)
        total = tl.load(ideal + tl.minimum(tl.load(divisor + q), depth))
    if HAS_GAIN:
        value *= tl.load(gain + q * size + hit, mask=is_hit, other=0.0)
        most = tl.load(best + q * num_best + c, mask=c < num_best, other=0.0)
        total = _halving_sum(most * tl.load(terms + 1 + c, mask=c < num_best, other=0.0), WIDTH, LOG)
    tl.store(scores + q + tl.arange(0, 1), _halving_sum(value, WIDTH, LOG) / total)


def matches(
    indices: Tensor, query_labels: Tensor, reference_labels: Tensor, ordered: Tensor, own: Tensor | int,
    status: Tensor | None, bits: tuple[int, int, int],
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    # indices: (Q, k) int64, -1 = none  query_labels: (Q,)  reference_labels: (R,)  ordered: (R,), sorted labels
    # own: as in `DirectSearch`
    # bits: of the status word for lone queries, others, and labels that are not finite
    # ->  (Q, k) int32, 1-based ranks of references with the query's label, 0 for others; (Q,) int64, the number of all
    # of them; (Q,) int64, the number of candidates
    queries, k = indices.shape
    rank = torch.empty(queries, k, dtype=torch.int32, device=indices.device)
    relevant, candidates = torch.empty(2, queries, dtype=torch.int64, device=indices.device)
    width = triton.next_power_of_2(k)
    rows = max(2048 // width, 1)
    names = zip(("LONE", "SCORED", "NOT_FINITE"), bits, strict=True)
    launch(
        _matches, (triton.cdiv(queries, rows),), indices, query_labels, reference_labels, ordered,
        own if isinstance(own, Tensor) else relevant, rank, relevant, candidates,
        rank if status is None else status, queries, len(reference_labels), k, own if isinstance(own, int) else 0,
        IS_SELF=isinstance(own, int), HAS_STATUS=status is not None, IS_FLOAT=query_labels.is_floating_point(),
        ROWS=rows, WIDTH=width, num_warps=min(max(width // 512, 4), 16), **dict(names),
    )  # fmt: skip
    return rank, relevant, candidates


def means(scores: Tensor, relevant: Tensor, is_zero: bool, codes: Tensor | None = None, classes: int = 0) -> Tensor:
    # scores: (M, Q) float64  relevant: (Q,) int64  codes: (Q,) int64 below `classes`, -1 = none
    # ->  (M,) float64; with codes (M, C); see `query_metric.means`
    shape = (len(scores),) if codes is None else (len(scores), 4, classes)
    result = scores.new_zeros(shape) if classes else scores.new_empty(shape)
    launch(
        _means, (len(scores),), scores.contiguous(), relevant, relevant if codes is None else codes, result,
        len(relevant), classes, ZERO=is_zero, HAS_CODES=codes is not None, SIZE=1024, num_warps=8,
        enable_fp_fusion=False,
    )  # fmt: skip
    return result if codes is None else (result[:, 2] + result[:, 1] + result[:, 0]) / result[:, 3]


def rank_scores(
    rank: Tensor, divisor: Tensor, depth: int | None, discounts: tuple[Tensor, Tensor] | None = None,
    gains: list[Tensor] | tuple[()] = (),
) -> Tensor:  # fmt: skip
    # rank: (Q, P)  divisor: (Q,) int64, for nDCG R  discounts: (k + 1,) float64, as in `ndcg`; None: average precision
    # gains: (Q, P) of the ranks and (Q, K) in the ideal order, or none  ->  (Q,) float64
    result = torch.empty(divisor.shape, dtype=torch.float64, device=rank.device)
    gain, best = gains or 2 * [result[:, None]]
    best = best[:, :depth].contiguous()
    width = triton.next_power_of_2(max(rank.shape[1], best.shape[1]))
    launch(
        _rank_scores, (len(rank),), rank.contiguous(), divisor.contiguous(), *(discounts or (result, result)),
        gain.contiguous(), best, result, rank.shape[1], 2**31 - 1 if depth is None else depth,
        best.shape[1], IS_PRECISION=discounts is None, HAS_GAIN=len(gains) > 0, WIDTH=width,
        LOG=width.bit_length() - 1, num_warps=4 if width > 32 else 1, enable_fp_fusion=False,
    )  # fmt: skip
    return result
