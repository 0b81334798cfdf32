"""Triton kernels of the search: float16 products of which only block minima are kept, and the entries below a limit.

Only read for CUDA tensors, or where TRITON_INTERPRET=1 lets them run on a CPU. Tiles are SIDE x SIDE products; a block
is every STRIDE-th one of GROUP columns, so that most of its minimum is taken within a thread. Tables of queries and
references have a multiple of SIDE rows and of DEPTH columns: nothing is masked inside a product.
"""

import os

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...._triton import on_its_device
from .tables import HalfTable, Halves

SIDE = 128
DEPTH = 64  # columns of float16 that are loaded at once
GROUP, STRIDE = 128, 4
BLOCK = GROUP // STRIDE  # references of one minimum
STRIP = 8  # rows of tiles that share their columns while these are in the cache

_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
_TOGETHER = 64 if _INTERPRETED else 1  # queries of a program: the interpreter takes as long for many as for one


@triton.jit
def tile_of(program, rows, columns, halved: tl.constexpr, STRIP: tl.constexpr):
    """Row and column of a program's tile; a column that does not exist where there is none for it.

    `halved`: tiles on and above the diagonal. The first strip of rows and the last one have as many of these as the
    second and the last but one, and so on: they make a rectangle.
    """
    if halved:
        strips = tl.cdiv(rows, STRIP)
        place = program % (STRIP * STRIP * (strips + 1))
        fold, step = program // (STRIP * STRIP * (strips + 1)), place // STRIP
        other, own = strips - 1 - fold, (strips - fold) * STRIP
        strip = tl.where(step < own, fold, other)
        row = strip * STRIP + place % STRIP
        column = tl.where(step < own, fold * STRIP + step, other * STRIP + step - own)
        column = tl.where((row < rows) & (row <= column) & ((step < own) | (other > fold)), column, columns)
    else:
        place, strip = program % (STRIP * columns), program // (STRIP * columns)
        row = strip * STRIP + place % STRIP
        column = tl.where(row < rows, place // STRIP, columns)
    return row, column


@triton.jit
def product(x, i, y, j, dim, DEPTH: tl.constexpr):
    # x: (Q, D)  i: (M,)  y: (R, D)  j: (N,)  ->  (M, N) float32, x[i] @ y[j].T
    tile = tl.zeros((i.shape[0], j.shape[0]), dtype=tl.float32)
    for start in range(0, dim, DEPTH):
        d = start + tl.arange(0, DEPTH)
        tile = tl.dot(tl.load(x + i[:, None] * dim + d), tl.trans(tl.load(y + j[:, None] * dim + d)), tile)
    return tile


@triton.jit
def _slack(left, i, queries, right, block, blocks):
    # left: (3, Q)  right: (3, blocks)  ->  of queries i and blocks, in the shape of both
    near, length = tl.load(left + i), tl.load(left + queries + i)
    own = tl.load(right + 2 * blocks + block)
    return near * tl.load(right + block) + length * tl.load(right + blocks + block) + own


@triton.jit
def _lower(value, left, i, queries, right, block, blocks, STRIDE: tl.constexpr):
    # value: (M, N)  i: (M,)  block: (N / BLOCK,)  ->  (M, N / BLOCK), what values of a block are at least
    value = tl.reshape(value, (value.shape[0], value.shape[1] // 128, 128 // STRIDE, STRIDE))
    least = tl.reshape(tl.min(value, axis=2), (value.shape[0], block.shape[0]))
    slack = _slack(left, i[:, None], queries, right, block[None, :], blocks)
    return tl.where(least < float("inf"), least - slack, least)


@triton.jit
def _block_minima(
    x, left, queries, y, right, bias, least, size, dim,
    factor: tl.constexpr, halved: tl.constexpr, SIDE: tl.constexpr, DEPTH: tl.constexpr, STRIDE: tl.constexpr,
    STRIP: tl.constexpr,
):  # fmt: skip
    rows, columns, blocks = queries // SIDE, size // SIDE, size // (128 // STRIDE)
    row, column = tile_of(tl.program_id(0), rows, columns, halved, STRIP)
    if column >= columns:
        return
    n: tl.constexpr = SIDE // 128 * STRIDE
    i, j = (row * SIDE + tl.arange(0, SIDE)).to(tl.int64), (column * SIDE + tl.arange(0, SIDE)).to(tl.int64)
    above, beside = column * n + tl.arange(0, n), row * n + tl.arange(0, n)
    tile = product(x, i, y, j, dim, DEPTH) * factor
    minima = _lower(tl.load(bias + j)[None, :] - tile, left, i, queries, right, above, blocks, STRIDE)
    tl.store(least + i[:, None] * blocks + above[None, :], minima)
    if halved:
        if row < column:
            across = tl.trans(tl.load(bias + i)[:, None] - tile)
            minima = _lower(across, left, j, queries, right, beside, blocks, STRIDE)
            tl.store(least + j[:, None] * blocks + beside[None, :], minima)


@triton.jit(do_not_specialize=["some", "blocks", "k", "room"])
def _choose(
    least, source, left, queries, right, limit, chosen, number, some, blocks, k, room,
    SOME: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    q = tl.program_id(0) * SOME + tl.arange(0, SOME).to(tl.int64)[:, None]
    i = tl.load(source + q, mask=q < some, other=0)
    # The k-th least of minima over every WIDTH-th block is no less than that of all blocks, and seldom more.
    upper = tl.full((SOME, WIDTH), float("inf"), dtype=tl.float32)
    for start in range(0, blocks, WIDTH):
        n = start + tl.arange(0, WIDTH)[None, :]
        value = tl.load(least + i * blocks + n, mask=n < blocks, other=float("inf"))
        slack = _slack(left, i, queries, right, tl.minimum(n, blocks - 1), blocks)
        upper = tl.minimum(upper, value + 2 * slack)
    # Floats are in the order of these integers, of which bisection finds the k-th without sorting.
    key = upper.to(tl.int32, bitcast=True)
    key = tl.where(key < 0, key ^ 0x7FFFFFFF, key)
    low, high = tl.min(key, axis=1), tl.max(key, axis=1)
    while tl.max((low < high).to(tl.int32), axis=0) > 0:
        middle = (low & high) + ((low ^ high) >> 1)
        below = tl.sum((key <= middle[:, None]).to(tl.int32), axis=1)
        high = tl.where(below >= k, middle, high)
        low = tl.where(below == k, high, tl.where(below > k, low, tl.minimum(middle + 1, high)))
    most = tl.max(tl.where(key <= high[:, None], key, -0x80000000), axis=1)[:, None]
    most = tl.where(most < 0, most ^ 0x7FFFFFFF, most).to(tl.float32, bitcast=True)
    most += tl.load(left + 2 * queries + i)
    tl.store(limit + q, most, mask=q < some)
    if room > 0:
        count = tl.zeros((SOME,), dtype=tl.int32)
        for start in range(0, blocks, WIDTH):
            n = start + tl.arange(0, WIDTH)[None, :]
            value = tl.load(least + i * blocks + n, mask=n < blocks, other=float("inf"))
            kept = (value <= most).to(tl.int32)
            place = count[:, None] + tl.cumsum(kept, 1) - kept
            tl.store(chosen + q * room + place, n, mask=(kept > 0) & (place < room) & (q < some))
            count += tl.sum(kept, axis=1)
        tl.store(number + tl.reshape(q, (SOME,)), count, mask=tl.reshape(q, (SOME,)) < some)


@triton.jit(do_not_specialize=["room"])
def _few(
    x, source, left, queries, y, each, bias, limit, chosen, kept, index, number, size, dim, room,
    factor: tl.constexpr, SOME: tl.constexpr, DEPTH: tl.constexpr, STRIDE: tl.constexpr,
):  # fmt: skip
    # Entries below the limit among the chosen blocks.
    q = tl.program_id(0).to(tl.int64)
    i, most, total = tl.load(source + q), tl.load(limit + q), tl.load(kept + q)
    member: tl.constexpr = 128 // STRIDE
    s, count = tl.arange(0, SOME * member), 0
    for start in range(0, tl.minimum(total, room), SOME):
        n = start + s // member
        there = n < tl.minimum(total, room)
        block = tl.load(chosen + q * room + n, mask=there, other=0)
        j = block // STRIDE * 128 + s % member * STRIDE + block % STRIDE
        value = tl.zeros((SOME * member,), dtype=tl.float32)
        for begin in range(0, dim, DEPTH):
            d = begin + tl.arange(0, DEPTH)
            b = tl.load(y + j.to(tl.int64)[:, None] * dim + d, mask=there[:, None], other=0.0)
            value += tl.sum(tl.load(x + i * dim + d).to(tl.float32)[None, :] * b.to(tl.float32), axis=1)
        value = tl.load(bias + j) - factor * value
        hit = (there & (value <= most + _slack(left, i, queries, each, j, size))).to(tl.int32)
        place = count + tl.cumsum(hit, 0) - hit
        tl.store(index + q * room + place, j, mask=(hit > 0) & (place < room))
        count += tl.sum(hit, axis=0)
    tl.store(number + q, tl.where(total > room, total, count))


@triton.jit(do_not_specialize=["some", "room"])
def _many(
    x, source, left, queries, y, right, bias, limit, index, number, some, size, dim, room,
    factor: tl.constexpr, SIDE: tl.constexpr, DEPTH: tl.constexpr, STRIDE: tl.constexpr, STRIP: tl.constexpr,
):  # fmt: skip
    # Entries below the limit among all, in any order.
    columns, blocks = size // SIDE, size // (128 // STRIDE)
    row, column = tile_of(tl.program_id(0), tl.cdiv(some, SIDE), columns, False, STRIP)
    if column >= columns:
        return
    n: tl.constexpr = SIDE // 128 * STRIDE
    q, j = row * SIDE + tl.arange(0, SIDE), column * SIDE + tl.arange(0, SIDE)
    i = tl.load(source + q, mask=q < some, other=0)
    value = tl.load(bias + j)[None, :] - factor * product(x, i, y, j.to(tl.int64), dim, DEPTH)
    most = tl.load(limit + q, mask=q < some, other=float("-inf"))[:, None]
    most += _slack(left, i[:, None], queries, right, column * n + tl.arange(0, n)[None, :], blocks)
    value = tl.reshape(value, (SIDE, SIDE // 128, 128 // STRIDE, STRIDE))
    hit = value <= tl.reshape(most, (SIDE, SIDE // 128, 1, STRIDE))
    if tl.max(tl.reshape(hit, (SIDE * SIDE,)).to(tl.int32), axis=0) > 0:
        flat = tl.reshape(hit, (SIDE * SIDE,))
        line = tl.reshape(tl.broadcast_to(q[:, None], (SIDE, SIDE)), (SIDE * SIDE,))
        found = tl.reshape(tl.broadcast_to(j[None, :], (SIDE, SIDE)), (SIDE * SIDE,))
        place = tl.atomic_add(number + line, 1, mask=flat)
        tl.store(index + line * room + place, found, mask=flat & (place < room))


@on_its_device
def block_minima(queries: Halves, references: HalfTable, halved: bool = False) -> Tensor:
    # ->  (Q, R / BLOCK) float32
    """What the values of each block of references are at least. `halved`: the queries are the references, so that a
    tile of products serves its rows and its columns."""
    rows, columns = len(queries.rows) // SIDE, len(references.rows) // SIDE
    least = queries.left.new_empty(len(queries.rows), len(references.rows) // BLOCK)
    strips = triton.cdiv(rows, STRIP)
    tiles = STRIP * (STRIP * (strips + 1) * triton.cdiv(strips, 2) if halved else columns * strips)
    _block_minima[(tiles,)](
        queries.rows, queries.left, len(queries.rows), references.rows, references.right, references.bias, least,
        len(references.rows), references.rows.shape[1],
        factor=references.factor, halved=halved, SIDE=SIDE, DEPTH=DEPTH, STRIDE=STRIDE, STRIP=STRIP, num_warps=4,
        num_stages=3, enable_fp_fusion=True,
    )  # fmt: skip
    return least


@on_its_device
def candidates(
    least: Tensor, queries: Halves, source: Tensor, references: HalfTable, k: int, room: int
) -> tuple[Tensor, Tensor]:
    # least: (Q, R / BLOCK)  source: (q,) int64, rows of it
    # ->  (q, room) int32 places of references in any order, -1 = none; (q,) int32, above `room` where it is too small
    """All references that may be among the k nearest."""
    some, (size, dim), blocks = len(source), references.rows.shape, least.shape[1]
    # Above this, the chosen blocks of a query are read in more time than all references are multiplied with it.
    dense = 1024 * k >= size
    limit = least.new_empty(some)
    chosen = torch.empty(some, 0 if dense else room, dtype=torch.int32, device=least.device)
    kept, number = torch.zeros(2, some, dtype=torch.int32, device=least.device)
    index = torch.full((some, room), -1, dtype=torch.int32, device=least.device)
    width = min(triton.next_power_of_2(max(4 * k, 2048)), triton.next_power_of_2(blocks))
    _choose[(triton.cdiv(some, _TOGETHER),)](
        least, source, queries.left, len(queries.rows), references.right, limit, chosen, kept, some, blocks, k,
        chosen.shape[1], SOME=_TOGETHER, WIDTH=width, num_warps=min(max(width // 256, 1), 16), enable_fp_fusion=True,
    )  # fmt: skip
    sides = (queries.rows, source, queries.left, len(queries.rows), references.rows)
    options = {"factor": references.factor, "DEPTH": DEPTH, "STRIDE": STRIDE, "enable_fp_fusion": True}
    if dense:
        tiles = STRIP * (size // SIDE) * triton.cdiv(some, STRIP * SIDE)
        _many[(tiles,)](
            *sides, references.right, references.bias, limit, index, number, some, size, dim, room,
            SIDE=SIDE, STRIP=STRIP, num_warps=8, num_stages=3, **options,
        )  # fmt: skip
    else:
        _few[(some,)](
            *sides, references.each, references.bias, limit, chosen, kept, index, number, size, dim, room,
            SOME=4, **options,
        )  # fmt: skip
    return index, number
