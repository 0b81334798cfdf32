"""Nearest neighbors of two sets of rows in each other, or of one set in itself, by int16 products.

As in int16/search.py, products of rounded rows exclude most pairs, here for both rows of a pair at once; canonical
distances decide among the others. Neighbors found earlier exclude all references that are further away.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ....core.native import native
from .. import operators
from ..backend import nearest
from ..distance import DISTANCES, Distance
from ..int16.quantize import LARGEST, UP, CandidateLists, QuantizedRows, list_capacity
from ..product_filter import BLOCK, Filter, Normalization
from .symmetric import Neighbors, nearest_of

FEWEST, PROBE_ROWS = 256, 64  # the fewest rows for which it is faster; rows that are tried first
MIN_CAPACITY = 1024  # number of rows that must fit in memory


class QueryRows(NamedTuple):
    """Rows (N, D) that need neighbors: index of the first, neighbors so far, largest useful distances (N,) float64."""

    rows: Tensor
    first: int
    neighbors: Neighbors
    worst: Tensor

    @staticmethod
    def of(rows: Tensor, first: int, neighbors: Neighbors) -> "QueryRows":
        return QueryRows(rows, first, neighbors, torch.full((len(rows),), torch.inf, dtype=torch.float64, device="cpu"))


class Part(NamedTuple):
    """Some of the query rows, and the slots that hold their rounded values."""

    queries: QueryRows
    slots: slice


class Int16Pairs:
    """Search by int16 products: `pairs(x, y)` adds the neighbors of each set in the other, `pairs(x)` those within x.

    Distances are Euclidean. x are the same rows in every call, and a call may skip the first `split` of them. y has at
    most `max_rows` rows.
    """

    def __init__(
        self,
        k: int,
        distance: Distance,
        normalization: Normalization,
        memory: int,
        split: int = 0,
        max_rows: int = 2**62,
    ) -> None:
        dim = len(normalization.center)
        self.k, self.distance, self.memory, self.split = k, distance, memory, split
        self.step = min(_rows_at_once(k, dim, memory), max(max_rows, split))
        nothing = torch.empty(0, dim, device="cpu", dtype=torch.float32)
        norms = torch.zeros(1, dtype=torch.float64, device="cpu")
        self.filter = Filter(nothing, distance, torch.float32, normalization=normalization, norms=norms)
        self.scale = float(normalization.scale)
        # Upper bounds of the norms of rows and of their rounding errors: half a unit in each column.
        self.max_norms = self.filter.norm, self.filter.norm * (dim**0.5 / 2 / LARGEST * UP)
        self.loaded: tuple[slice, Part] | None = None  # which rows of x are in their slots

        # The second set follows the first one; the rows of the first set after the split begin a panel.
        num_slots = (-(-self.step // BLOCK) * 2 + 1) * BLOCK
        self.rounded = QuantizedRows.nothing(num_slots, dim)
        self.order = torch.empty(num_slots, dtype=torch.int64, device="cpu")  # row numbers, -1 = none
        self.shift = torch.empty(num_slots, dtype=torch.float64, device="cpu")  # from distances to bounded values
        # For each row: query scale, bias, coefficient, bias error, width, rounding error, as in `int16_candidates`.
        self.terms = torch.empty(6, num_slots, dtype=torch.float32, device="cpu")
        self.lists = CandidateLists.of_size(num_slots, list_capacity(k, dim))

    @staticmethod
    def is_faster(rows: Tensor, k: int, memory: int) -> bool:
        return (
            rows.dtype != torch.float64
            and len(rows) >= max(FEWEST, 8 * k)
            and 48 <= rows.shape[1] <= 2**14
            and _rows_at_once(k, rows.shape[1], memory) >= MIN_CAPACITY
            and bool(operators.supports_int16(rows))
        )

    def is_effective(self, rows: Tensor) -> bool:
        """Return whether int16 products exclude enough references, which they do not in tight clusters."""
        queries = QueryRows.of(rows, 0, Neighbors.empty(len(rows), self.k))
        part = self._load_rows(queries, slice(0, min(len(rows), self.step)))
        probe = part._replace(slots=slice(0, min(PROBE_ROWS, part.slots.stop)))
        lists = self._candidate_lists(probe, part, self_index=torch.arange(probe.slots.stop, device="cpu"), both=False)
        return 8 * int((lists.list_size == lists.column.shape[1]).sum()) <= probe.slots.stop

    def __call__(self, x: QueryRows, y: QueryRows | None = None, skipped: int = 0) -> None:
        # skipped: 0 or the split, the number of first rows of x to leave out
        chunks = self._chunks(x.rows)
        for i, chunk in enumerate(chunks):
            if skipped >= chunk.stop:
                continue
            part = self._load_rows(x, chunk)
            if skipped > chunk.start:
                part = part._replace(slots=slice(_padded(skipped - chunk.start), part.slots.stop))
            if y is None:
                self._search_pair(part, None)
            queries, others = (x, chunks[i + 1 :]) if y is None else (y, self._chunks(y.rows))
            for other in others:
                order = _shuffled(other.start, other.stop)
                self._search_pair(part, self._load(queries, order, part.slots.stop))

    def _chunks(self, rows: Tensor) -> list[slice]:
        return [slice(i, min(i + self.step, len(rows))) for i in range(0, len(rows), self.step)]

    def _load_rows(self, x: QueryRows, chunk: slice) -> Part:
        # Rows after the split begin a panel, so that the others can be left out.
        if self.loaded is None or self.loaded[0] != chunk:
            ends = sorted({chunk.start, min(max(self.split, chunk.start), chunk.stop), chunk.stop})
            order = torch.cat([_shuffled(*pair) for pair in zip(ends, ends[1:], strict=False)])
            self.loaded = chunk, self._load(x, order, 0)
        return self.loaded[1]._replace(queries=x)

    def _load(self, queries: QueryRows, order: Tensor, first: int) -> Part:
        slots = slice(first, first + len(order))
        self.order[slots] = order
        self.rounded.write(queries.rows, self.filter, order, first)
        length, factor = self.rounded.sizes[0, slots], self.distance.factor
        # The squares of the norms are summed in a different order than canonical distances.
        squares = length.square()
        self.shift[slots] = -squares
        width, rounding_error = self.rounded.as_queries(slots, self.filter, *self.max_norms)
        rounding_error += (2 * len(self.filter.center) + 16) * 2.0**-53 * squares
        terms = (
            self.rounded.scale[slots] * -factor,
            *self.rounded.as_references(slots, factor, *self.max_norms),
            width,
            rounding_error,
        )
        for term, values in zip(self.terms, terms, strict=True):
            term[slots] = values
        return Part(queries, slots)

    def _search_pair(self, x: Part, y: Part | None) -> None:
        """Search two loaded sets in each other, or one in itself."""
        self_index = torch.arange(x.slots.stop - x.slots.start, device="cpu")
        self._candidate_lists(x, y or x, self_index if y is None else self_index.fill_(-1))
        self._rerank(x, y or x, x.slots.start)
        if y:
            self._rerank(y, x, x.slots.start)

    def _candidate_lists(self, x: Part, y: Part, self_index: Tensor, both: bool = True) -> CandidateLists:
        # self_index: (Q,)  both: lists of both sets, each product for both of its rows; else only of x
        slots = slice(x.slots.start, y.slots.stop)
        lists = self.lists.select(slots if both else x.slots)
        for part in {x.slots.start: x, y.slots.start: y}.values() if both else [x]:
            queries, rows = part.queries, self.order[part.slots].clamp(min=0)
            worst = torch.minimum(queries.neighbors.delta[rows, -1], queries.worst[rows])
            bound = self.scale * self.scale * worst + self.shift[part.slots] + 2 * self.terms[5, part.slots]
            limit = _above(bound.float()).masked_fill_(self.rounded.sizes[0, part.slots] == torch.inf, -torch.inf)
            self.lists.limit[part.slots] = limit
        lists.list_size.zero_()
        scale, bias, coefficient, bias_error, width, rounding_error = self.terms[:, slots]
        width, rounding_error = width[: len(lists.list_size)], rounding_error[: len(lists.list_size)]
        panels = self.rounded.panels[slots.start // BLOCK : slots.stop // BLOCK]
        first = y.slots.start - x.slots.start if both else -1
        references = panels, self.rounded.scale[slots], bias, coefficient, bias_error
        operators.int16_candidates(panels, scale, *references, width, rounding_error, self_index, *lists, self.k, first)
        return lists

    def _rerank(self, x: Part, y: Part, base: int) -> None:
        queries, other, order = x.queries, y.queries, self.order[x.slots]
        lists = self.terms[5, x.slots], *self.lists.select(x.slots), self.shift[x.slots]
        options = self.scale * self.scale, other.first, self.distance.code
        tables = queries.neighbors.delta, queries.neighbors.index
        proven = operators.merge_candidates(
            queries.rows, other.rows, order, self.order[base:], *lists, *options, *tables
        )
        if not proven.all():
            rows, candidates = order[~proven], self.order[y.slots].sort().values
            candidates = candidates[candidates >= 0]
            self_index = torch.searchsorted(candidates, rows) if x.slots == y.slots else torch.full_like(rows, -1)
            delta, column = nearest_of(
                queries.rows[rows], self_index, other.rows[candidates], self.k, self.distance, self.memory // 4
            )
            index = torch.where(column < 0, -1, candidates[column.clamp(min=0)] + other.first)
            queries.neighbors.add(delta, index, rows)


def _padded(rows: int) -> int:
    return -(-rows // BLOCK) * BLOCK


def _shuffled(start: int, stop: int) -> Tensor:
    # ->  (n,) int64, these rows in random order, so that no list begins with one tight class, padded with -1
    order = torch.randperm(stop - start, generator=torch.Generator().manual_seed(0), device="cpu") + start
    return torch.nn.functional.pad(order, (0, _padded(stop - start) - stop + start), value=-1)


def _above(values: Tensor) -> Tensor:
    return values.nextafter(values.new_tensor(torch.inf))


def _rows_at_once(k: int, dim: int, memory: int) -> int:
    # Two sets have candidate lists, int16 values, and terms of each row.
    return memory // 4 // (12 * list_capacity(k, dim) + 2 * dim + 192)


@native.reference("merge_candidates")
def _rerank_candidates(
    query: Tensor,
    reference: Tensor,
    row_of: Tensor,
    order: Tensor,
    rounding_error: Tensor,
    bounds: Tensor,
    column: Tensor,
    counts: Tensor,
    limit: Tensor,
    shift: Tensor,
    factor: float,
    first: int,
    distance: int,
    delta: Tensor,
    index: Tensor,
) -> Tensor:
    capacity = column.shape[1]
    kind = next(value for value in DISTANCES.values() if value.code == distance)
    is_valid = (torch.arange(capacity, device="cpu") < (counts % capacity)[:, None]) & (bounds[:, 0] < limit[:, None])
    row_number, slot = is_valid.nonzero().unbind(1)
    row, neighbor = row_of[row_number], order[column[row_number, slot].long()]
    values = torch.full(is_valid.shape, torch.inf, dtype=torch.float64, device="cpu")
    values[row_number, slot] = kind.of_pairs(query, reference, row, neighbor, 2**24)
    indices = torch.full(is_valid.shape, -1, device="cpu")
    indices[row_number, slot] = neighbor + first
    has_candidates = is_valid.any(1)
    rows = row_of[has_candidates]
    Neighbors(delta, index).add(*nearest(values[has_candidates], indices[has_candidates], delta.shape[1]), rows)
    return counts < capacity


@native.reference("merge_nearest")
def _merge_nearest(other: Tensor, of_other: Tensor, first: int, delta: Tensor, index: Tensor) -> None:
    Neighbors(delta, index).add(other, torch.where(other < torch.inf, of_other.long() + first, -1))
