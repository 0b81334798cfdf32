"""Triton kernels of the permutation tests: random draws, and their sums, which are never stored.

Imported only for CUDA tensors, or if TRITON_INTERPRET=1 lets them run on a CPU. Sums are integers, so the order of
addition does not matter.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import pad

from ...core.native.triton import launch
from ...core.numbers.splitmix import FIRST, SECOND, STEP
from .random import Tails

_TESTS, _ROWS = 128, 128  # of a tile of sums
_PARTITIONS_PER_PROGRAM = 128  # partitions of a program
_PROGRAMS = 4096  # enough to fill a GPU several times
_LARGEST = 46  # bits of a unit: its upper three bytes hold 23 bits, and the sum of 128 of them is below 2^30
_BIAS = 0x808080808080  # 128 in each of six bytes, makes digits signed
_STEP, _FIRST, _SECOND = (tl.constexpr(c) for c in (STEP, FIRST, SECOND))


@triton.jit
def _mixed(z, BITS: tl.constexpr):
    return z ^ (z.to(tl.uint64, bitcast=True) >> BITS).to(tl.int64, bitcast=True)


@triton.jit
def _random_int64(offset, row, column):
    # row: int64  ->  int64, that of `random_int64`
    z = (row * 16777216 + column) * _STEP + offset
    return _mixed(_mixed(_mixed(z, 30) * _FIRST, 27) * _SECOND, 31)


@triton.jit(do_not_specialize=["offset", "start"])
def _signs(out, offset, start, size, pairs, SIZE: tl.constexpr):
    n = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    tl.store(out + n, (_random_int64(offset, start + n // pairs, n % pairs) < 0).to(tl.int8), mask=n < size)


@triton.jit(do_not_specialize=["offset", "start"])
def _partitions(n, size, out, offset, start, rows, num_positions, ROWS: tl.constexpr):
    num_blocks, program = tl.cdiv(rows, ROWS), tl.program_id(0).to(tl.int64)
    group, row = program // num_blocks, program % num_blocks * ROWS + tl.arange(0, ROWS)
    needed, left = tl.load(n + group) + tl.zeros((ROWS,), dtype=tl.int64), tl.load(size + group)
    p = tl.arange(0, 64)[None, :]
    for first in range(0, num_positions, 64):
        selected = tl.zeros((ROWS,), dtype=tl.int64)
        for step in range(32):
            random_bits = _random_int64(offset, start + row, first // 2 + step)
            for half in tl.static_range(2):
                draw = (random_bits >> (32 * half)) & 0xFFFFFFFF
                is_selected = ((draw * tl.maximum(left, 0)) >> 32 < needed).to(tl.int64)
                selected |= is_selected << (2 * step + half)
                needed -= is_selected
                left -= 1
        pointers = out + (group * rows + row)[:, None] * num_positions + first + p
        tl.store(
            pointers,
            ((selected[:, None] >> p) & 1).to(tl.int8),
            mask=(row[:, None] < rows) & (first + p < num_positions),
        )


@triton.jit
def _units(scores, units, grid, is_finite, num_scores, bits, SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    scores, units = scores + row * num_scores, units + row * num_scores
    largest, finite = tl.full((SIZE,), 1.0, tl.float64), tl.full((SIZE,), 1, tl.int32)
    for first in range(0, num_scores, SIZE):
        p = first + tl.arange(0, SIZE)
        modulus = tl.abs(tl.load(scores + p, mask=p < num_scores, other=0.0))
        largest = tl.maximum(largest, modulus)
        finite = tl.minimum(finite, (modulus < float("inf")).to(tl.int32))  # not of NaN
    all_finite = tl.min(finite, axis=0)
    # The power of two that is at most the largest, by its exponent alone, and times 2^-bits.
    exponent = (tl.max(largest, axis=0).to(tl.int64, bitcast=True) >> 52) - bits
    unit = tl.where(all_finite > 0, exponent << 52, 0x7FF8000000000000).to(tl.float64, bitcast=True)
    tl.store(grid + row, unit)
    tl.store(is_finite + row, all_finite.to(tl.int8))
    for first in range(0, num_scores, SIZE):
        p = first + tl.arange(0, SIZE)
        score = tl.load(scores + p, mask=p < num_scores, other=0.0)
        # Adding 1.5 * 2^52 rounds to integers, halves to even ones.
        rounded = tl.where(all_finite > 0, score / unit, 0.0) + 6755399441055744.0 - 6755399441055744.0
        tl.store(units + p, rounded.to(tl.int64), mask=p < num_scores)


@triton.jit
def _load_digits(digits, block, byte, tests, WIDTH: tl.constexpr, TESTS: tl.constexpr):
    # digits: (6, tests, WIDTH)  ->  (TESTS, WIDTH), digits of one block of tests
    t, p = block * TESTS + tl.arange(0, TESTS), tl.arange(0, WIDTH)
    return tl.load(digits + (byte * tests + t).to(tl.int64)[:, None] * WIDTH + p[None, :])


@triton.jit
def _load_masks(masks, tile, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    # masks: (rows, WIDTH)  ->  (WIDTH, ROWS)
    r, p = tile * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    return tl.trans(tl.load(masks + r.to(tl.int64)[:, None] * WIDTH + p[None, :]))


@triton.jit
def _sums(high, mid, low, mask, start):
    # high, mid, low: (TESTS, WIDTH) int8  mask: (WIDTH, ROWS)  start: (TESTS,)  ->  (TESTS, ROWS) int32
    sums = tl.dot(high, mask, out_dtype=tl.int32)
    sums = tl.dot(mid, mask, sums * 256, out_dtype=tl.int32)
    return tl.dot(low, mask, sums * 256 + start[:, None], out_dtype=tl.int32)


@triton.jit
def _write_digits(
    units, first_bound, last_bound, digits, bounds_of_upper, num_below, undecided,
    batch, num_positions, num_padding, tests, tests_of_bound, first_sign,
    WIDTH: tl.constexpr, LARGEST: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    # A program per test: sums of the units of a row >= the first bound, or <= it where `first_sign` is -1, or <= the
    # last bound. Signs turn every test into sum >= low. Tests beyond the rows repeat the last.
    test = tl.program_id(0)
    row, is_first = tl.minimum(test % tests_of_bound, batch - 1), test < tests_of_bound
    p = tl.arange(0, WIDTH)
    sign = tl.where(is_first, first_sign, -1).to(tl.int64)
    low = sign * tl.where(is_first, tl.load(first_bound + row), tl.load(last_bound + row))
    unit = sign * tl.load(units + row.to(tl.int64) * num_positions + p, mask=p < num_positions, other=0)
    bits = tl.sum((tl.max(tl.abs(unit), axis=0) >> tl.arange(0, 64) > 0).to(tl.int32), axis=0)
    shift = (LARGEST - bits).to(tl.int64)
    tl.store(num_below + test, tl.where(low <= 0, num_padding, 0))  # empty draws with the sum 0 are not counted
    unit, low = unit << shift, low << shift
    packed = (unit + BIAS) ^ BIAS
    for byte in tl.static_range(6):
        tl.store(digits + (byte * tests + test).to(tl.int64) * WIDTH + p, (packed >> (8 * byte)).to(tl.int8))
    lower = unit - ((unit + (BIAS & 0xFFFFFF)) >> 24 << 24)
    bottom, top = tl.sum(tl.minimum(lower, 0), axis=0), tl.sum(tl.maximum(lower, 0), axis=0)
    # A sum of upper bytes that begins at `start` decides if it ends at 0 or above, or so far below 0 that beginning at
    # `end` would not have raised it to 0. No sum exceeds 2^30.
    start = tl.minimum(tl.maximum((bottom - low) >> 24, -1073741824), 1073741824)
    end = tl.minimum(tl.maximum((top - low) >> 24, -1073741824), 1073741824)
    tl.store(bounds_of_upper + test, start.to(tl.int32))
    tl.store(bounds_of_upper + tests + test, (start - end - 1).to(tl.int32))
    # The remainder minus the smallest sum of lower bytes.
    tl.store(bounds_of_upper + 2 * tests + test, (((bottom - low) & 0xFFFFFF) - bottom).to(tl.int32))
    if test == 0:
        tl.store(undecided, 0)


@triton.jit
def _count(
    masks, digits, start, threshold, num_below, undecided, tests, tiles, span,
    WIDTH: tl.constexpr, TESTS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    block, first = tl.program_id(0), tl.program_id(1) * span
    t = block * TESTS + tl.arange(0, TESTS)
    high = _load_digits(digits, block, 5, tests, WIDTH, TESTS)
    mid = _load_digits(digits, block, 4, tests, WIDTH, TESTS)
    low = _load_digits(digits, block, 3, tests, WIDTH, TESTS)
    zero, limit = tl.load(start + t), tl.load(threshold + t).to(tl.uint32, bitcast=True)
    count = tl.zeros((TESTS,), dtype=tl.int32)
    for tile in range(first, tl.minimum(first + span, tiles)):
        over = _sums(high, mid, low, _load_masks(masks, tile, WIDTH, ROWS), zero)
        below = tl.sum((over < 0).to(tl.int32), axis=1)
        # As unsigned integers, negative sums are the largest, and greatest where they are closest to 0.
        nearest = tl.max(over.to(tl.uint32, bitcast=True), axis=1)
        if tl.max((nearest > limit).to(tl.int32), axis=0) > 0:
            tl.store(undecided + 1 + tl.atomic_add(undecided, 1, sem="relaxed"), tile * tl.num_programs(0) + block)
        else:
            count += below
    tl.atomic_add(num_below + t, count, sem="relaxed")


@triton.jit
def _recount_undecided(
    masks, digits, start, rest, num_below, undecided, tests, blocks,
    WIDTH: tl.constexpr, TESTS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    for n in range(tl.program_id(0), tl.load(undecided), tl.num_programs(0)):
        tile = tl.load(undecided + 1 + n)
        block, mask = tile % blocks, _load_masks(masks, tile // blocks, WIDTH, ROWS)
        t = block * TESTS + tl.arange(0, TESTS)
        fifth = _load_digits(digits, block, 5, tests, WIDTH, TESTS)
        fourth = _load_digits(digits, block, 4, tests, WIDTH, TESTS)
        third = _load_digits(digits, block, 3, tests, WIDTH, TESTS)
        over = _sums(fifth, fourth, third, mask, tl.load(start + t))
        second = _load_digits(digits, block, 2, tests, WIDTH, TESTS)
        first = _load_digits(digits, block, 1, tests, WIDTH, TESTS)
        zeroth = _load_digits(digits, block, 0, tests, WIDTH, TESTS)
        over += _sums(second, first, zeroth, mask, tl.load(rest + t)) >> 24
        tl.atomic_add(num_below + t, tl.sum((over < 0).to(tl.int32), axis=1), sem="relaxed")


def random_partitions(out: Tensor, n: Tensor, size: Tensor, stream_offset: int, start: int) -> Tensor:
    # out: (G, rows, N) bool, is written  n, size: (G,) int64
    groups, rows, num_positions = out.shape
    if out.numel():
        launch(
            _partitions, (groups * triton.cdiv(rows, _PARTITIONS_PER_PROGRAM),),
            n.contiguous(), size.contiguous(), out.view(torch.int8), stream_offset, start, rows, num_positions,
            ROWS=_PARTITIONS_PER_PROGRAM, enable_fp_fusion=False,
        )  # fmt: skip
    return out


def random_signs(out: Tensor, stream_offset: int, start: int) -> Tensor:
    # out: (1, rows, pairs) bool, is written
    if out.numel():
        grid = (triton.cdiv(out.numel(), 1024),)
        sizes = out.numel(), out.shape[-1]
        launch(_signs, grid, out.view(torch.int8), stream_offset, start, *sizes, SIZE=1024, enable_fp_fusion=False)
    return out


def units(scores: Tensor, bits: int) -> tuple[Tensor, Tensor, Tensor]:
    # scores: (B, N) float64  ->  (B, N) int64, (B, 1) float64, (B,) bool, as `permutation._units`
    (batch, num_scores), device = scores.shape, scores.device
    written = torch.empty(batch, num_scores, dtype=torch.int64, device=device)
    grid = torch.empty(batch, 1, dtype=torch.float64, device=device)
    is_finite = torch.empty(batch, dtype=torch.bool, device=device)
    if batch:
        size = min(triton.next_power_of_2(max(num_scores, 1)), 1024)
        launch(
            _units, (batch,),
            scores.contiguous(), written, grid, is_finite.view(torch.int8), num_scores, bits,
            SIZE=size, enable_fp_fusion=False,
        )  # fmt: skip
    return written, grid, is_finite


def count_extreme(selected: Tensor, units: Tensor, tails: Tails) -> Tensor:
    # selected: (rows, N) bool, N <= 128  units: (B, N) int64, at most 2^41 in modulus
    # ->  (B,) int64, the number of extreme sums
    """Count the sums that reach a bound.

    Units times a power of two are written in six bytes from -128 to 127. The sum of the upper three bytes of all
    selected units decides most comparisons: the lower three add at least the sum of their negative parts and at most
    the sum of their positive parts. Tiles with an undecided sum are counted again with all six bytes.
    """
    (batch, num_positions), rows, device = units.shape, len(selected), units.device
    bounds = [bound for bound in tails if bound is not None]
    if not batch:
        return torch.zeros(0, dtype=torch.int64, device=device)
    width, blocks = max(triton.next_power_of_2(num_positions), 32), triton.cdiv(batch, _TESTS) * len(bounds)
    masks = pad(selected, (0, width - num_positions, 0, -rows % _ROWS)).view(torch.int8)
    tests, tiles = blocks * _TESTS, len(masks) // _ROWS
    digits = torch.empty(6, tests, width, dtype=torch.int8, device=device)
    bounds_of_upper = torch.empty(3, tests, dtype=torch.int32, device=device)
    num_below = torch.empty(tests, dtype=torch.int32, device=device)
    undecided = torch.empty(tiles * blocks + 1, dtype=torch.int32, device=device)  # their number comes first
    first_sign = -1 if tails.low is None else 1
    launch(
        _write_digits, (tests,),
        units.contiguous(), bounds[0].contiguous(), bounds[-1].contiguous(), digits, bounds_of_upper, num_below,
        undecided, batch, num_positions, len(masks) - rows, tests, tests // len(bounds), first_sign,
        WIDTH=width, LARGEST=_LARGEST, BIAS=_BIAS, enable_fp_fusion=False,
    )  # fmt: skip
    start, threshold, rest = bounds_of_upper
    span = triton.cdiv(tiles, min(triton.cdiv(_PROGRAMS, blocks), tiles))
    options = {"WIDTH": width, "TESTS": _TESTS, "ROWS": _ROWS, "num_warps": 8, "enable_fp_fusion": False}
    launch(
        _count, (blocks, triton.cdiv(tiles, span)),
        masks, digits, start, threshold, num_below, undecided, tests, tiles, span, num_stages=3, **options,
    )  # fmt: skip
    launch(
        _recount_undecided, (min(tiles * blocks, _PROGRAMS),),
        masks, digits, start, rest, num_below, undecided, tests, blocks, num_stages=1, **options,
    )  # fmt: skip
    below = num_below.view(len(bounds), -1)[:, :batch].sum(0)
    return (len(bounds) * len(masks) - below).clamp(max=rows)  # overlapping tails count the sums in both of them twice
