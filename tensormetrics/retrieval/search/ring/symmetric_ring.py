"""Nearest neighbours of spread rows among themselves: each pair of ranks multiplies their rows once, for both sides."""

import torch
from torch import Tensor
from torch import distributed as dist

from ...._distributed import Group, all_gather_status
from .. import operators
from ..distance import Distance, rows_at_once
from ..knn import TorchKNN
from ..product_filter import Filter, Normalization
from .int16_pairs import Looking, WordPairs
from .normalization import norms_in
from .ring_pass import finish, shift
from .symmetric import Known, Side, mutual_neighbours

LONG = 1e10  # products of numbers, after which ranks tell each other whether they failed


class MutualRing:
    """`ring(known)` fills in the nearest of this rank's rows among those of all ranks.

    Rows go to half of the ranks only, at most `most` at once, with the distance beyond which they have no use for a
    neighbour; what is found for them comes back. Of two ranks that stand opposite each other, the second multiplies
    half of its own rows. A rank that fails goes on sending, and raises when the ranks tell each other, which they do
    before they have worked for long; what comes after the ring begins with that.
    """

    def __init__(
        self,
        rows: Tensor,
        sizes: list[int],
        memory: int,
        knn: TorchKNN,
        frame: Normalization,
        most: int,
        group: Group,
    ) -> None:
        assert isinstance(knn.order, Distance)  # whose products serve both of their rows
        self.rows, self.sizes, self.memory, self.knn, self.group = rows.contiguous(), sizes, memory, knn, group
        self.distance, self.frame, self.most = knn.order, frame, most
        self.rank, self.world = dist.get_rank(group), dist.get_world_size(group)
        self.first = sum(sizes[: self.rank])
        self.words: WordPairs | None = None

    def __call__(self, known: Known) -> None:
        failure: BaseException | None = None
        turns, k = self._turns(), known.index.shape[1]
        try:
            most = max((self._number(self._before(step), step, start) for step, start in turns), default=0)
            room = [self.rows.new_empty(most, self.rows.shape[1]) for _ in turns[:2]]
            sizes = most, max((self._number(self.rank, step, start) for step, start in turns), default=0)
            tables = [torch.empty(12 * k * n, dtype=torch.uint8, device="cpu") for n in sizes]
            self._prepare(k)
        except BaseException as error:
            failure = error
        all_gather_status(failure, self.group)
        requests = self._begin(0, turns, room)
        try:
            self._among_own(known)
        except BaseException as error:
            failure = error
        finish(requests, self.group)
        work = 0.0
        for number, (step, start) in enumerate(turns):
            owner, other = self._before(step), (self.rank + step) % self.world
            arrived, left = self._number(owner, step, start), self._number(self.rank, step, start)
            block, worst = room[number % 2][:arrived], known.delta.new_empty(arrived)
            furthest = known.delta[start : start + left, -1].contiguous()
            finish(shift([furthest], other, [worst], owner, self.group), self.group)
            requests = self._begin(number + 1, turns, room)
            found, answer = (table[: 12 * k * size] for table, size in zip(tables, (arrived, left), strict=True))
            try:
                if failure is None:
                    self._with(block, worst, owner, (step, start), known, _table(found, k))
            except BaseException as error:  # the others wait for our rows
                failure = error
            if failure is not None:
                _nothing(_table(found, k))
            finish(requests, self.group)
            work += max(self.sizes) * min(self.most, max(self.sizes)) * self.rows.shape[1]
            if work > LONG:
                all_gather_status(failure, self.group)
                work = 0.0
            finish(shift([found], owner, [answer], other, self.group), self.group)
            try:
                here = slice(start, start + left)
                operators.merge_nearest(
                    *_table(answer, k), sum(self.sizes[:other]), known.delta[here], known.index[here]
                )
            except BaseException as error:
                failure = error
        if failure is not None:
            raise failure

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

    def _begin(self, number: int, turns: list[tuple[int, int]], room: list[Tensor]) -> list[dist.Work]:
        if number >= len(turns):
            return []
        step, start = turns[number]
        owner, other = self._before(step), (self.rank + step) % self.world
        own = self.rows[start : start + self._number(self.rank, step, start)]
        arriving = room[number % 2][: self._number(owner, step, start)]
        return shift([own], other, [arriving], owner, self.group)

    def _prepare(self, k: int) -> None:
        """What is made of the own rows once."""
        if WordPairs.pays(self.rows, k, self.memory):
            cut = -(-len(self.rows) // 2) if self.world % 2 == 0 else 0
            self.words = WordPairs(k, self.distance, self.frame, self.memory, cut, max(self.sizes))
            self.words = self.words if self.words.works(self.rows) else None
        if self.words is None:
            self.norms = norms_in(self.frame, self.rows, self.distance)
            self.scaled = self._scaled()

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
        if self.words:
            return self.words(Looking.of(rows, self.first, known))
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

    def _with(
        self,
        block: Tensor,
        worst: Tensor,
        owner: int,
        turn: tuple[int, int],
        known: Known,
        found: tuple[Tensor, Tensor],
    ) -> None:
        # block: (M, D)  worst: (M,)  found: (M, k) float64, (M, k) int32 of this rank's rows, filled in
        step, start = turn
        skipped = self._all(self.rank, step) if 2 * step == self.world and self.rank > owner else 0
        _nothing(found)
        of_block = Known(found[0], torch.full(found[1].shape, -1, device="cpu"))
        first = sum(self.sizes[:owner]) + start
        if self.words:
            self.words(Looking.of(self.rows, 0, known), Looking(block, first, of_block, worst), skipped)
        else:
            self._multiplied(block, worst, skipped, first, known, of_block)
        found[1].copy_(of_block.index)

    def _multiplied(
        self, block: Tensor, worst: Tensor, skipped: int, first: int, known: Known, of_block: Known
    ) -> None:
        x = Side(self.rows, self.norms, known.delta[:, -1].clone(), self.scaled).of(slice(skipped, None))
        y = Side(block, norms_in(self.frame, block, self.distance), worst)
        options = known.index.shape[1], self.distance, self.frame, self.memory
        for ours, piece, delta, index in mutual_neighbours(x, y, *options):
            if ours:
                index = torch.where(index < 0, -1, index + first)
                known.add(delta, index, slice(piece.start + skipped, piece.stop + skipped))
            else:
                of_block.add(delta, torch.where(index < 0, -1, index + skipped), piece)


def _table(packed: Tensor, k: int) -> tuple[Tensor, Tensor]:
    # packed: (12 k n,) bytes  ->  (n, k) float64, (n, k) int32, which lie in them
    cut = len(packed) // 3 * 2
    return packed[:cut].view(torch.float64).view(-1, k), packed[cut:].view(torch.int32).view(-1, k)


def _nothing(table: tuple[Tensor, Tensor]) -> None:
    table[0].fill_(torch.inf)
    table[1].fill_(-1)
