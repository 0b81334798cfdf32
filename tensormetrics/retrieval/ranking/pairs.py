"""Where a condition on the pairs of the same and of different labels, counted from the nearest pair on, first holds.

No list of all pairs is made. Products of matrices, off by at most a known error, place each pair in a bin; the bins
among which the condition must begin to hold are divided again, until few pairs are left. Of these the canonical
distances say where it holds, and the others are only counted: the integers are those of a sorted list of all pairs.
"""

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch import distributed as dist

from ..._distributed import all_gather_cat, all_reduce
from ..inputs import RetrievalInputs, budget
from ..search.distance import Distance
from ..search.product_filter import BLOCK, Filter

BINS = 2**16
_PAIR = 96  # bytes of a pair of a tile
# numbers of same and of different pairs, (..., n) int64 each  ->  (..., n) bool
Condition = Callable[[Tensor, Tensor], Tensor]


class Found(NamedTuple):
    """The least distance at which a condition holds for the pairs up to it, inf where it never does.

    at (...) float64, canonical; below, through (..., 2) int64: same and different pairs that are nearer, and these and
    the pairs at that distance.
    """

    at: Tensor
    below: Tensor
    through: Tensor


class Tile(NamedTuple):
    """Pairs of some queries and references.

    same: (n,) bool, of the same label; at: (n,) int64, where they stand in the table of all, None: these are all.
    """

    rows: slice
    columns: slice
    same: Tensor
    at: Tensor | None

    def pairs(self, some: Tensor) -> tuple[Tensor, Tensor]:
        # some: (m,) int64 below n  ->  (m,) int64 queries and references
        at, width = some if self.at is None else self.at[some], self.columns.stop - self.columns.start
        return at // width + self.rows.start, at % width + self.columns.start


class Pairs:
    """The pairs of queries and references, each of two items once and none of an item with itself.

    With `several`, each rank of the group holds all rows, works on a part of the pairs, and gets the answer of one
    process. `total` (2,) int64: how many pairs of the same label there are, and of different labels.
    """

    def __init__(
        self,
        sides: RetrievalInputs,
        distance: Distance,
        memory_budget: int | None = None,
        several: bool = False,
        group: Any = None,
    ) -> None:
        self.sides, self.distance, self.group, self.several = sides, distance, group, several
        self.memory = budget(memory_budget, sides.query.device)
        self.own = sides.self_index()
        size = max(self.memory // 4 // _PAIR, BLOCK)
        self.columns = max(min(2**12, size) // BLOCK, 1) * BLOCK
        most = 256 if sides.query.device.type == "cpu" else 2**13
        self.rows = max(min(size // self.columns, most), 1)
        self.most = max(self.memory // _PAIR, 1)  # pairs whose distances are kept
        if not (len(sides.query) and len(sides.reference)):
            return
        self.filter = Filter(sides.reference, distance, torch.float64, self.memory // 2)
        low, high, self.error = self._extent()
        self.whole = low, high

    @functools.cached_property
    def bins(self) -> tuple[Tensor, Tensor]:
        # ->  (2,) pairs below the whole range, none, and (2, BINS) pairs in each bin
        return self._histograms({self.whole})[self.whole]

    @functools.cached_property
    def total(self) -> Tensor:
        # ->  (2,) int64
        if not (len(self.sides.query) and len(self.sides.reference)):
            return self.own.new_zeros(2)
        return self.bins[1].sum(1)

    def first(self, conditions: list[Condition]) -> list[Found]:
        """Of conditions that hold on from where they first do."""
        ranges, known = [self.whole] * len(conditions), {self.whole: self.bins}
        asked = list(range(len(conditions))) if math.isfinite(self.error) else []
        while asked:
            wide = []
            for i in asked:
                ranges[i], left = self._closer(ranges[i], known[ranges[i]], conditions[i])
                low, high = ranges[i]
                if left > self.most and high - low > 8 * self.error:
                    wide.append(i)
            asked = wide
            known = self._histograms({ranges[i] for i in asked}) if asked else {}
        near = self._near(dict.fromkeys(ranges))
        return [self._exactly(near[where], condition) for where, condition in zip(ranges, conditions, strict=True)]

    def concordance(self) -> Tensor:
        # ->  () float64
        """The share of couples, of a pair of the same label and one of different labels, in which the first is nearer;
        equal ones count half."""
        same, different = self._numbers().tolist()
        if not (same and different):
            return self.own.new_full((), torch.nan, dtype=torch.float64)
        ranks = dist.get_world_size(self.group) if self.several else 1
        size, start, seen = max(self.most // ranks, 1), 0, 0
        doubled = self.own.new_zeros(2)  # 2^31 times one, and the other: int64 might not hold their sum
        while seen < same:
            known = self._distances_of_same(start, start + size)
            start, seen = start + size, seen + len(known)
            known, number = known.unique_consecutive(return_counts=True)  # few where there are ties
            ends = torch.cat([known, known.new_full((1,), torch.inf)])
            nearer = torch.nn.functional.pad(number.cumsum(0), (1, 0))  # than the k-th distinct one, and in the end all
            for tile in self.tiles():
                apart = (~tile.same).nonzero()[:, 0]
                value = self.values(tile)[apart]
                below = torch.searchsorted(known, value - self.error)
                unsure = (~(ends[below] > value + self.error)).nonzero()[:, 0]  # so of NaN, too
                exact = self.canonical(*tile.pairs(apart[unsure]))
                place = below[unsure]  # or further on, where there is one between the bound and the distance
                further_on = (~(ends[place] >= exact)).nonzero()[:, 0]
                place[further_on] = torch.searchsorted(known, exact[further_on])
                below[unsure] = place
                as_near = nearer[place + (ends[place] == exact) * (place < len(known))] - nearer[place]
                count = 2 * nearer[below].sum() + as_near.sum()  # of twice those that are nearer, and those as near
                doubled += torch.stack([count >> 31, count & (2**31 - 1)])
        high, low = self.of_all_ranks(doubled)
        further = (high + (low >> 31)).double() * 2.0**31 + (low & (2**31 - 1)).double()
        return further / (2.0 * same * different)

    def _numbers(self) -> Tensor:
        # ->  (2,) int64, as `total`, without a look at distances
        numbers = self.own.new_zeros(2)
        for tile in self.tiles():
            same = tile.same.sum()
            numbers += torch.stack([same, len(tile.same) - same])
        return self.of_all_ranks(numbers)

    def _distances_of_same(self, start: int, stop: int) -> Tensor:
        # ->  (n,) float64, ascending
        """Canonical distances of the pairs of the same label that have these numbers on this rank, or on another."""
        seen = 0
        parts = [torch.zeros(0, dtype=torch.float64, device=self.own.device)]
        for tile in self.tiles():
            place = tile.same.nonzero()[:, 0]
            here = place[max(start - seen, 0) : max(stop - seen, 0)]
            parts.append(self.canonical(*tile.pairs(here)))
            seen += len(place)
        found = torch.cat(parts)
        return (all_gather_cat(found, self.group) if self.several else found).sort().values

    def _closer(
        self, where: tuple[float, float], known: tuple[Tensor, Tensor], condition: Condition
    ) -> tuple[tuple[float, float], int]:
        """A narrower range that holds the answer, and how many pairs are about in it."""
        # known: (2,) pairs below the range, (2, BINS) pairs in each bin
        low, high = where
        below, bins = known
        width = (high - low) / BINS
        off = int(self.error / width) + 2 if width else 2
        holds = condition(*(below[:, None] + bins.cumsum(1)))
        first = int((~holds).sum())  # the bin in which it would first hold if no value were off
        begin, end = max(first - off, 0), min(first + off + 1, BINS)
        left = int(bins[:, max(begin - off, 0) : end + off].sum())
        return (low + begin * width, high if end == BINS else low + end * width), left

    def _histograms(self, ranges: set[tuple[float, float]]) -> dict[tuple[float, float], tuple[Tensor, Tensor]]:
        counts = {where: self.own.new_zeros(2, BINS + 2) for where in ranges}
        for tile in self.tiles():
            value = self.values(tile)
            offset = torch.where(tile.same, 1, BINS + 3)
            for (low, high), count in counts.items():
                scale = BINS / (high - low) if high > low else 0.0
                place = (value - low).mul_(scale).floor_().clamp_(-1, BINS).long().add_(offset)
                count += torch.bincount(place, minlength=2 * (BINS + 2)).view(2, -1)
        # What lies above a range is in none of its bins; of the whole range all lies in one.
        found = {where: self.of_all_ranks(count) for where, count in counts.items()}
        if self.whole in found:
            count = found[self.whole]
            count[:, 1] += count[:, 0]
            count[:, -2] += count[:, -1]
            count[:, 0] = 0
        return {where: (count[:, 0], count[:, 1:-1]) for where, count in found.items()}

    def _near(self, ranges: dict[tuple[float, float], None]) -> dict[tuple[float, float], tuple[Tensor, ...]]:
        """For each range: pairs that are surely below it, and the distances of all that may lie in it, ascending."""
        found: dict[tuple[float, float], list[Tensor]] = {where: [] for where in ranges}
        below = {where: self.own.new_zeros(2) for where in ranges}
        for tile in self.tiles():
            value, same = self.values(tile), tile.same
            for (low, high), parts in found.items():
                under = value < low - self.error
                below[low, high] += torch.stack([(under & same).sum(), (under & ~same).sum()])
                here = (~under & (value <= high + self.error)).nonzero()[:, 0]
                exact = self.canonical(*tile.pairs(here))
                parts.append(_counted(exact, same[here].long(), (~same[here]).long()))
        return {where: (self.of_all_ranks(below[where]), *self._gathered(parts)) for where, parts in found.items()}

    def canonical(self, row: Tensor, column: Tensor) -> Tensor:
        return self.distance.of_pairs(self.sides.query, self.sides.reference, row, column, self.memory // 4)

    def _gathered(self, parts: list[Tensor]) -> tuple[Tensor, Tensor]:
        # parts: (n, 3) float64 each: a distance, and how many same and different pairs have it
        none = torch.zeros(0, 3, dtype=torch.float64, device=self.own.device)
        whole = torch.cat([none, *parts])
        whole = all_gather_cat(whole, self.group) if self.several else whole
        value, same, different = _counted(*whole.unbind(1)).unbind(1)
        return value, torch.stack([same, different]).long()

    def _exactly(self, near: tuple[Tensor, ...], condition: Condition) -> Found:
        below, value, counts = near  # (2,), (n,), (2, n)
        through = below[:, None] + counts.cumsum(1)
        first = int((~condition(*through)).sum())
        if first == len(value):
            return Found(value.new_full((), torch.inf), self.total, self.total)
        return Found(value[first], through[:, first - 1] if first else below, through[:, first])

    def values(self, tile: Tile) -> Tensor:
        # ->  (n,) float64, off by the error from canonical distances
        query = self.sides.query[tile.rows]
        x, _ = self.filter.query(query)
        factor, shift = (part[:, None] for part in self.filter.place(query))
        values = self.filter.values(x, tile.columns).sub_(shift).div_(factor).flatten()
        return values if tile.at is None else values[tile.at]

    def tiles(self) -> Iterator[Tile]:
        """Of this rank."""
        rank, ranks = (dist.get_rank(self.group), dist.get_world_size(self.group)) if self.several else (0, 1)
        queries, references, number = len(self.sides.query), len(self.sides.reference), 0
        for start in range(0, queries, self.rows):
            rows = slice(start, min(start + self.rows, queries))
            # Where all of these queries are references, what lies before them was seen from the other side.
            before = start // BLOCK * BLOCK if rows.stop <= self.sides.shared else 0
            for first in range(before, references, self.columns):
                if number % ranks == rank:
                    yield self._tile(rows, slice(first, min(first + self.columns, references)))
                number += 1

    def _tile(self, rows: slice, columns: slice) -> Tile:
        sides, own = self.sides, self.own[rows, None]
        same = (sides.query_labels[rows, None] == sides.reference_labels[columns]).flatten()
        behind = columns.start >= min(rows.stop, sides.shared) or rows.start >= sides.shared
        if behind and sides.own is None and not isinstance(sides.ignore, tuple):
            return Tile(rows, columns, same, None)
        j = torch.arange(columns.start, columns.stop, device=own.device)
        # Of two items that are both query and reference, the pair is seen from the first.
        taken = (j != own) & ((j > own) | (j >= sides.shared) | (own < 0))
        if isinstance(sides.ignore, tuple):
            taken &= ~(same.view_as(taken) & (sides.ignore[0][rows, None] == sides.ignore[1][columns]))
        at = taken.flatten().nonzero()[:, 0]
        return Tile(rows, columns, same[at], at)

    def _extent(self) -> tuple[float, float, float]:
        """What no canonical distance is below or above, and what `_values` are off by."""
        longest, error = [self.own.new_zeros((), dtype=torch.float64)] * 2, self.own.new_zeros((), dtype=torch.float64)
        for side, (rows, of_queries) in enumerate(((self.sides.query, True), (self.sides.reference, False))):
            for piece in rows.split(max(2**20 // max(rows.shape[1], 1), 1)):
                norm = self.filter.centred(piece, self.distance.euclidean).norm(dim=1).amax()
                longest[side] = torch.maximum(longest[side], norm)
                if of_queries:
                    off = self.filter.query(piece)[1] / self.filter.place(piece)[0]
                    error = torch.maximum(error, off.amax())
        first, second = (float(norm) * (1 + 2.0**-40) for norm in longest)
        if self.distance.euclidean:
            return 0.0, (first + second) ** 2, 2 * float(error)
        if self.distance.unit:
            first = second = 1 + 2.0**-40
        return self.distance.constant - first * second, self.distance.constant + first * second, 2 * float(error)

    def of_all_ranks(self, counts: Tensor) -> Tensor:
        """The sum over the ranks."""
        return all_reduce(counts.contiguous(), dist.ReduceOp.SUM, self.group) if self.several else counts


def _counted(value: Tensor, same: Tensor, different: Tensor) -> Tensor:
    # (n,) each  ->  (m, 3) float64: distinct values, ascending, and the sums of both numbers
    distinct, place = value.unique(return_inverse=True)
    sums = torch.stack([same, different]).double()
    table = sums.new_zeros(2, len(distinct)).index_add_(1, place, sums)
    return torch.stack([distinct, *table], 1)
