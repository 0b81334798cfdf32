"""Nearest neighbours of spread rows among themselves: each pair of ranks multiplies their rows once, for both sides."""

import torch
from torch import Tensor
from torch import distributed as dist

from ...._ranks import Group, exchange
from ..distance import Distance
from ..knn import TorchKNN
from .mutual import Known, mutual_neighbours
from .passing import begin, finish


class MutualRing:
    """`ring(known)` fills in the nearest of this rank's rows among those of all ranks.

    Rows go to half of the ranks only, with the distance beyond which they have no use for a neighbour; what is found
    for them comes back. Of two ranks that stand opposite each other, the second multiplies half of its own rows.
    """

    def __init__(
        self, rows: Tensor, sizes: list[int], memory: int, knn: TorchKNN, distance: Distance, group: Group
    ) -> None:
        self.rows, self.sizes, self.memory, self.knn, self.group = rows.contiguous(), sizes, memory, knn, group
        self.distance = distance
        self.rank, self.world = dist.get_rank(group), dist.get_world_size(group)
        self.first = sum(sizes[: self.rank])

    def __call__(self, known: Known) -> None:
        failure, k, steps = None, known.index.shape[1], range(1, self.world // 2 + 1)
        try:
            most = max((self._number(self._before(step), step) for step in steps), default=0)
            room = [self.rows.new_empty(most, self.rows.shape[1]) for _ in steps[:2]]
            sizes = most, len(self.rows)
            tables = [(known.delta.new_empty(n, k), known.index.new_empty(n, k, dtype=torch.int32)) for n in sizes]
        except BaseException as error:
            failure = error
        exchange(failure, self.group)
        requests = self._begin(1, room)
        try:
            self._among_own(known)
        except BaseException as error:
            failure = error
        finish(requests, self.group)
        for step in steps:
            owner, other = self._before(step), (self.rank + step) % self.world
            arrived, left = self._number(owner, step), self._number(self.rank, step)
            block, worst = room[step % len(room)][:arrived], known.delta.new_empty(arrived)
            furthest = known.delta[:left, -1].contiguous()
            finish(begin([(other, [furthest])], [(owner, [worst])], self.group), self.group)
            requests = self._begin(step + 1, room) if step < len(steps) else []
            found, answer = (
                [part[:size] for part in table] for table, size in zip(tables, (arrived, left), strict=True)
            )
            try:
                if failure is None:
                    self._with(block, worst, owner, step, known, found)
            except BaseException as error:  # the others wait for our rows
                failure = error
            finish(requests, self.group)
            exchange(failure, self.group)
            finish(begin([(owner, found)], [(other, answer)], self.group), self.group)
            try:
                index = torch.where(answer[1] < 0, -1, answer[1].long() + sum(self.sizes[:other]))
                known.add(answer[0], index, slice(left))
            except BaseException as error:
                failure = error
        exchange(failure, self.group)

    def _before(self, step: int) -> int:
        return (self.rank - step) % self.world

    def _number(self, rank: int, step: int) -> int:
        """How many rows a rank sends in a step: opposite to a rank before it, half of them."""
        half = 2 * step == self.world and rank >= self.world // 2
        return -(-self.sizes[rank] // 2) if half else self.sizes[rank]

    def _begin(self, step: int, room: list[Tensor]) -> list[dist.Work]:
        if 2 * step > self.world:
            return []
        owner, other = self._before(step), (self.rank + step) % self.world
        arriving = room[step % len(room)][: self._number(owner, step)]
        return begin([(other, [self.rows[: self._number(self.rank, step)]])], [(owner, [arriving])], self.group)

    def _among_own(self, known: Known) -> None:
        rows, k = self.rows, known.index.shape[1]
        own = torch.arange(len(rows))
        index = self.knn.search(rows, k, rows, own)[1]
        row = own.repeat_interleave(k)
        delta = self.distance.of_pairs(rows, rows, row, index.flatten().clamp(min=0), self.memory // 4)
        delta = delta.view_as(known.delta).masked_fill(index < 0, torch.inf)
        known.add(delta, torch.where(index < 0, -1, index + self.first))

    def _with(self, block: Tensor, worst: Tensor, owner: int, step: int, known: Known, found: list[Tensor]) -> None:
        # block: (M, D)  worst: (M,)  found: (M, k) float64, (M, k) int32 of this rank's rows, filled in
        skipped = self._number(self.rank, step) if 2 * step == self.world and self.rank > owner else 0
        rows, furthest = self.rows[skipped:], known.delta[skipped:, -1]
        of_block = Known(found[0].fill_(torch.inf), torch.full(found[1].shape, -1))
        first, k = sum(self.sizes[:owner]), found[1].shape[1]
        options = k, self.distance, self.memory
        for ours, piece, delta, index in mutual_neighbours(rows, furthest.clone(), block, worst, *options):
            if ours:
                index = torch.where(index < 0, -1, index + first)
                known.add(delta, index, slice(piece.start + skipped, piece.stop + skipped))
            else:
                of_block.add(delta, torch.where(index < 0, -1, index + skipped), piece)
        found[1].copy_(of_block.index)
