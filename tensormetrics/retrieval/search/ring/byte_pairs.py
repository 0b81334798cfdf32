"""Nearest neighbours of two sets of rows in each other, or of one in itself, by products of bytes.

As in bytes/search.py, products of rows that are rounded to 8 bits rule most pairs out, here at once for both rows of a
pair; of what is left, canonical distances decide. What is known of the nearest rules out what is further.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from .... import _native
from .. import operators
from ..backend import nearest as in_order
from ..bytes.search import MOST, UP, capacity_of, panels_of
from ..distance import DISTANCES, Distance
from ..filter import BLOCK, Filter, Frame
from .mutual import Known, nearest_of

HIGH = 128  # where the second set begins is a multiple of it
FEWEST, SOME = 256, 64  # rows for which it pays; rows that are tried first
ROOM = 1024  # rows for which there has to be room


class Rounded(NamedTuple):
    """Rows in an order without meaning, so that no list begins with one tight class; see `centred_bytes`."""

    order: Tensor  # (n,) int64, which row each is
    bytes: Tensor  # (n, D') int8
    excess: Tensor  # (n,) int32
    unit: Tensor  # (n,) float32
    sizes: Tensor  # (4, n) float64

    def at(self, some: Tensor) -> "Rounded":
        return Rounded(self.order[some], self.bytes[some], self.excess[some], self.unit[some], self.sizes[:, some])


class Looking(NamedTuple):
    """Rows (N, D) that look for their nearest: the index of the first, what is known, and beyond which distance (N,)
    float64 they have no use for a neighbour."""

    rows: Tensor
    first: int
    known: Known
    worst: Tensor

    @staticmethod
    def of(rows: Tensor, first: int, known: Known) -> "Looking":
        return Looking(rows, first, known, torch.full((len(rows),), torch.inf, dtype=torch.float64, device="cpu"))


Part = tuple[Looking, Rounded]  # some of the rows that look


class Lists(NamedTuple):
    """What may be among the nearest of the rows of one set, or of two; see `keep_possible` and `settle_possible`."""

    lower: Tensor  # (N, capacity) float32
    column: Tensor  # (N, capacity) int32
    number: Tensor  # (N,) int32
    limit: Tensor  # (N,) float32
    slack: Tensor  # (N,) float32
    shift: Tensor  # (N,) float64

    def of(self, rows: slice) -> "Lists":
        return Lists(*(each[rows] for each in self))


class BytePairs:
    """`pairs(x, y)` adds to what two sides know of their nearest rows those among each other's, and `pairs(x)` those
    among its own, by Euclidean distance. x are the same rows in every call."""

    def __init__(self, k: int, distance: Distance, frame: Frame, memory: int) -> None:
        self.k, self.distance, self.frame, self.memory = k, distance, frame, memory
        self.step = _rows_at_once(k, len(frame.centre), memory)
        self.capacity = capacity_of(k, len(frame.centre))
        nothing = torch.empty(0, len(frame.centre), device="cpu", dtype=torch.float32)
        self.filter = Filter(
            nothing, distance, torch.float32, frame=frame, norms=torch.zeros(1, dtype=torch.float64, device="cpu")
        )
        self.scale = float(frame.scale)
        self.kept: dict[int, Rounded] = {}
        self.room = (
            torch.empty(0, self.capacity, device="cpu", dtype=torch.float32),
            torch.empty(0, self.capacity, dtype=torch.int32, device="cpu"),
        )

    @staticmethod
    def pays(rows: Tensor, k: int, memory: int) -> bool:
        return (
            rows.dtype != torch.float64
            and len(rows) >= FEWEST
            and k <= MOST
            and 48 <= rows.shape[1] <= 2**15
            and _rows_at_once(k, rows.shape[1], memory) >= ROOM
            and bool(operators.multiplies_bytes(rows))
        )

    def works(self, rows: Tensor) -> bool:
        """Whether it says enough about most of some rows; of tight clusters it does not."""
        every = self._own(rows, slice(0, min(len(rows), self.step)))
        some = every.at(torch.arange(min(SOME, len(every.order)), device="cpu"))
        side = Looking.of(rows, 0, Known.nothing(len(rows), self.k))
        number = self._listed((side, some), (side, every), both=False).number
        return 8 * int((number[: len(some.order)] == self.capacity).sum()) <= len(some.order)

    def __call__(self, x: Looking, y: Looking | None = None, skipped: int = 0) -> None:
        # skipped: so many of the first rows of x are left out
        pieces = self._pieces(x.rows)
        for number, piece in enumerate(pieces):
            of_x = self._own(x.rows, piece)
            if skipped > piece.start:
                of_x = of_x.at((of_x.order >= skipped).nonzero()[:, 0])
            if not len(of_x.order):
                continue
            if y is None:
                self._pair((x, of_x), None)
                others = [(x, self._own(x.rows, other)) for other in pieces[number + 1 :]]
            else:
                others = [(y, self._rounded(y.rows, other)) for other in self._pieces(y.rows)]
            for other in others:
                self._pair((x, of_x), other)

    def _pieces(self, rows: Tensor) -> list[slice]:
        return [slice(i, min(i + self.step, len(rows))) for i in range(0, len(rows), self.step)]

    def _own(self, rows: Tensor, piece: slice) -> Rounded:
        """Of the rows that meet all others: kept where there is room."""
        if piece.start in self.kept:
            return self.kept[piece.start]
        rounded = self._rounded(rows, piece)
        if 4 * len(rows) * (rounded.bytes.shape[1] + 48) <= self.memory:
            self.kept[piece.start] = rounded
        return rounded

    def _rounded(self, rows: Tensor, piece: slice) -> Rounded:
        order = (
            torch.randperm(piece.stop - piece.start, generator=torch.Generator().manual_seed(0), device="cpu")
            + piece.start
        )
        options = self.frame.centre, self.scale, self.distance.factor
        return Rounded(order, *operators.centred_bytes(rows, order, *options))

    def _pair(self, x: Part, y: Part | None) -> None:
        """Two sets, or one and itself."""
        lists, other = self._listed(x, y), y or x
        start = _start_behind(x) if y else 0
        self._settle(x, other, lists.of(slice(len(x[1].order))), start)
        if y:
            self._settle(y, x, lists.of(slice(start, start + len(y[1].order))), 0)

    def _listed(self, x: Part, y: Part | None, both: bool = True) -> Lists:
        # both: for both sets, else for x alone
        start, last = _start_behind(x) if y else 0, (y or x)[1]
        size = start + -(-len(last.order) // BLOCK) * BLOCK
        places = [(slice(len(x[1].order)), x), *([(slice(start, start + len(last.order)), y)] if y else [])]
        sizes = torch.zeros(4, size, dtype=torch.float64, device="cpu")
        sizes[0] = torch.inf
        unit = torch.zeros(size, dtype=torch.float32, device="cpu")
        for rows, (_, rounded) in places:
            sizes[:, rows], unit[rows] = rounded.sizes, rounded.unit
        width, share, slack, bias, shift = self._bounds(sizes)
        upper = torch.full((size, self.k), torch.inf, dtype=torch.float32, device="cpu")
        for rows, (side, rounded) in places:
            known = torch.minimum(side.known.delta[rounded.order], side.worst[rounded.order, None])
            upper[rows] = _above((self.scale * self.scale * known + shift[rows, None]).float())
        limit = _above(upper[:, -1] + 2 * slack).masked_fill_(bias == torch.inf, -torch.inf)
        if size > len(self.room[0]):
            self.room = self.room[0].new_empty(size, self.capacity), self.room[1].new_empty(size, self.capacity)
        number = torch.zeros(size, dtype=torch.int32, device="cpu")
        lists = Lists(self.room[0][:size], self.room[1][:size], number, limit, slack, shift)
        own = torch.arange(len(x[1].order), device="cpu")
        own = own.fill_(-1) if y else own
        of_x = x[1].bytes, x[1].unit / -self.distance.factor, x[1].excess
        panels = panels_of(torch.nn.functional.pad(last.bytes, (0, 0, 0, size - start - len(last.order))))
        references = [each if both else each[start:] for each in (unit, bias, share)]
        operators.keep_possible(*of_x, panels, *references, width, slack, own, *lists[:4], upper, start if both else -1)
        return lists

    def _bounds(self, sizes: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        # sizes: (4, N) float64, see `centred_bytes`  ->  width, share, slack and bias (N,), see `keep_possible`, where
        # there is no row of bias inf; (N,) float64, what is added to distances
        norm, length, near, left = sizes
        shift, factor = -norm.square(), self.distance.factor
        tiny, longest, most_left = torch.finfo(torch.float64).tiny, length.amax(), left.amax()
        share = torch.maximum(length / longest.clamp(min=tiny), left / most_left.clamp(min=tiny))
        width = (left * longest + near * most_left) / factor
        # The squares of the norms are sums in another order than that of canonical distances.
        error = self.filter.error(norm) - (2 * len(self.frame.centre) + 16) * 2.0**-53 * shift
        # At most 32 operations of float32 on terms of this size.
        terms = 1 + near * (longest + most_left) / factor + 2 * width
        slack = (error + 32 * 2.0**-24 * terms) * UP
        bias = (-shift * (factor - 1)).float().masked_fill_(~norm.isfinite(), torch.inf)
        return (width * UP).float(), (share * UP).float(), slack.float(), bias, shift

    def _settle(self, x: Part, y: Part, lists: Lists, start: int) -> None:
        side, other, order, columns = x[0], y[0], x[1].order, y[1].order
        found = side.known.delta, side.known.index
        places = side.worst, self.scale * self.scale, start, other.first, self.distance.code
        flooded = operators.settle_possible(side.rows, other.rows, order, columns, *lists, *places, *found)
        if flooded.any():
            rows, among = order[flooded], columns.sort().values
            own = torch.searchsorted(among, rows) if side is other and x[1] is y[1] else torch.full_like(rows, -1)
            delta, near = nearest_of(side.rows[rows], own, other.rows[among], self.k, self.distance, self.memory // 2)
            index = torch.where(near < 0, -1, among[near.clamp(min=0)] + other.first)
            side.known.add(delta, index, rows)


def _start_behind(x: Part) -> int:
    """Where the second set begins."""
    return -(-len(x[1].order) // HIGH) * HIGH


def _above(values: Tensor) -> Tensor:
    return values.nextafter(values.new_tensor(torch.inf))


def _rows_at_once(k: int, dim: int, memory: int) -> int:
    # Of two sets there are lists of this many rows each, and their bytes.
    return memory // 8 // (8 * capacity_of(k, dim) + 8 * k + 2 * dim + 160)


@_native.reference("centred_bytes")
def _centred_bytes(
    rows: Tensor, order: Tensor, centre: Tensor, scale: float, factor: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    centred = (rows[order].double() - centre) * scale
    norm = centred.norm(dim=1)
    ready = (centred.float() * -factor).masked_fill(~norm.isfinite()[:, None], 0.0)
    words, unit, sizes = operators.to_bytes(ready.contiguous())
    norm = norm.masked_fill(norm.isnan(), torch.inf)
    return words, 128 * words.sum(1, dtype=torch.int32), unit, torch.cat([norm[None], sizes])


@_native.reference("settle_possible")
def _settle_possible(
    query: Tensor,
    reference: Tensor,
    row_of: Tensor,
    order: Tensor,
    lower: Tensor,
    column: Tensor,
    number: Tensor,
    limit: Tensor,
    slack: Tensor,
    shift: Tensor,
    worst: Tensor,
    factor: float,
    start: int,
    first: int,
    distance: int,
    delta: Tensor,
    index: Tensor,
) -> Tensor:
    capacity = lower.shape[1]
    kind = next(each for each in DISTANCES.values() if each.code == distance)
    there = (torch.arange(capacity, device="cpu") < (number % capacity)[:, None]) & (lower < limit[:, None])
    n, place = there.nonzero().unbind(1)
    row, near = row_of[n], order[column[n, place].long() - start]
    values = torch.full(there.shape, torch.inf, dtype=torch.float64, device="cpu")
    values[n, place] = kind.of_pairs(query, reference, row, near, 2**24)
    names = torch.full(there.shape, -1, device="cpu")
    names[n, place] = near + first
    names[values > worst[row_of, None]] = -1
    Known(delta, index).add(*in_order(values, names, delta.shape[1]), row_of)
    return number == capacity


@_native.reference("merge_nearest")
def _merge_nearest(other: Tensor, of_other: Tensor, first: int, delta: Tensor, index: Tensor) -> None:
    Known(delta, index).add(other, torch.where(other < torch.inf, of_other.long() + first, -1))
