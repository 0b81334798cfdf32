"""Ranks of references that are spread over processes. Integers are those of one process with all rows.

What is less travels. Where blocks of references do, a process holds besides its own rows the block it works on and the
next one, and of its own queries as many at once as the memory budget lets it keep what it knows of their positives. For
each such part of the queries all references go round twice: for the distances of the positives, and to be counted.
Where queries travel, a block of them is at all processes at once, each measures and counts its own references, and the
distances of the positives and the counts are put together.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from ..._distributed import all_gather_cat, all_gather_status, all_reduce, common_kind, from_rank, tensor_meta
from ..inputs import RetrievalInputs, ShardLayout, check_squares, few_rows, finite_rows
from ..relevance import Relevance, triples_of
from ..search.backends.sharded import ShardedKNN
from ..search.distance import equal_rows
from ..search.knn import TorchKNN
from ..search.product_filter import Normalization
from ..search.ring.normalization import common_frame
from ..search.ring.ring_pass import Ring, at_once, in_places, told_of_places, travel_memory
from .blockwise import Measured, parts_of, pieces
from .out_of_core import streamed_tiles
from .positive_ranks import PositiveRanks, rank_tiles, read_off, within_depth
from .rank_counts import RankCounter
from .ranking import Ranking


def tiles_of(sides: RetrievalInputs, ranking: Ranking) -> Iterator[tuple[slice | Tensor, PositiveRanks]]:
    """Ranks of all queries, or where they are spread of those of this process, numbered among these."""
    if sides.stream is not None:
        return streamed_tiles(sides, sides.stream, ranking)
    return rank_tiles(sides, ranking) if sides.spread is None else _spread_tiles(sides, ranking)


@torch.no_grad()
def _spread_tiles(sides: RetrievalInputs, ranking: Ranking) -> Iterator[tuple[slice | Tensor, PositiveRanks]]:
    spread, count = spread_of(sides), len(sides.reference_labels)
    # As one process decides, if there is room for the neighbours of all queries.
    depth = ranking.depth
    few = ranking.ties == "index" and sides.ignore is None
    few &= depth is not None and depth <= max(64, count // 32) and 32 * depth * max(spread.query) <= spread.memory
    if count and few and depth is not None:
        yield from _tiles_of_neighbours(sides, ranking, min(depth, count))
    elif count:
        yield from _SpreadCounter(sides, ranking._replace(memory_budget=spread.memory)).tiles()


def _tiles_of_neighbours(sides: RetrievalInputs, ranking: Ranking, depth: int) -> Iterator[tuple[slice, PositiveRanks]]:
    spread = spread_of(sides)
    found = spread.found
    if "index" not in found or found["index"].shape[1] < depth:
        knn = ShardedKNN(spread.group, TorchKNN(ranking.distance, memory_budget=spread.memory))
        own = sides.self_index()[spread.own()]
        found["index"] = knn.search(sides.query, depth, sides.reference, own, spread.reference)[1]
    relevance = _relevance(sides, ranking)
    rows = max(spread.memory // 4 // (relevance.bytes_per_query + 96 * depth), 1)
    for tile in pieces(len(sides.query), rows):
        positives = relevance(tile)
        yield tile, within_depth(*read_off(found["index"][tile, :depth], positives), positives, depth)


class _SpreadCounter:
    """Ranks of the queries of this process, by counting the references of all."""

    def __init__(self, sides: RetrievalInputs, ranking: Ranking) -> None:
        self.sides, self.spread, self.ranking = sides, spread_of(sides), ranking
        self.group = self.spread.group
        relevance, (_, dim) = _relevance(sides, ranking), sides.reference.shape
        # What `at_once`, `parts_of` and the tiles below take for one query or reference.
        each = max(8 * dim * sides.reference.element_size(), 128 * dim) + 4 * relevance.bytes_per_query + 128
        rows = max(*self.spread.query, *self.spread.reference)
        self.memory = travel_memory(self.spread.memory, max(all_gather_status(each, self.group)), rows, self.group)
        self.first = [sum(self.spread.reference[:rank]) for rank in range(len(self.spread.reference))]
        self.most = max(self.memory // 4 // max(relevance.bytes_per_query, 32 * dim), 1)
        # Those of like numbers of positives together, so that tables are not as wide as the widest.
        number = [relevance(tile).relevant for tile in pieces(len(sides.query), self.most)]
        self.number, self.order = torch.cat([sides.self_index()[:0], *number]).sort(stable=True)
        self.relevance = _relevance(sides, ranking, self.order)
        check_squares(query=sides.query, reference=sides.reference)
        self.own = sides.self_index()[self.spread.own()][self.order]

    def tiles(self) -> Iterator[tuple[slice | Tensor, PositiveRanks]]:
        spread, row = self.spread, self.sides.reference[:0].element_size() * self.sides.reference.shape[1]
        width = int(self.number[-1]) if len(self.number) else 0
        parts = parts_of(self.number, self.memory)
        told = all_gather_status((width, len(parts)), self.group)
        width, most = (max(of_ranks) for of_ranks in zip(*told, strict=True))
        parts += [slice(0, 0)] * (most - len(parts))
        # Distances and counts, 8 bytes each, go twice: to be added, and the sum back.
        if sum(spread.query) * (row + 32 * width) < 2 * most * sum(spread.reference) * row:
            return self._of_visiting_queries(width)
        return self._of_visiting_references(parts)

    def _of_visiting_queries(self, width: int) -> Iterator[tuple[slice, PositiveRanks]]:
        sides, rank = self.sides, dist.get_rank(self.group)
        labels, own = (sides.query_labels, sides.reference_labels), sides.self_index()
        relevance = Relevance(*labels, own, self.ranking.label_comparison_fn, sides.gains, sides.ignore)
        counter, first = self._counter(sides.reference), 0
        each = 64 * (width + 1) + 48 * sides.query.shape[1]
        size = max(min(self.memory // 4 // relevance.bytes_per_query, self.memory // 2 // each), 1)
        for owner, count in enumerate(self.spread.query):
            for piece in pieces(count, size):
                here = slice(first + piece.start, first + piece.stop)
                query = (
                    sides.query[piece].contiguous()
                    if owner == rank
                    else sides.query.new_empty(_size(piece), sides.query.shape[1])
                )
                all_gather_status(None, self.group)
                from_rank(query, owner, self.group)
                known = Measured.of(query, own[here], relevance(here))
                known.measure(sides.reference, self.first[rank], self.ranking.order, self.memory // 8)
                known.delta = all_reduce(known.delta, dist.ReduceOp.MIN, self.group)
                known.put_in_order()
                if counter:
                    known.count(counter, self.first[rank])
                known.before = all_reduce(known.before, dist.ReduceOp.SUM, self.group)
                if owner == rank:
                    yield piece, known.ranks(self.ranking.depth)
            first += count

    def _counter(self, rows: Tensor, *known: Any) -> RankCounter | None:
        """Of references; the queries come later."""
        ranking = self.ranking._replace(memory_budget=max(self.memory // 4, 1))
        return RankCounter(rows[:0], self.own[:0], rows, ranking, *known) if len(rows) else None

    def _of_visiting_references(self, parts: list[slice]) -> Iterator[tuple[Tensor, PositiveRanks]]:
        rows, sizes = self.sides.reference, self.spread.reference
        frame, norms = common_frame(rows, self.ranking.order, self.group)
        most = at_once(rows, self.memory, 16)
        # Of the rows that go together.
        equal = torch.cat([self.own[:0], *(equal_rows(rows[part]) for part in pieces(len(rows), most))])
        ring = Ring((rows, equal, norms), sizes, self.group, most)
        for part in parts:
            yield from self._ranks(ring, frame, part)

    def _ranks(self, ring: Ring, frame: Normalization, part: slice) -> Iterator[tuple[Tensor, PositiveRanks]]:
        query = self.sides.query
        tiles = [slice(rows.start + part.start, rows.stop + part.start) for rows in pieces(_size(part), self.most)]
        kept = 64 * _size(part) * query.shape[1] <= self.memory
        known = [Measured.of(query, self.own[tile], self.relevance(tile), self.order[tile], kept) for tile in tiles]

        def measure(first: int, rows: Tensor, *_: Tensor) -> None:
            for of_tile in known:
                of_tile.measure(rows, first, self.ranking.order, self.memory // 8)

        def count(first: int, rows: Tensor, equal: Tensor, norms: Tensor) -> None:
            if known and (counter := self._counter(rows, equal, frame, norms)):
                for of_tile in known:
                    of_tile.count(counter, first)

        ring(measure)
        for of_tile in known:
            of_tile.put_in_order()
        ring(count)
        for tile, of_tile in zip(tiles, known, strict=True):
            yield self.order[tile], of_tile.ranks(self.ranking.depth)


def _relevance(sides: RetrievalInputs, ranking: Ranking, order: Tensor | None = None) -> Relevance:
    """Of the queries of this process, in this order."""
    own = spread_of(sides).own()

    def part(of_all: Tensor) -> Tensor:
        return of_all[own] if order is None else of_all[own][order]

    ignore = (part(sides.ignore[0]), sides.ignore[1]) if isinstance(sides.ignore, tuple) else None
    labels, gains = (part(sides.query_labels), sides.reference_labels), sides.gains
    if isinstance(gains, tuple):
        count = len(sides.query_labels)
        queries = part(torch.arange(count, device=sides.query_labels.device))
        gains = triples_of(gains, queries, (count, len(sides.reference_labels)))
    return Relevance(*labels, part(sides.self_index()), ranking.label_comparison_fn, gains, ignore)


def spread_of(sides: RetrievalInputs) -> ShardLayout:
    assert sides.spread is not None  # who asks has seen that rows are spread
    return sides.spread


def gathered_scores(scores: Tensor, spread: ShardLayout | None) -> Tensor:
    # scores: (F, q) of the queries of this process  ->  (F, Q) of all
    return scores if spread is None else all_gather_cat(scores.T.contiguous(), spread.group).T.contiguous()


def gathered_ranks(ranks: PositiveRanks, spread: ShardLayout | None) -> PositiveRanks:
    """Of the queries of all processes, from those of this one."""
    if spread is None:
        return ranks
    width = max(all_gather_status(ranks.rank.shape[1], spread.group))

    def whole(part: Any) -> Any:
        if not isinstance(part, Tensor):
            return part
        if part.ndim == 2:
            part = torch.nn.functional.pad(part, (0, width - part.shape[1]))
        return all_gather_cat(part, spread.group)

    return PositiveRanks(*map(whole, ranks))


def rows_in_places(
    sides: list[tuple[Tensor, Tensor, int]], memory: int, group: Any
) -> tuple[list[tuple[Tensor, list[int]]], int]:
    # of each side rows (n, D) of this process, or (0,) before the first, and places (n,) int64 among so many of all
    # ->  of each (m, D), how many each process has, one after the other; the least memory of any process
    """ValueError on all processes where some rows hold NaN or infinity, or kinds differ."""
    told = []
    for rows, places, count in sides:
        finite = [finite_rows(piece) for piece in rows.split(few_rows(rows))] if len(rows) else ()
        bad = places[(~torch.cat([*finite])).nonzero()[:, 0]] if finite else places
        first = int(bad[0]) if len(bad) else count
        told.append((tensor_meta(rows), len(bad), first, told_of_places(places, count, dist.get_world_size(group))))
    of_sides, memories = zip(*all_gather_status((told, memory), group), strict=True)
    settled = []
    for (rows, places, count), of_ranks in zip(sides, zip(*of_sides, strict=True), strict=True):
        kinds, wrong, firsts, of_places = zip(*of_ranks, strict=True)
        shape, dtype, _ = common_kind(list(kinds))
        if sum(wrong):
            raise ValueError(
                f"embeddings: {sum(wrong)} of {count} rows hold NaN or infinity, the first is row {min(firsts)}; "
                "wanted finite values"
            )
        if not len(rows):
            rows = rows.new_empty(0, *(shape[1:] or (1,)), dtype=dtype)
        settled.append(in_places(rows, places, count, of_places, group))
    return settled, min(memories)


def _size(part: slice) -> int:
    return part.stop - part.start
