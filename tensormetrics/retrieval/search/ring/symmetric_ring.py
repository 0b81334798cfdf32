"""Nearest neighbors of sharded rows among themselves: each pair of ranks multiplies their rows once, for both ranks."""

import torch
from torch import Tensor
from torch import distributed as dist

from ....core.metric.distributed import Group, all_gather_status
from .. import operators
from ..distance import Distance, rows_at_once
from ..knn import TorchKNN
from ..product_filter import Filter, Normalization
from .int16_pairs import Int16Pairs, QueryRows
from .normalization import norms_in
from .ring_pass import finish, shift
from .symmetric import Neighbors, RowSet, symmetric_neighbors

LONG = 1e10  # multiplications after which ranks exchange whether they failed


class SymmetricRing:
    """Self-search over ranks: `ring(neighbors)` adds the nearest of this rank's rows among the rows of all ranks.

    Rows travel to half of the ranks only, at most `max_rows` at once, with the largest useful distance of each row;
    their neighbors travel back. If two ranks are opposite each other, the second one multiplies half of its rows. A
    rank that fails keeps sending, and raises when the ranks exchange their status, which they do regularly; the caller
    has to exchange it after the ring.
    """

    def __init__(
        self,
        rows: Tensor,
        sizes: list[int],
        memory: int,
        knn: TorchKNN,
        normalization: Normalization,
        max_rows: int,
        group: Group,
    ) -> None:
        assert isinstance(knn.order, Distance)  # its products are valid for both of their rows
        self.rows, self.sizes, self.memory, self.knn, self.group = rows.contiguous(), sizes, memory, knn, group
        self.distance, self.normalization, self.max_rows = knn.order, normalization, max_rows
        self.rank, self.world = dist.get_rank(group), dist.get_world_size(group)
        self.first = sum(sizes[: self.rank])
        self.int16_pairs: Int16Pairs | None = None

    def __call__(self, neighbors: Neighbors) -> None:
        failure: BaseException | None = None
        turns, k = self._turns(), neighbors.index.shape[1]
        try:
            max_rows = max((self._block_size(self._before(step), step, start) for step, start in turns), default=0)
            buffers = [self.rows.new_empty(max_rows, self.rows.shape[1]) for _ in turns[:2]]
            sizes = max_rows, max((self._block_size(self.rank, step, start) for step, start in turns), default=0)
            tables = [torch.empty(12 * k * n, dtype=torch.uint8, device="cpu") for n in sizes]
            self._prepare(k)
        except BaseException as error:
            failure = error
        all_gather_status(failure, self.group)
        requests = self._begin(0, turns, buffers)
        try:
            self._search_local(neighbors)
        except BaseException as error:
            failure = error
        finish(requests, self.group)
        work = 0.0
        for turn, (step, start) in enumerate(turns):
            owner, other = self._before(step), (self.rank + step) % self.world
            arrived, left = self._block_size(owner, step, start), self._block_size(self.rank, step, start)
            block, worst = buffers[turn % 2][:arrived], neighbors.delta.new_empty(arrived)
            furthest = neighbors.delta[start : start + left, -1].contiguous()
            finish(shift([furthest], other, [worst], owner, self.group), self.group)
            requests = self._begin(turn + 1, turns, buffers)
            result, answer = (table[: 12 * k * size] for table, size in zip(tables, (arrived, left), strict=True))
            try:
                if failure is None:
                    self._search_block(block, worst, owner, (step, start), neighbors, _unpack(result, k))
            except BaseException as error:  # the others wait for our rows
                failure = error
            if failure is not None:
                _fill_empty(_unpack(result, k))
            finish(requests, self.group)
            work += max(self.sizes) * min(self.max_rows, max(self.sizes)) * self.rows.shape[1]
            if work > LONG:
                all_gather_status(failure, self.group)
                work = 0.0
            finish(shift([result], owner, [answer], other, self.group), self.group)
            try:
                rows = slice(start, start + left)
                operators.merge_nearest(
                    *_unpack(answer, k), sum(self.sizes[:other]), neighbors.delta[rows], neighbors.index[rows]
                )
            except BaseException as error:
                failure = error
        if failure is not None:
            raise failure

    def _turns(self) -> list[tuple[int, int]]:
        """List the steps of the ring, each with the first row of every block that is sent in it."""
        steps = range(1, self.world // 2 + 1)
        longest = [max(self._num_sent(rank, step) for rank in range(self.world)) for step in steps]
        return [
            (step, first) for step, rows in zip(steps, longest, strict=True) for first in range(0, rows, self.max_rows)
        ]

    def _before(self, step: int) -> int:
        return (self.rank - step) % self.world

    def _num_sent(self, rank: int, step: int) -> int:
        """Return the number of rows a rank sends in a step: half of them if the receiver is an opposite, lower rank."""
        half = 2 * step == self.world and rank >= self.world // 2
        return -(-self.sizes[rank] // 2) if half else self.sizes[rank]

    def _block_size(self, rank: int, step: int, start: int) -> int:
        """Return the number of these rows in the block that begins at `start`."""
        return min(max(self._num_sent(rank, step) - start, 0), self.max_rows)

    def _begin(self, turn: int, turns: list[tuple[int, int]], buffers: list[Tensor]) -> list[dist.Work]:
        if turn >= len(turns):
            return []
        step, start = turns[turn]
        owner, other = self._before(step), (self.rank + step) % self.world
        local = self.rows[start : start + self._block_size(self.rank, step, start)]
        arriving = buffers[turn % 2][: self._block_size(owner, step, start)]
        return shift([local], other, [arriving], owner, self.group)

    def _prepare(self, k: int) -> None:
        """Prepare the rows of this rank for all steps."""
        if Int16Pairs.is_faster(self.rows, k, self.memory):
            split = -(-len(self.rows) // 2) if self.world % 2 == 0 else 0
            self.int16_pairs = Int16Pairs(k, self.distance, self.normalization, self.memory, split, max(self.sizes))
            self.int16_pairs = self.int16_pairs if self.int16_pairs.is_effective(self.rows) else None
        if self.int16_pairs is None:
            self.norms = norms_in(self.normalization, self.rows, self.distance)
            self.scaled = self._scaled()

    def _scaled(self) -> Tensor | None:
        # ->  (N, D), the rows of this rank prepared as queries, None if they do not fit in memory
        dtype = torch.float64 if self.rows.dtype == torch.float64 else torch.float32
        if not len(self.rows) or 8 * self.rows.numel() * dtype.itemsize > self.memory:
            return None
        filter_ = Filter(
            self.rows, self.distance, dtype, self.memory, normalization=self.normalization, norms=self.norms
        )
        scaled, step = torch.empty(self.rows.shape, dtype=dtype, device=self.rows.device), rows_at_once(self.rows)
        for chunk, out in zip(self.rows.split(step), scaled.split(step), strict=True):
            filter_.scaled(chunk, out)
        return scaled

    def _search_local(self, neighbors: Neighbors) -> None:
        rows, k = self.rows, neighbors.index.shape[1]
        if self.int16_pairs:
            return self.int16_pairs(QueryRows.of(rows, self.first, neighbors))
        index = self.knn.search(rows, k, rows, is_leading=True)[1]
        step = max(self.memory // 8 // (16 * rows.shape[1] + 64 * k), 1)
        for start in range(0, len(rows), step):
            tile = slice(start, start + step)
            columns = index[tile]
            row = torch.arange(len(columns), device="cpu").repeat_interleave(k)
            delta = self.distance.of_pairs(rows[tile], rows, row, columns.flatten().clamp(min=0), self.memory // 4)
            delta = delta.view(columns.shape).masked_fill(columns < 0, torch.inf)
            neighbors.add(delta, torch.where(columns < 0, -1, columns + self.first), tile)

    def _search_block(
        self,
        block: Tensor,
        worst: Tensor,
        owner: int,
        turn: tuple[int, int],
        neighbors: Neighbors,
        result: tuple[Tensor, Tensor],
    ) -> None:
        # block: (M, D)  worst: (M,)  result: (M, k) float64, (M, k) int32, filled with indices of this rank's rows
        step, start = turn
        skipped = self._num_sent(self.rank, step) if 2 * step == self.world and self.rank > owner else 0
        _fill_empty(result)
        of_block = Neighbors(result[0], torch.full(result[1].shape, -1, device="cpu"))
        first = sum(self.sizes[:owner]) + start
        if self.int16_pairs:
            self.int16_pairs(QueryRows.of(self.rows, 0, neighbors), QueryRows(block, first, of_block, worst), skipped)
        else:
            self._search_by_products(block, worst, skipped, first, neighbors, of_block)
        result[1].copy_(of_block.index)

    def _search_by_products(
        self, block: Tensor, worst: Tensor, skipped: int, first: int, neighbors: Neighbors, of_block: Neighbors
    ) -> None:
        x = RowSet(self.rows, self.norms, neighbors.delta[:, -1].clone(), self.scaled).of(slice(skipped, None))
        y = RowSet(block, norms_in(self.normalization, block, self.distance), worst)
        options = neighbors.index.shape[1], self.distance, self.normalization, self.memory
        for ours, rows, delta, index in symmetric_neighbors(x, y, *options):
            if ours:
                index = torch.where(index < 0, -1, index + first)
                neighbors.add(delta, index, slice(rows.start + skipped, rows.stop + skipped))
            else:
                of_block.add(delta, torch.where(index < 0, -1, index + skipped), rows)


def _unpack(packed: Tensor, k: int) -> tuple[Tensor, Tensor]:
    # packed: (12 k n,) bytes  ->  (n, k) float64, (n, k) int32, views of them
    split = len(packed) // 3 * 2
    return packed[:split].view(torch.float64).view(-1, k), packed[split:].view(torch.int32).view(-1, k)


def _fill_empty(table: tuple[Tensor, Tensor]) -> None:
    table[0].fill_(torch.inf)
    table[1].fill_(-1)
