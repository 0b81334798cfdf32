"""The search behind `TorchKNN`: filter by matrix products, prove, and sort what the filter leaves open."""

import torch
from torch import Tensor

from ..inputs import finite_rows
from . import operators
from .distance import FunctionDistance
from .fp16_search import HalfSearch
from .int16.search import WordSearch
from .product_filter import BLOCK
from .references import KnownQueries, References
from .stages import Coarse, Exhaustive, Fine, Queries, Task, Way, kept_of, sorted_columns
from .topk import HalvedTiles


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
        self.query, self.self_index, self.references, self.memory = query, self_index, references, memory
        native = operators.selects(query.device)
        wide = torch.float64 in (query.dtype, references.rows.dtype)
        dtype = known.dtype if known else torch.float64 if wide else torch.float32
        kept = kept_of(k, len(references), exact)
        row = 128 * kept + 48 * query.shape[1]
        if native:
            columns, rows = 0, max(min(memory // 8 // row, 4096), 1)
        else:
            # Larger tiles would leave a CPU's cache; a GPU wants them as large as the memory.
            most_rows, most_columns = (512, 2**14) if query.device.type == "cpu" else (2**13, 2**17)
            columns = max(-(-min(memory // 128, most_columns, len(references)) // BLOCK) * BLOCK, BLOCK)
            rows = max(min(memory // 2 // (24 * columns + row), most_rows), 1)
        task = Task(references, k, exact, memory, dtype, columns)
        halved = None
        words = None
        alike = native and self._is_self_retrieval()  # waits for a GPU, which has kernels of its own
        if native and not ignoring and not known and WordSearch.pays(task, len(query)):
            words = WordSearch(task, rows, self_index, alike)
            words = words if words.works(query) else None
        few = native and not words and not ignoring and 8 * HalvedTiles.bytes_of(len(query), kept, dtype) <= 3 * memory
        if few and alike:
            halved = HalvedTiles(references.filter(dtype, memory), self_index, kept)
        fine = Fine(task, rows)
        self.ways: list[Way] = [Coarse(task, rows, known, halved), fine, Exhaustive(fine)]
        kernels = None if ignoring else operators.kernels(query.device, "search")
        if kernels and HalfSearch.pays(k, len(references), kernels):
            halves = HalfSearch(query.shape[1], k, references, memory, kernels, self._is_self_retrieval(), known)
            self.ways.insert(0, halves)
        if words:
            self.ways.insert(0, words)
        self.rows = self.ways[0].rows

    def _is_self_retrieval(self) -> bool:
        # Euclidean distances alone have products that are the same in both directions.
        rows, distance = self.references.rows, self.references.distance
        if not distance.euclidean or self.query is not rows:
            return False
        return torch.equal(self.self_index, torch.arange(len(rows), device=rows.device))

    def __call__(self, rows: slice, ignored: Tensor | None = None) -> Tensor:
        # ignored: (Q, R) bool, of these rows  ->  (Q, k) int64, -1 where none is left
        queries = Queries(self.query[rows], self.self_index[rows], ignored, rows)
        nearest = queries.own  # until the first way gives some
        left: Tensor | None = None  # None: all of them
        for way in self.ways:
            if not way.serves(queries):
                continue
            found, proven = self._by(way, queries)
            nearest = found if left is None else nearest.index_copy_(0, left, found)
            # Which queries are left has to be known on the host: once per tile.
            some = (~proven).nonzero()[:, 0]
            if not len(some):
                break
            left, queries = some if left is None else left[some], queries.at(some)
            finite = finite_rows(queries.rows)
            nearest[left[~finite]] = -1
            left, queries = left[finite], queries.at(finite)
            if not len(left):
                break
        return nearest

    @staticmethod
    def _by(way: Way, queries: Queries) -> tuple[Tensor, Tensor]:
        if len(queries.own) <= way.rows:
            return way.search(queries)
        pieces = torch.arange(len(queries.own), device=queries.own.device).split(way.rows)
        found, proven = zip(*(way.search(queries.at(piece)) for piece in pieces), strict=True)
        return torch.cat(found), torch.cat(proven)

    def distances(self, rows: slice, nearest: Tensor) -> Tensor:
        # nearest: (Q, k) int64 of these rows  ->  (Q, k) float64, where the index is -1 any value
        words, distance, query = self.ways[0], self.references.distance, self.query[rows]
        if isinstance(words, WordSearch) and words.last and words.last[0] is nearest:
            _, delta, known = words.last
            left = (~known).nonzero()[:, 0]
            if len(left):
                delta[left] = self._deltas(query[left], nearest[left])
            return distance.from_canonical(delta)
        return distance.from_canonical(self._deltas(query, nearest))

    def _deltas(self, query: Tensor, nearest: Tensor) -> Tensor:
        # query: (Q, D)  nearest: (Q, k) int64  ->  (Q, k) float64
        row = torch.arange(len(nearest), device=nearest.device).repeat_interleave(nearest.shape[1])
        pairs = row, nearest.flatten().clamp(min=0)
        delta = self.references.distance.of_pairs(query, self.references.rows, *pairs, self.memory // 4)
        return delta.view_as(nearest)


class FunctionSearch:
    """`NearestSearch` for a function `(Q, D), (R, D) -> (Q, R)`, whose values are the order; equal ones by index.

    Where a value is NaN, the reference is no neighbour of the query.
    """

    def __init__(
        self, query: Tensor, self_index: Tensor, k: int, reference: Tensor, distance: FunctionDistance, memory: int
    ) -> None:
        # query: (Q, D)  self_index: (Q,) int64, -1 = none  reference: (R, D)
        self.query, self.self_index, self.k = query, self_index, k
        self.reference, self.distance = reference, distance
        self.rows = max(memory // (64 * len(reference)), 1)

    def __call__(self, rows: slice, ignored: Tensor | None = None) -> Tensor:
        values = self.distance(self.query[rows], self.reference)
        hidden = torch.arange(len(self.reference), device=values.device) == self.self_index[rows, None]
        hidden |= values.isnan()
        hidden = hidden if ignored is None else hidden | ignored
        order = sorted_columns(values, hidden, self.distance.largest_first)[:, : self.k]
        return order.masked_fill(hidden.gather(1, order), -1)

    def distances(self, rows: slice, nearest: Tensor) -> Tensor:
        return self.distance(self.query[rows], self.reference).gather(1, nearest.clamp(min=0))
