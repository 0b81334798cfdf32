"""Ranks of all positives without sorting all references: rank = positives not after + negatives before."""

from typing import NamedTuple

import torch
from torch import Tensor

from ._order import Filter, canonical_pairs, equal_rows
from ._relevance import Positives


class _Located(NamedTuple):
    """Positives by filter value: these values (Q, P), inf = none, the indices (Q, P) and gains (Q, P) or None."""

    near: Tensor
    index: Tensor
    gain: Tensor | None


class _Entries(NamedTuple):
    """Some negatives, sorted by query: rows, columns and filter values, (n,) each."""

    row: Tensor
    column: Tensor
    value: Tensor

    def of(self, start: int, stop: int) -> "_Entries":
        here = (self.row >= start) & (self.row < stop)
        return _Entries(self.row[here] - start, self.column[here], self.value[here])


class RankCounter:
    """`counter(rows, positives)` gives the ranks of all positives of a slice of the queries, however deep they lie.

    Filter values are mapped to bins. Bins away from every positive are counted as they are; of the others each entry
    is searched for among the positives, and where the filter's error leaves its place open, canonical distances decide.
    """

    def __init__(
        self, query: Tensor, self_index: Tensor, reference: Tensor, distance: str, ties: str, memory: int
    ) -> None:
        # query: (Q, D)  self_index: (Q,) int64, -1 = none  reference: (R, D)
        self.query, self.self_index, self.reference = query, self_index, reference
        self.distance, self.ties, self.memory = distance, ties, memory
        # In float64 only ties stay open; resolving what float32 leaves open costs more than the wider product.
        self.filter = Filter(reference, distance, torch.float64)
        self.same = equal_rows(reference)
        # More rows would leave a CPU's cache.
        self.rows = max(min(memory // 2 // (32 * len(reference) + 64), 128 if query.device.type == "cpu" else 2**13), 1)

    def __call__(self, rows: slice, positives: Positives) -> tuple[Tensor, Tensor | None]:
        # ->  (Q, P) int32 ascending, 0 = none, (Q, P) float64 their gains or None; P = max R
        query, own, index, gain = self.query[rows], self.self_index[rows], positives.index, positives.gain
        # The width has to be known on the host: once per tile.
        width = int(positives.relevant.max())
        if not width:
            return index.new_zeros(index.shape[0], 0, dtype=torch.int32), None if gain is None else gain[:, :0]
        x, error = self.filter.query(query)
        margin = 2 * error.clamp(max=1e100)[:, None]
        values = self.filter.values(x)

        absent = index < 0
        column = torch.where(absent, index.amax(1, keepdim=True).clamp(min=0), index)
        near = values.gather(1, column).masked_fill_(absent, torch.inf)
        values.scatter_(1, column, torch.inf)
        values.scatter_(1, torch.where(own[:, None] < 0, column[:, :1], own[:, None]), torch.inf)
        if positives.ignored is not None:
            values[:, : len(self.reference)].masked_fill_(positives.ignored, torch.inf)
        near, order = near.sort(1)
        near, index = near[:, :width].contiguous(), index.gather(1, order)[:, :width]
        gain = None if gain is None else gain.gather(1, order)[:, :width]

        negatives, entries = self._bins(values, near, positives.relevant, margin)
        del values
        # Of few queries at a time, because of tied data most entries get here.
        pieces = -(-len(entries.row) * 256 // self.memory)
        step = -(-len(query) // max(pieces, 1))
        for start in range(0, len(query), step):
            piece = slice(start, start + step)
            located = _Located(near[piece], index[piece], None if gain is None else gain[piece])
            here = entries if pieces <= 1 else entries.of(start, start + step)
            counts, gains = self._search(query[piece], margin[piece], located, here)
            negatives[piece] += counts
            if gain is not None:
                gain[piece] = gains
        place = torch.arange(1, width + 1, device=own.device)
        rank = (place + negatives).masked_fill(place > positives.relevant[:, None], 0)
        return rank.int(), gain

    def _bins(self, values: Tensor, near: Tensor, relevant: Tensor, margin: Tensor) -> tuple[Tensor, "_Entries"]:
        # values: (Q, C)  near: (Q, P)  relevant: (Q,)  margin: (Q, 1)  ->  (Q, P) int64 and what this leaves out
        """How many negatives lie in cold bins, those away from all positives, before each positive."""
        bins = min(max(32 * near.shape[1], 256), 8192)
        lone = relevant[:, None] == 0
        low = near[:, :1].masked_fill(lone, 0.0) - margin
        high = near.gather(1, (relevant[:, None] - 1).clamp(min=0)).masked_fill(lone, 0.0) + margin
        scale = (bins - 1) / (high - low).clamp(min=1e-290)
        offset = 1 - low * scale

        def bin_of(value: Tensor) -> Tensor:
            # Monotone, whatever is rounded: that is all that counting needs.
            return torch.addcmul(offset, value, scale).clamp_(0, bins + 1).long()

        bin_of_value = bin_of(values)
        one = torch.ones((), dtype=torch.int32, device=values.device)
        number = torch.zeros(len(values), bins + 2, dtype=torch.int32, device=values.device)
        number.scatter_add_(1, bin_of_value, one.expand_as(bin_of_value))
        present = (near < torch.inf).int()
        steps = torch.zeros(len(values), bins + 3, dtype=torch.int32, device=values.device)
        steps.scatter_add_(1, bin_of(near - margin), present)
        steps.scatter_add_(1, bin_of(near + margin) + 1, -present)
        hot = steps.cumsum(1)[:, :-1] > 0
        before = number.masked_fill_(hot, 0).cumsum(1).gather(1, bin_of(near))
        row, column = hot.gather(1, bin_of_value).nonzero().unbind(1)
        value = values[row, column]
        real = value < torch.inf
        return before, _Entries(row[real], column[real], value[real])

    def _search(
        self, query: Tensor, margin: Tensor, located: "_Located", entries: "_Entries"
    ) -> tuple[Tensor, Tensor | None]:
        # query: (Q, D)  margin: (Q, 1)  ->  how many entries are before each positive (Q, P), their gains (Q, P)
        (near, index, gain), (row, column, value) = located, entries
        table, place = _padded(row, value, len(query), torch.inf)
        first = torch.searchsorted(near, table - margin)[row, place]
        last = torch.searchsorted(near, table + margin, right=True)[row, place]
        open_ = first < last
        exact = torch.zeros(len(query), dtype=torch.bool, device=row.device).index_put((row[open_],), open_[open_])
        if gain is not None:
            exact |= (near.diff() <= margin).any(1)
        chosen = exact.nonzero()[:, 0]
        if len(chosen):
            # Negatives that are sure of their place keep it, in whatever order the positives are.
            new_row = (exact.cumsum(0) - 1)[row[open_]]
            first[open_], order = self._canonical_places(query[chosen], index[chosen], new_row, column[open_])
            if gain is not None:
                gain = gain.index_copy(0, chosen, gain[chosen].gather(1, order))
        width = near.shape[1] + 1
        counts = torch.zeros(len(query) * width, dtype=torch.int64, device=row.device)
        counts.scatter_add_(0, row * width + first, torch.ones_like(first))
        return counts.view(-1, width)[:, :-1].cumsum(1), gain

    def _canonical_places(self, query: Tensor, index: Tensor, row: Tensor, column: Tensor) -> tuple[Tensor, Tensor]:
        # query: (Q, D)  index: (Q, P)  row, column: (n,) sorted by row
        # ->  the place of each entry among the positives (n,), the order of these (Q, P)
        size = len(self.reference)
        absent = index < 0
        # Equal references have one distance to a query.
        wanted = torch.zeros(len(query), size, dtype=torch.bool, device=row.device)
        wanted.scatter_(1, self.same[torch.where(absent, index.amax(1, keepdim=True), index)], True)
        wanted[row, self.same[column]] = True
        i, j = wanted.nonzero().unbind(1)
        delta = torch.empty(wanted.shape, dtype=torch.float64, device=row.device)
        delta[i, j] = canonical_pairs(query, self.reference, i, j, self.distance, self.memory // 4)

        index = torch.where(absent, size, index)
        order = index.argsort(1)
        near = delta.gather(1, self.same[index.clamp(max=size - 1)]).masked_fill_(absent, torch.inf)
        order = order.gather(1, near.gather(1, order).argsort(dim=1, stable=True))
        near, index = near.gather(1, order), index.gather(1, order)
        table, place = _padded(row, delta[row, self.same[column]], len(query), torch.inf)
        first = torch.searchsorted(near, table)[row, place]
        last = torch.searchsorted(near, table, right=True)[row, place]
        if self.ties == "optimistic":
            return last, order
        if self.ties == "pessimistic":
            return first, order
        # The same search in (place of the first positive of that distance, index).
        keys = torch.searchsorted(near, near) * (size + 1) + index
        table, place = _padded(row, first * (size + 1) + column, len(query), 0)
        return torch.where(first < last, torch.searchsorted(keys, table)[row, place], first), order


def _padded(row: Tensor, values: Tensor, rows: int, fill: float) -> tuple[Tensor, Tensor]:
    # row, values: (n,) sorted by row  ->  (rows, W), and the column of each value in it (n,)
    number = torch.bincount(row, minlength=rows)
    place = torch.arange(len(row), device=row.device) - (number.cumsum(0) - number)[row]
    # The width has to be known on the host.
    table = values.new_full((rows, int(number.max())), fill)
    return table.index_put((row, place), values), place
