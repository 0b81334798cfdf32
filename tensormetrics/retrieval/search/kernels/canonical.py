"""Triton kernel of canonical distances of listed pairs.

Imported only for CUDA tensors, or if TRITON_INTERPRET=1 interprets them on a CPU.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ....core.native.triton import launch

WIDEST = 8192  # maximal number of columns, whose terms are computed at once


@triton.jit
def _terms(x, x_step, y, y_step, d, valid, dim, KIND: tl.constexpr):
    valid = valid & (d < dim)
    a = tl.load(x + d.to(tl.int64) * x_step, mask=valid, other=0).to(tl.float64)
    b = tl.load(y + d.to(tl.int64) * y_step, mask=valid, other=0).to(tl.float64)
    return (a - b) * (a - b) if KIND == 0 else a * b


@triton.jit
def _halving_sum(
    x, x_step, y, y_step, valid, dim, KIND: tl.constexpr, COUNT: tl.constexpr, SIZE: tl.constexpr, LOG: tl.constexpr
):
    # x, y: (COUNT, 1) pointers to rows  ->  (COUNT,), in the order of `halving_sum`
    quarter: tl.constexpr = SIZE // 4
    d = tl.arange(0, quarter)[None, :]
    first = _terms(x, x_step, y, y_step, d, valid, dim, KIND)
    second = _terms(x, x_step, y, y_step, d + quarter, valid, dim, KIND)
    first += _terms(x, x_step, y, y_step, d + 2 * quarter, valid, dim, KIND)
    second += _terms(x, x_step, y, y_step, d + 3 * quarter, valid, dim, KIND)
    terms = first + second
    for step in tl.static_range(LOG - 2):
        terms = tl.sum(tl.reshape(terms, (COUNT, 2, quarter >> (step + 1))), axis=1)
    return tl.reshape(terms, (COUNT,))


@triton.jit
def distance(
    x, x_step, y, y_step, valid, dim, KIND: tl.constexpr, COUNT: tl.constexpr, SIZE: tl.constexpr, LOG: tl.constexpr
):
    # x, y: (COUNT, 1) pointers to rows  valid: (COUNT, 1)  ->  (COUNT,), NaN if not finite
    value = _halving_sum(x, x_step, y, y_step, valid, dim, KIND, COUNT, SIZE, LOG)
    if KIND == 2:
        norms = tl.sqrt(_halving_sum(x, x_step, x, x_step, valid, dim, KIND, COUNT, SIZE, LOG))
        norms *= tl.sqrt(_halving_sum(y, y_step, y, y_step, valid, dim, KIND, COUNT, SIZE, LOG))
        value = tl.where(norms == 0, 1.0, 1 - value / tl.where(norms == 0, 1.0, norms))
    if KIND == 1:
        value = -value
    return tl.where(tl.abs(value) < float("inf"), value, float("nan"))


@triton.jit(do_not_specialize=["pairs", "width"])
def _canonical(
    query, query_row, query_step, reference, reference_row, reference_step, row, column, delta, pairs, width, dim,
    HAS_ROW: tl.constexpr, KIND: tl.constexpr, COUNT: tl.constexpr, SIZE: tl.constexpr, LOG: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(0).to(tl.int64) * COUNT + tl.arange(0, COUNT)
    i = tl.load(row + n, mask=n < pairs, other=0) if HAS_ROW else tl.where(n < pairs, n, 0) // width
    j = tl.load(column + n, mask=n < pairs, other=-1)
    x = query + (i.to(tl.int64) * query_row)[:, None]
    y = reference + (j.to(tl.int64) * reference_row)[:, None]
    value = distance(x, query_step, y, reference_step, (j >= 0)[:, None], dim, KIND, COUNT, SIZE, LOG)
    tl.store(delta + n, tl.where(j >= 0, value, float("inf")), mask=n < pairs)


def canonical_pairs(query: Tensor, reference: Tensor, row: Tensor | None, column: Tensor, kind: int) -> Tensor:
    # query: (Q, D)  reference: (R, D), D <= WIDEST  row, column: (n,) int64  ->  (n,) float64, inf where column is -1
    """Compute canonical distances as `Distance.of_pairs`; `kind` 0 is Euclidean, 1 the inner product, 2 cosine."""
    delta = torch.empty(len(column), dtype=torch.float64, device=query.device)
    size = max(triton.next_power_of_2(query.shape[1]), 16)
    count, column = max(4096 // size, 1), column.contiguous()
    # Fused multiply-adds would change the bits.
    launch(
        _canonical, (triton.cdiv(len(column), count),), query, *query.stride(), reference, *reference.stride(),
        column if row is None else row.contiguous(), column, delta, len(column), len(column) // len(query),
        query.shape[1], HAS_ROW=row is not None, KIND=kind, COUNT=count, SIZE=size, LOG=size.bit_length() - 1,
        enable_fp_fusion=False,
    )  # fmt: skip
    return delta
