"""Ranks of all positives without sorting all references: a positive's rank is 1 + how many entries come before it."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ... import _native
from ..relevance import Positives
from ..rows import check_count
from ..search import operators
from ..search.distance import canonical_pairs, equal_rows, native_code
from ..search.filter import BLOCK, Filter, plain_products
from ..search.halves import HalfFilter

TIES = ("index", "optimistic", "pessimistic")
_WIDEST = 512  # positives with each of which the kernel compares each entry


class Asked(NamedTuple):
    """Some queries with their positives, which are in canonical order."""

    query: Tensor  # (Q, D)
    own: Tensor  # (Q,) int64, the reference to leave out, -1 = none
    ignored: Tensor | None  # (Q, R) bool
    delta: Tensor  # (Q, P) float64, canonical distances of the positives, inf where there is none
    index: Tensor  # (Q, P) int64, the positives, those without a distance last
    relevant: Tensor  # (Q,) int64, how many have a distance

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
                before |= equal & (self.index[at] < column)
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
        distance: str,
        ties: str,
        memory: int,
        exact: bool = True,
        equal: Tensor | None = None,
    ) -> None:
        # query: (Q, D)  self_index: (Q,) int64, -1 = none  reference: (R, D)  equal: (R,) from `equal_rows`
        check_count(len(reference))
        self.query, self.reference, self.self_index = query, reference, self_index
        self.equal = equal_rows(reference) if equal is None else equal
        self.distance, self.ties, self.memory, self.exact = distance, ties, memory, exact
        self.native = operators.counts(query.device)
        # Where each open entry costs little, the narrow product is faster.
        dtype = torch.float32 if self.native else torch.float64
        self.filter = Filter(reference, distance, dtype, memory // 2 if query.device.type == "cpu" else math.inf)
        kernels = operators.kernels(query.device)
        self.halves = HalfFilter(self.filter, kernels, parts=2) if kernels else None
        if self.native:
            self.rows = max(min(memory // 8 // (48 * query.shape[1] + 64), 1024), 1)
        else:
            most_rows, self.columns = (256, 2**13) if query.device.type == "cpu" else (2**13, len(reference))
            if self.halves:
                # The kernel makes no tiles in memory: these are for what it hands over.
                self.columns = max(memory // (96 * most_rows), 2**10)
            self.columns = max(min(self.columns, memory // 128) // BLOCK, 1) * BLOCK
            self.rows = max(min(memory // (96 * self.columns), most_rows), 1)

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
        before = index.new_zeros(len(query), width + 1)
        self.count(asked, before)
        return ranks_of(before, found, gain)

    def count(self, asked: Asked, before: Tensor) -> None:
        # before: (Q, P + 1) int64, what is added to
        """How many references come before each positive and after those before it, which are none of them."""
        if self.halves and asked.ignored is None and asked.index.shape[1] <= _WIDEST:
            if self._count_by_kernel(asked, before):
                return
        x, error = self.filter.query(asked.query)
        interval = (*self.filter.place(asked.query), error.clamp(max=1e30) * self.exact)
        count = self._count_native if self.native else self._count
        count(x, asked, interval, before)

    def _in_order(
        self, query: Tensor, index: Tensor, gain: Tensor | None, width: int
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        # query: (Q, D)  index, gain: (Q, K)  ->  (Q, P) float64 canonical distances, (Q, P) indices, (Q, P) gains
        row = torch.arange(len(index), device=index.device)[:, None].expand_as(index)
        there = index >= 0
        delta = torch.full(index.shape, torch.inf, dtype=torch.float64, device=index.device)
        pairs = row[there], index[there], self.distance, self.memory // 4
        delta[there] = canonical_pairs(query, self.reference, *pairs).nan_to_num(nan=torch.inf)
        return in_order(delta, index, gain, width)

    def _count_native(self, x: Tensor, asked: Asked, interval: tuple[Tensor, Tensor, Tensor], before: Tensor) -> None:
        hidden = asked.own.contiguous(), asked.ignored
        sides = asked.query.double().contiguous(), self.reference, self.equal
        places = (part.contiguous() for part in (asked.delta, asked.index, asked.relevant, *interval))
        options = *places, native_code(self.distance), TIES.index(self.ties)
        with plain_products(x.device):
            for first, rows in self.filter.pieces():
                operators.count_before(x, rows, self.filter.bias, first, *hidden, *sides, *options, before)

    def _count_by_kernel(self, asked: Asked, before: Tensor) -> bool:
        """For all columns at once; False where too many entries are left open."""
        from ..search.kernels.counting import counts

        halves, size = self.halves, asked.delta.shape[1]
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
        negative = (place == asked.relevant[row]) | (asked.index[row, place.clamp(max=size - 1)] != column)
        row, other, column = row[negative], other[negative], column[negative]
        place = asked.place(row, other, column, self.ties)
        before[:, :-1] += torch.diff(below, dim=1, prepend=below.new_zeros(len(below), 1))
        before.view(-1).scatter_add_(0, row * (size + 1) + place, torch.ones_like(place))
        return True

    def _count(self, x: Tensor, asked: Asked, interval: tuple[Tensor, Tensor, Tensor], before: Tensor) -> None:
        # interval: (Q,) factor, shift and error of the filter's values  before: (Q, P + 1), what is added to
        factor, shift, error = (part[:, None] for part in interval)
        at = asked.values(factor, shift)
        for start in range(0, len(self.filter), self.columns):
            tile = self.filter.values(x, slice(start, start + self.columns))
            _count_tile(tile, start, asked, (at - error, at + error), self._distances, self.ties, before)

    def _distances(self, query: Tensor, row: Tensor, column: Tensor) -> Tensor:
        # query: (Q, D)  row, column: (n,)  ->  (n,) float64, evaluated once for equal references
        size = len(self.reference)
        pair, inverse = (row * size + self.equal[column]).unique(return_inverse=True)
        memory = self.memory // 4
        return canonical_pairs(query, self.reference, pair // size, pair % size, self.distance, memory)[inverse]


def in_order(delta: Tensor, index: Tensor, gain: Tensor | None, width: int) -> tuple[Tensor, Tensor, Tensor | None]:
    # delta, index, gain: (Q, K), -1 and inf = none  ->  the first `width` of each by (distance, index)
    order = torch.where(index >= 0, index, torch.iinfo(torch.int64).max).argsort(1)
    order = order.gather(1, delta.gather(1, order).argsort(dim=1, stable=True))[:, :width]
    return delta.gather(1, order), index.gather(1, order), None if gain is None else gain.gather(1, order)


def ranks_of(before: Tensor, found: Tensor, gain: Tensor | None) -> tuple[Tensor, Tensor | None]:
    # before: (Q, P + 1) from `RankCounter.count`  found: (Q,)  gain: (Q, P)  ->  (Q, P) int32, (Q, P) or None
    place = torch.arange(1, before.shape[1], device=before.device)
    rank = place + before[:, :-1].cumsum(1)
    missing = place > found[:, None]
    return rank.masked_fill_(missing, 0).int(), None if gain is None else gain.masked_fill(missing, 0.0)


def _count_tile(
    tile: Tensor,
    start: int,
    asked: Asked,
    interval: tuple[Tensor, Tensor],
    distances: Callable[[Tensor, Tensor, Tensor], Tensor],
    ties: str,
    before: Tensor,
) -> None:
    # tile: (Q, C) filter values of references start, start + 1, ...  interval: (Q, P) twice, of each positive
    if asked.ignored is not None:
        hidden = asked.ignored[:, start : start + tile.shape[1]]
        tile[:, : hidden.shape[1]].masked_fill_(hidden, torch.inf)
    here = torch.cat([asked.own[:, None], asked.index], 1) - start
    here = torch.where((here >= 0) & (here < tile.shape[1]), here, tile.shape[1])
    tile = torch.nn.functional.pad(tile, (0, 1)).scatter_(1, here, torch.inf)[:, :-1].contiguous()
    low, high = interval
    place = torch.searchsorted(high, tile.double())
    open_ = (place < torch.searchsorted(low, tile.double(), right=True)) & (tile < torch.inf)
    row, column = open_.nonzero().unbind(1)
    other = distances(asked.query, row, column + start)
    place[row, column] = asked.place(row, other, column + start, ties)
    place.masked_fill_(tile == torch.inf, asked.delta.shape[1])
    before.scatter_add_(1, place, torch.ones_like(place))


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
    asked = Asked(query, own, ignored, delta, index, relevant)
    at, error = asked.values(factor[:, None], shift[:, None]), error[:, None]
    _count_tile(tile, first, asked, (at - error, at + error), distances, TIES[ties], before)
