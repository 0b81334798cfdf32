"""Ranks among references that are read in blocks, however many there are. Integers are those of all rows in memory.

Where few neighbours are wanted, those of each block are put with the best so far, and all references are read once.
Else positives are measured first, for which little more than their rows is read, and then the references are counted
block by block. What is known after a block does not depend on how the references were cut: it can be kept, and gone on
from.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from ..._distributed import all_gather_status, all_reduce, from_rank
from ..inputs import RetrievalInputs, Stream, as_embeddings, budget, check_count, check_finite, check_squares
from ..relevance import Comparison, Positives, Relevance, Triples, check_triples, numbered_anew, positions_among
from ..search.backend import nearest
from ..search.backends.sharded import merge_block
from ..search.knn import TorchKNN
from .blockwise import Measured, parts_of, pieces
from .positive_ranks import PositiveRanks, read_off, within_depth
from .rank_counts import RankCounter, ranks_of
from .ranking import Ranking

LABELS = 2**16  # references whose labels are compared at once
BESIDES = 72  # bytes for each reference of a block: what is made of its row


@torch.no_grad()
def streamed_tiles(
    sides: RetrievalInputs, stream: Stream, ranking: Ranking
) -> Iterator[tuple[slice | Tensor, PositiveRanks]]:
    """Ranks of all queries; see `rank_tiles`."""
    search = StreamSearch(sides, stream, ranking)
    depth, count = ranking.depth, len(stream.source)
    few = depth is not None and depth <= max(64, count // 32) and ranking.ties == "index" and sides.ignore is None
    if depth is not None and few and 32 * depth * len(sides.query) <= search.memory:
        return search.of_neighbours(min(depth, count))
    return search.by_counting()


class StreamSearch:
    """Looks for the positives of all queries in a stream of references."""

    def __init__(self, sides: RetrievalInputs, stream: Stream, ranking: Ranking) -> None:
        check_count(len(stream.source))
        self.sides, self.source, self.state, self.ranking = sides, stream.source, stream.state, ranking
        self.memory, self.own = ranking.memory(sides.query.device), sides.self_index()
        self.kept: dict[str, Any] = stream.state.load() if stream.state else {}
        self.group, self.first, self.stop = stream.group, 0, len(stream.source)
        self.finished = len(self.kept.get("finished", ()))
        if self.group is not None:
            rank, world = dist.get_rank(self.group), dist.get_world_size(self.group)
            self.first, self.stop = (len(stream.source) * r // world for r in (rank, rank + 1))
            told = all_gather_status((self.memory, self.finished), self.group)
            self.memory, self.finished = (min(of_ranks) for of_ranks in zip(*told, strict=True))
        # Two blocks are held, one of them being read.
        self.step = max(self.memory // 8 // (self.source.row_bytes + BESIDES), 1)
        self.relevance = BlockRelevance(sides, ranking.label_comparison_fn, self.memory)

    def keep(self, now: bool = False, **found: Any) -> None:
        """Lets the state know: all it has, where it was written before."""
        self.kept |= found
        if self.state:
            self.state.keep(lambda: self.kept, now)

    def blocks(self, start: int) -> Iterator[tuple[int, Tensor]]:
        # ->  first row, (n, D) finite, of this process
        for first, rows in self.source.blocks(self.step, start, self.stop):
            block = as_embeddings("reference", rows.to(self.own.device))
            try:
                check_finite(reference=block)
                check_squares(reference=block)
            except ValueError as error:
                raise ValueError(f"{error} (of the {len(block)} rows from row {first} on)") from None
            yield first, block

    def of_neighbours(self, depth: int) -> Iterator[tuple[slice, PositiveRanks]]:
        query, kept = self.sides.query, self.kept
        if "index" not in kept:
            kept["delta"] = torch.full((len(query), depth), torch.inf, dtype=torch.float64, device=query.device)
            kept["index"] = torch.full((len(query), depth), -1, device=query.device)
        knn = TorchKNN(self.ranking.distance, memory_budget=self.memory // 2)
        found = kept["delta"].to(query.device), kept["index"].to(query.device)
        done = kept.get("done", self.first)
        for first, block in self.blocks(done):
            merge_block(knn, found, query, self.own, None, block, first)
            done = first + len(block)
            self.keep(delta=found[0], index=found[1], done=done)
        self.keep(now=True)
        found = self._of_all(*found)
        for part in self._parts():
            tile = slice(int(part[0]), int(part[-1]) + 1)
            positives, _ = self.relevance.positives(part)
            yield tile, within_depth(*read_off(found[1][tile], positives), positives, self.ranking.depth)

    def _of_all(self, delta: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        # delta, index: (Q, k) of this process  ->  the same of all
        if self.group is None:
            return delta, index
        best = torch.full_like(delta, torch.inf), torch.full_like(index, -1)
        for rank in range(dist.get_world_size(self.group)):
            all_gather_status(None, self.group)
            told = [part.clone() for part in (delta, index)]
            for part in told:
                from_rank(part, rank, self.group)
            both = torch.cat([best[0], told[0]], 1), torch.cat([best[1], told[1]], 1)
            best = nearest(*both, delta.shape[1])
        return best

    def _parts(self) -> list[Tensor]:
        """Queries that follow each other, as many at once as the memory takes of their positives."""
        number = self.relevance.numbers().cummax(0).values
        every = torch.arange(len(number), device=number.device)
        return [every[part] for part in parts_of(number, self.memory)]

    def by_counting(self) -> Iterator[tuple[Tensor, PositiveRanks]]:
        number, order = self.relevance.numbers().sort(stable=True)
        parts = [order[part] for part in parts_of(number, self.memory)]
        finished = self.kept.setdefault("finished", [])
        if len(finished) > self.finished:
            # Another process stopped before; it wants what this one knows of that part, and so of all behind it.
            del finished[self.finished :]
            self._forget()
        for place, part in enumerate(parts):
            known = Measured(self.sides.query[part], self.own[part], *self.relevance.positives(part))
            if place >= len(finished):
                finished.append(self._counted(known))
                self._forget()
                self.keep(now=place == len(parts) - 1)
            rank, gain = (None if each is None else each.to(self.own.device) for each in finished[place])
            assert rank is not None  # only gains may be missing
            yield part, within_depth(rank, gain, known.positives, self.ranking.depth)

    def _forget(self) -> None:
        """What is of one part of the queries."""
        for name in ("measured", "delta", "counted", "before"):
            self.kept.pop(name, None)

    def _counted(self, known: Measured) -> list[Tensor | None]:
        # ->  ranks (q, P) and gains
        self._measure(known)
        if self.group is not None:
            known.delta = all_reduce(known.delta.clone(), dist.ReduceOp.MIN, self.group)
        known.put_in_order()
        if "before" in self.kept:
            known.before = self.kept["before"].to(self.own.device)
        ranking = self.ranking._replace(memory_budget=max(self.memory // 2, 1))
        for first, block in self.blocks(self.kept.get("counted", self.first)):
            known.count(RankCounter(block[:0], self.own[:0], block, ranking), first)
            self.keep(before=known.before, counted=first + len(block))
        before = known.before
        if self.group is not None:
            before = all_reduce(before.clone(), dist.ReduceOp.SUM, self.group)
        return [*ranks_of(before, known.found, known.gain)]

    def _measure(self, known: Measured) -> None:
        """The distances of the positives, whose rows alone are read."""
        if "delta" in self.kept:
            known.delta = self.kept["delta"].to(self.own.device)
        there = known.index[(known.index >= self.first) & (known.index < self.stop)].unique()
        for number, rows in enumerate(there.split(max(self.step // 2, 1))):
            if len(rows) and number >= self.kept.get("measured", 0):
                block = as_embeddings("reference", self.source.take(rows).to(self.own.device))
                known.measure_some(block, rows, self.ranking.order, self.memory // 8)
                self.keep(delta=known.delta, measured=number + 1)


class BlockRelevance:
    """Which references are relevant, found block by block of their labels, so that tables have few columns."""

    def __init__(self, sides: RetrievalInputs, comparison: Comparison | None, memory: int) -> None:
        if sides.ignore is not None and not isinstance(sides.ignore, tuple):
            raise ValueError("ignore: got a mask or a function with references in blocks, wanted pairs of groups")
        self.triples: Triples | None = None
        if isinstance(sides.gains, tuple):
            check_triples(sides.gains, (len(sides.query_labels), len(sides.reference_labels)))
            order = sides.gains[1].argsort(stable=True)
            self.triples = tuple(column[order] for column in sides.gains)
        elif isinstance(sides.gains, Tensor):
            raise ValueError(
                "gains: got a number for each pair with references in blocks, wanted a function of pairs of labels, or "
                "a tuple (queries, references, gains); write (*gains.nonzero().unbind(1), gains[gains != 0])"
            )
        self.sides, self.comparison, self.memory, self.own = sides, comparison, memory, sides.self_index()

    def _of_blocks(self, part: Tensor) -> Iterator[tuple[Tensor, int, Positives]]:
        # part: (q,) int64  ->  places in it, first reference, what is known of them
        sides, labels = self.sides, self.sides.reference_labels
        place = positions_among(part, len(self.own))
        for first in range(0, len(labels), LABELS):
            here = labels[first : first + LABELS]
            own = self.own[part] - first
            own = own.where((own >= 0) & (own < len(here)), -1)
            ignore = None
            if isinstance(sides.ignore, tuple):
                ignore = sides.ignore[0][part], sides.ignore[1][first : first + LABELS]
            gains = self._triples(place, first, len(here)) if self.triples else sides.gains
            relevance = Relevance(sides.query_labels[part], here, own, self.comparison, gains, ignore)
            for tile in pieces(len(part), max(self.memory // 4 // relevance.bytes_per_query, 1)):
                yield torch.arange(tile.start, tile.stop, device=own.device), first, relevance(tile)

    def _triples(self, place: Tensor, first: int, count: int) -> Triples:
        # place: (Q,) int64
        """Those of some queries in a block of references."""
        assert self.triples is not None  # asked for only where there are some
        reference = self.triples[1]
        begin, end = torch.searchsorted(
            reference, torch.tensor([first, first + count], device=reference.device)
        ).tolist()
        query, reference, gain = (column[begin:end] for column in self.triples)
        return numbered_anew((query, reference - first, gain), place, torch.arange(count, device=place.device))

    def numbers(self) -> Tensor:
        # ->  (Q,) int64, how many references are relevant
        every, number = torch.arange(len(self.own), device=self.own.device), torch.zeros_like(self.own)
        for places, _, positives in self._of_blocks(every) if len(every) else ():
            number[places] += positives.relevant
        return number

    def positives(self, part: Tensor) -> tuple[Positives, Tensor | None]:
        # part: (q,) int64  ->  those of these queries, (q, I) int64, what is ignored, -1 = none
        pairs, gains, hidden = [], [], []
        relevant, candidates = (torch.zeros_like(part) for _ in range(2))
        for places, first, found in self._of_blocks(part):
            at = (found.index >= 0).nonzero()
            pairs.append(torch.stack([places[at[:, 0]], found.index[at[:, 0], at[:, 1]] + first]))
            if found.gain is not None:
                gains.append(found.gain[at[:, 0], at[:, 1]])
            if found.ignored is not None:
                row, column = found.ignored.nonzero().unbind(1)
                hidden.append(torch.stack([places[row], column + first]))
            relevant[places] += found.relevant
            candidates[places] += found.candidates
        index, order, place = _table(torch.cat(pairs, 1), len(part))
        gain = None
        if gains:
            gain = torch.zeros(index.shape, dtype=torch.float64, device=index.device)
            gain[place] = torch.cat(gains)[order]
        ignored = _table(torch.cat(hidden, 1), len(part))[0] if hidden else None
        return Positives(index, relevant, candidates, gain, None), ignored


def _table(pairs: Tensor, rows: int) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
    # pairs: (2, n) rows and columns  ->  (rows, P) int64, ascending, then -1; (n,) order of the pairs, their places
    order = pairs[0].argsort(stable=True)
    row, column = pairs[:, order]
    number = torch.bincount(row, minlength=rows)
    place = torch.arange(len(row), device=row.device) - (number.cumsum(0) - number)[row]
    table = torch.full((rows, int(number.max()) if rows else 0), -1, device=row.device)
    table[row, place] = column
    return table, order, (row, place)


def counts_by_blocks(sides: RetrievalInputs, comparison: Comparison | None, memory_budget: int | None) -> Tensor:
    # ->  (Q,) int64, R of every query
    return BlockRelevance(sides, comparison, budget(memory_budget, sides.query.device)).numbers()
