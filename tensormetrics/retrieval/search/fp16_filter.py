"""References and queries as float16 for tensor cores, with an error bound of their products."""

import functools
from types import ModuleType

import torch
from torch import Tensor

from ...core.numbers.exact_sums import power_of_two
from ..deterministic import chunk_slices
from . import operators
from .distance import rows_at_once
from .kernels.tables import Float16Queries, Float16References
from .product_filter import Filter

LONGEST = 16  # one in so many blocks holds the longest rows only
# The longest row gets a norm in [2^7, 2^8): far below the largest float16, and rows 2^20 times shorter lose no bits.
_LIFT = 2.0**8
_EPS = 2.0**-24  # unit roundoff of float32, in which products are accumulated
_ROUND_UP = 1 + 2.0**-19  # exceeds the rounding error of evaluating a bound in float32


class Float16Filter:
    """References as float16, with an error bound of their products.

    The value of a pair is `bias - factor * product`: a power of two times the canonical distance, up to a constant of
    the query. With x', y' the rounded rows, x.y - x'.y' = (x - x').y' + x.(y - y'), and the product of x' and y' has an
    error of at most (D + 2) 2^-24 |x'| |y'| for float32 sums, plus 2^-22 for each step of a tensor core. So the error
    of a value is at most left[0] right[0] + left[1] right[1] + right[2] + left[2] / 2, with `left` of the query and
    `right` of the reference's block. The longest rows form blocks of their own, so that they reduce the precision of
    few blocks; the others are dealt to blocks by norm, so that all blocks have similar minima.

    `parts=2` stores the rounding error as a second float16: products of (low, high, high) by (high, low, high) have
    about 22 bits.
    """

    def __init__(self, filter_: Filter, kernels: ModuleType, parts: int = 1) -> None:
        reference, self.filter, self.kernels, self.parts = filter_.reference, filter_, kernels, parts
        count, dim = reference.shape
        self.euclidean, self.factor = filter_.distance.euclidean, filter_.distance.factor
        self.num_segments, self.size = 2 * parts - 1, padded(count, kernels.TILE)
        self.width = padded(max(dim, 1), kernels.DEPTH)
        self.summing = summing_error(self.width * self.num_segments)
        self.prepare = operators.preparing(reference)
        if self.prepare:
            inputs = reference, filter_.center, filter_.norms, filter_.nonfinite, filter_.sizes
            layout = kernels.BLOCK, kernels.STRIDE, LONGEST, self.size, self.width
            self.references = self.prepare.references(*inputs, *self._options(), *layout)
        else:
            self.references = self._prepared()
        self.rows, self.bias, self.order, self.position, self.row_bounds, self.right = self.references[:6]

    def _options(self) -> tuple[float, float, int, bool, int]:
        return self.filter.rounding, self.summing, self.factor, self.filter.distance.unit, self.parts

    def _prepared(self) -> Float16References:
        filter_, reference, kernels, size = self.filter, self.filter.reference, self.kernels, self.size
        count, device = len(reference), reference.device
        table = torch.zeros(size, self.width * self.num_segments, dtype=torch.float16, device=device)
        bias = torch.full((size,), torch.inf, dtype=torch.float32, device=device)
        sizes = torch.zeros(4, size, dtype=torch.float64, device=device)
        norms, ordered = filter_.norms.sort()
        positions = self.positions(norms)
        order = torch.full((size + 1,), -1, dtype=torch.int32, device=device)
        order[positions] = ordered.int()
        position = torch.empty_like(ordered)
        position[ordered] = positions
        for part in chunk_slices(count, rows_at_once(reference)):
            rows, nonfinite = filter_.centered(reference[ordered[part]]), filter_.nonfinite[ordered[part]]
            rows = rows.masked_fill(nonfinite[:, None], 0.0) * (filter_.scale * _LIFT)
            chunk = table.new_zeros(len(rows), table.shape[1])
            sizes[:, positions[part]] = self._store(rows, chunk, (1, 0, 1))
            table[positions[part]] = chunk
            of_rows = rows.square().sum(1).float() if self.euclidean else bias.new_zeros(len(rows))
            bias[positions[part]] = of_rows.masked_fill(nonfinite, torch.inf)
        length, lost, rounded, low = sizes
        ref_error = (9 * _EPS + 2 * filter_.rounding) * length.square() if self.euclidean else torch.zeros_like(length)
        row_bounds = _rounded_up(torch.stack([rounded, lost, ref_error]))
        right = row_bounds.view(3, -1, kernels.BLOCK, kernels.STRIDE).amax(2).flatten(1)
        low = low.amax()
        return Float16References(
            table, bias, order, position, row_bounds, right, self._left(sizes, low), low, self.factor
        )

    def positions(self, norms: Tensor) -> Tensor:
        # norms: (R,) float64 ascending  ->  (R,) int64
        """Return the position of each reference, by norm; those of a block are STRIDE apart."""
        count, size, device = len(norms), self.kernels.BLOCK, norms.device
        s, block = torch.arange(size, device=device), torch.arange(self.size // size, device=device)[:, None]
        longest = len(block) // LONGEST
        near, dealt = len(block) - longest, count - longest * size
        exponent = norms.view(torch.int64)[(size * block[:near, 0] + size - 1).clamp(max=dealt - 1)] >> 52
        group = -((exponent[-1] - exponent) // 4)  # the last block holds the longest of these rows, or follows it
        start, stop = (torch.searchsorted(group, group, right=right)[:, None] for right in (False, True))
        rank = torch.cat([size * start + s * (stop - start) + block[:near] - start, dealt + size * block[:longest] + s])
        rank[:near].masked_fill_(rank[:near] >= dealt, count)
        of_blocks = torch.arange(self.size, device=device).view(-1, size, self.kernels.STRIDE).mT.flatten()
        return of_blocks.new_empty(count + 1).scatter_(0, rank.flatten(), of_blocks)[:count]

    def _store(self, rows: Tensor, table: Tensor, parts: tuple[int, ...]) -> Tensor:
        # rows: (N, D) float64  table: (N, D') float16  parts: 1 for high, 0 for low
        # ->  (4, N) float64, upper bounds: norms of the row, the rounding error, the rounded row, its low part
        high = rows.half()
        low = (rows - high.double()).half() if self.parts == 2 else torch.zeros_like(high)
        for part, segment in zip(parts[-self.num_segments :], table.chunk(self.num_segments, 1), strict=True):
            segment[:, : rows.shape[1]] = high if part else low
        small = low.double().norm(dim=1)
        lost = (rows - high.double() - low.double()).norm(dim=1)
        return torch.stack([rows.norm(dim=1), lost, high.double().norm(dim=1) + small, small])

    def query(self, rows: Tensor) -> Float16Queries:
        # rows: (Q, D)
        filter_, size = self.filter, padded(len(rows), self.kernels.TILE)
        if self.prepare:
            inputs = rows, filter_.center, filter_.sizes, self.references.low
            return self.prepare.queries(*inputs, *self._options(), size, self.width)
        x = filter_.centered(rows, self.euclidean)
        norm = x.norm(dim=1)
        query_scale = None if self.euclidean else power_of_two(norm)
        scale = _LIFT * (filter_.scale if query_scale is None else query_scale)
        table = self.rows.new_zeros(size, self.rows.shape[1])
        sizes = filter_.norms.new_zeros(4, size)
        is_bounded = norm * scale < 2.0**15
        x = torch.where(is_bounded[:, None], x * scale.unsqueeze(-1), 0.0)
        sizes[:, : len(rows)] = self._store(x, table[: len(rows)], (0, 1, 1))
        return Float16Queries(table, self._left(sizes, self.references.low), is_bounded, query_scale)

    @functools.cached_property
    def as_queries(self) -> Float16Queries:
        """References in their stored order as queries of Euclidean distances; for one part."""
        return Float16Queries(self.rows, self.references.left, ~self.filter.nonfinite)

    @functools.cached_property
    def largest(self) -> Tensor:
        # ->  (3,) float32
        return self.right.amax(1)

    def _left(self, sizes: Tensor, low: Tensor) -> Tensor:
        # sizes: (4, Q)  low: (1,)  ->  (3, Q)
        length, lost, rounded, small = sizes
        query_error = self.filter.rounding * length
        if self.euclidean:
            query_error = 2 * query_error * length
        else:
            query_error = query_error * _LIFT * (self.filter.norm + 2 * self.filter.center_norm)
        query_error = query_error + self.factor * small * low
        return _rounded_up(
            torch.stack([self.factor * (lost + self.summing * rounded), self.factor * length, 2 * query_error])
        )

    def affine_map(self, rows: Tensor, queries: Float16Queries) -> tuple[Tensor, Tensor]:
        # rows: (Q, D), from which the queries were prepared  ->  (Q,), (Q,) float64
        """Return the factor and shift that map canonical distances to values."""
        factor, shift = self.filter.affine_map(rows, queries.scale)
        return factor * _LIFT**2, shift * _LIFT**2


def padded(count: int, unit: int) -> int:
    return -(-count // unit) * unit


def summing_error(depth: int) -> float:
    """Return the relative error of a sum of products, for float32 and for the steps of a tensor core."""
    return 1.01 * (depth + 2) * _EPS + (depth / 16 + 8) * 2.0**-22 + 8 * _EPS


def _rounded_up(bound: Tensor) -> Tensor:
    # bound: (...) float64  ->  (...) float32, not smaller
    return (bound * _ROUND_UP + 2.0**-120).float()
