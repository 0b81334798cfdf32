"""The ways of searching: each proves the neighbours of most queries, and the next one takes the others."""

import functools
from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ..deterministic import lexsort
from .product_filter import Filter
from .references import KnownQueries, References
from .topk import SymmetricTopK, filter_topk


class Queries(NamedTuple):
    """Some of the queries of a search."""

    rows: Tensor  # (Q, D)
    self_index: Tensor  # (Q,) int64, the reference that is this query, -1 = none
    ignored: Tensor | None  # (Q, R) bool
    span: slice | None  # among all queries; None: they do not follow each other

    def select(self, subset: Tensor) -> "Queries":
        # some: (q,) int64, or (Q,) bool
        return Queries(
            self.rows[subset], self.self_index[subset], None if self.ignored is None else self.ignored[subset], None
        )


class SearchStage(Protocol):
    """One way of searching."""

    rows: int  # the most queries at once

    def can_handle(self, queries: Queries) -> bool:
        """Whether it may prove neighbours that the ways before it have not."""

    def search(self, queries: Queries) -> tuple[Tensor, Tensor]:
        # ->  (Q, k) int64, -1 where none is left, (Q,) bool
        """The k nearest references, and for which queries they are proven to be."""


class SearchProblem(NamedTuple):
    """What is looked for, and the room there is."""

    references: References
    k: int
    exact: bool
    memory: int
    dtype: torch.dtype  # of products with all references
    columns: int  # of a tile; 0: the native operator has tiles of its own

    @property
    def num_candidates(self) -> int:
        return kept_of(self.k, len(self.references), self.exact)

    def search_filter(
        self,
        queries: Queries,
        filter_: Filter,
        query_cache: KnownQueries | None = None,
        symmetric_topk: SymmetricTopK | None = None,
    ) -> tuple[Tensor, Tensor]:
        """`Way.search` by the values of a filter; own and ignored are references of it."""
        span = queries.span
        x, error = query_cache.query(span, filter_) if query_cache and span else filter_.query(queries.rows)
        num_candidates = min(self.num_candidates, filter_.count)
        if symmetric_topk and span and symmetric_topk.is_next(span):
            values, columns = symmetric_topk(x, span)
        else:
            values, columns = filter_topk(filter_, x, queries.self_index, queries.ignored, num_candidates, self.columns)
        if filter_.subset is not None:
            # What is infinitely far may be a column behind the last reference.
            columns = filter_.subset[columns.clamp(max=filter_.count - 1)]
        return certify_filtered(self, queries, values, columns, error, num_candidates == filter_.count)


class ProductStage:
    """By products with all references, in the dtype of the rows, at least float32."""

    def __init__(
        self, problem: SearchProblem, rows: int, query_cache: KnownQueries | None, symmetric_topk: SymmetricTopK | None
    ) -> None:
        # known: all queries  halved: where these are the references
        self.problem, self.rows, self.query_cache, self.symmetric_topk = problem, rows, query_cache, symmetric_topk

    def can_handle(self, queries: Queries) -> bool:
        return True

    def search(self, queries: Queries) -> tuple[Tensor, Tensor]:
        filter_ = self.problem.references.filter(self.problem.dtype, self.problem.memory)
        return self.problem.search_filter(queries, filter_, self.query_cache, self.symmetric_topk)


class Float64Stage:
    """By products in float64, of equal references only with those that may be neighbours."""

    def __init__(self, problem: SearchProblem, rows: int) -> None:
        self.problem, self.rows = problem, rows

    @functools.cached_property
    def distinct(self) -> Tensor:
        # ->  (M,) int64 ascending
        """References among which all neighbours are, unless some are ignored: of equal ones the k + 1 lowest."""
        return self.problem.references.first_of_equal(self.problem.k + 1)

    @functools.cached_property
    def distinct_filter(self) -> Filter:
        return self.problem.references.filter_of(self.distinct, self.problem.memory)

    def can_handle(self, queries: Queries) -> bool:
        return self.problem.dtype != torch.float64 or self._leaves_out(queries)

    def search(self, queries: Queries) -> tuple[Tensor, Tensor]:
        if self._leaves_out(queries):
            return self.problem.search_filter(
                queries._replace(self_index=_position_in(self.distinct, queries.self_index)), self.distinct_filter
            )
        return self.problem.search_filter(queries, self.problem.references.filter(torch.float64, self.problem.memory))

    def _leaves_out(self, queries: Queries) -> bool:
        return queries.ignored is None and len(self.distinct) < len(self.problem.references)


class ExhaustiveStage:
    """By canonical distances of all references."""

    def __init__(self, float64_stage: Float64Stage) -> None:
        self.float64_stage, self.problem, self.rows = float64_stage, float64_stage.problem, float64_stage.rows

    def can_handle(self, queries: Queries) -> bool:
        return True

    def search(self, queries: Queries) -> tuple[Tensor, Tensor]:
        self_index, references, memory = queries.self_index, self.problem.references, self.problem.memory
        distinct = (
            self.float64_stage.distinct
            if queries.ignored is None
            else torch.arange(len(references), device=self_index.device)
        )
        nearest = self_index.new_empty(len(self_index), self.problem.k)
        step = max(memory // (64 * len(distinct)), 1)
        for start in range(0, len(self_index), step):
            tile = slice(start, start + step)
            masked = distinct == self_index[tile, None]
            if queries.ignored is not None:
                masked |= queries.ignored[tile]
            delta = references.distance.of_table(queries.rows[tile], references.rows, distinct, memory // 4)
            masked |= delta.isnan()
            order = sorted_columns(delta, masked)[:, : self.problem.k]
            nearest[tile] = distinct[order].masked_fill(masked.gather(1, order), -1)
        return nearest, torch.ones_like(self_index, dtype=torch.bool)


def kept_of(k: int, references: int, exact: bool) -> int:
    """How many least values are looked at: some may have to be put in another order."""
    return min(k + max(8, k // 16), references) if exact else k


def certify_filtered(
    problem: SearchProblem, queries: Queries, values: Tensor, columns: Tensor, error: Tensor, complete: bool
) -> tuple[Tensor, Tensor]:
    """`settled` for some queries of a task."""
    rows = queries.rows, problem.references.rows
    deltas = functools.partial(problem.references.distance.of_pairs, *rows, memory=problem.memory // 4)
    return certify_topk(values, columns, error, problem.k, deltas, complete, problem.exact)


def certify_topk(
    values: Tensor,
    columns: Tensor,
    error: Tensor,
    k: int,
    deltas: Callable[[Tensor, Tensor], Tensor],
    complete: bool,
    exact: bool,
) -> tuple[Tensor, Tensor]:
    # values: (Q, kept) ascending  columns: (Q, kept) int64  error: (Q,)  ->  (Q, k) int64, -1 = none, (Q,) bool
    """The k first in canonical order of those with the least values, and for which queries they are proven to be.

    `deltas` gives canonical distances of rows and columns. `complete`: there are no others; `exact`: as in `TorchKNN`.
    """
    last = values[:, -1]
    # Written so that NaN proves nothing.
    proven = (last - error > values[:, k - 1] + error) | ((last == torch.inf) & (error < torch.inf))
    if complete or not exact:
        proven = error < torch.inf
    if exact:
        # Where intervals overlap, they form runs; canonical distances are needed only inside.
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
    # few: (M,) int64 ascending  index: (Q,) int64  ->  (Q,) int64, -1 where it is not there
    position = torch.searchsorted(distinct, index).clamp(max=len(distinct) - 1)
    return torch.where(distinct[position] == index, position, -1)


def sorted_columns(values: Tensor, masked: Tensor, descending: bool = False) -> Tensor:
    # values, hidden: (Q, R)  ->  (Q, R) int64, columns by (hidden, value, column)
    order = values.argsort(dim=1, stable=True, descending=descending)
    return order.gather(1, masked.gather(1, order).long().argsort(dim=1, stable=True))
