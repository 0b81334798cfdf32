"""Triton kernels of the tests by random draws: what is drawn, and sums of it that are never stored.

Only read for CUDA tensors, or where TRITON_INTERPRET=1 lets them run on a CPU. Sums are those of integers, so that
nothing depends on their order.
"""

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import pad

from ..._splitmix import FIRST, SECOND, STEP
from ..._triton import on_its_device
from .random import Tails

_TESTS, _ROWS = 128, 128  # of a tile of sums
_DRAWN = 128  # partitions of a program
_PROGRAMS = 4096  # enough of them to fill a GPU several times
_LARGEST = 46  # bits of a unit, so that its upper three bytes hold 23 and 128 of them add up to less than 2^30
_MIDDLE = 0x808080808080  # 128 in each of six bytes
_STEP, _FIRST, _SECOND = (tl.constexpr(c) for c in (STEP, FIRST, SECOND))


@triton.jit
def _mixed(z, BITS: tl.constexpr):
    return z ^ (z.to(tl.uint64, bitcast=True) >> BITS).to(tl.int64, bitcast=True)


@triton.jit
def _word(begin, row, column):
    # row: int64  ->  int64, that of `random_words`
    z = (row * 16777216 + column) * _STEP + begin
    return _mixed(_mixed(_mixed(z, 30) * _FIRST, 27) * _SECOND, 31)


@triton.jit(do_not_specialize=["begin", "start"])
def _signs(out, begin, start, size, pairs, SIZE: tl.constexpr):
    n = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    tl.store(out + n, (_word(begin, start + n // pairs, n % pairs) < 0).to(tl.int8), mask=n < size)


@triton.jit(do_not_specialize=["begin", "start"])
def _partitions(n, size, out, begin, start, rows, places, ROWS: tl.constexpr):
    pieces, program = tl.cdiv(rows, ROWS), tl.program_id(0).to(tl.int64)
    group, row = program // pieces, program % pieces * ROWS + tl.arange(0, ROWS)
    needed, left = tl.load(n + group) + tl.zeros((ROWS,), dtype=tl.int64), tl.load(size + group)
    p = tl.arange(0, 64)[None, :]
    for first in range(0, places, 64):
        chosen = tl.zeros((ROWS,), dtype=tl.int64)
        for step in range(32):
            word = _word(begin, start + row, first // 2 + step)
            for half in tl.static_range(2):
                draw = (word >> (32 * half)) & 0xFFFFFFFF
                taken = ((draw * tl.maximum(left, 0)) >> 32 < needed).to(tl.int64)
                chosen |= taken << (2 * step + half)
                needed -= taken
                left -= 1
        here = out + (group * rows + row)[:, None] * places + first + p
        tl.store(here, ((chosen[:, None] >> p) & 1).to(tl.int8), mask=(row[:, None] < rows) & (first + p < places))


@triton.jit
def _bytes(digits, block, byte, tests, PLACES: tl.constexpr, TESTS: tl.constexpr):
    # digits: (6, tests, PLACES)  ->  (TESTS, PLACES), those of a block of tests
    t, p = block * TESTS + tl.arange(0, TESTS), tl.arange(0, PLACES)
    return tl.load(digits + (byte * tests + t).to(tl.int64)[:, None] * PLACES + p[None, :])


@triton.jit
def _drawn(masks, tile, PLACES: tl.constexpr, ROWS: tl.constexpr):
    # masks: (rows, PLACES)  ->  (PLACES, ROWS)
    r, p = tile * ROWS + tl.arange(0, ROWS), tl.arange(0, PLACES)
    return tl.trans(tl.load(masks + r.to(tl.int64)[:, None] * PLACES + p[None, :]))


@triton.jit
def _sums(high, middle, low, mask, start):
    # high, middle, low: (TESTS, PLACES) int8  mask: (PLACES, ROWS)  start: (TESTS,)  ->  (TESTS, ROWS) int32
    sums = tl.dot(high, mask, out_dtype=tl.int32)
    sums = tl.dot(middle, mask, sums * 256, out_dtype=tl.int32)
    return tl.dot(low, mask, sums * 256 + start[:, None], out_dtype=tl.int32)


@triton.jit
def _count(
    masks, digits, start, sure, fewer, listed, number, tests, tiles, span,
    PLACES: tl.constexpr, TESTS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    block, first = tl.program_id(0), tl.program_id(1) * span
    t = block * TESTS + tl.arange(0, TESTS)
    high = _bytes(digits, block, 5, tests, PLACES, TESTS)
    middle = _bytes(digits, block, 4, tests, PLACES, TESTS)
    low = _bytes(digits, block, 3, tests, PLACES, TESTS)
    zero, most = tl.load(start + t), tl.load(sure + t).to(tl.uint32, bitcast=True)
    count = tl.zeros((TESTS,), dtype=tl.int32)
    for tile in range(first, tl.minimum(first + span, tiles)):
        over = _sums(high, middle, low, _drawn(masks, tile, PLACES, ROWS), zero)
        below = tl.sum((over < 0).to(tl.int32), axis=1)
        # As unsigned numbers the negative ones are the largest, and greatest where little is wanting.
        nearest = tl.max(over.to(tl.uint32, bitcast=True), axis=1)
        if tl.max((nearest > most).to(tl.int32), axis=0) > 0:
            tl.store(listed + tl.atomic_add(number, 1), tile * tl.num_programs(0) + block)
        else:
            count += below
    tl.atomic_add(fewer + t, count)


@triton.jit
def _count_listed(
    masks, digits, start, rest, fewer, listed, number, tests, blocks,
    PLACES: tl.constexpr, TESTS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    for n in range(tl.program_id(0), tl.load(number), tl.num_programs(0)):
        tile = tl.load(listed + n)
        block, mask = tile % blocks, _drawn(masks, tile // blocks, PLACES, ROWS)
        t = block * TESTS + tl.arange(0, TESTS)
        fifth = _bytes(digits, block, 5, tests, PLACES, TESTS)
        fourth = _bytes(digits, block, 4, tests, PLACES, TESTS)
        third = _bytes(digits, block, 3, tests, PLACES, TESTS)
        over = _sums(fifth, fourth, third, mask, tl.load(start + t))
        second = _bytes(digits, block, 2, tests, PLACES, TESTS)
        first = _bytes(digits, block, 1, tests, PLACES, TESTS)
        zeroth = _bytes(digits, block, 0, tests, PLACES, TESTS)
        over += _sums(second, first, zeroth, mask, tl.load(rest + t)) >> 24
        tl.atomic_add(fewer + t, tl.sum((over < 0).to(tl.int32), axis=1))


@on_its_device
def random_partitions(out: Tensor, n: Tensor, size: Tensor, begin: int, start: int) -> Tensor:
    # out: (G, rows, places) bool, to be filled  n, size: (G,) int64
    groups, rows, places = out.shape
    if out.numel():
        _partitions[(groups * triton.cdiv(rows, _DRAWN),)](
            n.contiguous(), size.contiguous(), out.view(torch.int8), begin, start, rows, places,
            ROWS=_DRAWN, enable_fp_fusion=False,
        )  # fmt: skip
    return out


@on_its_device
def random_signs(out: Tensor, begin: int, start: int) -> Tensor:
    # out: (1, rows, pairs) bool, to be filled
    if out.numel():
        grid = (triton.cdiv(out.numel(), 1024),)
        _signs[grid](out.view(torch.int8), begin, start, out.numel(), out.shape[-1], SIZE=1024, enable_fp_fusion=False)
    return out


@on_its_device
def count_extreme(chosen: Tensor, units: Tensor, tails: Tails) -> Tensor:
    # chosen: (rows, N) bool, N <= 128  units: (B, N) int64, at most 2^41 in modulus
    # ->  (B,) int64, how many of the sums are extreme
    (batch, places), rows = units.shape, len(chosen)
    if not batch:
        return torch.zeros(0, dtype=torch.int64, device=units.device)
    width, more = max(triton.next_power_of_2(places), 32), -batch % _TESTS
    masks = pad(chosen, (0, width - places, 0, -rows % _ROWS)).view(torch.int8)
    units = pad(units, (0, width - places, 0, more))
    low, high = (None if bound is None else pad(bound, (0, more)) for bound in tails)
    tails = ([] if low is None else [(units, low)]) + ([] if high is None else [(-units, -high)])
    added = len(masks) - rows  # draws of nothing, whose sum is 0
    counts = (_count_at_least(masks, *tail) - added * (tail[1] <= 0) for tail in tails)
    count = functools.reduce(torch.add, counts)
    return count[:batch].clamp(max=rows)  # tails that meet count what lies between them twice


def _count_at_least(masks: Tensor, units: Tensor, low: Tensor) -> Tensor:
    # masks: (R, P) int8  units: (T, P) int64  low: (T,) int64  ->  (T,) int32, how many of the sums are >= low
    """Units times a power of two are written in six bytes from -128 to 127. The sum of the upper three of all chosen
    units decides most comparisons: the lower three add no less than the sum of their negative parts, no more than that
    of their positive ones. Tiles in which a sum is too near for that are listed, and counted by all six bytes."""
    tests, width = units.shape
    shift = _LARGEST - units.abs().amax(-1).double().frexp().exponent
    units, low = units << shift.unsqueeze(-1), low << shift
    digits = ((units + _MIDDLE) ^ _MIDDLE).view(torch.int8).unflatten(-1, (width, 8)).permute(2, 0, 1)[:6].contiguous()
    lower = units - ((units + (_MIDDLE & 0xFFFFFF)) >> 24 << 24)
    bottom, top = lower.clamp(max=0).sum(-1), lower.clamp(min=0).sum(-1)
    # A sum of upper bytes that begins at `start` decides if it ends at 0 or above, or so far below that `end` would not
    # have brought it there. Beyond 2^30 no sum reaches.
    start, end = (((extreme - low) >> 24).clamp(-(2**30), 2**30).int() for extreme in (bottom, top))
    rest = (((bottom - low) & 0xFFFFFF) - bottom).int()  # what is then left, less the least that the lower bytes add
    tiles, blocks = len(masks) // _ROWS, tests // _TESTS
    fewer, number = (torch.zeros(size, dtype=torch.int32, device=low.device) for size in (tests, 1))
    listed = torch.empty(tiles * blocks, dtype=torch.int32, device=low.device)
    span = triton.cdiv(tiles, min(triton.cdiv(_PROGRAMS, blocks), tiles))
    options = {"PLACES": width, "TESTS": _TESTS, "ROWS": _ROWS, "num_warps": 8, "enable_fp_fusion": False}
    _count[(blocks, triton.cdiv(tiles, span))](
        masks, digits, start, start - end - 1, fewer, listed, number, tests, tiles, span, num_stages=3, **options
    )
    _count_listed[(min(tiles * blocks, _PROGRAMS),)](
        masks, digits, start, rest, fewer, listed, number, tests, blocks, num_stages=1, **options
    )
    return len(masks) - fewer
