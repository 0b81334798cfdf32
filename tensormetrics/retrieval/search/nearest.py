"""The search behind `TorchKNN`: filter by matrix products, prove, and sort what the filter leaves open."""

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from ... import _checks
from ..rows import alike
from ..sums import lexsort
from . import operators
from .distance import as_distance, canonical_pairs, canonical_table
from .filter import BLOCK, Filter
from .half_search import HalfSearch
from .known import KnownQueries
from .least import HalvedTiles, Least
from .references import References


class NearestSearch:
    """`search(rows)` gives the k nearest references of a slice of the queries; k is at most the number of references.

    Each way to search hands the queries whose neighbours it cannot prove to the next one. Rows that hold NaN or
    infinity have no neighbours, and are none.
    """

    def __init__(
        self,
        query: Tensor,
        self_index: Tensor,
        k: int,
        references: References,
        memory: int,
        exact: bool = True,
        ignoring: bool = False,
        known: KnownQueries | None = None,
    ) -> None:
        # query: (Q, D)  self_index: (Q,) int64, -1 = none; `ignoring`: `ignored` will be given; `known`: the queries,
        # in whose frame the references are
        self.known, self.query, self.self_index, self.references = known, query, self_index, references
        self.k, self.memory, self.exact = k, memory, exact
        self.native = operators.selects(query.device)
        wide = torch.float64 in (query.dtype, references.rows.dtype)
        self.dtype = known.dtype if known else torch.float64 if wide else torch.float32
        self.kept = kept_of(k, len(references), exact)
        row = 128 * self.kept + 48 * query.shape[1]
        if self.native:
            self.rows = max(min(memory // 8 // row, 4096), 1)
        else:
            # Larger tiles would leave a CPU's cache; a GPU wants them as large as the memory.
            most_rows, most_columns = (512, 2**14) if query.device.type == "cpu" else (2**13, 2**17)
            columns = min(memory // 128, most_columns, len(references))
            self.columns = max(-(-columns // BLOCK) * BLOCK, BLOCK)
            self.rows = max(min(memory // 2 // (24 * self.columns + row), most_rows), 1)
        few = self.native and not ignoring and 8 * HalvedTiles.bytes_of(len(query), self.kept, self.dtype) <= 3 * memory
        self.halved = None
        if few and self._is_self_retrieval():
            self.halved = HalvedTiles(references.filter(self.dtype, memory), self_index, self.kept)
        self.halves, self.step = None, self.rows
        kernels = None if ignoring else operators.kernels(query.device)
        if kernels and HalfSearch.serves(k, len(references), kernels):
            sides = (query, self_index, k, references)
            self.halves = HalfSearch(*sides, memory, kernels, self._is_self_retrieval(), known)
            self.rows = self.halves.rows

    def _is_self_retrieval(self) -> bool:
        # Euclidean distances alone have products that are the same in both directions.
        rows, distance = self.references.rows, self.references.distance
        if distance not in ("l2", "sqeuclidean") or self.query is not rows:
            return False
        return torch.equal(self.self_index, torch.arange(len(rows), device=rows.device))

    def __call__(self, rows: slice, ignored: Tensor | None = None) -> Tensor:
        # ignored: (Q, R) bool, of these rows  ->  (Q, k) int64, -1 where none is left
        ways = (self._coarse, self._fine, self._exhaustive)
        if self.halves:
            return self._first_by_halves(rows, ways)
        if self.known:
            ways = (functools.partial(self._of_known, rows), *ways[1:])
        if self.halved and self.halved.serves(rows):
            ways = (functools.partial(self._halved, rows), *ways[1:])
        return self._first(self.query[rows], self.self_index[rows], ignored, ways)

    def _first_by_halves(self, rows: slice, ways: tuple) -> Tensor:
        # Many more queries at once than the other ways can take.
        nearest, proven = self.halves(rows)
        for left in (~proven).nonzero()[:, 0].split(self.step):
            if len(left):
                at = rows.start + left
                nearest[left] = self._first(self.query[at], self.self_index[at], None, ways)
        return nearest

    def distances(self, rows: slice, nearest: Tensor) -> Tensor:
        # nearest: (Q, k) int64 of these rows  ->  (Q, k) float64, where the index is -1 any value
        row = torch.arange(len(nearest), device=nearest.device).repeat_interleave(nearest.shape[1])
        column = nearest.flatten().clamp(min=0)
        distance = self.references.distance
        delta = canonical_pairs(self.query[rows], self.references.rows, row, column, distance, self.memory // 4)
        return as_distance(delta, distance).view_as(nearest)

    def _first(self, query: Tensor, own: Tensor, ignored: Tensor | None, ways: tuple) -> Tensor:
        nearest, proven = ways[0](query, own, ignored)
        # Which queries are left has to be known on the host: once per tile.
        left = (~proven).nonzero()[:, 0]
        if len(left):
            finite = query[left].isfinite().all(1)
            nearest[left[~finite]] = -1
            left = left[finite]
            ignored = None if ignored is None else ignored[left]
            nearest[left] = self._first(query[left], own[left], ignored, ways[1:])
        return nearest

    def _halved(self, rows: slice, query: Tensor, own: Tensor, ignored: None) -> tuple[Tensor, Tensor]:
        filter_ = self.references.filter(self.dtype, self.memory)
        x, error = filter_.query(query)
        return self._settled(query, error, *self.halved(x, rows), self.kept == len(self.references))

    def _of_known(self, rows: slice, query: Tensor, own: Tensor, ignored: Tensor | None) -> tuple[Tensor, Tensor]:
        filter_ = self.references.filter(self.dtype, self.memory)
        return self._filtered(query, own, ignored, filter_, self.known.query(rows, filter_))

    def _coarse(self, query: Tensor, own: Tensor, ignored: Tensor | None) -> tuple[Tensor, Tensor]:
        return self._filtered(query, own, ignored, self.references.filter(self.dtype, self.memory))

    def _fine(self, query: Tensor, own: Tensor, ignored: Tensor | None) -> tuple[Tensor, Tensor]:
        if ignored is None and len(self._few) < len(self.references):
            return self._filtered(query, _place_in(self._few, own), None, self._filter_of_few)
        if self.dtype == torch.float64:
            return own.new_empty(len(own), self.k), torch.zeros_like(own, dtype=torch.bool)
        return self._filtered(query, own, ignored, self.references.filter(torch.float64, self.memory))

    @functools.cached_property
    def _few(self) -> Tensor:
        # ->  (M,) int64 ascending
        """References among which all neighbours are, unless some are ignored: of equal ones the k + 1 lowest."""
        return self.references.first_of_equal(self.k + 1)

    @functools.cached_property
    def _filter_of_few(self) -> Filter:
        return self.references.filter_of(self._few, self.memory)

    def _filtered(
        self,
        query: Tensor,
        own: Tensor,
        ignored: Tensor | None,
        filter_: Filter,
        ready: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        # query: (Q, D)  own: (Q,) and ignored: (Q, R) of the filter's  ready: `filter_.query(query)`
        # ->  (Q, k) int64, whether proven (Q,)
        x, error = ready or filter_.query(query)
        kept = min(self.kept, filter_.count)
        values, columns = self._smallest(x, own, ignored, kept, filter_)
        if filter_.chosen is not None:
            # What is infinitely far may be a column behind the last reference.
            columns = filter_.chosen[columns.clamp(max=filter_.count - 1)]
        return self._settled(query, error, values, columns, kept == filter_.count)

    def _settled(
        self, query: Tensor, error: Tensor, values: Tensor, columns: Tensor, all_kept: bool
    ) -> tuple[Tensor, Tensor]:
        # query: (Q, D)  error: (Q,)  values, columns: (Q, kept)  ->  (Q, k) int64, whether proven (Q,)
        options = {"distance": self.references.distance, "memory": self.memory // 4}
        deltas = functools.partial(canonical_pairs, query, self.references.rows, **options)
        return settled(values, columns, error, self.k, deltas, all_kept, self.exact)

    def _smallest(
        self, x: Tensor, own: Tensor, ignored: Tensor | None, count: int, filter_: Filter
    ) -> tuple[Tensor, Tensor]:
        # x: (Q, D)  own: (Q,)  ignored: (Q, R)  ->  (Q, count) float64 ascending, (Q, count) int64
        if self.native:
            least = Least(len(x), count, x)
            least.add(filter_, x, own, ignored)
            return least.sorted()
        values, columns = x.new_empty(len(x), 0), own.new_empty(len(x), 0)
        for start in range(0, len(filter_), self.columns):
            tile = filter_.values(x, slice(start, start + self.columns))
            if ignored is not None:
                hidden = ignored[:, start : start + self.columns]
                tile[:, : hidden.shape[1]].masked_fill_(hidden, torch.inf)
            place = (own - start).clamp(0, tile.shape[1] - 1)[:, None]
            tile.scatter_(1, place, tile.gather(1, place).masked_fill_(place + start == own[:, None], torch.inf))
            near, place = smallest(tile, min(count, tile.shape[1]))
            values, columns = torch.cat([values, near], 1), torch.cat([columns, place + start], 1)
            if values.shape[1] > count or start + self.columns >= len(filter_):
                values, order = values.topk(min(count, values.shape[1]), largest=False)
                columns = columns.gather(1, order)
        return values.double(), columns

    def _exhaustive(self, query: Tensor, own: Tensor, ignored: Tensor | None) -> tuple[Tensor, Tensor]:
        # query: (Q, D)  own: (Q,)  ignored: (Q, R)  ->  (Q, k) int64, by canonical distances to all references
        few = self._few if ignored is None else torch.arange(len(self.references), device=own.device)
        nearest = own.new_empty(len(query), self.k)
        rows = max(self.memory // (64 * len(few)), 1)
        options = self.references.distance, self.memory // 4
        for start in range(0, len(query), rows):
            tile = slice(start, start + rows)
            hidden = few == own[tile, None] if ignored is None else ignored[tile] | (few == own[tile, None])
            delta = canonical_table(query[tile], self.references.rows, few, *options)
            hidden |= delta.isnan()
            order = _sorted(delta, hidden)[:, : self.k]
            nearest[tile] = few[order].masked_fill(hidden.gather(1, order), -1)
        return nearest, torch.ones_like(own, dtype=torch.bool)


class FunctionSearch:
    """`NearestSearch` for a function `(Q, D), (R, D) -> (Q, R)`, whose values are the order; equal ones by index.

    Where a value is NaN, the reference is no neighbour of the query.
    """

    def __init__(self, query: Tensor, self_index: Tensor, k: int, references: References, memory: int) -> None:
        self.query, self.self_index, self.references, self.k = query, self_index, references, k
        self.rows = max(memory // (64 * len(references)), 1)
        self.largest = largest_first(references.distance)

    def __call__(self, rows: slice, ignored: Tensor | None = None) -> Tensor:
        values = self._values(rows)
        hidden = torch.arange(len(self.references), device=values.device) == self.self_index[rows, None]
        hidden |= values.isnan()
        hidden = hidden if ignored is None else hidden | ignored
        order = _sorted(values, hidden, self.largest)[:, : self.k]
        return order.masked_fill(hidden.gather(1, order), -1)

    def distances(self, rows: slice, nearest: Tensor) -> Tensor:
        return self._values(rows).gather(1, nearest.clamp(min=0))

    def _values(self, rows: slice) -> Tensor:
        query = self.query[rows]
        values = self.references.distance(*alike(query, self.references.rows))
        _checks.shape("result of distance", values, len(query), len(self.references))
        return values


def kept_of(k: int, references: int, exact: bool) -> int:
    """How many least values are looked at: some may have to be put in another order."""
    return min(k + max(8, k // 16), references) if exact else k


def settled(
    values: Tensor,
    columns: Tensor,
    error: Tensor,
    k: int,
    deltas: Callable[[Tensor, Tensor], Tensor],
    all_kept: bool,
    exact: bool,
) -> tuple[Tensor, Tensor]:
    # values: (Q, kept) ascending  columns: (Q, kept) int64  error: (Q,)  ->  (Q, k) int64, -1 = none, (Q,) bool
    """The k first in canonical order of those with the least values, and for which queries they are proven to be.

    `deltas` gives canonical distances of rows and columns. `all_kept`: there are no others; `exact`: as in `TorchKNN`.
    """
    furthest = values[:, -1]
    # Written so that NaN proves nothing.
    proven = (furthest - error > values[:, k - 1] + error) | ((furthest == torch.inf) & (error < torch.inf))
    if all_kept or not exact:
        proven = error < torch.inf
    if exact:
        # Where intervals overlap, they form runs; canonical distances are needed only inside.
        close = values.diff() <= 2 * error[:, None]
        run = torch.nn.functional.pad((~close).cumsum(1), (1, 0))
        open_ = torch.nn.functional.pad(close, (1, 0)) | torch.nn.functional.pad(close, (0, 1))
        open_ &= (run <= run[:, k - 1 : k]) & (values < torch.inf) & proven[:, None]
        row, place = open_.nonzero().unbind(1)
        column = columns[row, place]
        columns[row, place] = column[lexsort(column, deltas(row, column), row * values.shape[1] + run[row, place])]
    return columns[:, :k].masked_fill(values[:, :k] == torch.inf, -1), proven


def _place_in(few: Tensor, index: Tensor) -> Tensor:
    # few: (M,) int64 ascending  index: (Q,) int64  ->  (Q,) int64, -1 where it is not there
    place = torch.searchsorted(few, index).clamp(max=len(few) - 1)
    return torch.where(few[place] == index, place, -1)


def largest_first(distance: str | Callable) -> bool:
    """Whether the nearest has the largest value."""
    return distance == "ip" or bool(getattr(distance, "is_inverted", getattr(distance, "largest", False)))


def _sorted(values: Tensor, hidden: Tensor, descending: bool = False) -> Tensor:
    # values, hidden: (Q, R)  ->  (Q, R) int64, columns by (hidden, value, column)
    order = values.argsort(dim=1, stable=True, descending=descending)
    return order.gather(1, hidden.gather(1, order).long().argsort(dim=1, stable=True))


def smallest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    # values: (Q, C)  ->  (Q, count) in any order, (Q, count) int64
    """The least values of each row and their columns, where `topk` sees only blocks with a small minimum."""
    blocks, left_over = divmod(values.shape[1], 4)
    if left_over or blocks < 3 * count:
        return values.topk(count, largest=False, sorted=False)
    # The columns of a block are `blocks` apart: minima over them are elementwise minima of contiguous pieces.
    _, least = smallest(values.unflatten(1, (4, blocks)).amin(1), count)
    columns = (least[:, None] + blocks * torch.arange(4, device=values.device)[:, None]).flatten(1)
    near, place = values.gather(1, columns).topk(count, largest=False, sorted=False)
    return near, columns.gather(1, place)
