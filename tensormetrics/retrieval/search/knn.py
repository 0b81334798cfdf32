"""k nearest neighbors from tiles of matrix products, in an exact and reproducible order."""

import os
from collections.abc import Callable

import torch
from torch import Tensor
from typing_extensions import Unpack

from ...core.arguments import checks
from ...core.arguments.checks import takes_arrays
from ...core.arguments.repr import ConstructorRepr
from ...core.native.compiling import breaks_graph
from ...core.text.files import load_tensors, open_atomic
from ..deterministic import chunk_slices
from ..inputs import as_embeddings, budget, check_budget, check_squares
from ..relevance import as_mask, masks_of
from .backend import CandidateOptions, search_arguments, self_index_of_leading_queries
from .batch import Batch
from .direct_search import DirectSearch
from .distance import DISTANCES, Distance, DistanceName, FunctionDistance, distance_of
from .nearest import FunctionSearch, NearestSearch
from .references import QueryCache as QueryCache
from .references import References


class MaskedCandidates(CandidateOptions, total=False):
    """Options of a search with batch dimensions and padding."""

    query_mask: Tensor | None  # (..., Q) bool
    reference_mask: Tensor | None  # (..., R) bool


class TorchKNN(ConstructorRepr):
    """Exact k nearest neighbors on the device of the query: `knn(query, k, reference, ref_includes_query)`.

    Neighbors are ordered by (distance, index), with distances evaluated in float64 from the input values in a fixed
    order of operations: the indices are the same on every device and for every memory budget. Integers and half types
    are accepted. A row that contains NaN or infinity has no neighbors (index -1) and is never a neighbor; the same
    holds for a pair for which a function returns NaN. float64 rows whose squares leave the range of float64 raise a
    ValueError. On a CPU, memory-mapped floating rows are read in chunks and never copied in full, so they may exceed
    the memory; so may integer rows if `AccuracyCalculator` reads them by `open_embeddings(...)`.

    `train(embeddings)` and `add(embeddings)` store references for searches without `reference`, `reset()` removes
    them, `save(path)` and `load(path)` write and read them.

    Args:
        distance: "l2", "sqeuclidean", "ip" (inner product, largest first), "cosine" (1 - cosine similarity), or a
            function `(Q, D), (R, D) -> (Q, R)`, whose values define the order; largest first if its attribute
            `is_inverted` or `largest` is true.
        exact: False uses the order of a matrix product, which may swap neighbors whose distances differ by its
            rounding error, and may change with the device, the memory budget and from call to call.
        memory_budget: Maximal bytes of temporaries; default 256 MiB on a CPU, 1 GiB on a GPU. In addition, a search
            needs about 24 bytes per reference (90 with int16 products on a CPU), integers need their float32 or
            float64 copy, and a GPU needs one copy of the references.

    >>> x = torch.tensor([[0.0], [0.1], [5.0], [5.3]])
    >>> distances, indices = TorchKNN()(x, 1, x, True)  # the references include the queries
    >>> indices
    tensor([[1],
            [0],
            [3],
            [2]])
    >>> TorchKNN()(torch.tensor([[4.0]]), 2, x)
    (tensor([[1.0000, 1.3000]]), tensor([[2, 3]]))
    """

    def __init__(
        self,
        distance: DistanceName | Callable[[Tensor, Tensor], Tensor] = "l2",
        *,
        exact: bool = True,
        memory_budget: int | None = None,
    ) -> None:
        if not callable(distance):
            checks.check_choice("distance", distance, DISTANCES)
        checks.check_flag("exact", exact)
        self.distance = distance
        self.exact = exact
        self.memory_budget = check_budget(memory_budget)
        self._stored: References | Tensor | None = None

    def _sizes(self) -> dict[str, int]:
        return {} if self._stored is None else {"references": len(_rows_of(self._stored))}

    @property
    def order(self) -> Distance | FunctionDistance:
        """Distance that defines the order of neighbors, resolved from `distance`."""
        return distance_of(self.distance)

    @breaks_graph("TorchKNN searches outside of graphs: how it does depends on the values of the rows")
    @takes_arrays
    @torch.no_grad()
    def __call__(
        self,
        query: Tensor,
        k: int,
        reference: Tensor | None = None,
        ref_includes_query: bool = False,
        **candidates: Unpack[MaskedCandidates],
    ) -> tuple[Tensor, Tensor]:
        """Return the distances and indices of the k nearest references, nearest first.

        Args:
            query: Rows whose neighbors are searched.
            k: Number of neighbors.
            reference: Rows to search; None: those of `train` and `add`.
            ref_includes_query: If True, reference i is query i and excluded from its neighbors.
            self_index: The reference that is this query, -1 if none: generalizes `ref_includes_query` to any order.
            ignore: True for further references to exclude, or (without batch dimensions and masks) a function that
                returns its rows for a slice of the queries.
            query_mask: False for padding, which has no neighbors.
            reference_mask: False for padding, which is never a neighbor.

        Shapes: query: (..., Q, D); reference: (..., R, D); self_index: (..., Q) int64; ignore: (..., Q, R) bool;
        query_mask: (..., Q) bool; reference_mask: (..., R) bool -> (..., Q, k) floating, (..., Q, k) int64.

        Returns:
            Distances, in the dtype of the input, at least float32, and indices. Missing neighbors (if fewer than k
            exist) have index -1 and distance inf (-inf if the largest is first).
        """
        return self._search(query, k, reference, ref_includes_query, True, **candidates)

    @takes_arrays
    @torch.no_grad()
    def indices(
        self,
        query: Tensor,
        k: int,
        reference: Tensor | None = None,
        ref_includes_query: bool = False,
        **candidates: Unpack[MaskedCandidates],
    ) -> Tensor:
        """Return the indices only, which is faster: most of them need no canonical distance.

        Shapes: as above -> (..., Q, k) int64.
        """
        return self._search(query, k, reference, ref_includes_query, False, **candidates)[1]

    @takes_arrays
    def train(self, embeddings: Tensor) -> None:
        """Store references, replacing the previous ones.

        Shapes: embeddings: (R, D).
        """
        self._stored = self._prepared(as_embeddings("embeddings", embeddings))

    @takes_arrays
    def add(self, embeddings: Tensor) -> None:
        """Append references to the stored ones.

        Shapes: embeddings: (R, D).
        """
        if self._stored is None:
            return self.train(embeddings)
        embeddings = as_embeddings("embeddings", embeddings)
        stored = _rows_of(self._stored)
        checks.same_device(embeddings=embeddings, stored=stored)
        checks.shape("embeddings", embeddings, "N", stored.shape[1])
        self.train(torch.cat([stored, embeddings]))

    def reset(self) -> None:
        """Remove the stored references."""
        self._stored = None

    def save(self, path: str | os.PathLike) -> None:
        """Write the stored references to a file."""
        rows = _rows_of(self._references())
        with open_atomic(path) as file:
            torch.save({"embeddings": rows}, file)

    def load(self, path: str | os.PathLike, map_location: torch.device | str | None = None) -> None:
        """Replace the stored references by those of a file written by `save`."""
        stored = load_tensors(path, map_location)
        if not isinstance(stored, dict) or not isinstance(stored.get("embeddings"), Tensor):
            raise ValueError(f"{path}: this is no file of {type(self).__name__}.save")
        self.train(stored["embeddings"])

    def _prepared(self, rows: Tensor) -> References | Tensor:
        # rows: (R, D)  ->  input of `search`; cached values of the rows exist for named distances only
        distance = self.order
        if isinstance(distance, FunctionDistance):
            return rows
        check_squares(reference=rows)
        return References(rows, distance)

    def _references(self) -> References | Tensor:
        if self._stored is None:
            raise ValueError(
                "reference: got None and nothing is stored, wanted references here or in train(embeddings)"
            )
        return self._stored

    def _search(
        self,
        query: Tensor,
        k: int,
        reference: Tensor | None,
        ref_includes_query: bool,
        with_distances: bool,
        *,
        self_index: Tensor | None = None,
        ignore: Tensor | Callable[[slice], Tensor] | None = None,
        query_mask: Tensor | None = None,
        reference_mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        checks.tensor("query", query)
        if query.ndim <= 2 and query_mask is None and reference_mask is None:
            rows = _rows_of(self._references()) if reference is None else reference
            query, k, rows, index = search_arguments(query, k, rows, ref_includes_query, self_index)
            rows = query if reference is query else rows
            references = self._references() if reference is None else self._prepared(rows)
            if reference is not query and isinstance(self.order, Distance):
                check_squares(query=query)
            is_leading = ref_includes_query if index is None or self_index is None else _are_leading(index)
            return self.search(query, k, references, index, ignore, with_distances, is_leading=is_leading)

        k = checks.check_int("k", k, 1)
        if reference is None:
            reference = _rows_of(self._references()).expand(*query.shape[:-2], -1, -1)
        if callable(ignore):
            raise ValueError("ignore: got a function with leading dimensions or masks, wanted a mask (..., Q, R)")
        if self_index is None and ref_includes_query:
            self_index = self_index_of_leading_queries(query.shape[-2], reference.shape[-2], query.device).expand(
                query.shape[:-1]
            )
        batch = Batch(query, reference, query_mask, reference_mask, self_index)
        size = query.shape[-2], reference.shape[-2]
        ignored = None if ignore is None else as_mask(batch.flattened("ignore", ignore, *size))
        distances, indices = self._search_batch(batch, k, ignored, with_distances)
        shape = (*query.shape[:-1], k)
        return distances.view(shape) if with_distances else distances, indices.view(shape)

    def _search_batch(
        self, batch: Batch, k: int, ignored: Tensor | None, with_distances: bool
    ) -> tuple[Tensor, Tensor]:
        # ignored: (B, Q, R) bool  ->  (B Q, k) floating, (B Q, k) int64
        queries, size = batch.query.shape[1], batch.reference.shape[1]
        distances, indices = self._missing(len(batch) * queries, k, batch.query, batch.reference, with_distances)
        remaining = torch.ones(len(batch), dtype=torch.bool, device=indices.device)
        distance = self.order
        if isinstance(distance, Distance):
            count, memory = min(k, size), budget(self.memory_budget, indices.device)
            for items, nearest in batch.search_small_items(count, distance, self.exact, memory, ignored):
                remaining[items] = False
                indices.view(len(batch), queries, k)[items, :, :count] = nearest
                if with_distances:
                    table = distances.view(len(batch), queries, k)
                    values = batch.distances(items, nearest, distance, memory).to(table.dtype)
                    table[items, :, :count] = torch.where(nearest < 0, table[items, :, :count], values)
        for item in map(batch.item, remaining.nonzero()[:, 0].tolist()):
            reference, self_index = item.of_reference(batch.reference), item.index(batch.self_index)
            masked = None if ignored is None else item.of_pairs(ignored)
            query = item.of_query(batch.query)
            if isinstance(distance, Distance):
                check_squares(query=query)
            values, index = self.search(query, k, self._prepared(reference), self_index, masked, with_distances)
            indices[item.query_rows] = item.original(index)
            if with_distances:
                distances[item.query_rows] = values
        return distances, indices

    @torch.no_grad()
    def search(
        self,
        query: Tensor,
        k: int,
        references: References | Tensor,
        self_index: Tensor | None = None,
        ignore: Tensor | Callable[[slice], Tensor] | None = None,
        with_distances: bool = False,
        query_cache: QueryCache | None = None,
        is_leading: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Return the neighbors of checked rows; `query_cache` holds prepared queries.

        With `is_leading` reference i is query i.

        Shapes: query: (Q, D); references: (R, D); self_index: (Q,) int64 -> (Q, k) floating, or (Q, 0) without
        distances, (Q, k) int64.
        """
        distance = self.order
        reference = _rows_of(references)
        checks.same_device(query=query, ignore=ignore if isinstance(ignore, Tensor) else None)
        ignored = masks_of(ignore, (len(query), len(reference)))
        if isinstance(distance, Distance) and not callable(ignore):
            own = 0 if is_leading else self_index
            direct = DirectSearch(query, reference, own, k, distance, budget(self.memory_budget, query.device))
            if direct.can_run:
                dtype = _distance_dtype(query, reference) if with_distances else None
                return direct.search(ignore, dtype)
        if self_index is None:
            position = torch.arange(len(query), device=query.device)
            self_index = position if is_leading else torch.full_like(position, -1)
        distances, indices = self._missing(len(query), k, query, reference, with_distances)
        count = min(k, len(reference))
        if not count or not len(query):
            return distances, indices
        memory = budget(self.memory_budget, query.device)
        search: FunctionSearch | NearestSearch
        if isinstance(distance, FunctionDistance):
            search = FunctionSearch(query, self_index, count, reference, distance, memory)
        else:
            if isinstance(references, Tensor):
                references = References(references, distance, query_cache.normalization if query_cache else None)
            ignoring = ignored is not None
            options = memory, self.exact, ignoring, query_cache, is_leading
            search = NearestSearch(query, self_index, count, references, *options)
        rows = min(search.rows, max(memory // 4 // len(reference), 1)) if ignored else search.rows
        for tile in chunk_slices(len(query), rows):
            nearest = search(tile, ignored(tile) if ignored else None)
            indices[tile, :count] = nearest
            if with_distances:
                values = search.distances(tile, nearest).to(distances.dtype)
                distances[tile, :count] = torch.where(nearest < 0, distances[tile, :count], values)
        return distances, indices

    def _missing(
        self, queries: int, k: int, query: Tensor, reference: Tensor, with_distances: bool
    ) -> tuple[Tensor, Tensor]:
        # ->  (Q, k), (Q, k) int64
        """Return distances and indices of missing neighbors, to be filled; (Q, 0) without distances."""
        indices = torch.full((queries, k), -1, device=query.device)
        if not with_distances:
            return query.new_empty(queries, 0), indices
        missing = -torch.inf if self.order.largest_first else torch.inf
        dtype = _distance_dtype(query, reference)
        return torch.full((queries, k), missing, dtype=dtype, device=query.device), indices


def _are_leading(self_index: Tensor) -> bool:
    # self_index: (Q,) int64
    """Return whether reference i is known to be query i; a GPU is not asked, because the host would wait for it."""
    return self_index.is_cpu and torch.equal(self_index, torch.arange(len(self_index), device=self_index.device))


def _distance_dtype(query: Tensor, reference: Tensor) -> torch.dtype:
    return torch.promote_types(torch.promote_types(query.dtype, reference.dtype), torch.float32)


def _rows_of(references: References | Tensor) -> Tensor:
    # ->  (R, D)
    return references if isinstance(references, Tensor) else references.rows
