"""Triton kernels that make rows ready for float16 products: each reads the rows once and writes what is kept of them.

Only read for CUDA tensors, or where TRITON_INTERPRET=1 lets them run on a CPU. All is computed in float64 and rounded
where it is stored. Sums of D terms go by columns of SIZE at a time and are off by at most (D / SIZE + log2 SIZE) units
of 2^-53: D / 256 + 8 for the norms of the filter, where 4 log2 D + 32 are allowed, and in tables of halves less than
2^-20 of a bound, which is raised by 2^-19.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...._triton import on_its_device
from .tables import Halves, Prepared

WIDEST = 8192  # columns of a row
_SAMPLE = 128  # rows of which the centre is the mean
_LIFT = tl.constexpr(2.0**8)  # see `halves`
_EPS = tl.constexpr(2.0**-24)
_INF = tl.constexpr(float("inf"))


@triton.jit
def _given(x, step, d, there, dim):
    # x: (N, 1) pointers to rows  d: (1, SIZE)  there: (N, 1)  ->  (N, SIZE) float64, 0 where nothing is
    return tl.load(x + d.to(tl.int64) * step, mask=there & (d < dim), other=0).to(tl.float64)


@triton.jit
def _unit(x, step, there, dim, SIZE: tl.constexpr, UNIT: tl.constexpr):
    # ->  (N, 1) float64, what a row is divided by
    total = tl.zeros((x.shape[0],), dtype=tl.float64)
    if UNIT:
        for start in range(0, dim, SIZE):
            a = _given(x, step, start + tl.arange(0, SIZE)[None, :], there, dim)
            total += tl.sum(a * a, axis=1)
    return tl.where(total > 0, tl.sqrt(total), 1.0)[:, None]


@triton.jit
def _moved(x, step, d, there, dim, unit, centre, UNIT: tl.constexpr, CENTRED: tl.constexpr):
    # ->  (N, SIZE) float64, 0 where nothing is
    a = _given(x, step, d, there, dim)
    if UNIT:
        a = a / unit
    if CENTRED:
        a = a - tl.load(centre + d, mask=d < dim, other=0.0)
        a = tl.where(there, a, 0.0)
    return a


@triton.jit
def _power_of_two(norm):
    # As `_exact_sums.power_of_two`, for normal numbers.
    exponent = (norm.to(tl.int64, bitcast=True) >> 52) & 0x7FF
    scale = ((2045 - tl.minimum(exponent, 2044)) << 52).to(tl.float64, bitcast=True)
    return tl.where((norm > 0) & (norm < _INF), scale, 1.0)


@triton.jit(do_not_specialize=["some"])
def _middle(
    x, x_row, x_step, centre, some, dim, UNIT: tl.constexpr, ROWS: tl.constexpr, SIZE: tl.constexpr
):  # fmt: skip
    # The mean of some rows, but for those far from it: one huge row would take it away from all others.
    n = tl.arange(0, ROWS)
    there, rows = (n < some)[:, None], x + (n.to(tl.int64) * x_row)[:, None]
    unit = _unit(rows, x_step, there, dim, SIZE, UNIT)
    near = n < some
    for turn in range(4):
        away, number = tl.zeros((ROWS,), dtype=tl.float64), tl.sum(near.to(tl.float64), axis=0)
        for start in range(0, dim, SIZE):
            d = start + tl.arange(0, SIZE)
            a = _moved(rows, x_step, d[None, :], there, dim, unit, centre, UNIT, False)
            mean = tl.sum(tl.where((turn > 0) & near[:, None], a, 0.0), axis=0) / tl.maximum(number, 1.0)
            away += tl.sum((a - mean[None, :]) * (a - mean[None, :]), axis=1)
            tl.store(centre + d, mean, mask=d < dim)
        # At first these are the norms, which are finite where the rows are. NaN is near nothing.
        away = tl.where(near & (away < _INF), away, _INF)
        before = tl.sum((away[None, :] < away[:, None]).to(tl.int32), axis=1)
        inside = (away < _INF) & (2 * before < tl.sum((away < _INF).to(tl.int32), axis=0))
        median = tl.max(tl.where(inside, away, 0.0), axis=0)
        near = (away < _INF) & ((turn == 0) | (away <= 16 * median))


@triton.jit(do_not_specialize=["count"])
def _lengths(
    x, x_row, x_step, centre, norms, hidden, largest, count, dim,
    UNIT: tl.constexpr, ROWS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    there, rows = (n < count)[:, None], x + (n.to(tl.int64) * x_row)[:, None]
    unit = _unit(rows, x_step, there, dim, SIZE, UNIT)
    total = tl.zeros((ROWS,), dtype=tl.float64)
    for start in range(0, dim, SIZE):
        a = _moved(rows, x_step, start + tl.arange(0, SIZE)[None, :], there, dim, unit, centre, UNIT, True)
        total += tl.sum(a * a, axis=1)
    finite = total < _INF
    norm = tl.where(finite, tl.sqrt(tl.where(finite, total, 0.0)), 0.0)
    tl.store(norms + n, norm, mask=n < count)
    tl.store(hidden + n, (total != total) | (total == _INF), mask=n < count)
    # Floats that are not negative are in the order of these integers.
    tl.atomic_max(largest, tl.max(norm.to(tl.int64, bitcast=True), axis=0))


@triton.jit
def _sizes(centre, largest, given, sizes, dim, FRAMED: tl.constexpr, SIZE: tl.constexpr):
    # ->  (3,): the scale, the largest norm and that of the centre, both scaled
    norm = tl.load(largest).to(tl.float64, bitcast=True)
    scale = tl.load(given) if FRAMED else _power_of_two(norm)
    total = tl.zeros((1,), dtype=tl.float64)
    for start in range(0, dim, SIZE):
        d = start + tl.arange(0, SIZE)
        c = tl.load(centre + d, mask=d < dim, other=0.0) * scale
        total += tl.sum(c * c, axis=0)
    tl.store(sizes, scale)
    tl.store(sizes + 1, norm * scale)
    tl.store(sizes + 2 + tl.arange(0, 1), tl.sqrt(total))


@triton.jit
def _rounded_up(bound):
    return (bound * (1 + 2.0**-19) + 2.0**-120).to(tl.float32)


@triton.jit
def _stored(
    x, step, there, dim, unit, centre, scale, table, width,
    UNIT: tl.constexpr, CENTRED: tl.constexpr, PARTS: tl.constexpr, LOW: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    # x, table: (N, 1) pointers to rows  scale: (N, 1)  LOW: the piece that holds the low part
    # ->  (N,) float64 each: norm, norm of what is lost, of the high part, of the low part
    length = tl.zeros((x.shape[0],), dtype=tl.float64)
    lost, kept, small = length, length, length
    for start in range(0, width, SIZE):
        d = start + tl.arange(0, SIZE)[None, :]
        a = _moved(x, step, d, there, dim, unit, centre, UNIT, CENTRED) * scale
        a = tl.where(there, a, 0.0)
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
        kept += tl.sum(high.to(tl.float64) * high.to(tl.float64), axis=1)
    return tl.sqrt(length), tl.sqrt(lost), tl.sqrt(kept) + tl.sqrt(small), tl.sqrt(small)


@triton.jit
def _store_left(
    left, n, size, length, lost, kept, small, sizes, most, rounding, summing,
    factor: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    # See `HalfFilter._left`; a factor of 2 is that of Euclidean distances.
    own = rounding * length
    own *= 2 * length if factor == 2 else _LIFT * (tl.load(sizes + 1) + 2 * tl.load(sizes + 2))
    if PARTS == 2:
        own += factor * small * tl.load(most).to(tl.float64, bitcast=True)
    tl.store(left + n, _rounded_up(factor * (lost + summing * kept)))
    tl.store(left + size + n, _rounded_up(factor * length))
    tl.store(left + 2 * size + n, _rounded_up(2 * own))


@triton.jit(do_not_specialize=["count"])
def _references(
    x, x_row, x_step, centre, hidden, ordered, sizes,
    table, bias, order, position, each, right, left, most, count, size, dim, width, rounding, summing,
    factor: tl.constexpr, UNIT: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr, STRIDE: tl.constexpr,
    SIZE: tl.constexpr,
):  # fmt: skip
    # A program makes one block, of references that follow each other by norm; their places are STRIDE apart.
    block = tl.program_id(0)
    n = block * BLOCK + tl.arange(0, BLOCK)
    place = block // STRIDE * (BLOCK * STRIDE) + tl.arange(0, BLOCK) * STRIDE + block % STRIDE
    row = tl.load(ordered + n, mask=n < count, other=0)
    there = (n < count) & (tl.load(hidden + row, mask=n < count, other=1) == 0)
    rows, scale = x + (row.to(tl.int64) * x_row)[:, None], tl.load(sizes) * _LIFT
    unit = _unit(rows, x_step, there[:, None], dim, SIZE, UNIT)
    pieces: tl.constexpr = 2 * PARTS - 1
    to = table + (place.to(tl.int64) * (pieces * width))[:, None]
    length, lost, kept, small = _stored(
        rows, x_step, there[:, None], dim, unit, centre, scale, to, width, UNIT, True, PARTS, 1, SIZE
    )
    own = (9 * _EPS + 2 * rounding) * length * length if factor == 2 else tl.zeros_like(length)
    value = length * length if factor == 2 else own
    tl.store(bias + place, tl.where(there, value, _INF).to(tl.float32))
    tl.store(order + place, tl.where(n < count, row, -1).to(tl.int32))
    tl.store(position + row, place.to(tl.int64), mask=n < count)
    blocks = size // BLOCK
    kept32, lost32, own32 = _rounded_up(kept), _rounded_up(lost), _rounded_up(own)
    tl.store(each + place, kept32)
    tl.store(each + size + place, lost32)
    tl.store(each + 2 * size + place, own32)
    tl.store(right + block, tl.max(kept32, axis=0))
    tl.store(right + blocks + block, tl.max(lost32, axis=0))
    tl.store(right + 2 * blocks + block, tl.max(own32, axis=0))
    if PARTS == 2:
        tl.atomic_max(most, tl.max(small.to(tl.int64, bitcast=True), axis=0))
    elif factor == 2:  # the references can be the queries
        _store_left(left, place, size, length, lost, kept, small, sizes, most, rounding, summing, factor, PARTS)


@triton.jit(do_not_specialize=["count"])
def _queries(
    x, x_row, x_step, centre, sizes, most, table, left, known, own, count, size, dim, width, rounding, summing,
    factor: tl.constexpr, UNIT: tl.constexpr, PARTS: tl.constexpr, ROWS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    centred: tl.constexpr = factor == 2
    there, rows = (n < count)[:, None], x + (n.to(tl.int64) * x_row)[:, None]
    unit = _unit(rows, x_step, there, dim, SIZE, UNIT)
    total = tl.zeros((ROWS,), dtype=tl.float64)
    for start in range(0, dim, SIZE):
        a = _moved(rows, x_step, start + tl.arange(0, SIZE)[None, :], there, dim, unit, centre, UNIT, centred)
        total += tl.sum(a * a, axis=1)
    norm = tl.sqrt(total)
    scale = tl.load(sizes) if centred else _power_of_two(norm)
    if not centred:
        tl.store(own + n, scale, mask=n < count)
    scale *= _LIFT
    sure = (n < count) & (norm * scale < 2.0**15)
    pieces: tl.constexpr = 2 * PARTS - 1
    to = table + (n.to(tl.int64) * (pieces * width))[:, None]
    scale = (scale + tl.zeros_like(norm))[:, None]
    length, lost, kept, small = _stored(
        rows, x_step, sure[:, None], dim, unit, centre, scale, to, width, UNIT, centred, PARTS, 0, SIZE
    )
    tl.store(known + n, sure, mask=n < count)
    _store_left(left, n, size, length, lost, kept, small, sizes, most, rounding, summing, factor, PARTS)


def _columns(dim: int, most: int) -> int:
    return min(max(triton.next_power_of_2(dim), 16), most)


@on_its_device
def lengths(rows: Tensor, unit: bool, frame: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    # rows: (N, D)  frame: centre (D,) and scale () float64, None = their own
    # ->  (D,) float64 centre, (N,) float64 norms, (N,) bool hidden, (3,) float64, see `_sizes`
    (count, dim), device = rows.shape, rows.device
    centre = torch.empty(dim, dtype=torch.float64, device=device) if frame is None else frame[0]
    if frame is None:
        apart = triton.cdiv(count, _SAMPLE)
        _middle[(1,)](
            rows[::apart], apart * rows.stride(0), rows.stride(1), centre, triton.cdiv(count, apart), dim,
            UNIT=unit, ROWS=_SAMPLE,
            SIZE=16, num_warps=8, enable_fp_fusion=False,
        )  # fmt: skip
    norms = torch.empty(count, dtype=torch.float64, device=device)
    hidden = torch.empty(count, dtype=torch.bool, device=device)
    largest = torch.zeros(1, dtype=torch.int64, device=device)
    sizes = torch.empty(3, dtype=torch.float64, device=device)
    size = _columns(dim, 256)
    many = 2048 // size
    _lengths[(triton.cdiv(count, many),)](
        rows, *rows.stride(), centre, norms, hidden.view(torch.int8), largest, count, dim, UNIT=unit, ROWS=many,
        SIZE=size, enable_fp_fusion=False,
    )  # fmt: skip
    given = sizes if frame is None else frame[1]
    _sizes[(1,)](centre, largest, given, sizes, dim, FRAMED=frame is not None, SIZE=size, enable_fp_fusion=False)
    return centre, norms, hidden, sizes


@on_its_device
def references(
    rows: Tensor, centre: Tensor, norms: Tensor, hidden: Tensor, sizes: Tensor, rounding: float, summing: float,
    factor: int, unit: bool, parts: int, block: int, stride: int, size: int, width: int,
) -> Prepared:  # fmt: skip
    # rows: (R, D)  ->  tables of `size` places, `width` columns in each piece
    device, (count, dim) = rows.device, rows.shape
    table = torch.empty(size, (2 * parts - 1) * width, dtype=torch.float16, device=device)
    order = torch.empty(size + 1, dtype=torch.int32, device=device)
    position = torch.empty(count, dtype=torch.int64, device=device)
    bounds = torch.empty(7 * size + 3 * (size // block), dtype=torch.float32, device=device)
    each, left, bias, right = bounds.split([3 * size, 3 * size, size, 3 * (size // block)])
    most = torch.zeros(1, dtype=torch.int64, device=device)
    _references[(size // block,)](
        rows, *rows.stride(), centre, hidden.view(torch.int8), norms.argsort(), sizes,
        table, bias, order, position, each, right, left, most, count, size, dim, width, rounding, summing,
        factor=factor, UNIT=unit, PARTS=parts, BLOCK=block, STRIDE=stride, SIZE=64, num_warps=8,
        enable_fp_fusion=False,
    )  # fmt: skip
    order[-1:].fill_(-1)
    return Prepared(
        table,
        bias,
        order,
        position,
        each.view(3, size),
        right.view(3, -1),
        left.view(3, size),
        most.view(torch.float64),
    )


@on_its_device
def queries(
    rows: Tensor, centre: Tensor, sizes: Tensor, low: Tensor, rounding: float, summing: float,
    factor: int, unit: bool, parts: int, size: int, width: int,
) -> Halves:  # fmt: skip
    # rows: (Q, D)  low: (1,), see `Prepared`  ->  tables of `size` rows
    table = torch.empty(size, (2 * parts - 1) * width, dtype=torch.float16, device=rows.device)
    left = torch.empty(3, size, dtype=torch.float32, device=rows.device)
    known = torch.empty(len(rows), dtype=torch.bool, device=rows.device)
    own = left if factor == 2 else torch.empty(len(rows), dtype=torch.float64, device=rows.device)
    _queries[(size // 32,)](
        rows, *rows.stride(), centre, sizes, low.view(torch.int64), table, left, known.view(torch.int8), own,
        len(rows), size, rows.shape[1], width, rounding, summing,
        factor=factor, UNIT=unit, PARTS=parts, ROWS=32, SIZE=64, num_warps=8, enable_fp_fusion=False,
    )  # fmt: skip
    return Halves(table, left, known, None if factor == 2 else own)
