"""Ranks of all positives without sorting all references: the rank is 1 + the number of entries before a positive."""

import functools
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ...core.native import native
from ..inputs import check_count
from ..relevance import Positives
from ..search import operators
from ..search.distance import equal_rows
from ..search.fp16_filter import Float16Filter
from ..search.product_filter import BLOCK, Filter, exact_float32_products
from .ranking import TIES, RankingOptions

_PAIR_BYTES = 24  # of a pair: a filter value, its bin, and temporaries
_WIDEST = 512  # the most positives for which the kernel compares each entry with each positive
_MAX_UNDECIDED = 2**24  # entries that the kernel lists


class RankQueries(NamedTuple):
    """Queries with their positives in canonical order."""

    query: Tensor  # (Q, D)
    self_index: Tensor  # (Q,) int64, the reference to leave out, -1 = none
    ignored: Tensor | None  # (Q, R) bool
    delta: Tensor  # (Q, P) float64, canonical distances of the positives, inf = none
    positive: Tensor  # (Q, P) int64, the positives; those without a distance are last
    relevant: Tensor  # (Q,) int64, the number of positives with a distance

    def values(self, factor: Tensor, shift: Tensor) -> Tensor:
        # factor, shift: (Q, 1)  ->  (Q, P), filter values of the positives, inf = none
        return (factor * self.delta + shift).masked_fill(self.delta == torch.inf, torch.inf)

    def insertion_index(self, row: Tensor, other: Tensor, column: Tensor, ties: str) -> Tensor:
        # row, column: (n,) int64  other: (n,) canonical distances  ->  (n,), the number of positives before each
        low, high = torch.zeros_like(row), self.relevant[row]
        for _ in range(self.delta.shape[1].bit_length()):
            mid = (low + high) // 2
            cell = row, mid.clamp(max=self.delta.shape[1] - 1)
            before, equal = self.delta[cell] < other, self.delta[cell] == other
            if ties == "optimistic":
                before |= equal
            elif ties == "index":
                before |= equal & (self.positive[cell] < column)
            before &= low < high
            low, high = torch.where(before, mid + 1, low), torch.where(before, high, mid)
        return low


class RankCounter:
    """Counter of the references before each positive: `counter(rows, positives)` ranks a slice of the queries.

    Positives are sorted in canonical order. The filter bounds the number of other entries before each of them, and
    canonical distances decide the entries whose position the filter's error leaves open. A positive without a distance,
    because it or the query holds NaN or infinity, has rank 0 and comes before no other.
    """

    def __init__(self, query: Tensor, self_index: Tensor, reference: Tensor, ranking: RankingOptions) -> None:
        # query: (Q, D)  self_index: (Q,) int64, -1 = none  reference: (R, D)
        check_count(len(reference))
        self.query, self.reference, self.self_index = query, reference, self_index
        self.distance, self.ties, self.exact = ranking.order, ranking.ties, ranking.exact
        self.memory = memory = ranking.memory(query.device)
        self.native = operators.counts(query.device)
        # If each open entry is cheap, the float32 product is faster.
        dtype = torch.float32 if self.native else torch.float64
        allowed = memory // 2 if query.device.type == "cpu" else math.inf
        self.filter = Filter(reference, self.distance, dtype, allowed)
        self.kernels = operators.kernels(query, "counting")
        if self.native:
            self.rows = max(min(memory // 8 // (48 * query.shape[1] + 64), 1024), 1)
        elif self.kernels:
            self.rows = max(memory // 8 // (6 * (query.shape[1] + self.kernels.DEPTH)), 1)
        else:
            # Larger tiles would exceed a CPU's cache; a GPU is fastest with all columns and as many rows as fit.
            max_rows, columns = (256, 2**13) if query.device.type == "cpu" else (2**13, len(reference))
            self.rows = max(min(memory // (_PAIR_BYTES * columns), max_rows), 1)

    @functools.cached_property
    def equal(self) -> Tensor:
        return equal_rows(self.reference)

    @functools.cached_property
    def fp16_filter(self) -> Float16Filter:
        assert self.kernels is not None  # checked by the caller
        return Float16Filter(self.filter, self.kernels, parts=2)

    def __call__(self, rows: slice, positives: Positives) -> tuple[Tensor, Tensor | None]:
        # ->  (Q, P) int32 ascending, 0 = none, (Q, P) float64 their gains or None
        query, index, gain = self.query[rows], positives.index, positives.gain
        # The width is needed on the host: one synchronization per tile.
        width = int(positives.relevant.max())
        if not width:
            return index.new_zeros(index.shape[0], 0, dtype=torch.int32), None if gain is None else gain[:, :0]
        if gain is None and self._can_use_kernels(positives.ignored, index.shape[1]):
            from ..search.kernels import counting

            delta, index, num_measured = counting.sorted_positives(query, self.reference, index, self.distance.code)
        else:
            delta, index, gain = self._measure_positives(query, index, gain, width)
            num_measured = (delta < torch.inf).sum(1)
        queries = RankQueries(query, self.self_index[rows], positives.ignored, delta, index, num_measured)
        rank, gain = ranks_of(self.before(queries), num_measured, gain)
        return rank[:, :width], gain

    def before(self, queries: RankQueries) -> Tensor:
        # ->  (Q, P + 1) int64
        """Count the references, other than positives, between each positive and the previous one."""
        if self._can_use_kernels(queries.ignored, queries.delta.shape[1]):
            before = self._count_by_kernels(queries)
            if before is not None:
                return before
        before = queries.self_index.new_zeros(len(queries.self_index), queries.delta.shape[1] + 1)
        x, error = self.filter.query(queries.query)
        factor, shift = self.filter.affine_map(queries.query)
        count = self._count_native if self.native else self._count
        count(x, queries, (factor, shift, error.clamp(max=1e30) * self.exact), before)
        return before

    def _can_use_kernels(self, ignored: Tensor | None, width: int) -> bool:
        return self.kernels is not None and ignored is None and width <= _WIDEST

    def _measure_positives(
        self, query: Tensor, index: Tensor, gain: Tensor | None, width: int
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        # query: (Q, D)  index, gain: (Q, K)  ->  (Q, P) float64 canonical distances, (Q, P) indices, (Q, P) gains
        delta = torch.full(index.shape, torch.inf, dtype=torch.float64, device=index.device)
        exists = index >= 0
        cells = row, _ = exists.nonzero().unbind(1)
        distances = self.distance.of_pairs(query, self.reference, row, index[cells], self.memory // 4)
        delta[cells] = distances.nan_to_num_(nan=torch.inf)
        return sort_positives(delta, index, gain, width)

    def _count_native(
        self, x: Tensor, queries: RankQueries, interval: tuple[Tensor, Tensor, Tensor], before: Tensor
    ) -> None:
        excluded = queries.self_index.contiguous(), queries.ignored
        operands = queries.query.double().contiguous(), self.reference, self.equal
        positives = (part.contiguous() for part in (queries.delta, queries.positive, queries.relevant, *interval))
        options = *positives, self.distance.code, TIES.index(self.ties)
        with exact_float32_products(x.device):
            for first, rows in self.filter.chunks():
                operators.count_before(x, rows, self.filter.bias, first, *excluded, *operands, *options, before)

    def _count_by_kernels(self, queries: RankQueries) -> Tensor | None:
        # ->  (Q, P + 1) int64, None if too many entries are undecided
        """Count all references at once."""
        from ..search.kernels import counting

        filter_, capacity = self.fp16_filter, min(self.memory // 128 + 1, _MAX_UNDECIDED)
        rows = queries.query, self.reference, queries.self_index
        positives = queries.delta, queries.positive, queries.relevant
        normalization = self.filter.center, self.filter.sizes, filter_.largest
        options = (
            filter_.query(queries.query),
            filter_.references,
            normalization,
            self.distance.code,
            TIES.index(self.ties),
        )
        before, num_undecided = counting.before(rows, positives, *options, capacity)
        return before if int(num_undecided) <= capacity else None  # the host waits

    def _count(self, x: Tensor, queries: RankQueries, interval: tuple[Tensor, Tensor, Tensor], before: Tensor) -> None:
        # interval: (Q,) factor, shift and error of the filter's values  before: (Q, P + 1), updated in place
        factor, shift, error = (part[:, None] for part in interval)
        edges = _edges(queries.values(factor, shift), error)
        for start, tile in self._tiles(x, queries):
            _count_tile(tile, start, queries, edges, self._distances, self.ties, before)

    def _tiles(self, x: Tensor, queries: RankQueries) -> Iterator[tuple[int, Tensor]]:
        # x: (Q, D)  ->  (Q, C) filter values of references start, start + 1, ...
        columns = 2**13 if x.device.type == "cpu" else len(self.filter)
        columns = max(min(columns, self.memory // (_PAIR_BYTES * len(x))) // BLOCK, 1) * BLOCK
        for start in range(0, len(self.filter), columns):
            tile = self.filter.values(x, slice(start, start + columns))
            if queries.ignored is not None:
                is_ignored = queries.ignored[:, start : start + tile.shape[1]]
                tile[:, : is_ignored.shape[1]].masked_fill_(is_ignored, torch.inf)
            yield start, tile

    def _distances(self, query: Tensor, row: Tensor, column: Tensor) -> Tensor:
        # query: (Q, D)  row, column: (n,)  ->  (n,) float64, evaluated once for equal references
        size = len(self.reference)
        pair, inverse = (row * size + self.equal[column]).unique(return_inverse=True)
        pairs = pair // size, pair % size, self.memory // 4
        return self.distance.of_pairs(query, self.reference, *pairs)[inverse]


def _edges(center: Tensor, error: Tensor) -> Tensor:
    # center: (Q, P) ascending  error: (Q, 1)  ->  (Q, 2 P) ascending
    """Return the start of the interval of each positive and the number after its end.

    A value lies in an interval if the number of edges at or below it is odd. An interval that overlaps the next one
    ends where that begins.
    """
    low, end = center - error, torch.nextafter(center + error, center.new_full((), torch.inf))
    end[:, :-1] = torch.minimum(end[:, :-1], low[:, 1:])
    return torch.stack([low, end], 2).flatten(1)


def sort_positives(
    delta: Tensor, index: Tensor, gain: Tensor | None, width: int
) -> tuple[Tensor, Tensor, Tensor | None]:
    # delta, index, gain: (Q, K), inf and -1 = none  ->  the first `width` of each by (distance, index)
    order = torch.where(index >= 0, index, torch.iinfo(torch.int64).max).argsort(1)
    order = order.gather(1, delta.gather(1, order).argsort(dim=1, stable=True))[:, :width]
    return delta.gather(1, order), index.gather(1, order), None if gain is None else gain.gather(1, order)


def ranks_of(before: Tensor, num_measured: Tensor, gain: Tensor | None) -> tuple[Tensor, Tensor | None]:
    # before: (Q, P + 1) from `RankCounter`  num_measured: (Q,)  gain: (Q, P)  ->  (Q, P) int32, (Q, P) or None
    position = torch.arange(1, before.shape[1], device=before.device)
    rank = position + before[:, :-1].cumsum(1)
    missing = position > num_measured[:, None]
    return rank.masked_fill_(missing, 0).int(), None if gain is None else gain.masked_fill(missing, 0.0)


def _count_tile(
    tile: Tensor,
    start: int,
    queries: RankQueries,
    edges: Tensor,
    distances: Callable[[Tensor, Tensor, Tensor], Tensor],
    ties: str,
    before: Tensor,
) -> None:
    # tile: (Q, C) filter values of references start, start + 1, ...  edges: (Q, 2 P)  before: (Q, P + 1)
    """Count the negatives before each positive; canonical distances decide for values that lie in an interval."""
    bins = torch.searchsorted(edges, tile.to(edges.dtype), right=True)
    excluded = torch.cat([queries.self_index[:, None], queries.positive], 1) - start
    is_in_tile = (excluded >= 0) & (excluded < tile.shape[1])
    excluded = excluded.clamp(0, tile.shape[1] - 1)
    bins.scatter_reduce_(1, excluded, is_in_tile * edges.shape[1], "amax")  # after all positives
    row, column = (bins & 1).nonzero().unbind(1)
    if len(row):
        other = distances(queries.query, row, column + start)
        bins[row, column] = 2 * queries.insertion_index(row, other, column + start, ties)
    before.scatter_add_(1, bins >> 1, torch.ones_like(before[:1, :1]).expand_as(bins))


@native.reference("count_before")
def _count_before(
    x: Tensor,
    rows: Tensor,
    bias: Tensor,
    first: int,
    self_index: Tensor,
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
    queries = RankQueries(query, self_index, ignored, delta, index, relevant)
    edges = _edges(queries.values(factor[:, None], shift[:, None]), error[:, None])
    _count_tile(tile, first, queries, edges, distances, TIES[ties], before)
