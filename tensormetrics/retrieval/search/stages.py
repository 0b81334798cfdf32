"""The ways of searching: each proves the neighbours of most queries, and the next one takes the others."""

import functools
from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ..deterministic import lexsort
from .product_filter import Filter
from .references import KnownQueries, References
from .topk import HalvedTiles, least_values


class Queries(NamedTuple):
    """Some of the queries of a search."""

    rows: Tensor  # (Q, D)
    own: Tensor  # (Q,) int64, the reference that is this query, -1 = none
    ignored: Tensor | None  # (Q, R) bool
    place: slice | None  # among all queries; None: they do not follow each other

    def at(self, some: Tensor) -> "Queries":
        # some: (q,) int64, or (Q,) bool
        return Queries(self.rows[some], self.own[some], None if self.ignored is None else self.ignored[some], None)


class Way(Protocol):
    """One way of searching."""

    rows: int  # the most queries at once

    def serves(self, queries: Queries) -> bool:
        """Whether it may prove neighbours that the ways before it have not."""

    def search(self, queries: Queries) -> tuple[Tensor, Tensor]:
        # ->  (Q, k) int64, -1 where none is left, (Q,) bool
        """The k nearest references, and for which queries they are proven to be."""


class Task(NamedTuple):
    """What is looked for, and the room there is."""

    references: References
    k: int
    exact: bool
    memory: int
    dtype: torch.dtype  # of products with all references
    columns: int  # of a tile; 0: the native operator has tiles of its own

    @property
    def kept(self) -> int:
        return kept_of(self.k, len(self.references), self.exact)

    def filtered(
        self, queries: Queries, filter_: Filter, known: KnownQueries | None = None, halved: HalvedTiles | None = None
    ) -> tuple[Tensor, Tensor]:
        """`Way.search` by the values of a filter; own and ignored are references of it."""
        place = queries.place
        x, error = known.query(place, filter_) if known and place else filter_.query(queries.rows)
        kept = min(self.kept, filter_.count)
        if halved and place and halved.serves(place):
            values, columns = halved(x, place)
        else:
            values, columns = least_values(filter_, x, queries.own, queries.ignored, kept, self.columns)
        if filter_.chosen is not None:
            # What is infinitely far may be a column behind the last reference.
            columns = filter_.chosen[columns.clamp(max=filter_.count - 1)]
        return settle_filtered(self, queries, values, columns, error, kept == filter_.count)


class Coarse:
    """By products with all references, in the dtype of the rows, at least float32."""

    def __init__(self, task: Task, rows: int, known: KnownQueries | None, halved: HalvedTiles | None) -> None:
        # known: all queries  halved: where these are the references
        self.task, self.rows, self.known, self.halved = task, rows, known, halved

    def serves(self, queries: Queries) -> bool:
        return True

    def search(self, queries: Queries) -> tuple[Tensor, Tensor]:
        filter_ = self.task.references.filter(self.task.dtype, self.task.memory)
        return self.task.filtered(queries, filter_, self.known, self.halved)


class Fine:
    """By products in float64, of equal references only with those that may be neighbours."""

    def __init__(self, task: Task, rows: int) -> None:
        self.task, self.rows = task, rows

    @functools.cached_property
    def few(self) -> Tensor:
        # ->  (M,) int64 ascending
        """References among which all neighbours are, unless some are ignored: of equal ones the k + 1 lowest."""
        return self.task.references.first_of_equal(self.task.k + 1)

    @functools.cached_property
    def filter_of_few(self) -> Filter:
        return self.task.references.filter_of(self.few, self.task.memory)

    def serves(self, queries: Queries) -> bool:
        return self.task.dtype != torch.float64 or self._leaves_out(queries)

    def search(self, queries: Queries) -> tuple[Tensor, Tensor]:
        if self._leaves_out(queries):
            return self.task.filtered(queries._replace(own=_place_in(self.few, queries.own)), self.filter_of_few)
        return self.task.filtered(queries, self.task.references.filter(torch.float64, self.task.memory))

    def _leaves_out(self, queries: Queries) -> bool:
        return queries.ignored is None and len(self.few) < len(self.task.references)


class Exhaustive:
    """By canonical distances of all references."""

    def __init__(self, fine: Fine) -> None:
        self.fine, self.task, self.rows = fine, fine.task, fine.rows

    def serves(self, queries: Queries) -> bool:
        return True

    def search(self, queries: Queries) -> tuple[Tensor, Tensor]:
        own, references, memory = queries.own, self.task.references, self.task.memory
        few = self.fine.few if queries.ignored is None else torch.arange(len(references), device=own.device)
        nearest = own.new_empty(len(own), self.task.k)
        step = max(memory // (64 * len(few)), 1)
        for start in range(0, len(own), step):
            tile = slice(start, start + step)
            hidden = few == own[tile, None]
            if queries.ignored is not None:
                hidden |= queries.ignored[tile]
            delta = references.distance.of_table(queries.rows[tile], references.rows, few, memory // 4)
            hidden |= delta.isnan()
            order = sorted_columns(delta, hidden)[:, : self.task.k]
            nearest[tile] = few[order].masked_fill(hidden.gather(1, order), -1)
        return nearest, torch.ones_like(own, dtype=torch.bool)


def kept_of(k: int, references: int, exact: bool) -> int:
    """How many least values are looked at: some may have to be put in another order."""
    return min(k + max(8, k // 16), references) if exact else k


def settle_filtered(
    task: Task, queries: Queries, values: Tensor, columns: Tensor, error: Tensor, all_kept: bool
) -> tuple[Tensor, Tensor]:
    """`settled` for some queries of a task."""
    sides = queries.rows, task.references.rows
    deltas = functools.partial(task.references.distance.of_pairs, *sides, memory=task.memory // 4)
    return settled(values, columns, error, task.k, deltas, all_kept, task.exact)


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


def sorted_columns(values: Tensor, hidden: Tensor, descending: bool = False) -> Tensor:
    # values, hidden: (Q, R)  ->  (Q, R) int64, columns by (hidden, value, column)
    order = values.argsort(dim=1, stable=True, descending=descending)
    return order.gather(1, hidden.gather(1, order).long().argsort(dim=1, stable=True))
