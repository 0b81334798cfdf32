"""k nearest neighbours in tiles of a matrix product, in an exact and reproducible order."""

import os
from collections.abc import Callable

import torch
from torch import Tensor

from ... import _checks
from ..._files import written
from ..relevance import rows_of
from ..rows import as_embeddings, budget, check_squares
from .backend import first_references, search_arguments
from .batch import Batch
from .distance import DISTANCES, DistanceName
from .known import KnownQueries
from .nearest import FunctionSearch, NearestSearch, largest_first
from .references import References


class TorchKNN:
    """Exact k nearest neighbours on the device of the query: `knn(query, k, reference, ref_includes_query)`.

    Neighbours are ordered by (distance, index), with distances evaluated in float64 from the given values in a fixed
    order of operations: the indices are the same on every device and for every memory budget. Integers and half types
    are accepted. A row that holds NaN or infinity has no neighbours (index -1) and is none, and so is a pair for which
    a function gives NaN; float64 rows whose squares leave the range of float64 are a ValueError. On a CPU,
    memory-mapped floating rows are read in pieces and never copied as a whole, so that they may be larger than the
    memory. `train(embeddings)` and `add(embeddings)` keep references for searches that give none, `reset()` forgets
    them, `save(path)` and `load(path)` store them.

    Args:
        distance: "l2", "sqeuclidean", "ip" (inner product, largest first), "cosine" (1 - cosine similarity), or a
            function `(Q, D), (R, D) -> (Q, R)`, whose values are the order as they are; largest first if it has a true
            attribute `is_inverted` or `largest`.
        exact: False takes the order of a matrix product, which may change neighbours whose distances differ by its
            rounding error, and may change with the device, the memory budget and from call to call.
        memory_budget: bytes that temporaries may take, besides a few numbers for each row and on a GPU one copy of the
            references; default 256 MiB on a CPU, 1 GiB on a GPU.
    """

    def __init__(
        self,
        distance: DistanceName | Callable[[Tensor, Tensor], Tensor] = "l2",
        *,
        exact: bool = True,
        memory_budget: int | None = None,
    ) -> None:
        if not callable(distance):
            _checks.one_of("distance", distance, DISTANCES)
        if memory_budget is not None:
            memory_budget = _checks.integer_at_least("memory_budget", memory_budget, 1)
        self.distance = distance
        self.exact = exact
        self.memory_budget = memory_budget
        self._kept: References | None = None

    @torch.no_grad()
    def __call__(
        self,
        query: Tensor,
        k: int,
        reference: Tensor | None = None,
        ref_includes_query: bool = False,
        *,
        self_index: Tensor | None = None,
        ignore: Tensor | Callable[[slice], Tensor] | None = None,
        query_mask: Tensor | None = None,
        reference_mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        # query: (..., Q, D)  reference: (..., R, D)  self_index: (..., Q) int64  ignore: (..., Q, R) bool
        # query_mask: (..., Q) bool  reference_mask: (..., R) bool  ->  (..., Q, k) floating, (..., Q, k) int64
        """Distances and indices of the k nearest references, nearest first.

        `ref_includes_query=True`: reference i is query i and no neighbour of it. `self_index` says the same for any
        arrangement: the reference that is this query, -1 for none. `ignore` is True for references that are no
        neighbours either, or (without leading dimensions and masks) a function of a slice of the queries that gives its
        rows. Masks are False for padding, which is no neighbour and has none. Missing neighbours (fewer than k are
        left) have index -1 and distance inf (-inf where the largest is first). Distances have the dtype of the input,
        at least float32.
        """
        options = (ref_includes_query, self_index, ignore, query_mask, reference_mask)
        return self._search(query, k, reference, *options, with_distances=True)

    @torch.no_grad()
    def indices(
        self,
        query: Tensor,
        k: int,
        reference: Tensor | None = None,
        ref_includes_query: bool = False,
        *,
        self_index: Tensor | None = None,
        ignore: Tensor | Callable[[slice], Tensor] | None = None,
        query_mask: Tensor | None = None,
        reference_mask: Tensor | None = None,
    ) -> Tensor:
        # as above  ->  (..., Q, k) int64
        """The indices alone, which cost less: most of them need no canonical distance."""
        options = (ref_includes_query, self_index, ignore, query_mask, reference_mask)
        return self._search(query, k, reference, *options, with_distances=False)[1]

    def train(self, embeddings: Tensor) -> None:
        # embeddings: (R, D)
        """Keep these references, in place of any before."""
        self._kept = self._prepared(as_embeddings("embeddings", embeddings))

    def add(self, embeddings: Tensor) -> None:
        # embeddings: (R, D)
        """Keep these too, behind those before."""
        if self._kept is None:
            return self.train(embeddings)
        embeddings = as_embeddings("embeddings", embeddings)
        _checks.same_device(embeddings=embeddings, kept=self._kept.rows)
        _checks.shape("embeddings", embeddings, "N", self._kept.rows.shape[1])
        self.train(torch.cat([self._kept.rows, embeddings]))

    def reset(self) -> None:
        self._kept = None

    def save(self, path: str | os.PathLike) -> None:
        rows = self._references().rows
        with written(path) as file:
            torch.save({"embeddings": rows}, file)

    def load(self, path: str | os.PathLike, map_location: torch.device | str | None = None) -> None:
        self.train(torch.load(path, map_location=map_location, weights_only=True)["embeddings"])

    def _prepared(self, rows: Tensor) -> References:
        if not callable(self.distance):
            check_squares(reference=rows)
        return References(rows, self.distance)

    def _references(self) -> References:
        if self._kept is None:
            raise ValueError("reference: got None and nothing is kept, wanted references here or in train(embeddings)")
        return self._kept

    def _search(
        self,
        query: Tensor,
        k: int,
        reference: Tensor | None,
        ref_includes_query: bool,
        self_index: Tensor | None,
        ignore: Tensor | Callable[[slice], Tensor] | None,
        query_mask: Tensor | None,
        reference_mask: Tensor | None,
        with_distances: bool,
    ) -> tuple[Tensor | None, Tensor]:
        _checks.tensor("query", query)
        if query.ndim <= 2 and query_mask is None and reference_mask is None:
            rows = self._references().rows if reference is None else reference
            query, k, rows, own = search_arguments(query, k, rows, ref_includes_query, self_index)
            references = self._kept if reference is None else self._prepared(query if reference is query else rows)
            if reference is not query and not callable(self.distance):
                check_squares(query=query)
            return self.search(query, k, references, own, ignore, with_distances)

        k = _checks.integer_at_least("k", k, 1)
        if reference is None:
            reference = self._references().rows.expand(*query.shape[:-2], -1, -1)
        if callable(ignore):
            raise ValueError("ignore: got a function with leading dimensions or masks, wanted a mask (..., Q, R)")
        if self_index is None and ref_includes_query:
            self_index = first_references(query.shape[-2], reference.shape[-2], query.device).expand(query.shape[:-1])
        batch = Batch(query, reference, query_mask, reference_mask, self_index)
        ignored = None if ignore is None else batch.flattened("ignore", ignore, query.shape[-2], reference.shape[-2])
        distances, indices = self._search_batch(batch, k, ignored, with_distances)
        shape = (*query.shape[:-1], k)
        return distances.view(shape) if with_distances else None, indices.view(shape)

    def _search_batch(
        self, batch: Batch, k: int, ignored: Tensor | None, with_distances: bool
    ) -> tuple[Tensor | None, Tensor]:
        # ignored: (B, Q, R) bool  ->  (B Q, k) floating, (B Q, k) int64
        queries, size = batch.query.shape[1], batch.reference.shape[1]
        distances, indices = self._nothing(len(batch) * queries, k, batch.query, batch.reference, with_distances)
        left = torch.ones(len(batch), dtype=torch.bool, device=indices.device)
        if not callable(self.distance):
            found, memory = min(k, size), budget(self.memory_budget, indices.device)
            for items, nearest in batch.together(found, self.distance, self.exact, memory, ignored):
                left[items] = False
                indices.view(len(batch), queries, k)[items, :, :found] = nearest
                if with_distances:
                    table = distances.view(len(batch), queries, k)
                    near = batch.distances(items, nearest, self.distance, memory).to(table.dtype)
                    table[items, :, :found] = torch.where(nearest < 0, table[items, :, :found], near)
        for item in map(batch.item, left.nonzero()[:, 0].tolist()):
            reference, own = item.of_reference(batch.reference), item.index(batch.self_index)
            hidden = None if ignored is None else item.of_pairs(ignored)
            query = item.of_query(batch.query)
            if not callable(self.distance):
                check_squares(query=query)
            near, index = self.search(query, k, self._prepared(reference), own, hidden, with_distances)
            indices[item.number] = item.original(index)
            if with_distances:
                distances[item.number] = near
        return distances, indices

    @torch.no_grad()
    def search(
        self,
        query: Tensor,
        k: int,
        references: References | Tensor,
        own: Tensor | None = None,
        ignore: Tensor | Callable[[slice], Tensor] | None = None,
        with_distances: bool = False,
        known: KnownQueries | None = None,
    ) -> tuple[Tensor | None, Tensor]:
        # query: (Q, D)  references: (R, D)  own: (Q,) int64  ->  (Q, k) floating or None, (Q, k) int64
        """Neighbours of rows that a door has checked; `known`: these rows."""
        if isinstance(references, Tensor):
            references = References(references, self.distance, known.frame if known else None)
        reference = references.rows
        if own is None:
            own = torch.full((len(query),), -1, device=query.device)
        _checks.same_device(query=query, ignore=ignore if isinstance(ignore, Tensor) else None)
        ignored = rows_of("ignore", ignore, (len(query), len(reference)))
        distances, indices = self._nothing(len(query), k, query, reference, with_distances)
        found = min(k, len(reference))
        if not found or not len(query):
            return distances, indices
        sides = query, own, found, references, budget(self.memory_budget, query.device)
        if callable(self.distance):
            search = FunctionSearch(*sides)
        else:
            search = NearestSearch(*sides, self.exact, ignoring=ignored is not None, known=known)
        rows = min(search.rows, max(sides[-1] // 4 // len(reference), 1)) if ignored else search.rows
        for start in range(0, len(query), rows):
            tile = slice(start, min(start + rows, len(query)))
            nearest = search(tile, ignored(tile) if ignored else None)
            indices[tile, :found] = nearest
            if with_distances:
                near = search.distances(tile, nearest).to(distances.dtype)
                distances[tile, :found] = torch.where(nearest < 0, distances[tile, :found], near)
        return distances, indices

    def _nothing(
        self, queries: int, k: int, query: Tensor, reference: Tensor, with_distances: bool
    ) -> tuple[Tensor | None, Tensor]:
        # ->  (Q, k), (Q, k) int64
        """Tables of neighbours that are all missing."""
        indices = torch.full((queries, k), -1, device=query.device)
        if not with_distances:
            return None, indices
        missing = -torch.inf if largest_first(self.distance) else torch.inf
        dtype = torch.promote_types(torch.promote_types(query.dtype, reference.dtype), torch.float32)
        return torch.full((queries, k), missing, dtype=dtype, device=query.device), indices
