"""References and queries as float16 for the tensor cores, and what products of them are off by at most."""

import functools
from types import ModuleType

import torch
from torch import Tensor

from ..._exact_sums import power_of_two
from .distance import rows_at_once
from .filter import Filter
from .kernels.tables import Halves

# The longest row gets a norm of 2^7 to 2^8: far below the largest float16, and rows 2^20 times shorter lose no bits.
_LIFT = 2.0**8
_EPS = 2.0**-24  # unit roundoff of the float32 in which products are summed
_ROUND_UP = 1 + 2.0**-19  # more than evaluating a bound in float32 may lose


class HalfFilter:
    """References as float16, and a bound on what products of them are off by.

    The value of a pair is `bias - factor * product`: a power of two times the canonical distance, but for a constant of
    the query. With x', y' for the rounded rows, x.y - x'.y' = (x - x').y' + x.(y - y'), and a product of x' and y' is
    off by at most (D + 2) 2^-24 |x'| |y'| for float32 sums, and 2^-22 more for each step of a tensor core. So a value
    is off by at most left[0] right[0] + left[1] right[1] + right[2] + left[2] / 2, with `left` of the query and `right`
    of the reference's block. Blocks are made by norm: a huge row takes the precision of its own block only.

    `parts=2` keeps what rounding has lost as a second float16: products of (low, high, high) by (high, low, high) have
    about 22 bits.
    """

    def __init__(self, filter_: Filter, kernels: ModuleType, parts: int = 1) -> None:
        reference, self.filter, self.kernels, self.parts = filter_.reference, filter_, kernels, parts
        count, dim = reference.shape
        self.euclidean, self.factor = filter_.distance.euclidean, filter_.distance.factor
        size = self._whole_tiles(count)
        pieces, depth = 2 * parts - 1, kernels.DEPTH
        width = max(-(-dim // depth) * depth, depth) * pieces
        self.rows = torch.zeros(size, width, dtype=torch.float16, device=reference.device)
        self.bias = torch.full((size,), torch.inf, device=reference.device)
        self._sizes = torch.zeros(4, size, dtype=torch.float64, device=reference.device)
        # Those of a block follow each other by norm, while their places are STRIDE apart.
        order = filter_.norms.argsort()
        places = torch.arange(size, device=order.device).view(-1, kernels.BLOCK, kernels.STRIDE).mT.flatten()[:count]
        self.order = torch.full((size + 1,), -1, dtype=torch.int32, device=order.device)
        self.order[places] = order.int()
        self.position = torch.empty_like(order)
        self.position[order] = places
        step = rows_at_once(reference)
        for start in range(0, count, step):
            part = slice(start, start + step)
            rows, hidden = filter_.centred(reference[order[part]]), filter_.hidden[order[part]]
            rows = rows.masked_fill(hidden[:, None], 0.0) * (filter_.scale * _LIFT)
            table = self.rows.new_zeros(len(rows), width)
            self._sizes[:, places[part]] = self._store(rows, table, (1, 0, 1))
            self.rows[places[part]] = table
            bias = rows.square().sum(1).float() if self.euclidean else self.bias.new_zeros(len(rows))
            self.bias[places[part]] = bias.masked_fill(hidden, torch.inf)
        length, lost, kept, _ = self._sizes
        own = (9 * _EPS + 2 * filter_.rounding) * length.square() if self.euclidean else torch.zeros_like(length)
        self.each = _rounded_up(torch.stack([kept, lost, own]))  # (3, R')
        self.right = self.each.view(3, -1, kernels.BLOCK, kernels.STRIDE).amax(2).flatten(1)  # (3, blocks)

    def _whole_tiles(self, rows: int) -> int:
        return -(-rows // self.kernels.SIDE) * self.kernels.SIDE

    def _store(self, rows: Tensor, table: Tensor, parts: tuple[int, ...]) -> Tensor:
        # rows: (N, D) float64  table: (N, D') float16  parts: 1 for high, 0 for low
        # ->  (4, N) float64, at most: norm, norm of what is lost, of what is kept, of the low part
        high = rows.half()
        low = (rows - high.double()).half() if self.parts == 2 else torch.zeros_like(high)
        pieces = 2 * self.parts - 1
        for part, piece in zip(parts[-pieces:], table.chunk(pieces, 1), strict=True):
            piece[:, : rows.shape[1]] = high if part else low
        small = low.double().norm(dim=1)
        lost = (rows - high.double() - low.double()).norm(dim=1)
        return torch.stack([rows.norm(dim=1), lost, high.double().norm(dim=1) + small, small])

    def query(self, rows: Tensor) -> Halves:
        # rows: (Q, D)
        x = self.filter.centred(rows, self.euclidean)
        norm = x.norm(dim=1)
        scale = _LIFT * (self.filter.scale if self.euclidean else power_of_two(norm))
        table = self.rows.new_zeros(self._whole_tiles(len(rows)), self.rows.shape[1])
        sizes = self._sizes.new_zeros(4, len(table))
        known = norm * scale < 2.0**15
        x = torch.where(known[:, None], x * scale.unsqueeze(-1), 0.0)
        sizes[:, : len(rows)] = self._store(x, table[: len(rows)], (0, 1, 1))
        return Halves(table, self._left(sizes), known)

    @functools.cached_property
    def as_queries(self) -> Halves:
        """The references themselves, in their order, as queries of Euclidean distances; of one part."""
        return Halves(self.rows, self._left(self._sizes), ~self.filter.hidden)

    def _left(self, sizes: Tensor) -> Tensor:
        # sizes: (4, Q)  ->  (3, Q)
        (length, lost, kept, low), dim = sizes, self.rows.shape[1]
        summing = 1.01 * (dim + 2) * _EPS + (dim / 16 + 8) * 2.0**-22 + 8 * _EPS
        own = self.filter.rounding * length
        if self.euclidean:
            own = 2 * own * length
        else:
            own = own * _LIFT * (self.filter.norm + 2 * self.filter.centre.norm() * self.filter.scale)
        own = own + self.factor * low * self._sizes[3].amax()
        return _rounded_up(torch.stack([self.factor * (lost + summing * kept), self.factor * length, 2 * own]))

    def error(self, queries: Halves) -> Tensor:
        # ->  (Q,) float64
        """The bound for all references."""
        near, length, twice = queries.left[:, : len(queries.known)].double()
        kept, lost, own = self.right.double().amax(1)
        return torch.where(queries.known, near * kept + length * lost + own + twice / 2, torch.inf)

    def place(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        # rows: (Q, D)  ->  (Q,), (Q,) float64
        """Factor and shift that take canonical distances to values."""
        return tuple(part * _LIFT**2 for part in self.filter.place(rows))


def _rounded_up(bound: Tensor) -> Tensor:
    # (...) float64  ->  (...) float32, more than it
    return (bound * _ROUND_UP + 2.0**-120).float()
