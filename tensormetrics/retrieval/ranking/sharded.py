"""Ranks among references that are sharded over processes. The integers equal those of one process with all rows.

The smaller set travels. If it is the references, a process holds its own rows, the block it works on and the next one,
and the measurements of as many of its queries at once as fit in the memory budget. For each such part of the queries
all references go round the ring twice: for the distances of the positives, and to be counted. If queries travel, each
block of them is broadcast, each process measures and counts its own references, and the distances of the positives and
the counts are reduced.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from ...core.metric.distributed import (
    all_gather_cat,
    all_gather_status,
    all_reduce,
    common_kind,
    from_rank,
    tensor_meta,
)
from ..deterministic import chunk_slices, rows_per_chunk
from ..inputs import RetrievalInputs, ShardLayout, check_squares, finite_rows
from ..relevance import Relevance, triples_of
from ..search.backends.sharded import ShardedKNN
from ..search.knn import TorchKNN
from ..search.ring_pass import Ring, block_rows, redistribute_rows, summarize_positions, travel_memory
from .blockwise import MeasuredQueries, split_queries
from .neighbor_ranks import can_use_labels, label_tiles
from .out_of_core import streamed_tiles
from .positive_ranks import PositiveRanks, rank_tiles, read_off, within_depth
from .rank_counts import RankCounter
from .ranking import RankingOptions


def tiles_of(inputs: RetrievalInputs, ranking: RankingOptions) -> Iterator[tuple[slice | Tensor, PositiveRanks]]:
    """Yield the ranks of all queries; if they are sharded, of this process's queries, numbered locally."""
    if inputs.stream is not None:
        return streamed_tiles(inputs, inputs.stream, ranking)
    if inputs.layout is not None:
        return _sharded_tiles(inputs, ranking)
    return label_tiles(inputs, ranking) if can_use_labels(inputs, ranking) else rank_tiles(inputs, ranking)


@torch.no_grad()
def _sharded_tiles(inputs: RetrievalInputs, ranking: RankingOptions) -> Iterator[tuple[slice | Tensor, PositiveRanks]]:
    layout, count = layout_of(inputs), len(inputs.reference_labels)
    # The choice of a single process, if the neighbors of all queries fit in memory.
    depth, is_shallow = ranking.depth, inputs.ignore is None and ranking.ranks_few(count)
    if count and is_shallow and depth is not None and 32 * depth * max(layout.query) <= layout.memory:
        yield from _tiles_by_search(inputs, ranking, min(depth, count))
    elif count:
        yield from _ShardedCounter(inputs, ranking._replace(memory_budget=layout.memory)).tiles()


def _tiles_by_search(
    inputs: RetrievalInputs, ranking: RankingOptions, depth: int
) -> Iterator[tuple[slice, PositiveRanks]]:
    layout = layout_of(inputs)
    cache = layout.cache
    if "index" not in cache or cache["index"].shape[1] < depth:
        knn = ShardedKNN(layout.group, TorchKNN(ranking.distance, memory_budget=layout.memory))
        self_index = inputs.self_index()[layout.local(layout.query)]
        cache["index"] = knn.search(inputs.query, depth, inputs.reference, self_index, layout.reference)[1]
    relevance = _relevance(inputs, ranking)
    rows = max(layout.memory // 4 // (relevance.bytes_per_query + 96 * depth), 1)
    for tile in chunk_slices(len(inputs.query), rows):
        positives = relevance(tile)
        yield tile, within_depth(*read_off(cache["index"][tile, :depth], positives), positives, depth)


class _ShardedCounter:
    """Ranks of the queries of this process, computed by counting the references of all processes."""

    def __init__(self, inputs: RetrievalInputs, ranking: RankingOptions) -> None:
        self.inputs, self.layout, self.ranking = inputs, layout_of(inputs), ranking
        self.group = self.layout.group
        relevance, (_, dim) = _relevance(inputs, ranking), inputs.reference.shape
        # Bytes that `block_rows`, `split_queries` and the tiles below need for one query or reference.
        row_bytes = max(8 * dim * inputs.reference.element_size(), 128 * dim) + 4 * relevance.bytes_per_query + 128
        rows = max(*self.layout.query, *self.layout.reference)
        self.memory = travel_memory(self.layout.memory, max(all_gather_status(row_bytes, self.group)), rows, self.group)
        self.first = [sum(self.layout.reference[:rank]) for rank in range(len(self.layout.reference))]
        self.chunk_rows = max(self.memory // 4 // max(relevance.bytes_per_query, 32 * dim), 1)
        # Sorted by the number of positives, so that most tables are narrower than the widest.
        counts = [relevance(tile).relevant for tile in chunk_slices(len(inputs.query), self.chunk_rows)]
        self.num_positives, self.order = torch.cat([inputs.self_index()[:0], *counts]).sort(stable=True)
        self.relevance = _relevance(inputs, ranking, self.order)
        check_squares(query=inputs.query, reference=inputs.reference)
        self.self_index = inputs.self_index()[self.layout.local(self.layout.query)][self.order]

    def tiles(self) -> Iterator[tuple[slice | Tensor, PositiveRanks]]:
        layout, row = self.layout, self.inputs.reference[:0].element_size() * self.inputs.reference.shape[1]
        width = int(self.num_positives[-1]) if len(self.num_positives) else 0
        parts = split_queries(self.num_positives, self.memory)
        reported = all_gather_status((width, len(parts)), self.group)
        width, num_parts = (max(of_ranks) for of_ranks in zip(*reported, strict=True))
        parts += [slice(0, 0)] * (num_parts - len(parts))
        # Distances and counts, 8 bytes each, travel twice: to be reduced, and back.
        if sum(layout.query) * (row + 32 * width) < 2 * num_parts * sum(layout.reference) * row:
            return self._of_visiting_queries(width)
        return self._of_visiting_references(parts)

    def _of_visiting_queries(self, width: int) -> Iterator[tuple[slice, PositiveRanks]]:
        inputs, rank = self.inputs, dist.get_rank(self.group)
        labels, self_index = (inputs.query_labels, inputs.reference_labels), inputs.self_index()
        relevance = Relevance(*labels, self_index, self.ranking.label_comparison_fn, inputs.gains, inputs.ignore)
        counter, first = self._counter(inputs.reference), 0
        query_bytes = 64 * (width + 1) + 48 * inputs.query.shape[1]
        size = max(min(self.memory // 4 // relevance.bytes_per_query, self.memory // 2 // query_bytes), 1)
        for owner, count in enumerate(self.layout.query):
            for chunk in chunk_slices(count, size):
                rows = slice(first + chunk.start, first + chunk.stop)
                query = inputs.query.new_empty(chunk.stop - chunk.start, inputs.query.shape[1])
                query = inputs.query[chunk].contiguous() if owner == rank else query
                all_gather_status(None, self.group)
                from_rank(query, owner, self.group)
                queries = MeasuredQueries(query, self_index[rows], relevance(rows))
                queries.measure(inputs.reference, self.first[rank], self.ranking.order, self.memory // 8)
                queries.delta = all_reduce(queries.delta, dist.ReduceOp.MIN, self.group)
                queries.sort_positives()
                if counter:
                    queries.count(counter, self.first[rank])
                queries.before = all_reduce(queries.before, dist.ReduceOp.SUM, self.group)
                if owner == rank:
                    yield chunk, queries.ranks(self.ranking.depth)
            first += count

    def _counter(self, rows: Tensor) -> RankCounter | None:
        """Return a counter of references; the queries are passed later."""
        ranking = self.ranking._replace(memory_budget=max(self.memory // 4, 1))
        return RankCounter(rows[:0], self.self_index[:0], rows, ranking) if len(rows) else None

    def _of_visiting_references(self, parts: list[slice]) -> Iterator[tuple[Tensor, PositiveRanks]]:
        rows = self.inputs.reference
        ring = Ring([rows], self.layout.reference, self.group, block_rows(rows, self.memory))
        for part in parts:
            yield from self._ranks(ring, part)

    def _ranks(self, ring: Ring, part: slice) -> Iterator[tuple[Tensor, PositiveRanks]]:
        tiles = chunk_slices(part.stop, self.chunk_rows, part.start)
        blocks = [
            MeasuredQueries(self.inputs.query, self.self_index[tile], self.relevance(tile), self.order[tile])
            for tile in tiles
        ]

        def measure(first: int, rows: Tensor) -> None:
            for block in blocks:
                block.measure(rows, first, self.ranking.order, self.memory // 8)

        def count(first: int, rows: Tensor) -> None:
            if blocks and (counter := self._counter(rows)):
                for block in blocks:
                    block.count(counter, first)

        ring(measure)
        for block in blocks:
            block.sort_positives()
        ring(count)
        for tile, block in zip(tiles, blocks, strict=True):
            yield self.order[tile], block.ranks(self.ranking.depth)


def _relevance(inputs: RetrievalInputs, ranking: RankingOptions, order: Tensor | None = None) -> Relevance:
    """Return the relevance of the queries of this process, in this order."""
    local = layout_of(inputs).local(layout_of(inputs).query)

    def part(of_all: Tensor) -> Tensor:
        return of_all[local] if order is None else of_all[local][order]

    ignore = (part(inputs.ignore[0]), inputs.ignore[1]) if isinstance(inputs.ignore, tuple) else None
    labels, gains = (part(inputs.query_labels), inputs.reference_labels), inputs.gains
    if isinstance(gains, tuple):
        count = len(inputs.query_labels)
        queries = part(torch.arange(count, device=inputs.query_labels.device))
        gains = triples_of(gains, queries, (count, len(inputs.reference_labels)))
    return Relevance(*labels, part(inputs.self_index()), ranking.label_comparison_fn, gains, ignore)


def layout_of(inputs: RetrievalInputs) -> ShardLayout:
    assert inputs.layout is not None  # checked by the caller
    return inputs.layout


def gathered_scores(scores: Tensor, layout: ShardLayout | None) -> Tensor:
    # scores: (F, q) of the queries of this process  ->  (F, Q) of all
    return scores if layout is None else all_gather_cat(scores.T.contiguous(), layout.group).T.contiguous()


def gathered_ranks(ranks: PositiveRanks, layout: ShardLayout | None) -> PositiveRanks:
    """Gather the ranks of the queries of all processes."""
    if layout is None:
        return ranks
    width = max(all_gather_status(ranks.rank.shape[1], layout.group))

    def gather(part: Any) -> Any:
        if not isinstance(part, Tensor):
            return part
        if part.ndim == 2:
            part = torch.nn.functional.pad(part, (0, width - part.shape[1]))
        return all_gather_cat(part, layout.group)

    return PositiveRanks(*map(gather, ranks))


def gather_ordered_rows(
    inputs: list[tuple[Tensor, Tensor, int]], memory: int, group: Any
) -> tuple[list[tuple[Tensor, list[int]]], int]:
    # inputs: rows (n, D) of this process, or (0,) if none were given, positions (n,) int64, number of rows in total
    # ->  for each input (m, D) rows and how many each process has, in order; the smallest memory of any process
    """Redistribute rows in order of position; raise on all processes if rows are not finite or kinds differ."""
    reported = []
    for rows, positions, count in inputs:
        finite = [finite_rows(chunk) for chunk in rows.split(rows_per_chunk(rows))] if len(rows) else ()
        bad = positions[(~torch.cat([*finite])).nonzero()[:, 0]] if finite else positions
        first = int(bad[0]) if len(bad) else count
        reported.append(
            (tensor_meta(rows), len(bad), first, summarize_positions(positions, count, dist.get_world_size(group)))
        )
    of_inputs, memories = zip(*all_gather_status((reported, memory), group), strict=True)
    results = []
    for (rows, positions, count), of_ranks in zip(inputs, zip(*of_inputs, strict=True), strict=True):
        kinds, wrong, firsts, of_positions = zip(*of_ranks, strict=True)
        shape, dtype, _ = common_kind(list(kinds))
        if sum(wrong):
            raise ValueError(
                f"embeddings: {sum(wrong)} of {count} rows hold NaN or infinity, the first is row {min(firsts)}; "
                "wanted finite values"
            )
        if not len(rows):
            rows = rows.new_empty(0, *(shape[1:] or (1,)), dtype=dtype)
        results.append(redistribute_rows(rows, positions, count, of_positions, group))
    return results, min(memories)
