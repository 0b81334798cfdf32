"""Nearest neighbours of two sets of rows in each other, or of one in itself, by products of words of 16 bits.

As in words/search.py, products of rounded rows rule most pairs out, here at once for both rows of a pair; of what is
left, canonical distances decide. What is known of the nearest rules out what is further.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from .... import _native
from .. import operators
from ..backend import nearest as in_order
from ..distance import DISTANCES, Distance
from ..int16.quantize import LARGEST, UP, Lists, Rounded, capacity_of
from ..product_filter import BLOCK, Filter, Normalization
from .symmetric import Known, nearest_of

FEWEST, SOME = 256, 64  # rows for which it pays; rows that are tried first
ROOM = 1024  # rows for which there has to be room


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


class Part(NamedTuple):
    """Some of the rows that look, and the places where they are, rounded."""

    side: Looking
    places: slice


class WordPairs:
    """`pairs(x, y)` adds to what two sides know of their nearest rows those among each other's, and `pairs(x)` those
    among its own, by Euclidean distance.

    x are the same rows in every call, of which the first `cut` may be left out. y are at most `most`.
    """

    def __init__(
        self, k: int, distance: Distance, frame: Normalization, memory: int, cut: int = 0, most: int = 2**62
    ) -> None:
        dim = len(frame.centre)
        self.k, self.distance, self.memory, self.cut = k, distance, memory, cut
        self.step = min(_rows_at_once(k, dim, memory), max(most, cut))
        nothing = torch.empty(0, dim, device="cpu", dtype=torch.float32)
        norms = torch.zeros(1, dtype=torch.float64, device="cpu")
        self.filter = Filter(nothing, distance, torch.float32, frame=frame, norms=norms)
        self.scale = float(frame.scale)
        # No row is longer, and none is rounded by more: by half a unit in each column.
        self.most = self.filter.norm, self.filter.norm * (dim**0.5 / 2 / LARGEST * UP)
        self.own: tuple[slice, Part] | None = None  # which of the own rows are in their places

        # One set of rows behind the other; of the first, what comes after the cut begins a panel.
        places = (-(-self.step // BLOCK) * 2 + 1) * BLOCK
        self.rounded = Rounded.nothing(places, dim)
        self.order = torch.empty(places, dtype=torch.int64, device="cpu")  # which rows they are, -1 = none
        self.shift = torch.empty(places, dtype=torch.float64, device="cpu")  # takes distances to what lists bound
        # Of each row the scale as a query, bias, share, spread, width and slack, as `int16_candidates` takes them.
        self.terms = torch.empty(6, places, dtype=torch.float32, device="cpu")
        self.lists = Lists.of_size(places, capacity_of(k, dim))

    @staticmethod
    def pays(rows: Tensor, k: int, memory: int) -> bool:
        return (
            rows.dtype != torch.float64
            and len(rows) >= max(FEWEST, 8 * k)
            and 48 <= rows.shape[1] <= 2**14
            and _rows_at_once(k, rows.shape[1], memory) >= ROOM
            and bool(operators.multiplies_words(rows))
        )

    def works(self, rows: Tensor) -> bool:
        """Whether it says enough about most of some rows; of tight clusters it does not."""
        side = Looking.of(rows, 0, Known.nothing(len(rows), self.k))
        own = self._own(side, slice(0, min(len(rows), self.step)))
        some = own._replace(places=slice(0, min(SOME, own.places.stop)))
        lists = self._listed(some, own, own=torch.arange(some.places.stop, device="cpu"), both=False)
        return 8 * int((lists.number == lists.column.shape[1]).sum()) <= some.places.stop

    def __call__(self, x: Looking, y: Looking | None = None, skipped: int = 0) -> None:
        # skipped: 0, or the cut: so many of the first rows of x are left out
        pieces = self._pieces(x.rows)
        for number, piece in enumerate(pieces):
            if skipped >= piece.stop:
                continue
            own = self._own(x, piece)
            if skipped > piece.start:
                own = own._replace(places=slice(_padded(skipped - piece.start), own.places.stop))
            if y is None:
                self._pair(own, None)
            side, others = (x, pieces[number + 1 :]) if y is None else (y, self._pieces(y.rows))
            for other in others:
                order = _shuffled(other.start, other.stop)
                self._pair(own, self._put(side, order, own.places.stop))

    def _pieces(self, rows: Tensor) -> list[slice]:
        return [slice(i, min(i + self.step, len(rows))) for i in range(0, len(rows), self.step)]

    def _own(self, x: Looking, piece: slice) -> Part:
        # Rows behind the cut begin with a panel, so that the others can be left out.
        if self.own is None or self.own[0] != piece:
            ends = sorted({piece.start, min(max(self.cut, piece.start), piece.stop), piece.stop})
            order = torch.cat([_shuffled(*each) for each in zip(ends, ends[1:], strict=False)])
            self.own = piece, self._put(x, order, 0)
        return self.own[1]._replace(side=x)

    def _put(self, side: Looking, order: Tensor, first: int) -> Part:
        at = slice(first, first + len(order))
        self.order[at] = order
        self.rounded.put(side.rows, self.filter, order, first)
        length, factor = self.rounded.sizes[0, at], self.distance.factor
        # The squares of the norms are sums in another order than that of canonical distances.
        squares = length.square()
        self.shift[at] = -squares
        width, slack = self.rounded.as_queries(at, self.filter, *self.most)
        slack += (2 * len(self.filter.centre) + 16) * 2.0**-53 * squares
        terms = self.rounded.scale[at] * -factor, *self.rounded.as_references(at, factor, *self.most), width, slack
        for term, values in zip(self.terms, terms, strict=True):
            term[at] = values
        return Part(side, at)

    def _pair(self, x: Part, y: Part | None) -> None:
        """Two sets, or one and itself."""
        own = torch.arange(x.places.stop - x.places.start, device="cpu")
        self._listed(x, y or x, own if y is None else own.fill_(-1))
        self._settle(x, y or x, x.places.start)
        if y:
            self._settle(y, x, x.places.start)

    def _listed(self, x: Part, y: Part, own: Tensor, both: bool = True) -> Lists:
        # own: (Q,)  both: of both sets, each product for both of its rows; else of x alone
        every = slice(x.places.start, y.places.stop)
        lists = self.lists.at(every if both else x.places)
        for part in {x.places.start: x, y.places.start: y}.values() if both else [x]:
            side, rows = part.side, self.order[part.places].clamp(min=0)
            known = torch.minimum(side.known.delta[rows, -1], side.worst[rows])
            place = self.scale * self.scale * known + self.shift[part.places] + 2 * self.terms[5, part.places]
            limit = _above(place.float()).masked_fill_(self.rounded.sizes[0, part.places] == torch.inf, -torch.inf)
            self.lists.limit[part.places] = limit
        lists.number.zero_()
        scale, bias, share, spread, width, slack = self.terms[:, every]
        width, slack = width[: len(lists.number)], slack[: len(lists.number)]
        panels = self.rounded.panels[every.start // BLOCK : every.stop // BLOCK]
        first = y.places.start - x.places.start if both else -1
        references = panels, self.rounded.scale[every], bias, share, spread
        operators.int16_candidates(panels, scale, *references, width, slack, own, *lists, self.k, first)
        return lists

    def _settle(self, x: Part, y: Part, base: int) -> None:
        side, other, order = x.side, y.side, self.order[x.places]
        lists = self.terms[5, x.places], *self.lists.at(x.places), self.shift[x.places]
        places = self.scale * self.scale, other.first, self.distance.code
        found = side.known.delta, side.known.index
        proven = operators.settle_possible(side.rows, other.rows, order, self.order[base:], *lists, *places, *found)
        if not proven.all():
            rows, among = order[~proven], self.order[y.places].sort().values
            among = among[among >= 0]
            own = torch.searchsorted(among, rows) if x.places == y.places else torch.full_like(rows, -1)
            delta, near = nearest_of(side.rows[rows], own, other.rows[among], self.k, self.distance, self.memory // 4)
            index = torch.where(near < 0, -1, among[near.clamp(min=0)] + other.first)
            side.known.add(delta, index, rows)


def _padded(rows: int) -> int:
    return -(-rows // BLOCK) * BLOCK


def _shuffled(start: int, stop: int) -> Tensor:
    # ->  (n,) int64, these rows in an order without meaning, so that no list begins with one tight class, -1 behind
    order = torch.randperm(stop - start, generator=torch.Generator().manual_seed(0), device="cpu") + start
    return torch.nn.functional.pad(order, (0, _padded(stop - start) - stop + start), value=-1)


def _above(values: Tensor) -> Tensor:
    return values.nextafter(values.new_tensor(torch.inf))


def _rows_at_once(k: int, dim: int, memory: int) -> int:
    # Of two sets there are lists, words, and what is said of each row.
    return memory // 4 // (12 * capacity_of(k, dim) + 2 * dim + 192)


@_native.reference("settle_possible")
def _settle_possible(
    query: Tensor,
    reference: Tensor,
    row_of: Tensor,
    order: Tensor,
    slack: Tensor,
    bounds: Tensor,
    column: Tensor,
    number: Tensor,
    limit: Tensor,
    shift: Tensor,
    factor: float,
    first: int,
    distance: int,
    delta: Tensor,
    index: Tensor,
) -> Tensor:
    capacity = column.shape[1]
    kind = next(each for each in DISTANCES.values() if each.code == distance)
    there = (torch.arange(capacity, device="cpu") < (number % capacity)[:, None]) & (bounds[:, 0] < limit[:, None])
    n, place = there.nonzero().unbind(1)
    row, near = row_of[n], order[column[n, place].long()]
    values = torch.full(there.shape, torch.inf, dtype=torch.float64, device="cpu")
    values[n, place] = kind.of_pairs(query, reference, row, near, 2**24)
    names = torch.full(there.shape, -1, device="cpu")
    names[n, place] = near + first
    asked = there.any(1)
    rows = row_of[asked]
    Known(delta, index).add(*in_order(values[asked], names[asked], delta.shape[1]), rows)
    return number < capacity


@_native.reference("merge_nearest")
def _merge_nearest(other: Tensor, of_other: Tensor, first: int, delta: Tensor, index: Tensor) -> None:
    Known(delta, index).add(other, torch.where(other < torch.inf, of_other.long() + first, -1))
