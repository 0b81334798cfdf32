"""Queries whose references come by in blocks: first to measure their positives, then to be counted."""

import torch
from torch import Tensor

from ..relevance import Positives, columns_of
from ..search.distance import Distance
from .positive_ranks import PositiveRanks, within_depth
from .rank_counts import Asked, RankCounter, in_order, ranks_of


class Measured:
    """What is known of some queries: their positives' distances, and how many references come before each."""

    def __init__(
        self,
        given: Tensor,
        own: Tensor,
        positives: Positives,
        ignored: Tensor | None,
        places: Tensor | None = None,
        kept: bool = False,
    ) -> None:
        # given: (N, D), of which the queries are those at places (Q,) int64, None = all
        # own: (Q,) int64  ignored: (Q, I) int64, -1 = none
        # kept: all counters have one frame, and what is made of a query for one is kept for all
        self.given, self.places, self.own, self.ignored = given, places, own, ignored
        self.kept = kept
        self.wide: Tensor | None = None
        self.ready: tuple[Tensor, ...] = ()
        self.positives, self.index, self.gain = positives, positives.index, positives.gain
        self.delta = torch.full(self.index.shape, torch.inf, dtype=torch.float64, device=own.device)

    @classmethod
    def of(
        cls, given: Tensor, own: Tensor, positives: Positives, places: Tensor | None = None, kept: bool = False
    ) -> "Measured":
        # A list of what is ignored is shorter than a mask.
        ignored = None if positives.ignored is None else columns_of(positives.ignored)
        return cls(given, own, positives._replace(ignored=None), ignored, places, kept)

    @property
    def query(self) -> Tensor:
        # ->  (Q, D), on a CPU float64, as its operators take them
        if self.wide is not None:
            return self.wide
        query = self.given if self.places is None else self.given[self.places]
        query = query.double() if query.device.type == "cpu" else query
        self.wide = query if self.kept else None
        return query

    def measure(self, rows: Tensor, first: int, distance: Distance, memory: int) -> None:
        # rows: (R, D), references first, first + 1, ...
        row, place = ((self.index >= first) & (self.index < first + len(rows))).nonzero().unbind(1)
        self._measure((row, place), rows, self.index[row, place] - first, distance, memory)

    def measure_some(self, rows: Tensor, numbers: Tensor, distance: Distance, memory: int) -> None:
        # rows: (R, D), references of these numbers (R,) int64 ascending: all positives between the first and the last
        row, place = ((self.index >= numbers[0]) & (self.index <= numbers[-1])).nonzero().unbind(1)
        column = torch.searchsorted(numbers, self.index[row, place])
        self._measure((row, place), rows, column, distance, memory)

    def _measure(
        self, places: tuple[Tensor, Tensor], rows: Tensor, column: Tensor, distance: Distance, memory: int
    ) -> None:
        delta = distance.of_pairs(self.query, rows, places[0], column, memory)
        self.delta[places] = delta.nan_to_num(nan=torch.inf)

    def put_in_order(self) -> None:
        # The width has to be known on the host: once per tile.
        width = int(self.positives.relevant.max()) if len(self.own) else 0
        self.delta, self.index, self.gain = in_order(self.delta, self.index, self.gain, width)
        self.found = (self.delta < torch.inf).sum(1)
        self.before = self.index.new_zeros(len(self.index), width + 1)

    def ranks(self, depth: int | None) -> PositiveRanks:
        return within_depth(*ranks_of(self.before, self.found, self.gain), self.positives, depth)

    def count(self, counter: RankCounter, first: int) -> None:
        if self.before.shape[1] == 1:
            return
        query = self.query
        ready = self.ready or (() if counter.kernels else counter.ready(query))
        if self.kept:
            self.ready = ready
        for rows in pieces(len(self.own), counter.rows):
            ignored = None
            if self.ignored is not None:
                inside = (self.ignored[rows] >= first) & (self.ignored[rows] < first + len(counter.reference))
                ignored = torch.zeros(len(inside), len(counter.reference), dtype=torch.bool, device=inside.device)
                row, place = inside.nonzero().unbind(1)
                ignored[row, self.ignored[rows][row, place] - first] = True
            # Positives of other processes are before or behind all of these references.
            index = torch.where(self.index[rows] < 0, -1, self.index[rows] - first)
            own = self.own[rows] - first
            own = own.where((own >= 0) & (own < len(counter.reference)), -1)
            of_rows = tuple(part[rows] for part in ready) or None
            asked = Asked(query[rows], own, ignored, self.delta[rows], index, self.found[rows], of_rows)
            self.before[rows] += counter.before(asked)


def parts_of(number: Tensor, memory: int) -> list[slice]:
    # number: (Q,) int64 ascending, of positives
    """Of the queries in this order, as many at once as the memory takes."""
    # About as many numbers are kept of each positive.
    if len(number) and 64 * len(number) * max(int(number[-1]), 1) <= memory // 2:
        return [slice(0, len(number))]
    parts, start, width = [], 0, number.clamp(min=1).tolist()
    for stop in range(1, len(width) + 1):
        if stop == len(width) or 64 * (stop + 1 - start) * width[stop] > memory // 2:
            parts.append(slice(start, stop))
            start = stop
    return parts


def pieces(count: int, step: int) -> list[slice]:
    return [slice(start, min(start + step, count)) for start in range(0, count, step)]
