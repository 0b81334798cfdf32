"""Neighbors that AccuracyCalculator scores, by an exact search or by a user-defined function."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ...core.arguments import checks
from ..deterministic import chunk_slices
from ..inputs import RetrievalInputs, budget, promote_dtypes
from ..ranking.positive_ranks import PositiveRanks, hits, read_off, within_depth
from ..ranking.ranking import RankingOptions, Ties
from ..ranking.sharded import tiles_of
from ..relevance import Positives, Relevance
from ..scores.query_metric import log
from ..search.distance import DistanceName
from ..search.knn import TorchKNN
from .knn_labels import flat_equality, ranks_of_matches


class Nearest(NamedTuple):
    """The k nearest candidates of each query, (Q, k) each; ignored references are no candidates.

    indices: int64, nearest first, -1 if fewer than k exist.
    distances: floating, NaN for an index of -1.
    relevance: bool, or with gains float64; 0 = not relevant.
    """

    indices: Tensor
    distances: Tensor
    relevance: Tensor


class Neighbors:
    """The nearest references of the queries of one call, searched once for all its metrics and levels of labels."""

    def __init__(
        self, knn_func: Callable[[Tensor, int, Tensor, bool], tuple[Tensor, Tensor]], inputs: RetrievalInputs
    ) -> None:
        self.knn_func, self.inputs = knn_func, inputs
        empty = torch.empty(len(inputs.query), 0, dtype=torch.int64, device=inputs.query.device)
        self._distances = self._indices = empty

    @property
    def depth(self) -> int:
        """Number of neighbors searched so far."""
        return self._indices.shape[1]

    def indices(self, k: int) -> Tensor:
        # ->  (Q, k) int64, -1 = none
        if self._indices.shape[1] < k:
            if not isinstance(self.knn_func, TorchKNN):
                return self.search(k)[1]
            query, reference, is_leading = self.inputs.query, self.inputs.reference, self.inputs.all_shared()
            self_index = None if is_leading else self.inputs.self_index()
            self._indices = self.knn_func.search(query, k, reference, self_index, is_leading=is_leading)[1]
        return self._indices[:, :k]

    def search(self, k: int) -> tuple[Tensor, Tensor]:
        # ->  (Q, k) floating, (Q, k) int64
        """Search the k nearest references; return distances and indices."""
        if self._distances.shape[1] < k:
            self._distances, self._indices = call_knn_func(self.knn_func, self.inputs, k)
        return self._distances[:, :k], self._indices[:, :k]


class RankSearch:
    """Search for the ranks of the relevant references, by counting or with a `knn_func`."""

    def __init__(
        self,
        knn_func: Callable[[Tensor, int, Tensor, bool], tuple[Tensor, Tensor]],
        comparison: Callable[[Tensor, Tensor], Tensor] | None,
        ties: Ties,
        memory_budget: int | None,
    ) -> None:
        # Ranks can be counted, at any depth, if references are ordered by the canonical distance.
        exact = knn_func.distance if isinstance(knn_func, TorchKNN) and knn_func.exact else None
        self.counted: DistanceName | None = None if callable(exact) else exact
        if ties != "index" and self.counted is None:
            raise ValueError(f"ties: got {ties!r}, wanted 'index' where the neighbors come from a function")
        self.knn_func, self.comparison, self.ties, self.memory_budget = knn_func, comparison, ties, memory_budget

    def tiles(
        self, inputs: RetrievalInputs, relevant: Tensor, depth: int | None, neighbors: Neighbors
    ) -> Iterator[tuple[slice | Tensor, PositiveRanks]]:
        # relevant: (Q,)
        """Yield slices of the queries with their ranks; `neighbors` are those of `inputs`, whatever its labels."""
        memory = budget(self.memory_budget, inputs.query.device)
        ranking = RankingOptions(self.comparison, depth, self.ties, memory_budget=self.memory_budget)
        has_options = inputs.ignore is not None or inputs.gains is not None
        is_shallow = not has_options and not inputs.layout and not inputs.stream
        is_shallow &= ranking.ranks_few(len(inputs.reference_labels))
        counted = None if is_shallow and 8 * (depth or 0) * len(inputs.query) <= memory else self.counted
        description = "ranks of rows that stay where they are" if inputs.layout or inputs.stream else "ranks"
        log.info(
            "%d queries, %d references, D=%d, k=%s: %s",
            len(inputs.query_labels),
            len(inputs.reference_labels),
            inputs.query.shape[1],
            depth or "all",
            description if counted else "neighbors",
        )
        if counted:
            yield from tiles_of(inputs, ranking._replace(distance=counted))
            return
        depth = depth or len(inputs.reference) - inputs.all_shared()
        if has_options:
            for tile, positives, order, _ in self._candidates(inputs, depth, neighbors, memory, False):
                yield tile, within_depth(*read_off(order, positives), positives, depth)
            return
        indices = neighbors.indices(depth)
        candidates = len(inputs.reference) - (inputs.self_index() >= 0).long()
        rows = max(memory // (96 * depth), 1)
        for tile in chunk_slices(len(indices), rows):
            knn_labels = labels_at(indices[tile], inputs.reference_labels)
            match = compare_labels(self.comparison or flat_equality, inputs.query_labels[tile], knn_labels)
            ranks = ranks_of_matches(match & (indices[tile] >= 0), relevant[tile], candidates[tile])
            yield tile, ranks._replace(depth=depth)

    def nearest(self, inputs: RetrievalInputs, k: int, neighbors: Neighbors) -> Nearest:
        """Return the nearest candidates of all queries, by the search that scores them."""
        chunks, memory = [], budget(self.memory_budget, inputs.query.device)
        for _, positives, order, distances in self._candidates(inputs, k, neighbors, memory, True) if k else ():
            hit = torch.zeros_like(order, dtype=torch.bool)
            relevance = hit if positives.gain is None else hit.double()
            if positives.index.shape[1]:
                hit, position = hits(order, positives)
                relevance = hit if positives.gain is None else positives.gain.gather(1, position) * hit
            chunks.append(Nearest(order, distances.masked_fill(order < 0, torch.nan), relevance))
        if not chunks:
            empty = inputs.query.new_empty(len(inputs.query), k)
            return Nearest(empty.long(), empty, empty.bool() if inputs.gains is None else empty.double())
        return Nearest(*map(torch.cat, zip(*chunks, strict=True)))

    def _candidates(
        self, inputs: RetrievalInputs, depth: int, neighbors: Neighbors, memory: int, with_distances: bool
    ) -> Iterator[tuple[slice, Positives, Tensor, Tensor]]:
        # ->  tiles of the queries, (q, depth) int64, -1 = none, and with `with_distances` their distances, (q, depth)
        """Yield the nearest candidates: more neighbors are searched, and the ignored ones are dropped."""
        self_index, references = inputs.self_index(), len(inputs.reference)
        relevance = Relevance(
            inputs.query_labels, inputs.reference_labels, self_index, self.comparison, inputs.gains, inputs.ignore
        )
        rows = max(memory // (relevance.bytes_per_query + 96 * depth), 1)
        tiles = chunk_slices(len(self_index), rows)
        max_ignored = 0
        for tile in tiles if inputs.ignore is not None else ():
            max_ignored = max(
                max_ignored, int((references - (self_index[tile] >= 0).long() - relevance(tile).candidates).max())
            )
        num_fetched = min(depth + max_ignored, references - inputs.all_shared())
        indices = neighbors.indices(num_fetched) if not with_distances else neighbors.search(num_fetched)[1]
        distances = neighbors.search(num_fetched)[0] if with_distances else indices
        for tile in tiles:
            positives, order = relevance(tile), indices[tile]
            columns = torch.arange(depth, device=order.device).expand(len(order), depth)
            if positives.ignored is not None:
                is_dropped = positives.ignored.gather(1, order.clamp(min=0)) | (order < 0)
                columns = is_dropped.long().argsort(dim=1, stable=True)[:, :depth]
                order = order.masked_fill(is_dropped, -1)
            yield tile, positives, order.gather(1, columns), distances[tile].gather(1, columns)

    def tables(self, inputs: RetrievalInputs, k: int, neighbors: Neighbors) -> dict[str, Tensor]:
        """Return the k neighbors of all queries, as arguments of metrics of a subclass."""
        size, memory = 8 * len(inputs.query) * k, budget(self.memory_budget, inputs.query.device)
        if size > memory:
            log.warning(
                "knn_labels takes %d MiB, more than the memory budget of %d MiB; write k='max_bin_count' or an integer",
                size >> 20,
                memory >> 20,
            )
        distances, indices = neighbors.search(k)
        knn_labels = labels_at(indices, inputs.reference_labels)
        return {"knn_labels": knn_labels, "knn_distances": distances, "knn_indices": indices}


def call_knn_func(knn: Callable, inputs: RetrievalInputs, k: int) -> tuple[Tensor, Tensor]:
    # ->  (Q, k) floating, (Q, k) int64 with -1 = none
    """Call a `knn_func` for all queries and check its result."""
    if not k or not len(inputs.query):
        return inputs.query.new_empty(len(inputs.query), k), inputs.self_index().new_empty(len(inputs.query), k)
    query, reference = promote_dtypes(inputs.query, inputs.reference)
    inputs = inputs._replace(query=query, reference=reference)
    if inputs.query_index is not None:
        chunks = [knn(inputs.query, k, inputs.reference, False, self_index=inputs.query_index)]
    else:
        chunks = [
            knn(inputs.query[rows], k, inputs.reference, includes)
            for rows, includes in ((slice(inputs.shared), True), (slice(inputs.shared, None), False))
            if len(inputs.query[rows])
        ]
    distances, indices = (
        torch.cat([torch.as_tensor(chunk[i], device=inputs.query.device) for chunk in chunks]) for i in (0, 1)
    )
    checks.integral("indices of knn_func", indices)
    checks.shape("indices of knn_func", indices, len(inputs.query), k)
    checks.shape("distances of knn_func", distances, len(inputs.query), k)
    if (highest := int(indices.max())) >= len(inputs.reference):
        raise ValueError(f"indices of knn_func: got {highest}, wanted -1 to {len(inputs.reference) - 1}")
    return distances, indices.long().clamp(min=-1)


def labels_at(indices: Tensor, labels: Tensor) -> Tensor:
    # indices: (Q, K), -1 = none  labels: (N[, L])  ->  (Q, K[, L]); at -1 a value that no label has
    if not len(labels):
        return labels.new_zeros(*indices.shape, *labels.shape[1:])
    values = labels[indices.clamp(min=0)]
    if labels.is_floating_point():
        no_label = torch.nan
    else:
        lowest = torch.iinfo(labels.dtype).min
        no_label = labels.min() - 1 if labels.min() > lowest else labels.max() + 1
    missing = (indices < 0).view(*indices.shape, *[1] * (labels.ndim - 1))
    return torch.where(missing, no_label, values)


def compare_labels(comparison: Callable[[Tensor, Tensor], Tensor], query_labels: Tensor, knn_labels: Tensor) -> Tensor:
    # query_labels: (Q[, L])  knn_labels: (Q, K[, L])  ->  (Q, K) bool, by one call with flat pairs
    x = query_labels.unsqueeze(1).expand_as(knn_labels).flatten(0, 1)
    match = comparison(x, knn_labels.flatten(0, 1))
    if match.shape != x.shape[:1] or match.dtype != torch.bool:
        raise ValueError(
            f"label_comparison_fn: got shape {tuple(match.shape)} and {match.dtype} for {len(x)} pairs of labels, "
            "wanted a torch.bool for each pair"
        )
    return match.view(knn_labels.shape[:2])
