"""Search for the distance at which a condition on the counts of pairs of the same and of different labels first holds.

No list of all pairs is built. Matrix products with a bounded error assign each pair to a bin; the bins in which the
condition may begin to hold are divided again, until few pairs are left. Canonical distances decide among these, and all
other pairs are only counted: the integers are those of a sorted list of all pairs.
"""

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch import distributed as dist

from ...core.metric.distributed import all_gather_cat, all_reduce
from ...core.numbers.exact_sums import ratio
from ..deterministic import chunk_slices
from ..inputs import RetrievalInputs, budget
from ..search.distance import Distance
from ..search.product_filter import BLOCK, Filter

BINS = 2**16
_PAIR_BYTES = 96  # of a pair of a tile
# counts of same and of different pairs, (..., n) int64 each  ->  (..., n) bool
Condition = Callable[[Tensor, Tensor], Tensor]


class Threshold(NamedTuple):
    """Smallest distance at which a condition holds for the pairs up to it, inf if it never does.

    distance (...) float64, canonical; below, through (..., 2) int64: the numbers of same and different pairs that are
    nearer, and that are nearer or at that distance.
    """

    distance: Tensor
    below: Tensor
    through: Tensor


class Tile(NamedTuple):
    """Pairs of a slice of queries and a slice of references.

    same: (n,) bool, of the same label; positions: (n,) int64, in the flattened table of all pairs, None = all of them.
    """

    rows: slice
    columns: slice
    same: Tensor
    positions: Tensor | None

    def pairs(self, selected: Tensor) -> tuple[Tensor, Tensor]:
        # selected: (m,) int64 below n  ->  (m,) int64 queries and references
        cell = selected if self.positions is None else self.positions[selected]
        width = self.columns.stop - self.columns.start
        return cell // width + self.rows.start, cell % width + self.columns.start


class ItemPairs:
    """Pairs of queries and references; two items form one pair, and no item is paired with itself.

    With `several`, each rank of the group holds all rows, works on a part of the pairs, and gets the result of a single
    process. `total` (2,) int64: the numbers of pairs of the same label and of different labels.
    """

    def __init__(
        self,
        inputs: RetrievalInputs,
        distance: Distance,
        memory_budget: int | None = None,
        several: bool = False,
        group: Any = None,
    ) -> None:
        self.inputs, self.distance, self.group, self.several = inputs, distance, group, several
        self.memory = budget(memory_budget, inputs.query.device)
        self.self_index = inputs.self_index()
        size = max(self.memory // 4 // _PAIR_BYTES, BLOCK)
        self.columns = max(min(2**12, size) // BLOCK, 1) * BLOCK
        max_rows = 256 if inputs.query.device.type == "cpu" else 2**13
        self.rows = max(min(size // self.columns, max_rows), 1)
        self.max_pairs = max(self.memory // _PAIR_BYTES, 1)  # the most pairs whose distances are stored
        if not (len(inputs.query) and len(inputs.reference)):
            return
        self.filter = Filter(inputs.reference, distance, torch.float64, self.memory // 2)
        low, high, self.error = self._extent()
        self.full_range = low, high

    @functools.cached_property
    def bins(self) -> tuple[Tensor, Tensor]:
        # ->  (2,) pairs below the full range, zeros, and (2, BINS) pairs in each bin
        return self._histograms({self.full_range})[self.full_range]

    @functools.cached_property
    def total(self) -> Tensor:
        # ->  (2,) int64
        if not (len(self.inputs.query) and len(self.inputs.reference)):
            return self.self_index.new_zeros(2)
        return self.bins[1].sum(1)

    def first(self, conditions: list[Condition]) -> list[Threshold]:
        """Return the first point at which each condition holds; from there on it keeps holding."""
        ranges, histograms = [self.full_range] * len(conditions), {self.full_range: self.bins}
        pending = list(range(len(conditions))) if math.isfinite(self.error) else []
        while pending:
            wide = []
            for i in pending:
                ranges[i], left = self._narrow(ranges[i], histograms[ranges[i]], conditions[i])
                low, high = ranges[i]
                if left > self.max_pairs and high - low > 8 * self.error:
                    wide.append(i)
            pending = wide
            histograms = self._histograms({ranges[i] for i in pending}) if pending else {}
        candidates = self._candidates(dict.fromkeys(ranges))
        return [
            self._exactly(candidates[where], condition) for where, condition in zip(ranges, conditions, strict=True)
        ]

    def concordance(self) -> Tensor:
        # ->  () float64
        """Return how often a pair of the same label is nearer than one of different labels; ties count half."""
        same, different = self._count_pairs().tolist()
        if not (same and different):
            return self.self_index.new_full((), torch.nan, dtype=torch.float64)
        ranks = dist.get_world_size(self.group) if self.several else 1
        size, start, seen = max(self.max_pairs // ranks, 1), 0, 0
        doubled = self.self_index.new_zeros(2)  # high part, in units of 2^31, and low part: int64 might overflow
        while seen < same:
            distances = self._distances_of_same(start, start + size)
            start, seen = start + size, seen + len(distances)
            distances, repeats = distances.unique_consecutive(return_counts=True)  # fewer if there are ties
            ends = torch.cat([distances, distances.new_full((1,), torch.inf)])
            nearer = torch.nn.functional.pad(repeats.cumsum(0), (1, 0))  # than the k-th distinct one; the last is all
            for tile in self.tiles():
                apart = (~tile.same).nonzero()[:, 0]
                value = self.values(tile)[apart]
                below = torch.searchsorted(distances, value - self.error)
                uncertain = (~(ends[below] > value + self.error)).nonzero()[:, 0]  # NaN is uncertain, too
                exact = self.canonical(*tile.pairs(apart[uncertain]))
                position = below[uncertain]  # or later, if a distance lies between the bound and this one
                further_on = (~(ends[position] >= exact)).nonzero()[:, 0]
                position[further_on] = torch.searchsorted(distances, exact[further_on])
                below[uncertain] = position
                as_near = nearer[position + (ends[position] == exact) * (position < len(distances))] - nearer[position]
                count = 2 * nearer[below].sum() + as_near.sum()  # nearer ones twice, equal ones once
                doubled += torch.stack([count >> 31, count & (2**31 - 1)])
        high, low = self.of_all_ranks(doubled)
        further = (high + (low >> 31)).double() * 2.0**31 + (low & (2**31 - 1)).double()
        return ratio(further, 2.0 * same * different)

    def _count_pairs(self) -> Tensor:
        # ->  (2,) int64, as `total`, without computing distances
        counts = self.self_index.new_zeros(2)
        for tile in self.tiles():
            same = tile.same.sum()
            counts += torch.stack([same, len(tile.same) - same])
        return self.of_all_ranks(counts)

    def _distances_of_same(self, start: int, stop: int) -> Tensor:
        # ->  (n,) float64, ascending
        """Return canonical distances of same pairs with local numbers `start` to `stop - 1`, from all ranks."""
        seen = 0
        parts = [torch.zeros(0, dtype=torch.float64, device=self.self_index.device)]
        for tile in self.tiles():
            indices = tile.same.nonzero()[:, 0]
            selected = indices[max(start - seen, 0) : max(stop - seen, 0)]
            parts.append(self.canonical(*tile.pairs(selected)))
            seen += len(indices)
        distances = torch.cat(parts)
        return (all_gather_cat(distances, self.group) if self.several else distances).sort().values

    def _narrow(
        self, where: tuple[float, float], histogram: tuple[Tensor, Tensor], condition: Condition
    ) -> tuple[tuple[float, float], int]:
        """Return a narrower range that contains the first point, and the approximate number of pairs in it."""
        # histogram: (2,) pairs below the range, (2, BINS) pairs in each bin
        low, high = where
        below, bins = histogram
        width = (high - low) / BINS
        off = int(self.error / width) + 2 if width else 2
        holds = condition(*(below[:, None] + bins.cumsum(1)))
        first = int((~holds).sum())  # the bin in which it would first hold if values were exact
        start, end = max(first - off, 0), min(first + off + 1, BINS)
        left = int(bins[:, max(start - off, 0) : end + off].sum())
        return (low + start * width, high if end == BINS else low + end * width), left

    def _histograms(self, ranges: set[tuple[float, float]]) -> dict[tuple[float, float], tuple[Tensor, Tensor]]:
        counts = {where: self.self_index.new_zeros(2, BINS + 2) for where in ranges}
        for tile in self.tiles():
            value = self.values(tile)
            offset = torch.where(tile.same, 1, BINS + 3)
            for (low, high), count in counts.items():
                scale = BINS / (high - low) if high > low else 0.0
                bins = (value - low).mul_(scale).floor_().clamp_(-1, BINS).long().add_(offset)
                count += torch.bincount(bins, minlength=2 * (BINS + 2)).view(2, -1)
        # Values above a range are in none of its bins; the full range has all values in its bins.
        histograms = {where: self.of_all_ranks(count) for where, count in counts.items()}
        if self.full_range in histograms:
            count = histograms[self.full_range]
            count[:, 1] += count[:, 0]
            count[:, -2] += count[:, -1]
            count[:, 0] = 0
        return {where: (count[:, 0], count[:, 1:-1]) for where, count in histograms.items()}

    def _candidates(self, ranges: dict[tuple[float, float], None]) -> dict[tuple[float, float], tuple[Tensor, ...]]:
        """Count the pairs certainly below each range, and list the distances of all that may lie in it, ascending."""
        parts_of_range: dict[tuple[float, float], list[Tensor]] = {where: [] for where in ranges}
        below = {where: self.self_index.new_zeros(2) for where in ranges}
        for tile in self.tiles():
            value, same = self.values(tile), tile.same
            for (low, high), parts in parts_of_range.items():
                under = value < low - self.error
                below[low, high] += torch.stack([(under & same).sum(), (under & ~same).sum()])
                selected = (~under & (value <= high + self.error)).nonzero()[:, 0]
                exact = self.canonical(*tile.pairs(selected))
                parts.append(_sum_by_distance(exact, same[selected].long(), (~same[selected]).long()))
        return {
            where: (self.of_all_ranks(below[where]), *self._merge_parts(parts))
            for where, parts in parts_of_range.items()
        }

    def canonical(self, row: Tensor, column: Tensor) -> Tensor:
        return self.distance.of_pairs(self.inputs.query, self.inputs.reference, row, column, self.memory // 4)

    def _merge_parts(self, parts: list[Tensor]) -> tuple[Tensor, Tensor]:
        # parts: (n, 3) float64 each: a distance, and the numbers of same and different pairs at it
        none = torch.zeros(0, 3, dtype=torch.float64, device=self.self_index.device)
        table = torch.cat([none, *parts])
        table = all_gather_cat(table, self.group) if self.several else table
        value, same, different = _sum_by_distance(*table.unbind(1)).unbind(1)
        return value, torch.stack([same, different]).long()

    def _exactly(self, candidates: tuple[Tensor, ...], condition: Condition) -> Threshold:
        below, value, counts = candidates  # (2,), (n,), (2, n)
        through = below[:, None] + counts.cumsum(1)
        first = int((~condition(*through)).sum())
        if first == len(value):
            return Threshold(value.new_full((), torch.inf), self.total, self.total)
        return Threshold(value[first], through[:, first - 1] if first else below, through[:, first])

    def values(self, tile: Tile) -> Tensor:
        # ->  (n,) float64, within the error of canonical distances
        query = self.inputs.query[tile.rows]
        x, _ = self.filter.query(query)
        factor, shift = (part[:, None] for part in self.filter.affine_map(query))
        values = self.filter.values(x, tile.columns).sub_(shift).div_(factor).flatten()
        return values if tile.positions is None else values[tile.positions]

    def tiles(self) -> Iterator[Tile]:
        """Yield the tiles of this rank."""
        rank, ranks = (dist.get_rank(self.group), dist.get_world_size(self.group)) if self.several else (0, 1)
        queries, references, tile_index = len(self.inputs.query), len(self.inputs.reference), 0
        for rows in chunk_slices(queries, self.rows):
            # If all of these queries are references, earlier references were already paired with them as queries.
            before = rows.start // BLOCK * BLOCK if rows.stop <= self.inputs.shared else 0
            for columns in chunk_slices(references, self.columns, before):
                if tile_index % ranks == rank:
                    yield self._tile(rows, columns)
                tile_index += 1

    def _tile(self, rows: slice, columns: slice) -> Tile:
        inputs, self_index = self.inputs, self.self_index[rows, None]
        same = (inputs.query_labels[rows, None] == inputs.reference_labels[columns]).flatten()
        behind = columns.start >= min(rows.stop, inputs.shared) or rows.start >= inputs.shared
        if behind and inputs.query_index is None and not isinstance(inputs.ignore, tuple):
            return Tile(rows, columns, same, None)
        j = torch.arange(columns.start, columns.stop, device=self_index.device)
        # If both items are query and reference, the pair belongs to the first one's row.
        is_selected = (j != self_index) & ((j > self_index) | (j >= inputs.shared) | (self_index < 0))
        if isinstance(inputs.ignore, tuple):
            is_selected &= ~(same.view_as(is_selected) & (inputs.ignore[0][rows, None] == inputs.ignore[1][columns]))
        positions = is_selected.flatten().nonzero()[:, 0]
        return Tile(rows, columns, same[positions], positions)

    def _extent(self) -> tuple[float, float, float]:
        """Return bounds below and above all canonical distances, and the error of `values`."""
        error = self.self_index.new_zeros((), dtype=torch.float64)
        longest = [error, error]
        for operand, (rows, is_query) in enumerate(((self.inputs.query, True), (self.inputs.reference, False))):
            for chunk in rows.split(max(2**20 // max(rows.shape[1], 1), 1)):
                norm = self.filter.centered(chunk, self.distance.euclidean).norm(dim=1).amax()
                longest[operand] = torch.maximum(longest[operand], norm)
                if is_query:
                    off = self.filter.query(chunk)[1] / self.filter.affine_map(chunk)[0]
                    error = torch.maximum(error, off.amax())
        first, second = (float(norm) * (1 + 2.0**-40) for norm in longest)
        if self.distance.euclidean:
            return 0.0, (first + second) ** 2, 2 * float(error)
        if self.distance.unit:
            first = second = 1 + 2.0**-40
        return self.distance.constant - first * second, self.distance.constant + first * second, 2 * float(error)

    def of_all_ranks(self, counts: Tensor) -> Tensor:
        """Sum counts over the ranks."""
        return all_reduce(counts.contiguous(), dist.ReduceOp.SUM, self.group) if self.several else counts


def _sum_by_distance(value: Tensor, same: Tensor, different: Tensor) -> Tensor:
    # (n,) each  ->  (m, 3) float64: distinct values, ascending, and the sums of both counts
    distinct, group = value.unique(return_inverse=True)
    sums = torch.stack([same, different]).double()
    table = sums.new_zeros(2, len(distinct)).index_add_(1, group, sums)
    return torch.stack([distinct, *table], 1)
