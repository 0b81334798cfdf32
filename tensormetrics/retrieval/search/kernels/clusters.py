"""Triton kernels of clusters: exact sums of the rows of each, and the information of a table of classes and clusters.

Imported only for CUDA tensors, or if TRITON_INTERPRET=1 interprets them on a CPU.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ....core.native.triton import launch

_CELLS, _STEPS = 1024, 64  # cells that a program adds at once, and how often


@triton.jit
def _first(ordered, cluster, rows):
    # ordered: (rows,) int64  ->  the first position of this cluster or a higher one, else `rows`
    low, high = 0, rows
    while low < high:
        mid = (low + high) // 2
        is_before = tl.load(ordered + mid) < cluster
        low, high = tl.where(is_before, mid + 1, low), tl.where(is_before, high, mid)
    return low


@triton.jit(do_not_specialize=["rows", "clusters"])
def _cluster_sums(
    x, x_row, x_step, ordered, order, previous, units, sums, counts, status, rows, clusters, dim,
    EMPTY: tl.constexpr, CHANGED: tl.constexpr, ROWS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    # A program adds some columns of the rows of one cluster, in parts as `exact_sums.parts`.
    k, d, r = tl.program_id(0).to(tl.int64), tl.program_id(1) * SIZE + tl.arange(0, SIZE), tl.arange(0, ROWS)
    first, last = _first(ordered, k, rows), _first(ordered, k + 1, rows)
    # Numbers of this size are multiples of the coarse grid, 2^-8 units.
    shift = tl.load(units + d, mask=d < dim, other=1.0)[None, :] * (1.5 * 2.0**44)
    high, low = tl.zeros((SIZE,), dtype=tl.float64), tl.zeros((SIZE,), dtype=tl.float64)
    changed = tl.zeros((ROWS,), dtype=tl.int32)
    for start in range(first, last, ROWS):
        valid = start + r < last
        row = tl.load(order + start + r, mask=valid, other=0)
        changed |= (tl.load(previous + row, mask=valid, other=k) != k).to(tl.int32)
        value = tl.load(x + row[:, None] * x_row + d * x_step, mask=valid[:, None] & (d < dim)[None, :], other=0)
        value = value.to(tl.float64)
        part = (value + shift) - shift
        rest = value - part
        high += tl.sum(part, axis=0)
        low += tl.sum((rest + shift * 2.0**-26) - shift * 2.0**-26, axis=0)
    tl.store(sums + k * dim + d, high, mask=d < dim)
    tl.store(sums + (clusters + k) * dim + d, low, mask=d < dim)
    if tl.program_id(1) == 0:
        tl.store(counts + k, (last - first).to(tl.int64))
        tl.atomic_or(status, tl.where(first == last, EMPTY, 0) | tl.max(changed, axis=0) * CHANGED, sem="relaxed")


@triton.jit(do_not_specialize=["cells", "total"])
def _information(
    row, col, count, row_size, col_size, sums, cells, total, STEPS: tl.constexpr, SIZE: tl.constexpr
):  # fmt: skip
    # As `mutual_info._information`: sums of quotients of integers, alike where one partition refines the other.
    p, n = tl.program_id(0).to(tl.int64), (tl.zeros((SIZE,), dtype=tl.int64) + total).to(tl.float64)
    info = tl.zeros((SIZE,), dtype=tl.float64)
    of_rows, of_cols = info, info
    for step in range(STEPS):
        cell = (p * STEPS + step) * SIZE + tl.arange(0, SIZE)
        c = tl.load(count + cell, mask=cell < cells, other=0)
        is_full = c > 0
        a = tl.load(row_size + tl.load(row + cell, mask=is_full, other=0), mask=is_full, other=1).to(tl.float64)
        b = tl.load(col_size + tl.load(col + cell, mask=is_full, other=0), mask=is_full, other=1).to(tl.float64)
        x = c.to(tl.float64)
        info += tl.where(is_full, x / n * tl.log(tl.where(is_full, x * n, 1.0) / (a * b)), 0.0)
        of_rows += tl.where(is_full, x / n * tl.log(n / a), 0.0)
        of_cols += tl.where(is_full, x / n * tl.log(n / b), 0.0)
    tl.store(sums + 3 * p, tl.sum(info, axis=0))
    tl.store(sums + 3 * p + 1, tl.sum(of_rows, axis=0))
    tl.store(sums + 3 * p + 2, tl.sum(of_cols, axis=0))


@triton.jit(do_not_specialize=["columns", "total"])
def _expected_information(row_size, col_size, log_factorial, expected, columns, total, SIZE: tl.constexpr):
    # A program adds the terms of one class and one cluster, as `expected_mutual_info` and `_hypergeometric_sums`.
    p = tl.program_id(0).to(tl.int64)
    a, b, one = tl.load(row_size + p // columns), tl.load(col_size + p % columns), tl.zeros((SIZE,), dtype=tl.int64)
    n, product = (one + total).to(tl.float64), (one + a).to(tl.float64) * (one + b).to(tl.float64)
    mean, others = product / n, (one + (total - a)).to(tl.float64) * (one + (total - b)).to(tl.float64)
    half_width = 12 * tl.sqrt(mean * others / (n * tl.maximum(n - 1, 1.0))) + 40
    first = tl.max(
        tl.maximum(tl.maximum(one + (a + b - total), one + 1), tl.floor(mean - half_width).to(tl.int64)), axis=0
    )
    last = tl.min(tl.minimum(tl.minimum(one + a, one + b), tl.ceil(mean + half_width).to(tl.int64)), axis=0)
    constant = tl.load(log_factorial + a) + tl.load(log_factorial + b) - tl.load(log_factorial + total)
    constant += tl.load(log_factorial + (total - a)) + tl.load(log_factorial + (total - b))
    terms = tl.zeros((SIZE,), dtype=tl.float64)
    for start in range(first, last + 1, SIZE):
        k = start + tl.arange(0, SIZE)
        valid = k <= last
        weight = constant - tl.load(log_factorial + k, mask=valid, other=0.0)
        weight -= tl.load(log_factorial + (a - k), mask=valid, other=0.0)
        weight -= tl.load(log_factorial + (b - k), mask=valid, other=0.0)
        weight -= tl.load(log_factorial + (total - a - b + k), mask=valid, other=0.0)
        x = tl.where(valid, k, 1).to(tl.float64)
        rate = tl.where(product > 0, n / tl.where(product > 0, product, 1.0), 1.0)
        terms += tl.where(valid, x / n * tl.log(x * rate) * tl.exp(weight), 0.0)
    tl.store(expected + p, tl.sum(terms, axis=0))


def cluster_sums(
    rows: Tensor, clusters: Tensor, previous: Tensor, units: Tensor, count: int, bits: tuple[int, int]
) -> tuple[Tensor, Tensor, Tensor]:
    # rows: (N, D)  clusters, previous: (N,) int64  units: (D,)  bits: of the status, a cluster is empty, a row moved
    # ->  (count,) int64 rows of each cluster, (2, count, D) float64, as `class_parts`, (1,) int32 status
    ordered, order = clusters.sort()
    (size, dim), device = rows.shape, rows.device
    sums = torch.empty(2, count, dim, dtype=torch.float64, device=device)
    counts = torch.empty(count, dtype=torch.int64, device=device)
    status = torch.zeros(1, dtype=torch.int32, device=device)
    columns = min(max(triton.next_power_of_2(dim), 16), 128)
    # Fused multiply-adds would change the bits.
    launch(
        _cluster_sums, (count, triton.cdiv(dim, columns)),
        rows, *rows.stride(), ordered, order, previous, units, sums, counts, status, size, count, dim,
        EMPTY=bits[0], CHANGED=bits[1], ROWS=4096 // columns, SIZE=columns, enable_fp_fusion=False,
    )  # fmt: skip
    return counts, sums, status


def information(
    row: Tensor, col: Tensor, count: Tensor, row_size: Tensor, col_size: Tensor, total: int
) -> Tensor:  # fmt: skip
    # row, col, count: (Z,), and the others of a Contingency  ->  (3,) float64, see `mutual_info._information`
    steps = min(triton.next_power_of_2(triton.cdiv(len(count), _CELLS)), _STEPS)
    programs = triton.cdiv(len(count), steps * _CELLS)
    sums = torch.empty(programs, 3, dtype=torch.float64, device=count.device)
    launch(
        _information, (programs,), row, col, count, row_size, col_size, sums, len(count), total,
        STEPS=steps, SIZE=_CELLS, enable_fp_fusion=False,
    )  # fmt: skip
    return sums.sum(0) if programs > 1 else sums[0]


def expected_information(row_size: Tensor, col_size: Tensor, log_factorial: Tensor) -> Tensor:
    # row_size: (R,)  col_size: (C,)  log_factorial: (N + 1,)  ->  () float64
    expected = torch.empty(len(row_size) * len(col_size), dtype=torch.float64, device=row_size.device)
    launch(
        _expected_information, (len(expected),), row_size, col_size, log_factorial, expected, len(col_size),
        len(log_factorial) - 1, SIZE=128, num_warps=1, enable_fp_fusion=False,
    )  # fmt: skip
    return expected.sum()
