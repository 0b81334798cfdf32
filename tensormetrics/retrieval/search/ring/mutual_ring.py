"""Nearest neighbours of spread rows among themselves: each pair of ranks multiplies their rows once, for both sides."""

import torch
from torch import Tensor
from torch import distributed as dist

from ...._ranks import Group, exchange
from ..distance import Distance, rows_at_once
from ..filter import Filter
from ..knn import TorchKNN
from .frame import common_frame
from .mutual import Known, Side, mutual_neighbours
from .passing import begin, finish


class MutualRing:
    """`ring(known)` fills in the nearest of this rank's rows among those of all ranks.

    Rows go to half of the ranks only, at most `most` at once, with the distance beyond which they have no use for a
    neighbour; what is found for them comes back. Of two ranks that stand opposite each other, the second multiplies
    half of its own rows.
    """

    def __init__(
        self,
        rows: Tensor,
        sizes: list[int],
        memory: int,
        knn: TorchKNN,
        distance: Distance,
        most: int,
        group: Group,
    ) -> None:
        self.rows, self.sizes, self.memory, self.knn, self.group = rows.contiguous(), sizes, memory, knn, group
        self.distance, self.most = distance, most
        self.rank, self.world = dist.get_rank(group), dist.get_world_size(group)
        self.first = sum(sizes[: self.rank])

    def __call__(self, known: Known) -> None:
        failure: BaseException | None = None
        turns, k = self._turns(), known.index.shape[1]
        try:
            self.frame, self.norms = common_frame(self.rows, self.distance, self.group)
            self.scaled = self._scaled()
            most = max((self._number(self._before(step), step, start) for step, start in turns), default=0)
            room = [(self.rows.new_empty(most, self.rows.shape[1]), self.norms.new_empty(most)) for _ in turns[:2]]
            sizes = most, max((self._number(self.rank, step, start) for step, start in turns), default=0)
            tables = [(known.delta.new_empty(n, k), known.index.new_empty(n, k, dtype=torch.int32)) for n in sizes]
        except BaseException as error:
            if getattr(error, "all_ranks_know", False):
                raise
            failure = error
        exchange(failure, self.group)
        requests = self._begin(0, turns, room)
        try:
            self._among_own(known)
        except BaseException as error:
            failure = error
        finish(requests, self.group)
        for number, (step, start) in enumerate(turns):
            owner, other = self._before(step), (self.rank + step) % self.world
            arrived, left = self._number(owner, step, start), self._number(self.rank, step, start)
            block, worst = [part[:arrived] for part in room[number % 2]], known.delta.new_empty(arrived)
            furthest = known.delta[start : start + left, -1].contiguous()
            finish(begin([(other, [furthest])], [(owner, [worst])], self.group), self.group)
            requests = self._begin(number + 1, turns, room)
            found, answer = (
                [part[:size] for part in table] for table, size in zip(tables, (arrived, left), strict=True)
            )
            try:
                if failure is None:
                    self._with(Side(block[0], block[1], worst), owner, (step, start), known, found)
            except BaseException as error:  # the others wait for our rows
                failure = error
            finish(requests, self.group)
            exchange(failure, self.group)
            finish(begin([(owner, found)], [(other, answer)], self.group), self.group)
            try:
                index = torch.where(answer[1] < 0, -1, answer[1].long() + sum(self.sizes[:other]))
                known.add(answer[0], index, slice(start, start + left))
            except BaseException as error:
                failure = error
        exchange(failure, self.group)

    def _turns(self) -> list[tuple[int, int]]:
        """Steps of the ring, each with the first row of the blocks that are sent in it."""
        steps = range(1, self.world // 2 + 1)
        longest = [max(self._all(rank, step) for rank in range(self.world)) for step in steps]
        return [(step, at) for step, rows in zip(steps, longest, strict=True) for at in range(0, rows, self.most)]

    def _before(self, step: int) -> int:
        return (self.rank - step) % self.world

    def _all(self, rank: int, step: int) -> int:
        """How many rows a rank sends in a step: opposite to a rank before it, half of them."""
        half = 2 * step == self.world and rank >= self.world // 2
        return -(-self.sizes[rank] // 2) if half else self.sizes[rank]

    def _number(self, rank: int, step: int, start: int) -> int:
        """How many of these are in the block from `start` on."""
        return min(max(self._all(rank, step) - start, 0), self.most)

    def _begin(self, number: int, turns: list[tuple[int, int]], room: list[tuple[Tensor, Tensor]]) -> list[dist.Work]:
        if number >= len(turns):
            return []
        step, start = turns[number]
        owner, other = self._before(step), (self.rank + step) % self.world
        own = slice(start, start + self._number(self.rank, step, start))
        arriving = [part[: self._number(owner, step, start)] for part in room[number % 2]]
        return begin([(other, [self.rows[own], self.norms[own]])], [(owner, arriving)], self.group)

    def _scaled(self) -> Tensor | None:
        # ->  (N, D), the own rows made ready as queries, where the memory takes them
        dtype = torch.float64 if self.rows.dtype == torch.float64 else torch.float32
        if not len(self.rows) or 8 * self.rows.numel() * dtype.itemsize > self.memory:
            return None
        filter_ = Filter(self.rows, self.distance, dtype, self.memory, frame=self.frame, norms=self.norms)
        scaled, step = torch.empty(self.rows.shape, dtype=dtype, device=self.rows.device), rows_at_once(self.rows)
        for piece, found in zip(self.rows.split(step), scaled.split(step), strict=True):
            filter_.scaled(piece, found)
        return scaled

    def _among_own(self, known: Known) -> None:
        rows, k = self.rows, known.index.shape[1]
        own = torch.arange(len(rows), device="cpu")
        index = self.knn.search(rows, k, rows, own)[1]
        step = max(self.memory // 8 // (16 * rows.shape[1] + 64 * k), 1)
        for start in range(0, len(rows), step):
            tile = slice(start, start + step)
            near = index[tile]
            row = torch.arange(len(near), device="cpu").repeat_interleave(k)
            delta = self.distance.of_pairs(rows[tile], rows, row, near.flatten().clamp(min=0), self.memory // 4)
            delta = delta.view(near.shape).masked_fill(near < 0, torch.inf)
            known.add(delta, torch.where(near < 0, -1, near + self.first), tile)

    def _with(self, block: Side, owner: int, turn: tuple[int, int], known: Known, found: list[Tensor]) -> None:
        # block: M rows  found: (M, k) float64, (M, k) int32 of this rank's rows, filled in
        step, start = turn
        skipped = self._all(self.rank, step) if 2 * step == self.world and self.rank > owner else 0
        own = Side(self.rows, self.norms, known.delta[:, -1], self.scaled).of(slice(skipped, None))
        of_block = Known(found[0].fill_(torch.inf), torch.full(found[1].shape, -1, device="cpu"))
        first, k = sum(self.sizes[:owner]) + start, found[1].shape[1]
        options = k, self.distance, self.frame, self.memory
        for ours, piece, delta, index in mutual_neighbours(own._replace(worst=own.worst.clone()), block, *options):
            if ours:
                index = torch.where(index < 0, -1, index + first)
                known.add(delta, index, slice(piece.start + skipped, piece.stop + skipped))
            else:
                of_block.add(delta, torch.where(index < 0, -1, index + skipped), piece)
        found[1].copy_(of_block.index)
