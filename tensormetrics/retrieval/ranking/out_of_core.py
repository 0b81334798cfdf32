"""Ranks among any number of references that are read in blocks. The integers equal those of all rows in memory.

For a small depth, the neighbors in each block are merged with the best so far, and all references are read once.
Otherwise the positives are measured first, which reads little more than their rows, and then the references are counted
block by block. The state after a block does not depend on the block size, so it can be saved and resumed from.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from ...core.metric.distributed import all_gather_status, all_reduce, from_rank
from ..deterministic import chunk_slices
from ..inputs import RetrievalInputs, Stream, as_embeddings, budget, check_count, check_finite, check_squares
from ..relevance import Comparison, Positives, Relevance, Triples, check_triples, inverse_index, renumber_triples
from ..search.backend import nearest
from ..search.backends.sharded import merge_block
from ..search.knn import TorchKNN
from .blockwise import MeasuredQueries, split_queries
from .positive_ranks import PositiveRanks, read_off, within_depth
from .rank_counts import RankCounter, ranks_of
from .ranking import RankingOptions

LABELS = 2**16  # number of references that labels are compared with at once
ROW_OVERHEAD = 72  # bytes of temporaries for each reference of a block


@torch.no_grad()
def streamed_tiles(
    inputs: RetrievalInputs, stream: Stream, ranking: RankingOptions
) -> Iterator[tuple[slice | Tensor, PositiveRanks]]:
    """Yield the ranks of all queries; see `rank_tiles`."""
    search = StreamSearch(inputs, stream, ranking)
    depth, count = ranking.depth, len(stream.source)
    is_shallow = inputs.ignore is None and ranking.ranks_few(count)
    if depth is not None and is_shallow and 32 * depth * len(inputs.query) <= search.memory:
        return search.tiles_by_search(min(depth, count))
    return search.tiles_by_counting()


class StreamSearch:
    """Search for the positives of all queries in a stream of references."""

    def __init__(self, inputs: RetrievalInputs, stream: Stream, ranking: RankingOptions) -> None:
        check_count(len(stream.source))
        self.inputs, self.source, self.state, self.ranking = inputs, stream.source, stream.state, ranking
        self.memory, self.self_index = ranking.memory(inputs.query.device), inputs.self_index()
        self.checkpoint: dict[str, Any] = stream.state.load() if stream.state else {}
        self.group, self.first, self.stop = stream.group, 0, len(stream.source)
        self.finished = len(self.checkpoint.get("finished", ()))
        if self.group is not None:
            rank, world = dist.get_rank(self.group), dist.get_world_size(self.group)
            self.first, self.stop = (len(stream.source) * r // world for r in (rank, rank + 1))
            reported = all_gather_status((self.memory, self.finished), self.group)
            self.memory, self.finished = (min(of_ranks) for of_ranks in zip(*reported, strict=True))
        # Two blocks are in memory, one of them being read.
        self.step = max(self.memory // 8 // (self.source.row_bytes + ROW_OVERHEAD), 1)
        self.relevance = BlockRelevance(inputs, ranking.label_comparison_fn, self.memory)

    def keep(self, now: bool = False, **values: Any) -> None:
        """Update the checkpoint, and write it when it is due or `now`."""
        self.checkpoint |= values
        if self.state:
            self.state.keep(lambda: self.checkpoint, now)

    def blocks(self, start: int) -> Iterator[tuple[int, Tensor]]:
        # ->  first row, (n, D) finite, of this process
        for first, rows in self.source.blocks(self.step, start, self.stop):
            block = as_embeddings("reference", rows.to(self.self_index.device))
            try:
                check_finite(reference=block)
                check_squares(reference=block)
            except ValueError as error:
                raise ValueError(f"{error} (of the {len(block)} rows from row {first} on)") from None
            yield first, block

    def tiles_by_search(self, depth: int) -> Iterator[tuple[slice, PositiveRanks]]:
        query, checkpoint = self.inputs.query, self.checkpoint
        if "index" not in checkpoint:
            checkpoint["delta"] = torch.full((len(query), depth), torch.inf, dtype=torch.float64, device=query.device)
            checkpoint["index"] = torch.full((len(query), depth), -1, device=query.device)
        knn = TorchKNN(self.ranking.distance, memory_budget=self.memory // 2)
        neighbors = checkpoint["delta"].to(query.device), checkpoint["index"].to(query.device)
        done = checkpoint.get("done", self.first)
        for first, block in self.blocks(done):
            merge_block(knn, neighbors, query, self.self_index, None, block, first)
            done = first + len(block)
            self.keep(delta=neighbors[0], index=neighbors[1], done=done)
        self.keep(now=True)
        neighbors = self._merge_over_ranks(*neighbors)
        for part in self._parts():
            tile = slice(int(part[0]), int(part[-1]) + 1)
            positives, _ = self.relevance.positives(part)
            yield tile, within_depth(*read_off(neighbors[1][tile], positives), positives, self.ranking.depth)

    def _merge_over_ranks(self, delta: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        # delta, index: (Q, k) of this process  ->  the same of all
        if self.group is None:
            return delta, index
        best = torch.full_like(delta, torch.inf), torch.full_like(index, -1)
        for rank in range(dist.get_world_size(self.group)):
            all_gather_status(None, self.group)
            tables = [part.clone() for part in (delta, index)]
            for part in tables:
                from_rank(part, rank, self.group)
            both = torch.cat([best[0], tables[0]], 1), torch.cat([best[1], tables[1]], 1)
            best = nearest(*both, delta.shape[1])
        return best

    def _parts(self) -> list[Tensor]:
        """Split the queries into consecutive parts as large as the memory allows."""
        num_positives = self.relevance.count_relevant().cummax(0).values
        all_queries = torch.arange(len(num_positives), device=num_positives.device)
        return [all_queries[part] for part in split_queries(num_positives, self.memory)]

    def tiles_by_counting(self) -> Iterator[tuple[Tensor, PositiveRanks]]:
        num_positives, order = self.relevance.count_relevant().sort(stable=True)
        parts = [order[part] for part in split_queries(num_positives, self.memory)]
        finished = self.checkpoint.setdefault("finished", [])
        if len(finished) > self.finished:
            # Another process stopped earlier; it needs this one to redo that part and all later ones.
            del finished[self.finished :]
            self._clear_part()
        for index, part in enumerate(parts):
            positives, ignored = self.relevance.positives(part)
            queries = MeasuredQueries(self.inputs.query[part], self.self_index[part], positives, ignored=ignored)
            if index >= len(finished):
                finished.append(self._count(queries))
                self._clear_part()
                self.keep(now=index == len(parts) - 1)
            rank, gain = (None if table is None else table.to(self.self_index.device) for table in finished[index])
            assert rank is not None  # only gains may be missing
            yield part, within_depth(rank, gain, queries.positives, self.ranking.depth)

    def _clear_part(self) -> None:
        """Remove the results of the current part of the queries from the checkpoint."""
        for name in ("measured", "delta", "counted", "before"):
            self.checkpoint.pop(name, None)

    def _count(self, queries: MeasuredQueries) -> list[Tensor | None]:
        # ->  ranks (q, P) and gains
        self._measure(queries)
        if self.group is not None:
            queries.delta = all_reduce(queries.delta.clone(), dist.ReduceOp.MIN, self.group)
        queries.sort_positives()
        if "before" in self.checkpoint:
            queries.before = self.checkpoint["before"].to(self.self_index.device)
        ranking = self.ranking._replace(memory_budget=max(self.memory // 2, 1))
        for first, block in self.blocks(self.checkpoint.get("counted", self.first)):
            queries.count(RankCounter(block[:0], self.self_index[:0], block, ranking), first)
            self.keep(before=queries.before, counted=first + len(block))
        before = queries.before
        if self.group is not None:
            before = all_reduce(before.clone(), dist.ReduceOp.SUM, self.group)
        return [*ranks_of(before, queries.num_measured, queries.gain)]

    def _measure(self, queries: MeasuredQueries) -> None:
        """Compute the distances of the positives; only their rows are read."""
        if "delta" in self.checkpoint:
            queries.delta = self.checkpoint["delta"].to(self.self_index.device)
        indices = queries.index[(queries.index >= self.first) & (queries.index < self.stop)].unique()
        for index, rows in enumerate(indices.split(max(self.step // 2, 1))):
            if len(rows) and index >= self.checkpoint.get("measured", 0):
                block = as_embeddings("reference", self.source.take(rows).to(self.self_index.device))
                queries.measure_rows(block, rows, self.ranking.order, self.memory // 8)
                self.keep(delta=queries.delta, measured=index + 1)


class BlockRelevance:
    """Relevant references, computed in blocks of reference labels, so that tables have few columns."""

    def __init__(self, inputs: RetrievalInputs, comparison: Comparison | None, memory: int) -> None:
        if inputs.ignore is not None and not isinstance(inputs.ignore, tuple):
            raise ValueError("ignore: got a mask or a function with references in blocks, wanted pairs of groups")
        self.triples: Triples | None = None
        if isinstance(inputs.gains, tuple):
            check_triples(inputs.gains, (len(inputs.query_labels), len(inputs.reference_labels)))
            order = inputs.gains[1].argsort(stable=True)
            self.triples = tuple(column[order] for column in inputs.gains)
        elif isinstance(inputs.gains, Tensor):
            raise ValueError(
                "gains: got a number for each pair with references in blocks, wanted a function of pairs of labels, or "
                "a tuple (queries, references, gains); write (*gains.nonzero().unbind(1), gains[gains != 0])"
            )
        self.inputs, self.comparison, self.memory, self.self_index = inputs, comparison, memory, inputs.self_index()

    def _of_blocks(self, part: Tensor) -> Iterator[tuple[Tensor, int, Positives]]:
        # part: (q,) int64  ->  positions in it, first reference, positives of the block
        inputs, labels = self.inputs, self.inputs.reference_labels
        positions = inverse_index(part, len(self.self_index))
        for first in range(0, len(labels), LABELS):
            block_labels = labels[first : first + LABELS]
            self_index = self.self_index[part] - first
            self_index = self_index.where((self_index >= 0) & (self_index < len(block_labels)), -1)
            ignore = None
            if isinstance(inputs.ignore, tuple):
                ignore = inputs.ignore[0][part], inputs.ignore[1][first : first + LABELS]
            gains = self._triples(positions, first, len(block_labels)) if self.triples else inputs.gains
            relevance = Relevance(inputs.query_labels[part], block_labels, self_index, self.comparison, gains, ignore)
            for tile in chunk_slices(len(part), max(self.memory // 4 // relevance.bytes_per_query, 1)):
                yield torch.arange(tile.start, tile.stop, device=self_index.device), first, relevance(tile)

    def _triples(self, positions: Tensor, first: int, count: int) -> Triples:
        # positions: (Q,) int64, of each query in the part, -1 = none
        """Return the gains of some queries in a block of references."""
        assert self.triples is not None
        reference = self.triples[1]
        start, stop = torch.searchsorted(
            reference, torch.tensor([first, first + count], device=reference.device)
        ).tolist()
        query, reference, gain = (column[start:stop] for column in self.triples)
        return renumber_triples(
            (query, reference - first, gain), positions, torch.arange(count, device=positions.device)
        )

    def count_relevant(self) -> Tensor:
        # ->  (Q,) int64
        counts = torch.zeros_like(self.self_index)
        all_queries = torch.arange(len(counts), device=counts.device)
        for rows, _, positives in self._of_blocks(all_queries) if len(all_queries) else ():
            counts[rows] += positives.relevant
        return counts

    def positives(self, part: Tensor) -> tuple[Positives, Tensor | None]:
        # part: (q,) int64  ->  positives of these queries, (q, I) int64, ignored references, -1 = none
        pairs, gains, ignored_pairs = [], [], []
        relevant, candidates = (torch.zeros_like(part) for _ in range(2))
        for rows, first, block in self._of_blocks(part):
            cells = (block.index >= 0).nonzero()
            pairs.append(torch.stack([rows[cells[:, 0]], block.index[cells[:, 0], cells[:, 1]] + first]))
            if block.gain is not None:
                gains.append(block.gain[cells[:, 0], cells[:, 1]])
            if block.ignored is not None:
                row, column = block.ignored.nonzero().unbind(1)
                ignored_pairs.append(torch.stack([rows[row], column + first]))
            relevant[rows] += block.relevant
            candidates[rows] += block.candidates
        index, order, slot = _table(torch.cat(pairs, 1), len(part))
        gain = None
        if gains:
            gain = torch.zeros(index.shape, dtype=torch.float64, device=index.device)
            gain[slot] = torch.cat(gains)[order]
        ignored = _table(torch.cat(ignored_pairs, 1), len(part))[0] if ignored_pairs else None
        return Positives(index, relevant, candidates, gain, None), ignored


def _table(pairs: Tensor, rows: int) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
    # pairs: (2, n) rows and columns  ->  (rows, P) int64, ascending, then -1; (n,) order of the pairs, their cells
    order = pairs[0].argsort(stable=True)
    row, column = pairs[:, order]
    counts = torch.bincount(row, minlength=rows)
    slot = torch.arange(len(row), device=row.device) - (counts.cumsum(0) - counts)[row]
    table = torch.full((rows, int(counts.max()) if rows else 0), -1, device=row.device)
    table[row, slot] = column
    return table, order, (row, slot)


def counts_by_blocks(inputs: RetrievalInputs, comparison: Comparison | None, memory_budget: int | None) -> Tensor:
    # ->  (Q,) int64, R of every query
    return BlockRelevance(inputs, comparison, budget(memory_budget, inputs.query.device)).count_relevant()
