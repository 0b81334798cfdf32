"""Ranks of references that are spread over processes: queries travel, a block at a time, and references stay.

In every block all processes count, each among its own references, and the counts add up. Integers are those of one
process with all rows. Besides its own rows, a process holds a block of the queries, the references that are relevant
to them, and these with its own made ready; blocks take queries in the order of their labels, so that they are few.
A comparison or gains under which most references are relevant to a block bring most rows to every process.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from ..._metric import gather
from ..relevance import Positives, Relevance
from ..rows import Sides, Spread, check_finite, check_squares
from .counting import RankCounter
from .ranking import Ranking
from .ranks import PositiveRanks, no_ranks, rank_tiles, within_depth

BLOCKS = 4  # for each process
LEAST = 256  # queries of a block


def tiles_of(sides: Sides, ranking: Ranking) -> Iterator[tuple[slice | Tensor, PositiveRanks]]:
    """Ranks for the rows of this process, or of all where they are spread; rows as slices or (n,) int64."""
    return rank_tiles(sides, ranking) if sides.spread is None else _spread_tiles(sides, sides.spread, ranking)


@torch.no_grad()
def _spread_tiles(sides: Sides, spread: Spread, ranking: Ranking) -> Iterator[tuple[Tensor, PositiveRanks]]:
    if not len(sides.query_labels):
        return
    by_label = sides.query_labels.unique(dim=0, return_inverse=True)[1].argsort(stable=True)
    size = max(-(-len(by_label) // (BLOCKS * dist.get_world_size(spread.group))), LEAST)
    blocks = [block.sort().values for block in by_label.split(size)]
    order = torch.cat(blocks)
    own = sides.self_index()
    ignore = (sides.ignore[0][order], sides.ignore[1]) if isinstance(sides.ignore, tuple) else None
    labels = sides.query_labels[order], sides.reference_labels
    relevance = Relevance(*labels, own[order], ranking.label_comparison_fn, sides.gains, ignore)
    most = max(ranking.memory(own.device) // 4 // relevance.bytes_per_query, 1)
    for number, block in enumerate(blocks):
        start = number * size
        wanted = torch.zeros(len(sides.reference_labels), dtype=torch.bool, device=own.device)
        for piece in _pieces(len(block), most):
            index = relevance(_moved(piece, start)).index
            wanted[index[index >= 0]] = True
        # Nothing is counted for a block of lone queries.
        counter = _BlockCounter(sides, spread, block, wanted, ranking) if wanted.any() else None
        for piece in _pieces(len(block), min(counter.rows, most) if counter else most):
            positives = relevance(_moved(piece, start))
            found = counter(piece, positives) if counter else no_ranks(positives)
            yield block[piece], within_depth(*found, positives, ranking.depth)


class _BlockCounter:
    """`counter(rows, positives)` gives ranks for a slice of a block of queries, counted by all processes together.

    Each holds its own references and those that are relevant to the block, in the order of all references. Only its own
    are counted; the others say where the relevant ones lie.
    """

    def __init__(self, sides: Sides, spread: Spread, block: Tensor, wanted: Tensor, ranking: Ranking) -> None:
        # block: (B,) int64 among the queries of all  wanted: (N,) bool, the references that are relevant to them
        places, self.group = spread.reference, spread.group
        relevant = rows_at(sides.reference, places, wanted, self.group)
        self.held = wanted.index_fill(0, places, True)
        self.column = self.held.cumsum(0) - 1
        reference = relevant.new_empty(int(self.held.sum()), relevant.shape[1])
        reference[self.column[wanted]] = relevant
        reference[self.column[places]] = sides.reference
        self.foreign = torch.ones(len(reference), dtype=torch.bool, device=wanted.device)
        self.foreign[self.column[places]] = False
        self_index = sides.self_index()
        of_block = torch.zeros_like(self_index, dtype=torch.bool).index_fill(0, block, True)
        query = rows_at(sides.query, spread.query, of_block, self.group)
        check_squares(query=query, reference=reference)
        self.counter = RankCounter(query, self._column_of(self_index[block]), reference, ranking)
        # Processes go on in step, as far as the one with the least room.
        self.rows = int(self._reduced(block.new_tensor(self.counter.rows), dist.ReduceOp.MIN))

    def __call__(self, rows: slice, positives: Positives) -> tuple[Tensor, Tensor | None]:
        # ->  (Q, P) int32 ascending, 0 = none, (Q, P) float64 their gains or None
        ignored = self.foreign.expand(len(positives.relevant), -1)
        if positives.ignored is not None:
            ignored = ignored | positives.ignored[:, self.held]
        index = self._column_of(positives.index)
        rank, gain = self.counter(rows, positives._replace(index=index, ignored=ignored))
        place = torch.arange(1, rank.shape[1] + 1, dtype=rank.dtype, device=rank.device)
        found = rank > 0
        return (self._reduced((rank - place) * found, dist.ReduceOp.SUM) + place) * found, gain

    def _column_of(self, index: Tensor) -> Tensor:
        # index: (...) int64 among all references, -1 = none  ->  (...) among those held here
        known = (index >= 0) & self.held[index]
        return torch.where(known, self.column[index], -1)

    def _reduced(self, tensor: Tensor, how: dist.ReduceOp.RedOpType) -> Tensor:
        dist.all_reduce(tensor, how, group=self.group)
        return tensor


def rows_at(rows: Tensor, places: Tensor, wanted: Tensor, group: Any) -> Tensor:
    # rows: (n, D) of this process  places: (n,) int64  wanted: (N,) bool  ->  (M, D) the wanted rows of all, in order
    table = rows.new_zeros(int(wanted.sum()), rows.shape[1])
    here = wanted[places]
    table[wanted.cumsum(0)[places[here]] - 1] = rows[here]
    # Every row has one process, and adding zero bytes changes no bits.
    dist.all_reduce(table.view(torch.uint8), group=group)
    return table


def with_columns(rows: Tensor, group: Any) -> Tensor:
    # rows: (n, D), or (0,) before the first  ->  (n, D); (0,) only where no process has rows
    """ValueError on all processes where they differ in D or dtype."""
    parts = gather(rows[:1], group)
    return rows if len(rows) else parts[dist.get_rank(group)]


def check_finite_everywhere(rows: Tensor, places: Tensor, count: int, group: Any) -> None:
    # rows: (n, D) of this process  places: (n,) among `count` rows of all
    """The ValueError of `check_finite`, on all processes."""
    everywhere = torch.ones(count, dtype=torch.bool, device=places.device)
    marks = torch.where(rows.flatten(1).isfinite().all(1), 0.0, torch.nan)[:, None]
    check_finite(embeddings=rows_at(marks, places, everywhere, group))


def _pieces(count: int, step: int) -> list[slice]:
    return [slice(start, min(start + step, count)) for start in range(0, count, step)]


def _moved(rows: slice, by: int) -> slice:
    return slice(rows.start + by, rows.stop + by)
