"""Rows of all ranks: each in its place, and passed round, the next block under way while the present one is used."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from ...._ranks import Group, exchange, global_rank, reaching


class Ring:
    """`ring(work)` calls `work(rank, *block)` for the tensors of every rank, the own first.

    tensors: each with a row for each of this rank's; `sizes`: how many rows every rank has. Besides its own a rank
    holds the block it works on and the next one. After every block the ranks tell each other whether they failed.
    """

    def __init__(self, tensors: Sequence[Tensor], sizes: list[int], group: Group = None) -> None:
        self.tensors, self.sizes, self.group = [tensor.contiguous() for tensor in tensors], sizes, group
        self.rank, self.world = dist.get_rank(group), dist.get_world_size(group)
        self.room: list[list[Tensor]] = []

    def __call__(self, work: Callable[..., None]) -> None:
        failure, block = None, self.tensors
        try:
            # A rank that finds no room must not be waited for by one that sends.
            most = max((size for rank, size in enumerate(self.sizes) if rank != self.rank), default=0)
            buffers = range(min(self.world - 1, 2)) if not self.room else ()
            self.room += [[t.new_empty(most, *t.shape[1:]) for t in self.tensors] for _ in buffers]
        except BaseException as error:
            failure = error
        exchange(failure, self.group)
        for step in range(self.world):
            arriving, requests = self._begin(step + 1) if step + 1 < self.world else (block, [])
            try:
                work((self.rank - step) % self.world, *block)
            except BaseException as error:  # the others wait for our blocks
                failure = error
            finish(requests, self.group)
            exchange(failure, self.group)
            block = arriving

    def _begin(self, step: int) -> tuple[list[Tensor], list[dist.Work]]:
        to, owner = (self.rank + step) % self.world, (self.rank - step) % self.world
        arriving = [room[: self.sizes[owner]] for room in self.room[step % len(self.room)]]
        return arriving, begin([(to, self.tensors)], [(owner, arriving)], self.group)


def begin(
    sent: Sequence[tuple[int, Sequence[Tensor]]], received: Sequence[tuple[int, Sequence[Tensor]]], group: Group
) -> list[dist.Work]:
    """Tensors on their way to and from ranks of the group; both ends know which are empty."""
    ends: list[tuple[Any, int, Tensor]] = [(dist.isend, rank, part) for rank, parts in sent for part in parts]
    ends += [(dist.irecv, rank, part) for rank, parts in received for part in parts]
    transfers = [dist.P2POp(op, part, global_rank(rank, group), group=group) for op, rank, part in ends if part.numel()]
    with reaching(group):
        return dist.batch_isend_irecv(transfers) if transfers else []


def finish(requests: Sequence[dist.Work], group: Group) -> None:
    with reaching(group):
        for request in requests:
            request.wait()


def in_places(rows: Tensor, places: Tensor, count: int, group: Group) -> tuple[Tensor, list[int]]:
    # rows: (n, D) of this rank  places: (n,) int64 ascending, where they stand among `count` rows of all
    # ->  (m, D) of this rank, how many every rank has
    """Rows such that those of all ranks, one after the other, are in order: where they are not, they change ranks."""
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    bounds = [count * r // world for r in range(world + 1)]
    edges = torch.searchsorted(places, torch.tensor(bounds, device=places.device)).tolist()
    ends = places[:: max(len(places) - 1, 1)][:2].tolist()  # ascending: these tell of gaps
    told = exchange((len(rows), ends, edges), group)
    sizes, before = [length for length, *_ in told], 0
    in_order = True
    for length, ends, _ in told:
        in_order &= not length or (ends[0] == before and ends[-1] == before + length - 1)
        before += length
    if in_order:
        return rows, sizes
    lengths = [edges[rank + 1] - edges[rank] for *_, edges in told]  # what every rank has for this one
    sent = [(r, [part[edges[r] : edges[r + 1]].contiguous() for part in (rows, places)]) for r in range(world)]
    received = [(r, [part.new_empty(n, *part.shape[1:]) for part in (rows, places)]) for r, n in enumerate(lengths)]
    received[rank] = sent[rank]
    away = [[pair for pair in pairs if pair[0] != rank] for pairs in (sent, received)]
    finish(begin(away[0], away[1], group), group)
    there = torch.cat([places for _, (_, places) in received])
    here = rows.new_empty(len(there), *rows.shape[1:])
    here[there - bounds[rank]] = torch.cat([part for _, (part, _) in received])
    return here, [stop - start for start, stop in zip(bounds, bounds[1:], strict=False)]
