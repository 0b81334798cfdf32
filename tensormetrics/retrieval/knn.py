"""k nearest neighbours in tiles of a matrix product, in an exact and reproducible order."""

import torch
from torch import Tensor

from .. import _checks
from ._embeddings import as_embeddings, budget
from ._order import DISTANCES, as_distance, canonical, filter_error, filter_rows, filter_values


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
        delta = self._canonical(query, reference, indices[:, :found].clamp(min=0))
        distances[:, :found] = as_distance(delta, self.distance)
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
            nearest = self._search(query, self_index, found, reference)
            indices[:, :found] = nearest.masked_fill_(nearest == self_index[:, None], -1)
        return indices

    def _search(self, query: Tensor, self_index: Tensor, k: int, reference: Tensor) -> Tensor:
        # query: (Q, D)  self_index: (Q,)  reference: (R, D)  ->  (Q, k) int64, self last
        nearest, proven = self._nearest(query, self_index, k, reference)
        rows = (~proven).nonzero()[:, 0]
        if not len(rows):
            return nearest
        # Where whole groups of references are equal, k + 1 of each are enough.
        few = _first_of_equal_rows(reference, k + 1)
        query, self_index, reference = query[rows], self_index[rows], reference[few]
        place = torch.searchsorted(few, self_index).clamp(max=len(few) - 1)
        self_index = torch.where(few[place] == self_index, place, -1)
        among_few, proven = self._nearest(query, self_index, k, reference)
        left = (~proven).nonzero()[:, 0]
        among_few[left] = self._exhaustive(query[left], self_index[left], k, reference)
        nearest[rows] = few[among_few]
        return nearest

    def _nearest(self, query: Tensor, self_index: Tensor, k: int, reference: Tensor) -> tuple[Tensor, Tensor]:
        # query: (Q, D)  self_index: (Q,)  reference: (R, D)  ->  (Q, k) int64, (Q,) bool: whether these are proven
        nearest = torch.empty(len(query), k, dtype=torch.int64, device=query.device)
        proven = torch.empty(len(query), dtype=torch.bool, device=query.device)
        kept = min(k + max(16, k // 4), len(reference))
        rows = min(max(self._budget(query) // 4 // (64 * kept + 32 * query.shape[1]), 1), 1024)
        for start in range(0, len(query), rows):
            tile = slice(start, start + rows)
            values, candidates, error = self._filter(query[tile], self_index[tile], kept, reference)
            # Written so that NaN, from squares that overflow, proves nothing.
            proven[tile] = (values[:, -1] - error > values[:, k - 1] + error) | (kept == len(reference))
            ordered = (values.diff() > 2 * error[:, None]).all(1)
            # Which rows are undecided has to be known on the host: once per tile.
            tied = (proven[tile] & ~ordered).nonzero()[:, 0]
            candidates[tied] = self._sorted(query[tile][tied], self_index[tile][tied], candidates[tied], reference)
            nearest[tile] = candidates[:, :k]
        return nearest, proven

    def _filter(self, query: Tensor, self_index: Tensor, kept: int, reference: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        # query: (Q, D)  self_index: (Q,)  ->  (Q, kept) float64 ascending, (Q, kept) int64, (Q,) their error bound
        rows, dim = query.shape
        # Any centre gives the same neighbours; one amid the references makes the bound tight.
        centre = reference[:: len(reference) // 1024 + 1].double().mean(0)
        query = filter_rows(query, centre, self.distance)
        width = max(self._budget(query) * 3 // 4 // (12 * rows + 32 * dim), 1)
        values, candidates, largest = query.new_empty(rows, 0), self_index.new_empty(rows, 0), query.new_zeros(())
        for start in range(0, len(reference), width):
            tile = filter_rows(reference[start : start + width], centre, self.distance)
            near = filter_values(query, tile, self.distance)
            column = (self_index - start).clamp(0, len(tile) - 1)[:, None]
            hidden = torch.where(self_index[:, None] == column + start, torch.inf, near.gather(1, column))
            near, columns = near.scatter_(1, column, hidden).topk(min(kept, len(tile)), largest=False)
            values, candidates = torch.cat([values, near], 1), torch.cat([candidates, columns + start], 1)
            values, order = values.topk(min(kept, values.shape[1]), largest=False)
            candidates = candidates.gather(1, order)
            largest = torch.maximum(largest, tile.norm(dim=1).max())
        return values, candidates, filter_error(query.norm(dim=1), largest, dim, self.distance)

    def _exhaustive(self, query: Tensor, self_index: Tensor, k: int, reference: Tensor) -> Tensor:
        # query: (Q, D)  self_index: (Q,)  reference: (R, D)  ->  (Q, k) int64, by canonical distances to all references
        nearest = torch.empty(len(query), k, dtype=torch.int64, device=query.device)
        memory = self._budget(query)
        width = max(k, min(len(reference), memory // 64))
        rows = max(memory // (64 * (k + width)), 1)
        for first in range(0, len(query), rows):
            tile = slice(first, first + rows)
            best = nearest[tile, :0]
            for start in range(0, len(reference), width):
                more = torch.arange(start, min(start + width, len(reference)), device=query.device)
                best = torch.cat([best, more.expand(len(best), -1)], 1)
                best = self._sorted(query[tile], self_index[tile], best, reference)[:, :k]
            nearest[tile] = best
        return nearest

    def _sorted(self, query: Tensor, self_index: Tensor, candidates: Tensor, reference: Tensor) -> Tensor:
        # query: (Q, D)  self_index: (Q,)  candidates: (Q, C)  ->  (Q, C) by (canonical distance, index), self last
        candidates = candidates.sort(1).values
        delta = self._canonical(query, reference, candidates)
        delta = delta.masked_fill_(candidates == self_index[:, None], torch.inf)
        return candidates.gather(1, delta.argsort(dim=1, stable=True))

    def _canonical(self, query: Tensor, reference: Tensor, candidates: Tensor) -> Tensor:
        # query: (Q, D)  reference: (R, D)  candidates: (Q, C)  ->  (Q, C) float64
        delta = torch.empty(candidates.shape, dtype=torch.float64, device=query.device)
        # Small pieces stay in a CPU's cache.
        pairs = max(self._budget(query) // 32 // (40 * query.shape[1] + 64), 1)
        rows = max(pairs // max(candidates.shape[1], 1), 1)
        for i in range(0, delta.shape[0], rows):
            for j in range(0, delta.shape[1], pairs):
                piece = candidates[i : i + rows, j : j + pairs]
                deltas = canonical(query[i : i + rows, None], reference[piece], self.distance)
                delta[i : i + rows, j : j + pairs] = deltas
        return delta

    def _budget(self, query: Tensor) -> int:
        return budget(self.memory_budget, query.device)


def _first_of_equal_rows(rows: Tensor, count: int) -> Tensor:
    # rows: (N, D)  ->  (M,) int64 ascending: of each set of equal rows the `count` lowest indices
    groups, sizes = rows.unique(dim=0, return_inverse=True, return_counts=True)[1:]
    order = groups.argsort(stable=True)
    place = torch.arange(len(rows), device=rows.device) - (sizes.cumsum(0) - sizes)[groups[order]]
    return order[place < count].sort().values
