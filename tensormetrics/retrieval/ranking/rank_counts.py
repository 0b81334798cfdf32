"""Ranks of all positives without sorting all references: a positive's rank is 1 + how many entries come before it."""

import functools
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ... import _native
from ..inputs import check_count
from ..relevance import Positives
from ..search import operators
from ..search.distance import equal_rows
from ..search.fp16_filter import HalfFilter
from ..search.product_filter import BLOCK, Filter, Normalization, exact_float32_products
from .ranking import TIES, Ranking

_PAIR = 24  # bytes of a pair: a filter value, its place among the edges, and what is made of both
_WIDEST = 512  # positives with each of which the kernel compares each entry


class Asked(NamedTuple):
    """Some queries with their positives, which are in canonical order."""

    query: Tensor  # (Q, D)
    own: Tensor  # (Q,) int64, the reference to leave out, -1 = none
    ignored: Tensor | None  # (Q, R) bool
    delta: Tensor  # (Q, P) float64, canonical distances of the positives, inf where there is none
    positive: Tensor  # (Q, P) int64, those without a distance last
    relevant: Tensor  # (Q,) int64, how many have a distance
    ready: tuple[Tensor, ...] | None = None  # from `RankCounter.ready`, where that is known

    def at(self, rows: Tensor) -> "Asked":
        # rows: (q,) int64
        ignored = None if self.ignored is None else self.ignored[rows]
        places = self.delta[rows], self.positive[rows], self.relevant[rows]
        return Asked(self.query[rows], self.own[rows], ignored, *places)

    def values(self, factor: Tensor, shift: Tensor) -> Tensor:
        # factor, shift: (Q, 1)  ->  (Q, P), what the filter's values of the positives are, inf where there is none
        return (factor * self.delta + shift).masked_fill(self.delta == torch.inf, torch.inf)

    def place(self, row: Tensor, other: Tensor, column: Tensor, ties: str) -> Tensor:
        # row, column: (n,) int64  other: (n,) canonical distances  ->  (n,), how many positives are before each
        low, high = torch.zeros_like(row), self.relevant[row]
        for _ in range(self.delta.shape[1].bit_length()):
            middle = (low + high) // 2
            at = row, middle.clamp(max=self.delta.shape[1] - 1)
            before, equal = self.delta[at] < other, self.delta[at] == other
            if ties == "optimistic":
                before |= equal
            elif ties == "index":
                before |= equal & (self.positive[at] < column)
            before &= low < high
            low, high = torch.where(before, middle + 1, low), torch.where(before, high, middle)
        return low


class RankCounter:
    """`counter(rows, positives)` gives the ranks of all positives of a slice of the queries, however deep they lie.

    Positives are put in canonical order. The filter says which other entries are before each of them, and canonical
    distances of an entry decide where the filter's error leaves its place open. A positive without a distance, for it
    or the query holds NaN or infinity, has rank 0, and comes before nothing.
    """

    def __init__(
        self,
        query: Tensor,
        self_index: Tensor,
        reference: Tensor,
        ranking: Ranking,
        equal: Tensor | None = None,
        frame: Normalization | None = None,
        norms: Tensor | None = None,
    ) -> None:
        # query: (Q, D)  self_index: (Q,) int64, -1 = none  reference: (R, D)  equal: (R,) from `equal_rows`
        # frame, norms: as in `Filter`
        check_count(len(reference))
        self.query, self.reference, self.self_index = query, reference, self_index
        self.equal = equal_rows(reference) if equal is None else equal
        self.distance, self.ties, self.exact = ranking.order, ranking.ties, ranking.exact
        self.memory = memory = ranking.memory(query.device)
        self.native = operators.counts(query.device)
        # Where each open entry costs little, the narrow product is faster.
        dtype = torch.float32 if self.native else torch.float64
        allowed = memory // 2 if query.device.type == "cpu" else math.inf
        self.filter = Filter(reference, self.distance, dtype, allowed, frame=frame, norms=norms)
        self.kernels = operators.kernels(query.device, "counting")
        if self.native:
            self.rows = max(min(memory // 8 // (48 * query.shape[1] + 64), 1024), 1)
        else:
            # Larger tiles would leave a CPU's cache; a GPU wants all columns of as many rows as the memory takes.
            most_rows, columns = (256, 2**13) if query.device.type == "cpu" else (2**13, len(reference))
            self.rows = max(min(memory // (_PAIR * min(columns, 2**10 if self.kernels else columns)), most_rows), 1)

    @functools.cached_property
    def halves(self) -> HalfFilter:
        assert self.kernels is not None  # who asks has them
        return HalfFilter(self.filter, self.kernels, parts=2)

    def __call__(self, rows: slice, positives: Positives) -> tuple[Tensor, Tensor | None]:
        # ->  (Q, P) int32 ascending, 0 = none, (Q, P) float64 their gains or None
        query, index, gain = self.query[rows], positives.index, positives.gain
        # The width has to be known on the host: once per tile.
        width = int(positives.relevant.max())
        if not width:
            return index.new_zeros(index.shape[0], 0, dtype=torch.int32), None if gain is None else gain[:, :0]
        delta, index, gain = self._in_order(query, index, gain, width)
        found = (delta < torch.inf).sum(1)
        asked = Asked(query, self.self_index[rows], positives.ignored, delta, index, found)
        return ranks_of(self.before(asked), found, gain)

    def before(self, asked: Asked) -> Tensor:
        # ->  (Q, P + 1) int64
        """How many references, which are none of them, come before each positive and after those before it."""
        before = asked.own.new_zeros(len(asked.own), asked.delta.shape[1] + 1)
        halves = self.halves if self.kernels and asked.ignored is None and asked.delta.shape[1] <= _WIDEST else None
        if not (halves and self._count_by_kernel(halves, asked, before)):
            x, factor, shift, error = asked.ready or self.ready(asked.query)
            count = self._count_native if self.native else self._count
            count(x, asked, (factor, shift, error), before)
        return before

    def ready(self, query: Tensor) -> tuple[Tensor, ...]:
        # query: (Q, D)  ->  (Q, D), (Q,) factor, shift and error of the filter's values; the same in a common frame
        x, error = self.filter.query(query)
        return x, *self.filter.place(query), error.clamp(max=1e30) * self.exact

    def _in_order(
        self, query: Tensor, index: Tensor, gain: Tensor | None, width: int
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        # query: (Q, D)  index, gain: (Q, K)  ->  (Q, P) float64 canonical distances, (Q, P) indices, (Q, P) gains
        delta = torch.full(index.shape, torch.inf, dtype=torch.float64, device=index.device)
        there = index >= 0
        at = row, _ = there.nonzero().unbind(1)
        distances = self.distance.of_pairs(query, self.reference, row, index[at], self.memory // 4)
        delta[at] = distances.nan_to_num_(nan=torch.inf)
        return in_order(delta, index, gain, width)

    def _count_native(self, x: Tensor, asked: Asked, interval: tuple[Tensor, Tensor, Tensor], before: Tensor) -> None:
        hidden = asked.own.contiguous(), asked.ignored
        sides = asked.query.double().contiguous(), self.reference, self.equal
        places = (part.contiguous() for part in (asked.delta, asked.positive, asked.relevant, *interval))
        options = *places, self.distance.code, TIES.index(self.ties)
        with exact_float32_products(x.device):
            for first, rows in self.filter.pieces():
                operators.count_before(x, rows, self.filter.bias, first, *hidden, *sides, *options, before)

    def _count_by_kernel(self, halves: HalfFilter, asked: Asked, before: Tensor) -> bool:
        """For all columns at once; False where too many entries are left open."""
        from ..search.kernels.counting import counts

        size = asked.delta.shape[1]
        x = halves.query(asked.query)
        factor, shift = (part[:, None] for part in halves.place(asked.query, x))
        at, error = asked.values(factor, shift), halves.error(x).clamp(max=1e30)[:, None] * self.exact
        low, high = (
            torch.nextafter(edge.float(), edge.new_full((), side).float())
            for edge, side in ((at - error, -torch.inf), (at + error, torch.inf))
        )
        high.masked_fill_(asked.delta == torch.inf, -torch.inf)
        own = torch.where(asked.own < 0, asked.own, halves.position[asked.own])
        capacity = self.memory // 128
        below, row, place, number = counts(x, own, halves, low, high, capacity)
        if number > capacity:
            return False
        row, column = row.long(), halves.order[place].long()
        other = self._distances(asked.query, row, column)
        place = asked.place(row, other, column, "index")
        # The positives are among them: each is in its own interval.
        negative = (place == asked.relevant[row]) | (asked.positive[row, place.clamp(max=size - 1)] != column)
        row, other, column = row[negative], other[negative], column[negative]
        place = asked.place(row, other, column, self.ties)
        before[:, :-1] += torch.diff(below, dim=1, prepend=below.new_zeros(len(below), 1))
        before.view(-1).scatter_add_(0, row * (size + 1) + place, torch.ones_like(place))
        return True

    def _count(self, x: Tensor, asked: Asked, interval: tuple[Tensor, Tensor, Tensor], before: Tensor) -> None:
        # interval: (Q,) factor, shift and error of the filter's values  before: (Q, P + 1), what is added to
        factor, shift, error = (part[:, None] for part in interval)
        edges = _edges(asked.values(factor, shift), error)
        sums = before.new_zeros(len(before), edges.shape[1] + 1)
        for start, tile in self._tiles(x, asked):
            _add_places(tile, start, asked, edges, sums)
        before += sums[:, ::2]
        # Of these an entry lies in an interval. Sums of other rows may be rounded otherwise: all is counted again.
        left = sums[:, 1::2].any(1).nonzero()[:, 0]
        for rows in left.split(max(self.rows // 4, 1)) if len(left) else ():
            part = asked.at(rows)
            again = torch.zeros_like(before[rows])
            for start, tile in self._tiles(x[rows], part):
                _count_tile(tile, start, part, edges[rows], self._distances, self.ties, again)
            before[rows] = again

    def _tiles(self, x: Tensor, asked: Asked) -> Iterator[tuple[int, Tensor]]:
        # x: (Q, D)  ->  (Q, C) filter values of references start, start + 1, ...
        columns = 2**13 if x.device.type == "cpu" else len(self.filter)
        columns = max(min(columns, self.memory // (_PAIR * len(x))) // BLOCK, 1) * BLOCK
        for start in range(0, len(self.filter), columns):
            tile = self.filter.values(x, slice(start, start + columns))
            if asked.ignored is not None:
                hidden = asked.ignored[:, start : start + tile.shape[1]]
                tile[:, : hidden.shape[1]].masked_fill_(hidden, torch.inf)
            yield start, tile

    def _distances(self, query: Tensor, row: Tensor, column: Tensor) -> Tensor:
        # query: (Q, D)  row, column: (n,)  ->  (n,) float64, evaluated once for equal references
        size = len(self.reference)
        pair, inverse = (row * size + self.equal[column]).unique(return_inverse=True)
        pairs = pair // size, pair % size, self.memory // 4
        return self.distance.of_pairs(query, self.reference, *pairs)[inverse]


def _edges(at: Tensor, error: Tensor) -> Tensor:
    # at: (Q, P) ascending  error: (Q, 1)  ->  (Q, 2 P) ascending
    """Where the interval of each positive begins, and what follows its end: as many edges are at most a value that lies
    in some interval as is odd. One that overlaps the next ends where that begins."""
    low, end = at - error, torch.nextafter(at + error, at.new_full((), torch.inf))
    end[:, :-1] = torch.minimum(end[:, :-1], low[:, 1:])
    return torch.stack([low, end], 2).flatten(1)


def _taken(start: int, columns: int, asked: Asked) -> tuple[Tensor, Tensor]:
    # ->  (Q, P + 1) columns of a tile that are no negatives, (Q, P + 1) bool, which of them are there
    here = torch.cat([asked.own[:, None], asked.positive], 1) - start
    return here.clamp(0, columns - 1), (here >= 0) & (here < columns)


def _add_places(tile: Tensor, start: int, asked: Asked, edges: Tensor, sums: Tensor) -> None:
    # tile: (Q, C) filter values of references start, start + 1, ...  edges: (Q, 2 P)  sums: (Q, 2 P + 1)
    """Counts the negatives between any two edges."""
    place = torch.searchsorted(edges, tile, right=True)
    sums.scatter_add_(1, place, torch.ones_like(sums[:1, :1]).expand_as(place))
    here, there = _taken(start, tile.shape[1], asked)
    sums.scatter_add_(1, place.gather(1, here), -there.long())


def in_order(delta: Tensor, index: Tensor, gain: Tensor | None, width: int) -> tuple[Tensor, Tensor, Tensor | None]:
    # delta, index, gain: (Q, K), inf and -1 = none  ->  the first `width` of each by (distance, index)
    order = torch.where(index >= 0, index, torch.iinfo(torch.int64).max).argsort(1)
    order = order.gather(1, delta.gather(1, order).argsort(dim=1, stable=True))[:, :width]
    return delta.gather(1, order), index.gather(1, order), None if gain is None else gain.gather(1, order)


def ranks_of(before: Tensor, found: Tensor, gain: Tensor | None) -> tuple[Tensor, Tensor | None]:
    # before: (Q, P + 1) from `RankCounter`  found: (Q,)  gain: (Q, P)  ->  (Q, P) int32, (Q, P) or None
    place = torch.arange(1, before.shape[1], device=before.device)
    rank = place + before[:, :-1].cumsum(1)
    missing = place > found[:, None]
    return rank.masked_fill_(missing, 0).int(), None if gain is None else gain.masked_fill(missing, 0.0)


def _count_tile(
    tile: Tensor,
    start: int,
    asked: Asked,
    edges: Tensor,
    distances: Callable[[Tensor, Tensor, Tensor], Tensor],
    ties: str,
    before: Tensor,
) -> None:
    # tile: (Q, C) filter values of references start, start + 1, ...  edges: (Q, 2 P)  before: (Q, P + 1)
    """Counts the negatives before each positive; canonical distances decide where a value lies in an interval."""
    place = torch.searchsorted(edges, tile.to(edges.dtype), right=True)
    here, there = _taken(start, tile.shape[1], asked)
    place.scatter_reduce_(1, here, there * edges.shape[1], "amax")  # behind all positives
    row, column = (place & 1).nonzero().unbind(1)
    other = distances(asked.query, row, column + start)
    place[row, column] = 2 * asked.place(row, other, column + start, ties)
    before.scatter_add_(1, place >> 1, torch.ones_like(before[:1, :1]).expand_as(place))


@_native.reference("count_before")
def _count_before(
    x: Tensor,
    rows: Tensor,
    bias: Tensor,
    first: int,
    own: Tensor,
    ignored: Tensor | None,
    query: Tensor,
    reference: Tensor,
    equal: Tensor,
    delta: Tensor,
    index: Tensor,
    relevant: Tensor,
    factor: Tensor,
    shift: Tensor,
    error: Tensor,
    distance: int,
    ties: int,
    before: Tensor,
) -> None:
    def distances(query: Tensor, row: Tensor, column: Tensor) -> Tensor:
        return operators.canonical_pairs(query, reference, row, column, distance)

    tile = torch.addmm(bias[first : first + len(rows)], x, rows.T)
    if ignored is not None:
        tile.masked_fill_(ignored[:, first : first + len(rows)], torch.inf)
    asked = Asked(query, own, ignored, delta, index, relevant)
    edges = _edges(asked.values(factor[:, None], shift[:, None]), error[:, None])
    _count_tile(tile, first, asked, edges, distances, TIES[ties], before)
