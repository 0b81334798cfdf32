"""Triton kernels that prepare rows for float16 products: each reads the rows once and writes the prepared values.

Imported only for CUDA tensors, or if TRITON_INTERPRET=1 interprets them on a CPU. Values are computed in float64 and
rounded when stored. Sums of D terms read SIZE columns at a time; their error is at most (D / SIZE + log2 SIZE) units of
2^-53: D / 256 + 8 for the norms of the filter, where 4 log2 D + 32 are allowed, and less than 2^-20 of a bound in
float16 tables, where bounds are raised by 2^-19.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ....core.native.triton import launch
from .tables import Float16Queries, Float16References

WIDEST = 8192  # maximal number of columns
_SAMPLE = 128  # number of sampled rows whose mean is the center
_LIFT = tl.constexpr(2.0**8)  # see `fp16_filter`
_EPS = tl.constexpr(2.0**-24)
_INF = tl.constexpr(float("inf"))


@triton.jit
def _load(x, step, d, valid, dim):
    # x: (N, 1) pointers to rows  d: (1, SIZE)  valid: (N, 1)  ->  (N, SIZE) float64, 0 where invalid
    return tl.load(x + d.to(tl.int64) * step, mask=valid & (d < dim), other=0).to(tl.float64)


@triton.jit
def _unit(x, step, valid, dim, SIZE: tl.constexpr, UNIT: tl.constexpr):
    # ->  (N, 1) float64, the divisor of a row
    total = tl.zeros((x.shape[0],), dtype=tl.float64)
    if UNIT:
        for start in range(0, dim, SIZE):
            a = _load(x, step, start + tl.arange(0, SIZE)[None, :], valid, dim)
            total += tl.sum(a * a, axis=1)
    return tl.where(total > 0, tl.sqrt(total), 1.0)[:, None]


@triton.jit
def _moved(x, step, d, valid, dim, unit, center, UNIT: tl.constexpr, CENTRED: tl.constexpr):
    # ->  (N, SIZE) float64, 0 where invalid
    a = _load(x, step, d, valid, dim)
    if UNIT:
        a = a / unit
    if CENTRED:
        a = a - tl.load(center + d, mask=d < dim, other=0.0)
        a = tl.where(valid, a, 0.0)
    return a


@triton.jit
def _power_of_two(norm):
    # Like `exact_sums.power_of_two`, for normal numbers.
    exponent = (norm.to(tl.int64, bitcast=True) >> 52) & 0x7FF
    scale = ((2045 - tl.minimum(exponent, 2044)) << 52).to(tl.float64, bitcast=True)
    return tl.where((norm > 0) & (norm < _INF), scale, 1.0)


@triton.jit(do_not_specialize=["num_rows"])
def _center(
    x, x_row, x_step, center, num_rows, dim, UNIT: tl.constexpr, ROWS: tl.constexpr, SIZE: tl.constexpr
):  # fmt: skip
    # Mean of a sample of rows without those that are outliers in SIZE columns: one huge row would move it far away.
    n = tl.arange(0, ROWS)
    valid, rows = (n < num_rows)[:, None], x + (n.to(tl.int64) * x_row)[:, None]
    unit = _unit(rows, x_step, valid, dim, SIZE, UNIT)
    is_close, d = n < num_rows, tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    a = _moved(rows, x_step, d[None, :], valid, dim, unit, center, UNIT, False)
    for turn in range(4):
        count = tl.sum(is_close.to(tl.float64), axis=0)
        mean = tl.sum(tl.where((turn > 0) & is_close[:, None], a, 0.0), axis=0) / tl.maximum(count, 1.0)
        tl.store(center + d, mean, mask=d < dim)
        distance = tl.sum((a - mean[None, :]) * (a - mean[None, :]), axis=1)
        # In the first iteration these are the norms, finite where the rows are. NaN is never close.
        distance = tl.where(is_close & (distance < _INF), distance, _INF)
        before = tl.sum((distance[None, :] < distance[:, None]).to(tl.int32), axis=1)
        in_half = (distance < _INF) & (2 * before < tl.sum((distance < _INF).to(tl.int32), axis=0))
        median = tl.max(tl.where(in_half, distance, 0.0), axis=0)
        is_close = (distance < _INF) & ((turn == 0) | (distance <= 16 * median))


@triton.jit(do_not_specialize=["count"])
def _lengths(
    x, x_row, x_step, center, norms, nonfinite, largest, count, dim,
    UNIT: tl.constexpr, ROWS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    valid, rows = (n < count)[:, None], x + (n.to(tl.int64) * x_row)[:, None]
    unit = _unit(rows, x_step, valid, dim, SIZE, UNIT)
    total = tl.zeros((ROWS,), dtype=tl.float64)
    for start in range(0, dim, SIZE):
        a = _moved(rows, x_step, start + tl.arange(0, SIZE)[None, :], valid, dim, unit, center, UNIT, True)
        total += tl.sum(a * a, axis=1)
    finite = total < _INF
    norm = tl.where(finite, tl.sqrt(tl.where(finite, total, 0.0)), 0.0)
    tl.store(norms + n, norm, mask=n < count)
    tl.store(nonfinite + n, (total != total) | (total == _INF), mask=n < count)
    # Non-negative floats have the order of these integers.
    tl.atomic_max(largest, tl.max(norm.to(tl.int64, bitcast=True), axis=0), sem="relaxed")


@triton.jit
def _sizes(center, largest, fixed_scale, sizes, dim, HAS_SCALE: tl.constexpr, SIZE: tl.constexpr):
    # ->  (3,): the scale, the scaled largest norm, the scaled norm of the center
    norm = tl.load(largest).to(tl.float64, bitcast=True)
    scale = tl.load(fixed_scale) if HAS_SCALE else _power_of_two(norm)
    total = tl.zeros((1,), dtype=tl.float64)
    for start in range(0, dim, SIZE):
        d = start + tl.arange(0, SIZE)
        c = tl.load(center + d, mask=d < dim, other=0.0) * scale
        total += tl.sum(c * c, axis=0)
    tl.store(sizes, scale)
    tl.store(sizes + 1, norm * scale)
    tl.store(sizes + 2 + tl.arange(0, 1), tl.sqrt(total))


@triton.jit
def _rounded_up(bound):
    return (bound * (1 + 2.0**-19) + 2.0**-120).to(tl.float32)


@triton.jit
def _stored(
    x, step, valid, dim, unit, center, scale, table, width,
    UNIT: tl.constexpr, CENTRED: tl.constexpr, PARTS: tl.constexpr, LOW: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    # x, table: (N, 1) pointers to rows  scale: (N, 1)  LOW: the segment of the low part
    # ->  (N,) float64 each: norms of the row, of the rounding error, of the rounded row, of the low part
    length = tl.zeros((x.shape[0],), dtype=tl.float64)
    lost, rounded, small = length, length, length
    for start in range(0, width, SIZE):
        d = start + tl.arange(0, SIZE)[None, :]
        a = _moved(x, step, d, valid, dim, unit, center, UNIT, CENTRED) * scale
        a = tl.where(valid, a, 0.0)
        high = a.to(tl.float16)
        rest = a - high.to(tl.float64)
        if PARTS == 1:
            tl.store(table + d, high)
        else:
            low = rest.to(tl.float16)
            rest = rest - low.to(tl.float64)
            small += tl.sum(low.to(tl.float64) * low.to(tl.float64), axis=1)
            tl.store(table + LOW * width + d, low)
            tl.store(table + (1 - LOW) * width + d, high)
            tl.store(table + 2 * width + d, high)
        length += tl.sum(a * a, axis=1)
        lost += tl.sum(rest * rest, axis=1)
        rounded += tl.sum(high.to(tl.float64) * high.to(tl.float64), axis=1)
    return tl.sqrt(length), tl.sqrt(lost), tl.sqrt(rounded) + tl.sqrt(small), tl.sqrt(small)


@triton.jit
def _store_left(
    left, n, size, length, lost, rounded, small, sizes, max_low, rounding, summing,
    factor: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    # See `Float16Filter._left`; the factor is 2 for Euclidean distances only.
    query_error = rounding * length
    query_error *= 2 * length if factor == 2 else _LIFT * (tl.load(sizes + 1) + 2 * tl.load(sizes + 2))
    if PARTS == 2:
        query_error += factor * small * tl.load(max_low).to(tl.float64, bitcast=True)
    tl.store(left + n, _rounded_up(factor * (lost + summing * rounded)))
    tl.store(left + size + n, _rounded_up(factor * length))
    tl.store(left + 2 * size + n, _rounded_up(2 * query_error))


@triton.jit
def _group(lengths, block, dealt, BLOCK: tl.constexpr):
    # lengths: bits of float64 norms, ascending  ->  that of a block of consecutive rows; in one, norms differ 16 times
    last = tl.load(lengths + tl.minimum(block * BLOCK + BLOCK - 1, dealt - 1)) >> 52
    return ((tl.load(lengths + dealt - 1) >> 52) - last) // 4


@triton.jit
def _first_block(lengths, group, near, dealt, BLOCK: tl.constexpr):
    low, high = 0, near
    while low < high:
        mid = (low + high) // 2
        is_before = _group(lengths, mid, dealt, BLOCK) > group
        low, high = tl.where(is_before, mid + 1, low), tl.where(is_before, high, mid)
    return low


@triton.jit(do_not_specialize=["count"])
def _references(
    x, x_row, x_step, center, nonfinite, lengths, ordered, sizes,
    table, bias, order, position, row_bounds, right, left, max_low, count, size, dim, width, rounding, summing,
    factor: tl.constexpr, UNIT: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr, STRIDE: tl.constexpr,
    LONGEST: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    # A program writes one block of references, see `Float16Filter.positions`; their positions are STRIDE apart.
    block, s, blocks = tl.program_id(0), tl.arange(0, BLOCK), size // BLOCK
    slot = block // STRIDE * (BLOCK * STRIDE) + s * STRIDE + block % STRIDE
    near, dealt = blocks - blocks // LONGEST, count - blocks // LONGEST * BLOCK
    group = _group(lengths, block, dealt, BLOCK)
    start = _first_block(lengths, group, near, dealt, BLOCK)
    step = _first_block(lengths, group - 1, near, dealt, BLOCK) - start
    n = tl.where(block < near, start * BLOCK + s * step + block - start, dealt + (block - near) * BLOCK + s)
    is_row = n < tl.where(block < near, dealt, count)
    row = tl.load(ordered + n, mask=is_row, other=0)
    valid = is_row & (tl.load(nonfinite + row, mask=is_row, other=1) == 0)
    rows, scale = x + (row.to(tl.int64) * x_row)[:, None], tl.load(sizes) * _LIFT
    unit = _unit(rows, x_step, valid[:, None], dim, SIZE, UNIT)
    segments: tl.constexpr = 2 * PARTS - 1
    to = table + (slot.to(tl.int64) * (segments * width))[:, None]
    length, lost, rounded, small = _stored(
        rows, x_step, valid[:, None], dim, unit, center, scale, to, width, UNIT, True, PARTS, 1, SIZE
    )
    ref_error = (9 * _EPS + 2 * rounding) * length * length if factor == 2 else tl.zeros_like(length)
    value = length * length if factor == 2 else ref_error
    tl.store(bias + slot, tl.where(valid, value, _INF).to(tl.float32))
    tl.store(order + slot, tl.where(is_row, row, -1).to(tl.int32))
    tl.store(position + row, slot.to(tl.int64), mask=is_row)
    rounded32, lost32, ref_error32 = _rounded_up(rounded), _rounded_up(lost), _rounded_up(ref_error)
    tl.store(row_bounds + slot, rounded32)
    tl.store(row_bounds + size + slot, lost32)
    tl.store(row_bounds + 2 * size + slot, ref_error32)
    tl.store(right + block, tl.max(rounded32, axis=0))
    tl.store(right + blocks + block, tl.max(lost32, axis=0))
    tl.store(right + 2 * blocks + block, tl.max(ref_error32, axis=0))
    if PARTS == 2:
        tl.atomic_max(max_low, tl.max(small.to(tl.int64, bitcast=True), axis=0), sem="relaxed")
    elif factor == 2:  # the references can be the queries
        _store_left(left, slot, size, length, lost, rounded, small, sizes, max_low, rounding, summing, factor, PARTS)


@triton.jit(do_not_specialize=["count"])
def _queries(
    x, x_row, x_step, center, sizes, max_low, table, left, is_bounded, query_scale, count, size, dim, width,
    rounding, summing,
    factor: tl.constexpr, UNIT: tl.constexpr, PARTS: tl.constexpr, ORDERED: tl.constexpr, ROWS: tl.constexpr,
    SIZE: tl.constexpr,
):  # fmt: skip
    # ORDERED: references in their order; `left` gets their `row_bounds`, infinite for those far from the center, and
    # `query_scale` their `bias` and a zero.
    n = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    centered: tl.constexpr = factor == 2
    valid, rows = (n < count)[:, None], x + (n.to(tl.int64) * x_row)[:, None]
    unit = _unit(rows, x_step, valid, dim, SIZE, UNIT)
    total = tl.zeros((ROWS,), dtype=tl.float64)
    for start in range(0, dim, SIZE):
        a = _moved(rows, x_step, start + tl.arange(0, SIZE)[None, :], valid, dim, unit, center, UNIT, centered)
        total += tl.sum(a * a, axis=1)
    norm = tl.sqrt(total)
    scale = tl.load(sizes) if centered else _power_of_two(norm)
    if not centered:
        tl.store(query_scale + n, scale, mask=n < count)
    scale *= _LIFT
    bounded = (n < count) & (norm * scale < 2.0**15)
    segments: tl.constexpr = 2 * PARTS - 1
    to = table + (n.to(tl.int64) * (segments * width))[:, None]
    scale = (scale + tl.zeros_like(norm))[:, None]
    length, lost, rounded, small = _stored(
        rows, x_step, bounded[:, None], dim, unit, center, scale, to, width, UNIT, centered, PARTS, 0, SIZE
    )
    tl.store(is_bounded + n, bounded, mask=n < count)
    if ORDERED:
        ref_error = tl.where(bounded | (n >= count), (9 * _EPS + 2 * rounding) * length * length, _INF)
        tl.store(query_scale + n, tl.where(n < count, length * length, _INF).to(tl.float32))
        tl.store(query_scale + size, 0.0)
        tl.store(left + n, _rounded_up(rounded))
        tl.store(left + size + n, _rounded_up(lost))
        tl.store(left + 2 * size + n, _rounded_up(ref_error))
    else:
        _store_left(left, n, size, length, lost, rounded, small, sizes, max_low, rounding, summing, factor, PARTS)


def _columns(dim: int, limit: int) -> int:
    return min(max(triton.next_power_of_2(dim), 16), limit)


def lengths(
    rows: Tensor, unit: bool, normalization: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    # rows: (N, D)  normalization: center (D,) and scale () float64, None: computed from the rows
    # ->  (D,) float64 center, (N,) float64 norms, (N,) bool nonfinite, (3,) float64, see `_sizes`
    (count, dim), device = rows.shape, rows.device
    center = torch.empty(dim, dtype=torch.float64, device=device) if normalization is None else normalization[0]
    if normalization is None:
        apart = triton.cdiv(count, _SAMPLE)
        launch(
            _center, (triton.cdiv(dim, 32),),
            rows[::apart], apart * rows.stride(0), rows.stride(1), center, triton.cdiv(count, apart), dim,
            UNIT=unit, ROWS=_SAMPLE, SIZE=32, num_warps=8, enable_fp_fusion=False,
        )  # fmt: skip
    norms = torch.empty(count, dtype=torch.float64, device=device)
    nonfinite = torch.empty(count, dtype=torch.bool, device=device)
    largest = torch.zeros(1, dtype=torch.int64, device=device)
    sizes = torch.empty(3, dtype=torch.float64, device=device)
    size = _columns(dim, 256)
    rows_per_program = 2048 // size
    launch(
        _lengths, (triton.cdiv(count, rows_per_program),),
        rows, *rows.stride(), center, norms, nonfinite.view(torch.int8), largest, count, dim,
        UNIT=unit, ROWS=rows_per_program, SIZE=size, enable_fp_fusion=False,
    )  # fmt: skip
    scale = sizes if normalization is None else normalization[1]
    options = {"HAS_SCALE": normalization is not None, "SIZE": size, "enable_fp_fusion": False}
    launch(_sizes, (1,), center, largest, scale, sizes, dim, **options)
    return center, norms, nonfinite, sizes


def references(
    rows: Tensor, center: Tensor, norms: Tensor, nonfinite: Tensor, sizes: Tensor, rounding: float, summing: float,
    factor: int, unit: bool, parts: int, block: int, stride: int, longest: int, size: int, width: int,
) -> Float16References:  # fmt: skip
    # rows: (R, D)  ->  tables of `size` rows, `width` columns in each segment
    device, (count, dim) = rows.device, rows.shape
    table = torch.empty(size, (2 * parts - 1) * width, dtype=torch.float16, device=device)
    order = torch.empty(size + 1, dtype=torch.int32, device=device)
    position = torch.empty(count, dtype=torch.int64, device=device)
    bounds = torch.empty(7 * size + 3 * (size // block), dtype=torch.float32, device=device)
    row_bounds, left, bias, right = bounds.split([3 * size, 3 * size, size, 3 * (size // block)])
    max_low = torch.zeros(1, dtype=torch.int64, device=device)
    ascending, ordered = norms.sort()
    launch(
        _references, (size // block,),
        rows, *rows.stride(), center, nonfinite.view(torch.int8), ascending.view(torch.int64), ordered, sizes,
        table, bias, order, position, row_bounds, right, left, max_low, count, size, dim, width, rounding, summing,
        factor=factor, UNIT=unit, PARTS=parts, BLOCK=block, STRIDE=stride, LONGEST=longest, SIZE=64,
        num_warps=8, enable_fp_fusion=False,
    )  # fmt: skip
    order[-1:].fill_(-1)
    row_bounds, right, left = row_bounds.view(3, size), right.view(3, -1), left.view(3, size)
    return Float16References(table, bias, order, position, row_bounds, right, left, max_low.view(torch.float64), factor)


def queries(
    rows: Tensor, center: Tensor, sizes: Tensor, low: Tensor, rounding: float, summing: float,
    factor: int, unit: bool, parts: int, size: int, width: int, is_ordered: bool = False,
) -> Float16Queries:  # fmt: skip
    # rows: (Q, D)  low: (1,), see `Float16References`  ->  tables of `size` rows, see `_queries`
    table = torch.empty(size, (2 * parts - 1) * width, dtype=torch.float16, device=rows.device)
    left = torch.empty(3, size, dtype=torch.float32, device=rows.device)
    is_bounded = torch.empty(len(rows), dtype=torch.bool, device=rows.device)
    query_scale = left
    if is_ordered or factor != 2:
        scales, dtype = (size + 1, torch.float32) if is_ordered else (len(rows), torch.float64)
        query_scale = torch.empty(scales, dtype=dtype, device=rows.device)
    launch(
        _queries, (size // 32,),
        rows, *rows.stride(), center, sizes, low.view(torch.int64), table, left, is_bounded.view(torch.int8),
        query_scale,
        len(rows), size, rows.shape[1], width, rounding, summing,
        factor=factor, UNIT=unit, PARTS=parts, ORDERED=is_ordered, ROWS=32, SIZE=64, num_warps=8,
        enable_fp_fusion=False,
    )  # fmt: skip
    return Float16Queries(table, left, is_bounded, None if query_scale is left else query_scale)
