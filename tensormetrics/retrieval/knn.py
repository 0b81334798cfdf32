"""k nearest neighbours in tiles of a matrix product, in an exact and reproducible order."""

import torch
from torch import Tensor

from .. import _checks
from ._embeddings import as_embeddings, budget
from ._nearest import NearestSearch
from ._order import DISTANCES, as_distance, canonical_pairs


class TorchKNN:
    """Exact k nearest neighbours on the device of the query: `knn(query, k, reference, ref_includes_query)`.

    Neighbours are ordered by (distance, index), with distances evaluated in float64 from the given values in a fixed
    order of operations: the indices are the same on every device and for every memory budget. Integers and half types
    are accepted; NaN is not looked for.

    Args:
        distance: "l2", "sqeuclidean", "ip" (inner product, largest first) or "cosine" (1 - cosine similarity).
        memory_budget: bytes that temporaries may take; default 256 MiB on a CPU, 1 GiB on a GPU.
    """

    def __init__(self, distance: str = "l2", *, memory_budget: int | None = None) -> None:
        _checks.one_of("distance", distance, DISTANCES)
        if memory_budget is not None:
            memory_budget = _checks.integer_at_least("memory_budget", memory_budget, 1)
        self.distance = distance
        self.memory_budget = memory_budget

    @torch.no_grad()
    def __call__(
        self, query: Tensor, k: int, reference: Tensor, ref_includes_query: bool, *, self_index: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        # query: (Q, D)  reference: (R, D)  self_index: (Q,) int64  ->  (Q, k) floating, (Q, k) int64
        """Distances and indices of the k nearest references, nearest first.

        `ref_includes_query=True`: reference i is query i and no neighbour of it. `self_index` says the same for any
        arrangement: the reference that is this query, -1 for none. Missing neighbours (fewer than k references) have
        index -1 and distance inf (-inf for "ip"). Distances have the dtype of the input, at least float32.
        """
        indices = self.indices(query, k, reference, ref_includes_query, self_index=self_index)
        query, reference = as_embeddings("query", query), as_embeddings("reference", reference)
        dtype = torch.promote_types(torch.promote_types(query.dtype, reference.dtype), torch.float32)
        missing = -torch.inf if self.distance == "ip" else torch.inf
        distances = torch.full(indices.shape, missing, dtype=dtype, device=query.device)
        found = min(k, len(reference))
        if found:
            row = torch.arange(len(query), device=query.device).repeat_interleave(found)
            column = indices[:, :found].flatten().clamp(min=0)
            memory = budget(self.memory_budget, query.device) // 4
            delta = canonical_pairs(query, reference, row, column, self.distance, memory)
            distances[:, :found] = as_distance(delta, self.distance).view(-1, found)
        return distances.masked_fill_(indices < 0, missing), indices

    @torch.no_grad()
    def indices(
        self, query: Tensor, k: int, reference: Tensor, ref_includes_query: bool, *, self_index: Tensor | None = None
    ) -> Tensor:
        # query: (Q, D)  reference: (R, D)  self_index: (Q,) int64  ->  (Q, k) int64
        """The indices alone, which cost less: most of them need no canonical distance."""
        k = _checks.integer_at_least("k", k, 1)
        query, reference = as_embeddings("query", query), as_embeddings("reference", reference)
        _checks.same_device(query=query, reference=reference, self_index=self_index)
        if query.shape[1] != reference.shape[1]:
            raise ValueError(
                f"query and reference: got shapes {tuple(query.shape)} and {tuple(reference.shape)}, "
                "wanted the same number of columns"
            )
        if self_index is not None:
            _checks.shape("self_index", self_index, len(query))
            _checks.integral("self_index", self_index)
            self_index = self_index.long()
        elif ref_includes_query and len(reference) < len(query):
            raise ValueError(
                f"ref_includes_query: got {len(query)} queries and {len(reference)} references, wanted references "
                "that begin with the queries"
            )
        elif ref_includes_query:
            self_index = torch.arange(len(query), device=query.device)
        else:
            self_index = torch.full((len(query),), -1, device=query.device)

        indices = torch.full((len(query), k), -1, device=query.device)
        found = min(k, len(reference))
        if found and len(query):
            memory = budget(self.memory_budget, query.device)
            search = NearestSearch(query, self_index, found, reference, self.distance, memory, True)
            for start in range(0, len(query), search.rows):
                tile = slice(start, start + search.rows)
                indices[tile, :found] = search(tile)
        return indices
