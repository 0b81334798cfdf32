"""Rows quantized to int16, and error bounds of their products.

Each row has one scale. For a query x and a reference y of the filter, quantized to x' and y', the Cauchy-Schwarz
inequality gives |x.y - x'.y'| <= |x - x'| |y| + |x'| |y - y'|, and all four norms are computed; see search/README.md
for the terms.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ....core.native import native
from ...deterministic import chunk_slices
from .. import operators
from ..distance import rows_at_once
from ..product_filter import BLOCK, Filter

UP = 1 + 2.0**-20  # factor that keeps float32 roundings of upper bounds valid
UNIT = 16 * 2.0**-24  # upper bound of the relative float32 error of a term
LONGEST = 46338  # largest norm of the codes of a row, so that sums of products fit in 32 bits
LARGEST = 32766  # largest absolute code


class QuantizedRows(NamedTuple):
    """Rows quantized to int16 codes: row = scale * codes, approximately."""

    panels: Tensor  # (P, D', 64, 2) int16, D' = D / 2 rounded up
    scale: Tensor  # (64 P,) float32
    sizes: Tensor  # (3, 64 P) float64: norms of the rows (inf if none), of the quantized rows, of the differences

    @staticmethod
    def nothing(count: int, dim: int) -> "QuantizedRows":
        panels = torch.zeros(-(-count // BLOCK), -(-dim // 2), BLOCK, 2, dtype=torch.int16, device="cpu")
        size = len(panels) * BLOCK
        sizes = torch.zeros(3, size, dtype=torch.float64, device="cpu")
        sizes[0] = torch.inf
        return QuantizedRows(panels, torch.zeros(size, dtype=torch.float32, device="cpu"), sizes)

    def write(self, rows: Tensor, filter_: Filter, order: Tensor | None, first: int = 0) -> None:
        # rows: (N, D)  order: (M,) int64, references to write, -1 if none; None: all rows, as queries
        """Write normalized rows to the positions from `first` on."""
        distance = filter_.distance
        if distance.euclidean and not distance.unit:
            operators.quantize_rows(rows, order, filter_.center, float(filter_.scale), *self, first)
            return
        zeros = torch.zeros(rows.shape[1], dtype=torch.float64, device="cpu")
        for chunk in chunk_slices(len(rows) if order is None else len(order), rows_at_once(rows)):
            if order is None:
                x = zeros.new_empty(chunk.stop - chunk.start, rows.shape[1])
                norms = filter_.scaled(rows[chunk], x)
            else:
                x, norms = filter_.centered(rows[order[chunk]]).mul_(filter_.scale), None
            operators.quantize_rows(x, None, zeros, 1.0, *self, first + chunk.start)
            if norms is not None:  # queries that are too long were replaced by zeros
                self.sizes[0, first + chunk.start : first + chunk.stop] = norms

    def as_references(
        self, rows: slice, factor: int, longest: Tensor, max_residual: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        # ->  bias, coefficient and bias_error (n,) float64
        length, _, residual = self.sizes[:, rows]
        nonfinite, tiny = length == torch.inf, torch.finfo(torch.float64).tiny
        length = length.masked_fill(nonfinite, 0.0)
        coefficient = torch.maximum(length / longest.clamp(min=tiny), residual / max_residual.clamp(min=tiny))
        squares = length.square() * (factor - 1)
        bias_error = UNIT * squares
        return (squares - bias_error).masked_fill_(nonfinite, torch.inf), coefficient * UP, bias_error * UP

    def as_queries(self, rows: slice, filter_: Filter, longest: Tensor, max_residual: Tensor) -> tuple[Tensor, Tensor]:
        # ->  width and rounding_error (n,) float64
        """Return the width and the rounding error of queries.

        The coefficient of a reference times the width bounds the quantization error. The rounding error bounds all
        other rounding except that of the terms of references.
        """
        length, rounded, residual = self.sizes[:, rows]
        width = residual * longest + rounded * max_residual + UNIT * rounded * (longest + max_residual)
        return width * (filter_.distance.factor * UP), filter_.error(length, products=False) * UP


class CandidateLists(NamedTuple):
    """Candidate lists: the references that may be among the nearest of each query."""

    bounds: Tensor  # (Q, 2, capacity) float32, lower and upper bounds
    column: Tensor  # (Q, capacity) int32
    list_size: Tensor  # (Q,) int32, count of candidates; capacity: the list is incomplete
    limit: Tensor  # (Q,) float32

    @staticmethod
    def of_size(queries: int, capacity: int) -> "CandidateLists":
        bounds = torch.empty(queries, 2, capacity, dtype=torch.float32, device="cpu")
        column = torch.empty(queries, capacity, dtype=torch.int32, device="cpu")
        return CandidateLists(bounds, column, column.new_empty(queries), bounds.new_empty(queries))

    def select(self, queries: slice) -> "CandidateLists":
        return CandidateLists(*(part[queries] for part in self))


def list_capacity(k: int, dim: int) -> int:
    """Return the capacity of the candidate list of a query."""
    # For 20,000 Gaussian rows of 512 columns, 10.8 references are candidates for k = 10, and 104 for k = 100; lists
    # contain 35 and 192 before the last reduction.
    return 2 * k + dim // 32 + 32


def _panels_of(panels: Tensor) -> Tensor:
    # panels: (P, D', 64, 2)  ->  (64 P, 2 D') float64
    return panels.transpose(1, 2).flatten(2).flatten(0, 1).double()


@native.reference("supports_int16")
def _supports_int16(like: Tensor) -> Tensor:
    return torch.zeros((), dtype=torch.bool, device=like.device)


@native.reference("quantize_rows")
def _quantize_rows(
    rows: Tensor,
    order: Tensor | None,
    center: Tensor,
    factor: float,
    panels: Tensor,
    scale: Tensor,
    sizes: Tensor,
    first: int,
) -> None:
    dim = rows.shape[1]
    x = ((rows if order is None else rows[order.clamp(min=0)]).double() - center) * factor
    length = x.norm(dim=1)
    valid = length < 2.0**41
    if order is not None:
        valid &= order >= 0
    is_quantized = valid & (length > 2.0**-60)
    unit = torch.maximum(length / (LONGEST - dim**0.5 / 2), x.abs().amax(1) / LARGEST) * (1 + 2.0**-22)
    unit = torch.where(is_quantized, unit, 0.0).float()
    x = x.where(is_quantized[:, None], 0.0)
    codes = (x * torch.where(is_quantized, 1 / unit.double(), 0.0)[:, None]).round()
    rounded = codes * unit.double()[:, None]
    residual = torch.where(is_quantized, (x - rounded).norm(dim=1), length.where(valid, 0.0))
    target = slice(first, first + len(x))
    scale[target] = unit
    sizes[:, target] = torch.stack([length.where(valid, torch.inf), rounded.norm(dim=1), residual])
    padded = torch.nn.functional.pad(codes, (0, dim % 2)).to(torch.int16).view(len(x), -(-dim // 2), 2)
    position = torch.arange(first, first + len(x), device="cpu")
    panels[position // BLOCK, :, position % BLOCK] = padded


@native.reference("int16_candidates")
def _int16_candidates(
    x: Tensor,
    x_scale: Tensor,
    panels: Tensor,
    scale: Tensor,
    bias: Tensor,
    coefficient: Tensor,
    bias_error: Tensor,
    width: Tensor,
    rounding_error: Tensor,
    self_index: Tensor,
    bounds: Tensor,
    column: Tensor,
    list_size: Tensor,
    limit: Tensor,
    k: int,
    is_symmetric: bool,
) -> None:
    count, size = len(list_size), len(bias)
    product = _panels_of(x)[:count] @ _panels_of(panels).T
    values = (product.float() * scale) * x_scale[:count, None] + (bias - width[:, None] * coefficient)
    values[torch.arange(size, device="cpu") == self_index[:, None]] = torch.inf
    upper = values + 2 * (width[:, None] * coefficient + bias_error)
    kth_upper = upper.kthvalue(k, dim=1).values
    limit.copy_(torch.minimum(limit, (kth_upper + 2 * rounding_error).nextafter(kth_upper.new_tensor(torch.inf))))
    for q, (entries, below) in enumerate(zip(values, limit.tolist(), strict=True)):
        matches = (entries < below).nonzero()[:, 0]
        in_capacity = len(matches) < column.shape[1]
        if list_size[q] < column.shape[1]:
            list_size[q] = len(matches) if in_capacity else column.shape[1]
        if in_capacity:
            bounds[q, :, : len(matches)] = torch.stack([entries[matches], upper[q, matches]])
            column[q, : len(matches)] = matches.int()
