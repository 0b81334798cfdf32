"""Helpers of the backends of a nearest neighbor search: arguments, unit rows, and the order of candidates."""

from collections.abc import Callable
from typing import TypedDict

import torch
from torch import Tensor

from ...core.arguments import checks
from ..inputs import as_embeddings, check_self_index
from ..relevance import masks_of


class CandidateOptions(TypedDict, total=False):
    """Options of a search that exclude references from the neighbors of queries; see `TorchKNN`."""

    self_index: Tensor | None  # (Q,) int64
    ignore: Tensor | Callable[[slice], Tensor] | None  # (Q, R) bool, or a function of a slice of queries: (q, R)


def check_with_full_mask(
    query: Tensor,
    k: int,
    reference: Tensor,
    ref_includes_query: bool,
    *,
    self_index: Tensor | None = None,
    ignore: Tensor | Callable[[slice], Tensor] | None = None,
) -> tuple[Tensor, int, Tensor, Tensor | None, Tensor | None]:
    # ->  (Q, D) floating, k, (R, D) floating, (Q,) int64 or None, (Q, R) bool or None
    """Check the arguments of a backend that reads the full `ignore` mask at once."""
    query, k, reference, index = search_arguments(query, k, reference, ref_includes_query, self_index)
    checks.same_device(query=query, ignore=ignore if isinstance(ignore, Tensor) else None)
    rows = masks_of(ignore, (len(query), len(reference)))
    return query, k, reference, index, None if rows is None else rows(slice(0, len(query)))


def search_arguments(
    query: Tensor,
    k: int,
    reference: Tensor,
    ref_includes_query: bool,
    self_index: Tensor | None,
    max_references: int | None = None,
) -> tuple[Tensor, int, Tensor, Tensor | None]:
    # query: (Q, D)  reference: (R, D)  self_index: (Q,) integer  ->  (Q, D) floating, k, (R, D) floating, (Q,) int64
    """Check the arguments of a search; without a self_index, `ref_includes_query` makes it 0, ..., Q - 1.

    `max_references` is the number of references that a self_index may refer to, where `reference` is only a part of
    them; None: `reference` is all of them.
    """
    k = checks.check_int("k", k, 1)
    query, reference = as_embeddings("query", query), as_embeddings("reference", reference)
    checks.same_device(query=query, reference=reference, self_index=self_index)
    if query.shape[1] != reference.shape[1]:
        raise ValueError(
            f"query and reference: got shapes {tuple(query.shape)} and {tuple(reference.shape)}, "
            "wanted the same number of columns"
        )
    if self_index is not None:
        self_index = check_self_index(self_index, len(query), max_references or len(reference))
    elif ref_includes_query:
        self_index = self_index_of_leading_queries(len(query), len(reference), query.device)
    return query, k, reference, self_index


def self_index_of_leading_queries(queries: int, references: int, device: torch.device) -> Tensor:
    # ->  (Q,) int64
    """Return the self_index of references that begin with the queries; raise a ValueError if there are too few."""
    if references < queries:
        raise ValueError(
            f"ref_includes_query: got {queries} queries and {references} references, wanted references "
            "that begin with the queries"
        )
    return torch.arange(queries, device=device)


def max_ignored(ignored: Tensor | None) -> int:
    """Return the number of additional neighbors to search, since ignored ones are dropped. Synchronizes the device."""
    return 0 if ignored is None or not len(ignored) else int(ignored.sum(1).max())


def nearest_eligible(
    values: Tensor, indices: Tensor, k: int, self_index: Tensor | None, ignored: Tensor | None
) -> tuple[Tensor, Tensor]:
    # values, indices: (Q, C), smaller is nearer, -1 if missing; C >= k + 1 + max_ignored for k results
    # self_index: (Q,)  ignored: (Q, R)  ->  (Q, k), (Q, k) int64
    """Select the first k candidates, excluding the query itself and ignored references."""
    if self_index is not None and indices.numel():
        values, indices = _without_self(values, indices, self_index)
    if ignored is not None and indices.numel():
        indices = indices.masked_fill(ignored.gather(1, indices.clamp(min=0)), -1)
    return nearest(values, indices, k)


def _without_self(values: Tensor, indices: Tensor, self_index: Tensor) -> tuple[Tensor, Tensor]:
    # values: (Q, C)  indices: (Q, C)  self_index: (Q,)  ->  (Q, C - 1), (Q, C - 1)
    """Drop the query itself from each row, or the last candidate if it is not in the row."""
    is_self = indices == self_index[:, None]
    position = torch.where(is_self.any(1), is_self.int().argmax(1), indices.shape[1])
    column = torch.arange(indices.shape[1] - 1, device=indices.device)
    column = column + (column >= position[:, None])
    return values.gather(1, column), indices.gather(1, column)


def nearest(values: Tensor, indices: Tensor, k: int) -> tuple[Tensor, Tensor]:
    # values: (Q, C) smaller is nearer  indices: (Q, C) int64, -1 if missing  ->  (Q, k), (Q, k) int64
    """Select the first k candidates by (value, index), padded with infinity and -1. NaN values are not candidates."""
    indices = indices.masked_fill(values.isnan(), -1)
    short = max(k - indices.shape[1], 0)
    indices = torch.nn.functional.pad(indices, (0, short), value=-1)
    values = torch.nn.functional.pad(values, (0, short)).masked_fill(indices < 0, torch.inf)
    last = torch.iinfo(torch.int64).max
    indices = indices.masked_fill(indices < 0, last)
    before, after = values[:, :-1], values[:, 1:]
    ordered = (before < after) | ((before == after) & (indices[:, :-1] <= indices[:, 1:]))
    # Sort only the rows that need it: most searches return ordered rows, and finding the others costs one device
    # synchronization, less than sorting all rows.
    unordered = (~ordered.all(1)).nonzero()[:, 0]
    if len(unordered):
        values[unordered], order = values[unordered].sort(dim=1, stable=True)
        indices[unordered] = indices[unordered].gather(1, order)
        # Rows that still have equal values in the wrong order of indices are few; they are sorted by index first.
        swapped = (values[:, :-1] == values[:, 1:]) & (indices[:, :-1] > indices[:, 1:])
        unordered = swapped.any(1).nonzero()[:, 0]
    if len(unordered):
        by_index, order = indices[unordered].sort(1)
        values[unordered], order = values[unordered].gather(1, order).sort(dim=1, stable=True)
        indices[unordered] = by_index.gather(1, order)
    indices = indices[:, :k]
    return values[:, :k], indices.masked_fill(indices == last, -1)


def unit_rows(rows: Tensor) -> Tensor:
    # rows: (N, D) floating  ->  (N, D) of the same dtype, with norm 1, or 0 where a row is zero
    norm = torch.linalg.vector_norm(rows, dim=1, keepdim=True, dtype=torch.float64).to(rows.dtype)
    return rows / norm.where(norm > 0, 1)
