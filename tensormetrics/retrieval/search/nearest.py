"""Search of `TorchKNN`: filter by matrix products, prove the result, and sort the remaining candidates."""

from collections.abc import Iterator

import torch
from torch import Tensor

from ..deterministic import chunk_slices
from ..inputs import finite_rows
from . import operators
from .distance import FunctionDistance
from .fp16_search import Float16Search
from .int16.search import Int16Search
from .product_filter import BLOCK
from .references import QueryCache, References
from .stages import (
    ExhaustiveStage,
    Float64Stage,
    ProductStage,
    SearchProblem,
    SearchQueries,
    SearchStage,
    candidate_count,
    sorted_columns,
)
from .topk import SymmetricTopK


class NearestSearch:
    """Search of the k nearest references of a slice of the queries; k is at most the number of references.

    Each stage passes the queries whose neighbors it cannot prove to the next stage. Rows that contain NaN or infinity
    have no neighbors and are never neighbors.
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
        query_cache: QueryCache | None = None,
        is_leading: bool = False,
    ) -> None:
        # query: (Q, D)  self_index: (Q,) int64, -1 if none  ignoring: calls pass `ignored`  is_leading: reference i is
        # query i
        # query_cache: the prepared queries, whose normalization the references share
        self.query, self.self_index, self.references, self.memory = query, self_index, references, memory
        self.k = k
        native = operators.selects(query.device)
        wide = torch.float64 in (query.dtype, references.rows.dtype)
        dtype = query_cache.dtype if query_cache else torch.float64 if wide else torch.float32
        num_candidates = candidate_count(k, len(references), exact)
        row = 128 * num_candidates + 48 * query.shape[1]
        if native:
            columns, rows = 0, max(min(memory // 8 // row, 4096), 1)
        else:
            # Larger tiles would exceed the cache of a CPU; on a GPU the largest that fit in memory are fastest.
            max_rows, max_columns = (512, 2**14) if query.device.type == "cpu" else (2**13, 2**17)
            columns = max(-(-min(memory // 128, max_columns, len(references)) // BLOCK) * BLOCK, BLOCK)
            rows = max(min(memory // 2 // (24 * columns + row), max_rows), 1)
        problem = SearchProblem(references, k, exact, memory, dtype, columns)
        symmetric_topk, int16_search = None, None
        # Only Euclidean distances have products that are the same in both directions.
        is_self_search = is_leading and query is references.rows and references.distance.euclidean
        if native and not ignoring and not query_cache and Int16Search.is_faster(problem, len(query)):
            int16_search = Int16Search(problem, rows, self_index, is_self_search)
            int16_search = int16_search if int16_search.is_effective(query) else None
        fits = 8 * SymmetricTopK.bytes_of(len(query), num_candidates, dtype) <= 3 * memory
        if native and not int16_search and not ignoring and fits and is_self_search:
            symmetric_topk = SymmetricTopK(references.filter(dtype, memory), self_index, num_candidates)
        float64_stage = Float64Stage(problem, rows)
        self.stages: list[SearchStage] = [
            ProductStage(problem, rows, query_cache, symmetric_topk),
            float64_stage,
            ExhaustiveStage(float64_stage),
        ]
        kernels = None if ignoring else operators.kernels(query, "search")
        if kernels and Float16Search.is_faster(k, len(references), kernels):
            fp16_search = Float16Search(k, references, memory, kernels, is_self_search)
            repeats = Float16Search.is_faster(k, len(references), kernels, True)
            again = [Float16Search(k, references, memory, kernels, False, True)] if repeats else []
            self.stages[:0] = [fp16_search, *again]
        if int16_search:
            self.stages.insert(0, int16_search)
        self.rows = self.stages[0].rows

    def __call__(self, rows: slice, ignored: Tensor | None = None) -> Tensor:
        # ignored: (Q, R) bool, of these rows  ->  (Q, k) int64, -1 where fewer than k exist
        return self._search(SearchQueries(self.query[rows], self.self_index[rows], ignored, rows))

    def tiles(self, max_rows: int) -> Iterator[tuple[slice | Tensor, Tensor]]:
        """Yield parts of the queries with their neighbors; the last ones replace neighbors that were not proven.

        The host waits for a GPU at the end only.
        """
        are_proven, rows = [], min(self.rows, max_rows)
        for tile in chunk_slices(len(self.query), rows):
            queries = SearchQueries(self.query[tile], self.self_index[tile], None, tile)
            nearest, proven = self._run(self.stages[0], queries)
            are_proven.append(proven)
            yield tile, nearest
        left = (~torch.cat(are_proven)).nonzero()[:, 0]
        for part in left.split(rows) if len(left) else ():
            yield part, self._again(SearchQueries(self.query[part], self.self_index[part], None, None), 1)

    def _search(self, queries: SearchQueries, first: int = 0) -> Tensor:
        # ->  (Q, k) int64
        number = next(n for n in range(first, len(self.stages)) if self.stages[n].can_handle(queries))
        nearest, proven = self._run(self.stages[number], queries)
        # The host needs the remaining queries: one synchronization per tile.
        left = (~proven).nonzero()[:, 0]
        if len(left):
            nearest[left] = self._again(queries.select(left), number + 1)
        return nearest

    def _again(self, queries: SearchQueries, first: int) -> Tensor:
        # ->  (Q, k) int64
        """Search queries that no stage before the `first` proved; rows that are not finite have no neighbors."""
        nearest = queries.self_index.new_full((len(queries.self_index), self.k), -1)
        finite = finite_rows(queries.rows).nonzero()[:, 0]
        if len(finite):
            nearest[finite] = self._search(queries.select(finite), first)
        return nearest

    @staticmethod
    def _run(stage: SearchStage, queries: SearchQueries) -> tuple[Tensor, Tensor]:
        if len(queries.self_index) <= stage.rows:
            return stage.search(queries)
        chunks = torch.arange(len(queries.self_index), device=queries.self_index.device).split(stage.rows)
        indices, proven = zip(*(stage.search(queries.select(chunk)) for chunk in chunks), strict=True)
        return torch.cat(indices), torch.cat(proven)

    def distances(self, rows: slice, nearest: Tensor) -> Tensor:
        # nearest: (Q, k) int64 of these rows  ->  (Q, k) float64, arbitrary where the index is -1
        stage, distance, query = self.stages[0], self.references.distance, self.query[rows]
        if isinstance(stage, Int16Search) and stage.last and stage.last[0] is nearest:
            _, delta, is_complete = stage.last
            remaining = (~is_complete).nonzero()[:, 0]
            if len(remaining):
                delta[remaining] = self._deltas(query[remaining], nearest[remaining])
            return distance.from_canonical(delta)
        return distance.from_canonical(self._deltas(query, nearest))

    def _deltas(self, query: Tensor, nearest: Tensor) -> Tensor:
        # query: (Q, D)  nearest: (Q, k) int64  ->  (Q, k) float64
        return self.references.distance.of_lists(query, self.references.rows, nearest, self.memory // 4)


class FunctionSearch:
    """Search like `NearestSearch` by a function `(Q, D), (R, D) -> (Q, R)`, whose values define the order.

    Equal values are ordered by index. If a value is NaN, the reference is not a neighbor of the query.
    """

    def __init__(
        self, query: Tensor, self_index: Tensor, k: int, reference: Tensor, distance: FunctionDistance, memory: int
    ) -> None:
        # query: (Q, D)  self_index: (Q,) int64, -1 if none  reference: (R, D)
        self.query, self.self_index, self.k = query, self_index, k
        self.reference, self.distance = reference, distance
        self.rows = max(memory // (64 * len(reference)), 1)

    def __call__(self, rows: slice, ignored: Tensor | None = None) -> Tensor:
        values = self.distance(self.query[rows], self.reference)
        masked = torch.arange(len(self.reference), device=values.device) == self.self_index[rows, None]
        masked |= values.isnan()
        masked = masked if ignored is None else masked | ignored
        order = sorted_columns(values, masked, self.distance.largest_first)[:, : self.k]
        return order.masked_fill(masked.gather(1, order), -1)

    def distances(self, rows: slice, nearest: Tensor) -> Tensor:
        return self.distance(self.query[rows], self.reference).gather(1, nearest.clamp(min=0))
