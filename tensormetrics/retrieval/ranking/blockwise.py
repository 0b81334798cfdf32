"""Ranks of queries from references that arrive in blocks: one pass measures the positives, the next one counts."""

import torch
from torch import Tensor

from ..deterministic import chunk_slices
from ..relevance import Positives, columns_of
from ..search.distance import Distance
from .positive_ranks import PositiveRanks, within_depth
from .rank_counts import RankCounter, RankQueries, ranks_of, sort_positives


class MeasuredQueries:
    """Queries with the distances of their positives and the number of references before each positive."""

    def __init__(
        self,
        embeddings: Tensor,
        self_index: Tensor,
        positives: Positives,
        positions: Tensor | None = None,
        ignored: Tensor | None = None,
    ) -> None:
        # embeddings: (N, D)  positions: (Q,) int64, the rows of embeddings that are the queries, None = all
        # self_index: (Q,) int64  ignored: (Q, I) int64, -1 = none, instead of those of `positives`
        if positives.ignored is not None:  # a list of the ignored references is shorter than a mask
            ignored = columns_of(positives.ignored)
            positives = positives._replace(ignored=None)
        self.embeddings, self.positions, self.self_index, self.ignored = embeddings, positions, self_index, ignored
        self.positives, self.index, self.gain = positives, positives.index, positives.gain
        self.delta = torch.full(self.index.shape, torch.inf, dtype=torch.float64, device=self_index.device)

    @property
    def query(self) -> Tensor:
        # ->  (Q, D), on a CPU float64, which its operators require
        query = self.embeddings if self.positions is None else self.embeddings[self.positions]
        return query.double() if query.device.type == "cpu" else query

    def measure(self, rows: Tensor, first: int, distance: Distance, memory: int) -> None:
        # rows: (R, D), references first, first + 1, ...
        row, slot = ((self.index >= first) & (self.index < first + len(rows))).nonzero().unbind(1)
        self._measure((row, slot), rows, self.index[row, slot] - first, distance, memory)

    def measure_rows(self, rows: Tensor, indices: Tensor, distance: Distance, memory: int) -> None:
        # rows: (R, D)  indices: (R,) int64 ascending, their indices, with all positives between the first and the last
        row, slot = ((self.index >= indices[0]) & (self.index <= indices[-1])).nonzero().unbind(1)
        column = torch.searchsorted(indices, self.index[row, slot])
        self._measure((row, slot), rows, column, distance, memory)

    def _measure(
        self, slots: tuple[Tensor, Tensor], rows: Tensor, column: Tensor, distance: Distance, memory: int
    ) -> None:
        delta = distance.of_pairs(self.query, rows, slots[0], column, memory)
        self.delta[slots] = delta.nan_to_num(nan=torch.inf)

    def sort_positives(self) -> None:
        # The width is needed on the host: one synchronization per tile.
        width = int(self.positives.relevant.max()) if len(self.self_index) else 0
        self.delta, self.index, self.gain = sort_positives(self.delta, self.index, self.gain, width)
        self.num_measured = (self.delta < torch.inf).sum(1)
        self.before = self.index.new_zeros(len(self.index), width + 1)

    def ranks(self, depth: int | None) -> PositiveRanks:
        return within_depth(*ranks_of(self.before, self.num_measured, self.gain), self.positives, depth)

    def count(self, counter: RankCounter, first: int) -> None:
        if self.before.shape[1] == 1:
            return
        query = self.query
        for rows in chunk_slices(len(self.self_index), counter.rows):
            ignored = None
            if self.ignored is not None:
                is_in_block = (self.ignored[rows] >= first) & (self.ignored[rows] < first + len(counter.reference))
                ignored = torch.zeros(
                    len(is_in_block), len(counter.reference), dtype=torch.bool, device=is_in_block.device
                )
                row, column = is_in_block.nonzero().unbind(1)
                ignored[row, self.ignored[rows][row, column] - first] = True
            # Positives of other processes come before or after all of these references.
            index = torch.where(self.index[rows] < 0, -1, self.index[rows] - first)
            self_index = self.self_index[rows] - first
            self_index = self_index.where((self_index >= 0) & (self_index < len(counter.reference)), -1)
            queries = RankQueries(query[rows], self_index, ignored, self.delta[rows], index, self.num_measured[rows])
            self.before[rows] += counter.before(queries)


def split_queries(num_positives: Tensor, memory: int) -> list[slice]:
    # num_positives: (Q,) int64 ascending
    """Split queries in this order into parts as large as the memory allows."""
    # About 64 bytes are kept for each positive.
    if len(num_positives) and 64 * len(num_positives) * max(int(num_positives[-1]), 1) <= memory // 2:
        return [slice(0, len(num_positives))]
    parts, start, width = [], 0, num_positives.clamp(min=1).tolist()
    for stop in range(1, len(width) + 1):
        if stop == len(width) or 64 * (stop + 1 - start) * width[stop] > memory // 2:
            parts.append(slice(start, stop))
            start = stop
    return parts
