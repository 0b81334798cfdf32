"""Stages of a search: each proves the neighbors of most queries and passes the others to the next stage."""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ..deterministic import chunk_slices, lexsort
from .product_filter import Filter
from .references import QueryCache, References
from .topk import SymmetricTopK, filter_topk


class SearchQueries(NamedTuple):
    """Subset of the queries of a search."""

    rows: Tensor  # (Q, D)
    self_index: Tensor  # (Q,) int64, the reference that is this query, -1 if none
    ignored: Tensor | None  # (Q, R) bool
    span: slice | None  # position in all queries; None if they are not consecutive

    def select(self, subset: Tensor) -> "SearchQueries":
        # subset: (q,) int64, or (Q,) bool
        ignored = None if self.ignored is None else self.ignored[subset]
        return SearchQueries(self.rows[subset], self.self_index[subset], ignored, None)


class SearchStage(ABC):
    """Base class of the stages of the search."""

    rows: int  # maximal number of queries per call

    def can_handle(self, queries: SearchQueries) -> bool:
        """Return whether this stage may prove neighbors that earlier stages could not."""
        return True

    @abstractmethod
    def search(self, queries: SearchQueries) -> tuple[Tensor, Tensor]:
        # ->  (Q, k) int64, -1 where fewer than k exist, (Q,) bool
        """Return the k nearest references and whether they are proven."""


class SearchProblem(NamedTuple):
    """Search problem: references, k, memory and dtype."""

    references: References
    k: int
    exact: bool
    memory: int
    dtype: torch.dtype  # of products with all references
    columns: int  # of a tile; 0: the native operator chooses its tiles

    @property
    def num_candidates(self) -> int:
        return candidate_count(self.k, len(self.references), self.exact)

    def search_filter(
        self,
        queries: SearchQueries,
        filter_: Filter,
        query_cache: QueryCache | None = None,
        symmetric_topk: SymmetricTopK | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Search by the values of a filter; `self_index` and `ignored` refer to its references."""
        span = queries.span
        x, error = query_cache.query(span, filter_) if query_cache and span else filter_.query(queries.rows)
        num_candidates = min(self.num_candidates, filter_.count)
        if symmetric_topk and span and symmetric_topk.is_next(span):
            values, columns = symmetric_topk(x, span)
        else:
            values, columns = filter_topk(filter_, x, queries.self_index, queries.ignored, num_candidates, self.columns)
        if filter_.subset is not None:
            # Columns of infinite values may lie after the last reference.
            columns = filter_.subset[columns.clamp(max=filter_.count - 1)]
        rows = queries.rows, self.references.rows
        deltas = functools.partial(self.references.distance.of_pairs, *rows, memory=self.memory // 4)
        is_complete = num_candidates == filter_.count
        return certify_topk(values, columns, error, self.k, deltas, is_complete, self.exact)


class ProductStage(SearchStage):
    """Search stage by products with all references in the dtype of the rows, at least float32."""

    def __init__(
        self, problem: SearchProblem, rows: int, query_cache: QueryCache | None, symmetric_topk: SymmetricTopK | None
    ) -> None:
        # query_cache: all queries  symmetric_topk: for queries that are the references
        self.problem, self.rows, self.query_cache, self.symmetric_topk = problem, rows, query_cache, symmetric_topk

    def search(self, queries: SearchQueries) -> tuple[Tensor, Tensor]:
        filter_ = self.problem.references.filter(self.problem.dtype, self.problem.memory)
        return self.problem.search_filter(queries, filter_, self.query_cache, self.symmetric_topk)


class Float64Stage(SearchStage):
    """Search stage by float64 products with the distinct references only, where this is possible."""

    def __init__(self, problem: SearchProblem, rows: int) -> None:
        self.problem, self.rows = problem, rows

    @functools.cached_property
    def distinct(self) -> Tensor:
        # ->  (M,) int64 ascending
        """Superset of all neighbors unless some are ignored: the k + 1 lowest indices of equal references."""
        return self.problem.references.first_of_equal(self.problem.k + 1)

    @functools.cached_property
    def distinct_filter(self) -> Filter:
        return self.problem.references.new_filter(torch.float64, self.problem.memory, self.distinct)

    def can_handle(self, queries: SearchQueries) -> bool:
        return self.problem.dtype != torch.float64 or self._leaves_out(queries)

    def search(self, queries: SearchQueries) -> tuple[Tensor, Tensor]:
        if self._leaves_out(queries):
            return self.problem.search_filter(
                queries._replace(self_index=_position_in(self.distinct, queries.self_index)), self.distinct_filter
            )
        return self.problem.search_filter(queries, self.problem.references.filter(torch.float64, self.problem.memory))

    def _leaves_out(self, queries: SearchQueries) -> bool:
        return queries.ignored is None and len(self.distinct) < len(self.problem.references)


class ExhaustiveStage(SearchStage):
    """Search stage by the canonical distances of all references."""

    def __init__(self, float64_stage: Float64Stage) -> None:
        self.float64_stage, self.problem, self.rows = float64_stage, float64_stage.problem, float64_stage.rows

    def search(self, queries: SearchQueries) -> tuple[Tensor, Tensor]:
        self_index, references, memory = queries.self_index, self.problem.references, self.problem.memory
        distinct = torch.arange(len(references), device=self_index.device)
        distinct = self.float64_stage.distinct if queries.ignored is None else distinct
        nearest = self_index.new_empty(len(self_index), self.problem.k)
        step = max(memory // (64 * len(distinct)), 1)
        for tile in chunk_slices(len(self_index), step):
            masked = distinct == self_index[tile, None]
            if queries.ignored is not None:
                masked |= queries.ignored[tile]
            columns = distinct.expand(len(masked), -1)
            delta = references.distance.of_lists(queries.rows[tile], references.rows, columns, memory // 4)
            masked |= delta.isnan()
            order = sorted_columns(delta, masked)[:, : self.problem.k]
            nearest[tile] = distinct[order].masked_fill(masked.gather(1, order), -1)
        return nearest, torch.ones_like(self_index, dtype=torch.bool)


def candidate_count(k: int, references: int, exact: bool) -> int:
    """Return the number of candidates of a query: more than k, since canonical distances may reorder them."""
    return min(k + max(8, k // 16), references) if exact else k


def certify_topk(
    values: Tensor,
    columns: Tensor,
    error: Tensor,
    k: int,
    deltas: Callable[[Tensor, Tensor], Tensor],
    complete: bool,
    exact: bool,
) -> tuple[Tensor, Tensor]:
    # values: (Q, C) ascending  columns: (Q, C) int64  error: (Q,)  ->  (Q, k) int64, -1 if missing, (Q,) bool
    """Sort the candidates in canonical order and return the first k, and whether they are proven to be the nearest.

    `deltas` computes canonical distances of rows and columns. `complete`: all references are candidates; `exact`: as
    in `TorchKNN`.
    """
    last = values[:, -1]
    # NaN makes the comparison False, so it proves nothing.
    proven = (last - error > values[:, k - 1] + error) | ((last == torch.inf) & (error < torch.inf))
    if complete or not exact:
        proven = error < torch.inf
    if exact:
        # Overlapping intervals form runs; only the order within a run needs canonical distances.
        close = values.diff() <= 2 * error[:, None]
        run = torch.nn.functional.pad((~close).cumsum(1), (1, 0))
        open_ = torch.nn.functional.pad(close, (1, 0)) | torch.nn.functional.pad(close, (0, 1))
        open_ &= (run <= run[:, k - 1 : k]) & (values < torch.inf) & proven[:, None]
        row, position = open_.nonzero().unbind(1)
        column = columns[row, position]
        columns[row, position] = column[
            lexsort(column, deltas(row, column), row * values.shape[1] + run[row, position])
        ]
    return columns[:, :k].masked_fill(values[:, :k] == torch.inf, -1), proven


def _position_in(distinct: Tensor, index: Tensor) -> Tensor:
    # distinct: (M,) int64 ascending  index: (Q,) int64  ->  (Q,) int64, -1 if missing
    position = torch.searchsorted(distinct, index).clamp(max=len(distinct) - 1)
    return torch.where(distinct[position] == index, position, -1)


def sorted_columns(values: Tensor, masked: Tensor, descending: bool = False) -> Tensor:
    # values, masked: (Q, R)  ->  (Q, R) int64, columns by (masked, value, column)
    order = values.argsort(dim=1, stable=True, descending=descending)
    return order.gather(1, masked.gather(1, order).long().argsort(dim=1, stable=True))
