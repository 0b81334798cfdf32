"""Triton kernels of the search: block minima of float16 products, and the entries below a limit.

Imported only for CUDA tensors, or if TRITON_INTERPRET=1 interprets them on a CPU. Tiles are TILE x TILE products; a
block is every STRIDE-th one of GROUP columns, so that most of its minimum is computed within a thread. Tables of
queries and references have a multiple of TILE rows and of DEPTH columns, so products need no masks.
"""

import os

import torch
import triton
import triton.language as tl
from torch import Tensor

from ....core.native.triton import launch
from .tables import CandidateReferences, Float16Queries, Float16References

TILE = 128
DEPTH = 64  # float16 columns per load
GROUP, STRIDE = 128, 4
BLOCK = GROUP // STRIDE  # references per minimum
STRIP = 8  # rows of tiles that reuse the same columns from the cache

UNLIMITED = tl.constexpr(3e38)  # the largest limit: all finite values are at most that
_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
_QUERIES = 64 if _INTERPRETED else 1  # queries per program: the interpreter is as fast for many as for one


@triton.jit
def tile_of(program, rows, columns, symmetric: tl.constexpr, STRIP: tl.constexpr):
    """Return the row and column of the tile of a program; the column is out of range if it has no tile.

    `symmetric`: only tiles on and above the diagonal. The first and the last strip of rows together have the same
    number of them as the second and the last but one, and so on, so such pairs form a rectangle.
    """
    if symmetric:
        strips = tl.cdiv(rows, STRIP)
        offset = program % (STRIP * STRIP * (strips + 1))
        fold, step = program // (STRIP * STRIP * (strips + 1)), offset // STRIP
        other, split = strips - 1 - fold, (strips - fold) * STRIP
        strip = tl.where(step < split, fold, other)
        row = strip * STRIP + offset % STRIP
        column = tl.where(step < split, fold * STRIP + step, other * STRIP + step - split)
        column = tl.where((row < rows) & (row <= column) & ((step < split) | (other > fold)), column, columns)
    else:
        offset, strip = program % (STRIP * columns), program // (STRIP * columns)
        row = strip * STRIP + offset % STRIP
        column = tl.where(row < rows, offset // STRIP, columns)
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
def error_of(left, i, queries, right, block, blocks):
    # left: (3, Q)  right: (3, blocks)  ->  error bound of queries i and blocks, broadcast against each other
    loss, length = tl.load(left + i), tl.load(left + queries + i)
    ref_error = tl.load(right + 2 * blocks + block)
    return loss * tl.load(right + block) + length * tl.load(right + blocks + block) + ref_error


@triton.jit
def _lower(value, left, i, queries, right, block, blocks, STRIDE: tl.constexpr):
    # value: (M, N)  i: (M,)  block: (N / BLOCK,)  ->  (M, N / BLOCK), lower bounds of the values of a block
    value = tl.reshape(value, (value.shape[0], value.shape[1] // 128, 128 // STRIDE, STRIDE))
    minimum = tl.reshape(tl.min(value, axis=2), (value.shape[0], block.shape[0]))
    error = error_of(left, i[:, None], queries, right, block[None, :], blocks)
    return tl.where(minimum < float("inf"), minimum - error, minimum)


@triton.jit
def _block_minima(
    x, left, queries, y, right, bias, block_min, size, dim,
    factor: tl.constexpr, symmetric: tl.constexpr, TILE: tl.constexpr, DEPTH: tl.constexpr, STRIDE: tl.constexpr,
    STRIP: tl.constexpr,
):  # fmt: skip
    rows, columns, blocks = queries // TILE, size // TILE, size // (128 // STRIDE)
    row, column = tile_of(tl.program_id(0), rows, columns, symmetric, STRIP)
    if column >= columns:
        return
    n: tl.constexpr = TILE // 128 * STRIDE
    s, j = tl.arange(0, TILE), (column * TILE + tl.arange(0, TILE)).to(tl.int64)
    if symmetric:  # a warp computes 16 of 64 consecutive rows of a tile: those of one block
        s = (s // 64 * 16 + s % 16) * STRIDE + s // 16 % STRIDE
    i = (row * TILE + s).to(tl.int64)
    column_blocks, row_blocks = column * n + tl.arange(0, n), row * n + tl.arange(0, n)
    tile = product(x, i, y, j, dim, DEPTH) * factor
    minima = _lower(tl.load(bias + j)[None, :] - tile, left, i, queries, right, column_blocks, blocks, STRIDE)
    tl.store(block_min + i[:, None] * blocks + column_blocks[None, :], minima)
    if symmetric:
        if row < column:
            mirrored = tl.reshape(tl.load(bias + i)[:, None] - tile, (TILE // 64, STRIDE, 16, TILE))
            minimum = tl.min(tl.min(mirrored, axis=0), axis=1)
            error = error_of(left, j[None, :], queries, right, row_blocks[:, None], blocks)
            minimum = tl.where(minimum < float("inf"), minimum - error, minimum)
            tl.store(block_min + j[None, :] * blocks + row_blocks[:, None], minimum)


@triton.jit(do_not_specialize=["step", "width"])
def _sample(
    x, left, queries, y, row_bounds, bias, upper, size, dim, step, width,
    factor: tl.constexpr, TILE: tl.constexpr, DEPTH: tl.constexpr, STRIP: tl.constexpr,
):  # fmt: skip
    # Upper bounds of the values of every step-th position.
    row, column = tile_of(tl.program_id(0), queries // TILE, tl.cdiv(width, TILE), False, STRIP)
    if column >= tl.cdiv(width, TILE):
        return
    i, n = row * TILE + tl.arange(0, TILE), column * TILE + tl.arange(0, TILE)
    j = tl.minimum(n * step, size - 1)
    value = tl.load(bias + j)[None, :] - factor * product(x, i.to(tl.int64), y, j.to(tl.int64), dim, DEPTH)
    value += error_of(left, i[:, None], queries, row_bounds, j[None, :], size)
    tl.store(upper + i[:, None] * width + n[None, :], value, mask=(n < width)[None, :])


@triton.jit
def kth_smallest(value, k):
    # value: (M, N) float32  ->  (M, 1), inf if there are fewer
    # Floats have the order of these integers, and bisection finds the k-th of them without sorting.
    key = value.to(tl.int32, bitcast=True)
    key = tl.where(key < 0, key ^ 0x7FFFFFFF, key)
    low, high = tl.min(key, axis=1), tl.max(key, axis=1)
    while tl.max((low < high).to(tl.int32), axis=0) > 0:
        mid = (low & high) + ((low ^ high) >> 1)
        below = tl.sum((key <= mid[:, None]).to(tl.int32), axis=1)
        high = tl.where(below >= k, mid, high)
        low = tl.where(below == k, high, tl.where(below > k, low, tl.minimum(mid + 1, high)))
    kth = tl.max(tl.where(key <= high[:, None], key, -0x80000000), axis=1)[:, None]
    return tl.where(kth < 0, kth ^ 0x7FFFFFFF, kth).to(tl.float32, bitcast=True)


@triton.jit(do_not_specialize=["num_sources", "blocks", "k", "capacity"])
def _select_blocks(
    block_min, source, left, queries, right, limit, selected, num_selected, num_sources, blocks, k, capacity,
    SAMPLED: tl.constexpr, QUERIES: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    # block_min: (Q, blocks), or `SAMPLED` upper bounds of some values
    q = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES).to(tl.int64)[:, None]
    i = tl.load(source + q, mask=q < num_sources, other=0)
    # The k-th smallest minimum over every WIDTH-th block is at least that over all blocks, and rarely larger.
    upper = tl.full((QUERIES, WIDTH), float("inf"), dtype=tl.float32)
    for start in range(0, blocks, WIDTH):
        n = start + tl.arange(0, WIDTH)[None, :]
        value = tl.load(block_min + i * blocks + n, mask=n < blocks, other=float("inf"))
        if not SAMPLED:
            value += 2 * error_of(left, i, queries, right, tl.minimum(n, blocks - 1), blocks)
        upper = tl.minimum(upper, value)
    # Entries of infinite value are no candidates, whatever the limit.
    bound = tl.minimum(kth_smallest(upper, k) + tl.load(left + 2 * queries + i), UNLIMITED)
    bound = tl.where(k <= blocks, bound, UNLIMITED)
    tl.store(limit + q, bound, mask=q < num_sources)
    if capacity > 0:
        count = tl.zeros((QUERIES,), dtype=tl.int32)
        for start in range(0, blocks, WIDTH):
            n = start + tl.arange(0, WIDTH)[None, :]
            value = tl.load(block_min + i * blocks + n, mask=n < blocks, other=float("inf"))
            is_selected = (value <= bound).to(tl.int32)
            slot = count[:, None] + tl.cumsum(is_selected, 1) - is_selected
            tl.store(selected + q * capacity + slot, n, mask=(is_selected > 0) & (slot < capacity) & (q < num_sources))
            count += tl.sum(is_selected, axis=1)
        tl.store(num_selected + tl.reshape(q, (QUERIES,)), count, mask=tl.reshape(q, (QUERIES,)) < num_sources)


@triton.jit(do_not_specialize=["capacity"])
def _collect_from_blocks(
    x, source, left, queries, y, row_bounds, bias, limit, selected, num_selected, index, values, num_hits, size, dim,
    capacity,
    factor: tl.constexpr, BLOCKS: tl.constexpr, DEPTH: tl.constexpr, STRIDE: tl.constexpr,
):  # fmt: skip
    # Entries of the selected blocks below the limit.
    q = tl.program_id(0).to(tl.int64)
    i, bound, total = tl.load(source + q), tl.load(limit + q), tl.load(num_selected + q)
    member: tl.constexpr = 128 // STRIDE
    s, count = tl.arange(0, BLOCKS * member), 0
    for start in range(0, tl.minimum(total, capacity), BLOCKS):
        n = start + s // member
        valid = n < tl.minimum(total, capacity)
        block = tl.load(selected + q * capacity + n, mask=valid, other=0)
        j = block // STRIDE * 128 + s % member * STRIDE + block % STRIDE
        value = tl.zeros((BLOCKS * member,), dtype=tl.float32)
        for first in range(0, dim, DEPTH):
            d = first + tl.arange(0, DEPTH)
            b = tl.load(y + j.to(tl.int64)[:, None] * dim + d, mask=valid[:, None], other=0.0)
            value += tl.sum(tl.load(x + i * dim + d).to(tl.float32)[None, :] * b.to(tl.float32), axis=1)
        value = tl.load(bias + j) - factor * value
        hit = (valid & (value <= bound + error_of(left, i, queries, row_bounds, j, size))).to(tl.int32)
        slot = count + tl.cumsum(hit, 0) - hit
        tl.store(index + q * capacity + slot, j, mask=(hit > 0) & (slot < capacity))
        tl.store(values + q * capacity + slot, value, mask=(hit > 0) & (slot < capacity))
        count += tl.sum(hit, axis=0)
    tl.store(num_hits + q, tl.where(total > capacity, total, count))


@triton.jit(do_not_specialize=["num_sources", "capacity"])
def _collect(
    x, source, left, queries, y, right, bias, limit, index, values, num_hits, num_sources, size, dim, capacity,
    factor: tl.constexpr, TILE: tl.constexpr, DEPTH: tl.constexpr, STRIDE: tl.constexpr, STRIP: tl.constexpr,
):  # fmt: skip
    # All entries below the limit, in any order of tiles.
    columns, blocks = size // TILE, size // (128 // STRIDE)
    row, column = tile_of(tl.program_id(0), tl.cdiv(num_sources, TILE), columns, False, STRIP)
    if column >= columns:
        return
    n: tl.constexpr = TILE // 128 * STRIDE
    q, j = row * TILE + tl.arange(0, TILE), column * TILE + tl.arange(0, TILE)
    i = tl.load(source + q, mask=q < num_sources, other=0)
    value = tl.load(bias + j)[None, :] - factor * product(x, i, y, j.to(tl.int64), dim, DEPTH)
    bound = tl.load(limit + q, mask=q < num_sources, other=float("-inf"))[:, None]
    bound += error_of(left, i[:, None], queries, right, column * n + tl.arange(0, n)[None, :], blocks)
    hit = tl.reshape(value, (TILE, TILE // 128, 128 // STRIDE, STRIDE))
    hit = tl.reshape((hit <= tl.reshape(bound, (TILE, TILE // 128, 1, STRIDE))).to(tl.int32), (TILE, TILE))
    count = tl.sum(hit, axis=1)
    if tl.max(count, axis=0) > 0:
        first = tl.atomic_add(num_hits + q, count, mask=count > 0, sem="relaxed")
        slot = tl.where(hit > 0, first[:, None] + tl.cumsum(hit, 1) - 1, capacity)
        to = q[:, None] * capacity + slot
        tl.store(values + to, value, mask=slot < capacity)
        tl.store(index + to, tl.broadcast_to(j[None, :], (TILE, TILE)), mask=slot < capacity)


def block_minima(queries: Float16Queries, references: Float16References, symmetric: bool = False) -> Tensor:
    # ->  (Q, R / BLOCK) float32
    """Compute lower bounds of the values of each block of references.

    `symmetric`: the queries are the references, so a tile of products yields the minima of its rows and its columns.
    """
    rows, columns = len(queries.rows) // TILE, len(references.rows) // TILE
    block_min = queries.left.new_empty(len(queries.rows), len(references.rows) // BLOCK)
    strips = triton.cdiv(rows, STRIP)
    tiles = STRIP * (STRIP * (strips + 1) * triton.cdiv(strips, 2) if symmetric else columns * strips)
    launch(
        _block_minima, (tiles,),
        queries.rows, queries.left, len(queries.rows), references.rows, references.right, references.bias, block_min,
        len(references.rows), references.rows.shape[1],
        factor=references.factor, symmetric=symmetric, TILE=TILE, DEPTH=DEPTH, STRIDE=STRIDE, STRIP=STRIP, num_warps=4,
        num_stages=3, enable_fp_fusion=True,
    )  # fmt: skip
    return block_min


def sample(queries: Float16Queries, references: Float16References, step: int) -> Tensor:
    # ->  (Q, n) float32, n the number of every step-th of all positions
    """Compute upper bounds of the values of a sample of references."""
    size, dim = references.rows.shape
    rows, width = len(queries.rows) // TILE, triton.cdiv(size, step)
    upper = queries.left.new_empty(len(queries.rows), width)
    tiles = STRIP * triton.cdiv(width, TILE) * triton.cdiv(rows, STRIP)
    launch(
        _sample, (tiles,),
        queries.rows, queries.left, len(queries.rows), references.rows, references.row_bounds, references.bias, upper,
        size, dim, step, width,
        factor=references.factor, TILE=TILE, DEPTH=DEPTH, STRIP=STRIP, num_warps=8, num_stages=3, enable_fp_fusion=True,
    )  # fmt: skip
    return upper


def candidates(
    block_min: Tensor, queries: Float16Queries, source: Tensor, references: Float16References, k: int, capacity: int,
    is_sampled: bool,
) -> CandidateReferences:  # fmt: skip
    # block_min: (Q, R / BLOCK), or from `sample`  source: (q,) int64, rows of it
    """Collect all references whose value may be at most that of the k-th of `block_min`."""
    num_sources, (size, dim), blocks = len(source), references.rows.shape, block_min.shape[1]
    # For larger k, reading the selected blocks of a query is slower than multiplying it with all references.
    is_dense = is_sampled or 1024 * k >= size
    limit = block_min.new_empty(num_sources)
    selected = torch.empty(num_sources, 0 if is_dense else capacity, dtype=torch.int32, device=block_min.device)
    num_selected, num_hits = torch.zeros(2, num_sources, dtype=torch.int32, device=block_min.device)
    index = torch.empty(2, num_sources, capacity, dtype=torch.int32, device=block_min.device)
    values = block_min.new_empty(num_sources, capacity)
    width = triton.next_power_of_2(blocks)
    width = width if is_sampled else min(triton.next_power_of_2(max(4 * k, 2048)), width)
    launch(
        _select_blocks, (triton.cdiv(num_sources, _QUERIES),),
        block_min, source, queries.left, len(queries.rows), references.right, limit, selected, num_selected,
        num_sources, blocks, k,
        selected.shape[1], SAMPLED=is_sampled, QUERIES=_QUERIES, WIDTH=width,
        num_warps=min(max(width // 256, 1), 16), enable_fp_fusion=True,
    )  # fmt: skip
    operands = (queries.rows, source, queries.left, len(queries.rows), references.rows)
    options = {"factor": references.factor, "DEPTH": DEPTH, "STRIDE": STRIDE, "enable_fp_fusion": True}
    if is_dense:
        tiles = STRIP * (size // TILE) * triton.cdiv(num_sources, STRIP * TILE)
        launch(
            _collect, (tiles,),
            *operands, references.right, references.bias, limit, index, values, num_hits, num_sources, size, dim,
            capacity, TILE=TILE, STRIP=STRIP, num_warps=8, num_stages=3, **options,
        )  # fmt: skip
    else:
        launch(
            _collect_from_blocks, (num_sources,),
            *operands, references.row_bounds, references.bias, limit, selected, num_selected, index, values, num_hits,
            size, dim, capacity,
            BLOCKS=4, **options,
        )  # fmt: skip
    return CandidateReferences(index, values, num_hits, limit)
