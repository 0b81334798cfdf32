"""Triton kernels that assign rows to the nearest of some centroids, by squared Euclidean distance.

Imported only for CUDA tensors, or if TRITON_INTERPRET=1 interprets them on a CPU. No list can be too short: where
float16 products do not exclude all centroids but one, the products of these rows are computed again, and canonical
distances decide among the centroids that remain.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ....core.native.triton import launch
from .canonical import distance
from .nearest import DEPTH, TILE, error_of, product
from .tables import Float16Queries

_ROWS, _PROGRAMS = 16, 512
_INF = tl.constexpr(float("inf"))


@triton.jit(do_not_specialize=["count"])
def _assign(
    x, left, is_bounded, queries, y, row_bounds, bias, clusters, undecided, limit, num_undecided, count, size, dim,
    TILE: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    # A program compares TILE rows with all centroids. Only one is near enough if the second lowest lower bound exceeds
    # the lowest upper bound.
    n, i = tl.arange(0, TILE), tl.program_id(0) * TILE + tl.arange(0, TILE)
    lowest, nearest = tl.full((TILE,), _INF, dtype=tl.float32), tl.zeros((TILE,), dtype=tl.int32)
    second, upper = lowest, lowest
    for start in range(0, size, TILE):
        j = start + n
        value = tl.load(bias + j)[None, :] - 2 * product(x, i.to(tl.int64), y, j.to(tl.int64), dim, DEPTH)
        error = error_of(left, i[:, None], queries, row_bounds, j[None, :], size)
        upper = tl.minimum(upper, tl.min(value + error, axis=1))
        lower = value - error
        low, at = tl.min(lower, axis=1, return_indices=True)
        other = tl.min(tl.where(n[None, :] == at[:, None], _INF, lower), axis=1)
        second = tl.minimum(tl.minimum(second, other), tl.maximum(lowest, low))
        nearest = tl.where(low < lowest, start + at, nearest)
        lowest = tl.minimum(lowest, low)
    valid = i < count
    bounded = tl.load(is_bounded + i, mask=valid, other=1) != 0
    bound = tl.where(bounded, upper + tl.load(left + 2 * queries + i), _INF)
    tl.store(clusters + i, nearest.to(tl.int64), mask=valid)
    is_open = (valid & ~(second > bound)).to(tl.int32)
    num_open = tl.sum(is_open, axis=0)
    if num_open > 0:
        slot = tl.atomic_add(num_undecided, num_open, sem="relaxed") + tl.cumsum(is_open, 0) - is_open
        tl.store(undecided + slot, i, mask=is_open > 0)
        tl.store(limit + slot, bound, mask=is_open > 0)


@triton.jit(do_not_specialize=["count"])
def _recheck(
    query, query_row, query_step, reference, reference_row, reference_step, x, left, queries, y, row_bounds, bias,
    clusters, undecided, limit, num_undecided, count, size, width, dim,
    TILE: tl.constexpr, DEPTH: tl.constexpr, ROWS: tl.constexpr, SIZE: tl.constexpr, LOG: tl.constexpr,
):  # fmt: skip
    # A program decides some of the undecided rows, ROWS at a time.
    s, m, total = tl.arange(0, ROWS), tl.arange(0, TILE), tl.load(num_undecided)
    for start in range(tl.program_id(0) * ROWS, total, tl.num_programs(0) * ROWS):
        is_row = start + s < total
        i = tl.load(undecided + start + s, mask=is_row, other=0).to(tl.int64)
        bound = tl.load(limit + start + s, mask=is_row, other=0.0)
        best, nearest = tl.where(is_row, _INF, 0.0).to(tl.float64), tl.full((ROWS,), -1, dtype=tl.int32)
        for first in range(0, size, TILE):
            j = first + m
            value = tl.load(bias + j)[None, :] - 2 * product(x, i, y, j.to(tl.int64), width, DEPTH)
            lower = value - error_of(left, i[:, None], queries, row_bounds, j[None, :], size)
            # Of equal distances the first wins, so after a distance of 0 no other matters.
            hit = ((lower <= bound[:, None]) & (j < count)[None, :] & (best > 0)[:, None]).to(tl.int32)
            while tl.max(tl.max(hit, axis=1), axis=0) > 0:
                n = tl.min(tl.where(hit > 0, m[None, :], TILE), axis=1)
                is_hit = n < TILE
                y_row = reference + ((first + n).to(tl.int64) * reference_row)[:, None]
                delta = distance(
                    query + (i * query_row)[:, None], query_step, y_row, reference_step, is_hit[:, None], dim,
                    0, ROWS, SIZE, LOG,
                )  # fmt: skip
                is_nearer = is_hit & (delta < best)
                nearest, best = tl.where(is_nearer, first + n, nearest), tl.where(is_nearer, delta, best)
                hit = tl.where((m[None, :] > n[:, None]) & (best > 0)[:, None], hit, 0)
        tl.store(clusters + i, nearest.to(tl.int64), mask=is_row)


def nearest_centroids(
    rows: Tensor, centroids: Tensor, queries: Float16Queries, references: Float16Queries
) -> Tensor:  # fmt: skip
    # rows: (N, D)  centroids: (K, D)  queries, references: from `prepare.queries`, the latter ordered
    # ->  (N,) int64, the nearest centroid, the first of equally near ones, -1 if no distance is finite
    (count, dim), (size, width), scale = rows.shape, references.rows.shape, references.scale
    assert scale is not None  # the bias and a zero
    tables = references.rows, references.left, scale
    clusters = torch.empty(count, dtype=torch.int64, device=rows.device)
    undecided = torch.empty(count, dtype=torch.int32, device=rows.device)
    limit = torch.empty(count, dtype=torch.float32, device=rows.device)
    lists = clusters, undecided, limit, scale[size:].view(torch.int32)
    launch(
        _assign, (len(queries.rows) // TILE,),
        queries.rows, queries.left, queries.is_bounded.view(torch.int8), len(queries.rows), *tables,
        *lists, count, size, width, TILE=TILE, DEPTH=DEPTH, num_warps=8, num_stages=3, enable_fp_fusion=True,
    )  # fmt: skip
    length = max(triton.next_power_of_2(dim), 16)
    # Fused multiply-adds would change the bits of canonical distances.
    launch(
        _recheck, (min(triton.cdiv(count, _ROWS), _PROGRAMS),),
        rows, *rows.stride(), centroids, *centroids.stride(), queries.rows, queries.left, len(queries.rows), *tables,
        *lists, len(centroids), size, width, dim,
        TILE=TILE, DEPTH=DEPTH, ROWS=_ROWS, SIZE=length, LOG=length.bit_length() - 1, num_warps=8, num_stages=3,
        enable_fp_fusion=False,
    )  # fmt: skip
    return clusters
