"""The neighbours that AccuracyCalculator scores: exact, or found by a user's function."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ... import _checks
from ..inputs import RetrievalInputs, alike, budget
from ..ranking.positive_ranks import PositiveRanks, hits, read_off, within_depth
from ..ranking.ranking import Ranking, Ties
from ..ranking.sharded import tiles_of
from ..relevance import Positives, Relevance
from ..scores.query_metric import log
from ..search.distance import DistanceName
from ..search.knn import TorchKNN
from .knn_labels import flat_equality, ranks_of_matches


class Nearest(NamedTuple):
    """The k nearest candidates of each query, (Q, k) each; ignored references are none.

    indices: int64, nearest first, -1 = none is left.
    distances: floating, NaN where there is none.
    relevance: bool, or with gains float64, of these: 0 = not relevant.
    """

    indices: Tensor
    distances: Tensor
    relevance: Tensor


class Neighbours:
    """The nearest references of the queries of one call, looked for once for all its metrics and levels of labels."""

    def __init__(
        self, knn_func: Callable[[Tensor, int, Tensor, bool], tuple[Tensor, Tensor]], sides: RetrievalInputs
    ) -> None:
        self.knn_func, self.sides = knn_func, sides
        empty = torch.empty(len(sides.query), 0, dtype=torch.int64, device=sides.query.device)
        self._distances = self._indices = empty

    @property
    def depth(self) -> int:
        """How many were looked for."""
        return self._indices.shape[1]

    def indices(self, k: int) -> Tensor:
        # ->  (Q, k) int64, -1 = none
        if self._indices.shape[1] < k:
            if not isinstance(self.knn_func, TorchKNN):
                return self.found(k)[1]
            query, reference, self_index = self.sides.query, self.sides.reference, self.sides.self_index()
            self._indices = self.knn_func.search(query, k, reference, self_index)[1]
        return self._indices[:, :k]

    def found(self, k: int) -> tuple[Tensor, Tensor]:
        # ->  (Q, k) floating, (Q, k) int64
        """The distances too."""
        if self._distances.shape[1] < k:
            self._distances, self._indices = searched(self.knn_func, self.sides, k)
        return self._distances[:, :k], self._indices[:, :k]


class Search:
    """Finds the ranks of the relevant references, by counting or with a `knn_func`."""

    def __init__(
        self,
        knn_func: Callable[[Tensor, int, Tensor, bool], tuple[Tensor, Tensor]],
        comparison: Callable[[Tensor, Tensor], Tensor] | None,
        ties: Ties,
        memory_budget: int | None,
    ) -> None:
        # Ranks can be counted, at any depth, where the canonical distance is the order.
        exact = knn_func.distance if isinstance(knn_func, TorchKNN) and knn_func.exact else None
        self.counted: DistanceName | None = None if callable(exact) else exact
        if ties != "index" and self.counted is None:
            raise ValueError(f"ties: got {ties!r}, wanted 'index' where the neighbours come from a function")
        self.knn_func, self.comparison, self.ties, self.memory_budget = knn_func, comparison, ties, memory_budget

    def tiles(
        self, sides: RetrievalInputs, relevant: Tensor, depth: int | None, neighbours: Neighbours
    ) -> Iterator[tuple[slice | Tensor, PositiveRanks]]:
        # relevant: (Q,)
        """Slices of the queries with their ranks; `neighbours` are those of `sides`, for whatever labels."""
        allowed = budget(self.memory_budget, sides.query.device)
        few = self.ties == "index" and depth is not None and depth <= max(64, len(sides.reference_labels) // 32)
        special = sides.ignore is not None or sides.gains is not None
        few &= not special and not sides.spread and not sides.stream
        counted = None if few and 8 * (depth or 0) * len(sides.query) <= allowed else self.counted
        stay = "ranks of rows that stay where they are" if sides.spread or sides.stream else "ranks"
        log.info(
            "%d queries, %d references, D=%d, k=%s: %s",
            len(sides.query_labels),
            len(sides.reference_labels),
            sides.query.shape[1],
            depth or "all",
            stay if counted else "neighbours",
        )
        if counted:
            ranking = Ranking(self.comparison, depth, self.ties, counted, memory_budget=self.memory_budget)
            yield from tiles_of(sides, ranking)
            return
        depth = depth or len(sides.reference) - sides.all_shared()
        if special:
            yield from self._of_relevance(sides, depth, neighbours, allowed)
            return
        indices = neighbours.indices(depth)
        candidates = len(sides.reference) - (sides.self_index() >= 0).long()
        rows = max(allowed // (96 * depth), 1)
        for start in range(0, len(indices), rows):
            tile = slice(start, start + rows)
            knn_labels = labels_at(indices[tile], sides.reference_labels)
            match = compared(self.comparison or flat_equality, sides.query_labels[tile], knn_labels)
            ranks = ranks_of_matches(match & (indices[tile] >= 0), relevant[tile], candidates[tile])
            yield tile, ranks._replace(depth=depth)

    def _of_relevance(
        self, sides: RetrievalInputs, depth: int, neighbours: Neighbours, allowed: int
    ) -> Iterator[tuple[slice, PositiveRanks]]:
        for tile, positives, order, _ in self._candidates(sides, depth, neighbours, allowed, False):
            yield tile, within_depth(*read_off(order, positives), positives, depth)

    def nearest(self, sides: RetrievalInputs, k: int, neighbours: Neighbours) -> Nearest:
        """Those of all queries, by the search that scores them."""
        parts, allowed = [], budget(self.memory_budget, sides.query.device)
        for _, positives, order, distances in self._candidates(sides, k, neighbours, allowed, True) if k else ():
            hit = torch.zeros_like(order, dtype=torch.bool)
            relevance = hit if positives.gain is None else hit.double()
            if positives.index.shape[1]:
                hit, place = hits(order, positives)
                relevance = hit if positives.gain is None else positives.gain.gather(1, place) * hit
            parts.append(Nearest(order, distances.masked_fill(order < 0, torch.nan), relevance))
        if not parts:
            empty = sides.query.new_empty(len(sides.query), k)
            return Nearest(empty.long(), empty, empty.bool() if sides.gains is None else empty.double())
        return Nearest(*map(torch.cat, zip(*parts, strict=True)))

    def _candidates(
        self, sides: RetrievalInputs, depth: int, neighbours: Neighbours, allowed: int, far: bool
    ) -> Iterator[tuple[slice, Positives, Tensor, Tensor]]:
        # ->  tiles of the queries, (q, depth) int64, -1 = none, and with `far` their distances, (q, depth)
        """From more neighbours than `depth`, as many as may be ignored: those that are, are dropped."""
        own, references = sides.self_index(), len(sides.reference)
        relevance = Relevance(
            sides.query_labels, sides.reference_labels, own, self.comparison, sides.gains, sides.ignore
        )
        rows = max(allowed // (relevance.bytes_per_query + 96 * depth), 1)
        tiles = [slice(start, min(start + rows, len(own))) for start in range(0, len(own), rows)]
        most = 0
        for tile in tiles if sides.ignore is not None else ():
            most = max(most, int((references - (own[tile] >= 0).long() - relevance(tile).candidates).max()))
        fetched = min(depth + most, references - sides.all_shared())
        indices = neighbours.indices(fetched) if not far else neighbours.found(fetched)[1]
        distances = neighbours.found(fetched)[0] if far else indices
        for tile in tiles:
            positives, order = relevance(tile), indices[tile]
            columns = torch.arange(depth, device=order.device).expand(len(order), depth)
            if positives.ignored is not None:
                dropped = positives.ignored.gather(1, order.clamp(min=0)) | (order < 0)
                columns = dropped.long().argsort(dim=1, stable=True)[:, :depth]
                order = order.masked_fill(dropped, -1)
            yield tile, positives, order.gather(1, columns), distances[tile].gather(1, columns)

    def tables(self, sides: RetrievalInputs, k: int, neighbours: Neighbours) -> dict[str, Tensor]:
        """The k neighbours of all queries, as metrics of a subclass are given them."""
        size, allowed = 8 * len(sides.query) * k, budget(self.memory_budget, sides.query.device)
        if size > allowed:
            log.warning(
                "knn_labels takes %d MiB, more than the memory budget of %d MiB; write k='max_bin_count' or an integer",
                size >> 20,
                allowed >> 20,
            )
        distances, indices = neighbours.found(k)
        knn_labels = labels_at(indices, sides.reference_labels)
        return {"knn_labels": knn_labels, "knn_distances": distances, "knn_indices": indices}


def searched(knn: Callable, sides: RetrievalInputs, k: int) -> tuple[Tensor, Tensor]:
    # ->  (Q, k) floating, (Q, k) int64 with -1 = none
    """What a `knn_func` finds for all queries, checked."""
    if not k or not len(sides.query):
        return sides.query.new_empty(len(sides.query), k), sides.self_index().new_empty(len(sides.query), k)
    query, reference = alike(sides.query, sides.reference)
    sides = sides._replace(query=query, reference=reference)
    if sides.own is not None:
        parts = [knn(sides.query, k, sides.reference, False, self_index=sides.own)]
    else:
        parts = [
            knn(sides.query[rows], k, sides.reference, includes)
            for rows, includes in ((slice(sides.shared), True), (slice(sides.shared, None), False))
            if len(sides.query[rows])
        ]
    distances, indices = (
        torch.cat([torch.as_tensor(part[side], device=sides.query.device) for part in parts]) for side in (0, 1)
    )
    _checks.integral("indices of knn_func", indices)
    _checks.shape("indices of knn_func", indices, len(sides.query), k)
    _checks.shape("distances of knn_func", distances, len(sides.query), k)
    if (highest := int(indices.max())) >= len(sides.reference):
        raise ValueError(f"indices of knn_func: got {highest}, wanted -1 to {len(sides.reference) - 1}")
    return distances, indices.long().clamp(min=-1)


def labels_at(indices: Tensor, labels: Tensor) -> Tensor:
    # indices: (Q, K), -1 = none  labels: (N[, L])  ->  (Q, K[, L]); where there is none, a value equal to no label
    if not len(labels):
        return labels.new_zeros(*indices.shape, *labels.shape[1:])
    found = labels[indices.clamp(min=0)]
    if labels.is_floating_point():
        nothing = torch.nan
    else:
        lowest = torch.iinfo(labels.dtype).min
        nothing = labels.min() - 1 if labels.min() > lowest else labels.max() + 1
    missing = (indices < 0).view(*indices.shape, *[1] * (labels.ndim - 1))
    return torch.where(missing, nothing, found)


def compared(comparison: Callable[[Tensor, Tensor], Tensor], query_labels: Tensor, knn_labels: Tensor) -> Tensor:
    # query_labels: (Q[, L])  knn_labels: (Q, K[, L])  ->  (Q, K) bool, by one call with flat pairs
    x = query_labels.unsqueeze(1).expand_as(knn_labels).flatten(0, 1)
    match = comparison(x, knn_labels.flatten(0, 1))
    if match.shape != x.shape[:1] or match.dtype != torch.bool:
        raise ValueError(
            f"label_comparison_fn: got shape {tuple(match.shape)} and {match.dtype} for {len(x)} pairs of labels, "
            "wanted a torch.bool for each pair"
        )
    return match.view(knn_labels.shape[:2])
