"""Rows of all ranks: each in its place, and passed round, the next block under way while the present one is used."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from ...._distributed import FEW_RANKS, Group, all_gather_status, global_rank, translate_collective_errors

FEWEST = 64  # rows that are sent at once
HIGHEST_FLOOR = 2**24  # bytes; rows that take more than this by 64 keep a rank busy for longer than a message takes


class Ring:
    """`ring(work)` calls `work(first, *block)` for the tensors of every rank, the own first, in blocks of rows.

    tensors: each with a row for each of this rank's; `sizes`: how many rows every rank has, one rank behind the other;
    `first` is the number of a block's first row among all. A block has at most `most` rows, the same on all ranks.
    Besides its own a rank holds the block it works on and the next one. After every block the ranks tell each other
    whether they failed.
    """

    def __init__(self, tensors: Sequence[Tensor], sizes: list[int], group: Group = None, most: int = 2**62) -> None:
        self.tensors, self.sizes, self.group = [tensor.contiguous() for tensor in tensors], sizes, group
        self.rank, self.world = dist.get_rank(group), dist.get_world_size(group)
        self.most = max(min(most, max(sizes)), 1)
        self.room: list[list[Tensor]] = []

    def __call__(self, work: Callable[..., None]) -> None:
        failure: BaseException | None = None
        try:
            # A rank that finds no room must not be waited for by one that sends.
            buffers = range(2 - len(self.room) if self.world > 1 else 0)
            self.room += [[t.new_empty(self.most, *t.shape[1:]) for t in self.tensors] for _ in buffers]
        except BaseException as error:
            failure = error
        all_gather_status(failure, self.group)
        turns = [(step, start) for step in range(self.world) for start in range(0, max(self.sizes), self.most)]
        block, requests = self._begin(0, *turns[0]) if turns else ([], [])
        for number, (step, start) in enumerate(turns):
            finish(requests, self.group)
            if number:
                all_gather_status(failure, self.group)
            requests = []
            present, owner = block, (self.rank - step) % self.world
            if number + 1 < len(turns):
                block, requests = self._begin(number + 1, *turns[number + 1])
            try:
                work(sum(self.sizes[:owner]) + min(start, self.sizes[owner]), *present)
            except BaseException as error:  # the others wait for our blocks
                failure = error
        all_gather_status(failure, self.group)

    def _begin(self, number: int, step: int, start: int) -> tuple[list[Tensor], list[dist.Work]]:
        own = [tensor[start : start + self.most] for tensor in self.tensors]
        if not step:
            return own, []
        to, owner = (self.rank + step) % self.world, (self.rank - step) % self.world
        size = min(max(self.sizes[owner] - start, 0), self.most)
        arriving = [room[:size] for room in self.room[number % len(self.room)]]
        return arriving, shift(own, to, arriving, owner, self.group)


def at_once(rows: Tensor, memory: int, besides: int = 0) -> int:
    """How many rows to send at once, of which two blocks and what is made of them take half of the memory; `besides`:
    bytes that go with each."""
    return max(memory // 8 // max(rows.shape[1] * rows.element_size() + besides, 1), FEWEST)


def travel_memory(memory: int, bytes_per_row: int, rows: int, group: Group) -> int:
    # memory, bytes_per_row, rows: the same on all ranks; rows: the most of any rank
    """Return the memory budget, raised to what `FEWEST` rows take; the first rank warns where it was below."""
    at_least = min(FEWEST, rows)
    floor = min(at_least * bytes_per_row, HIGHEST_FLOOR)
    if memory < floor and not dist.get_rank(group):
        warnings.warn(
            f"memory_budget: got {memory} bytes, for which rows travel between ranks few at a time; {floor} are used, "
            f"for {at_least} rows at once",
            stacklevel=2,
        )
    return max(memory, floor)


def begin(
    sent: Sequence[tuple[int, Sequence[Tensor]]], received: Sequence[tuple[int, Sequence[Tensor]]], group: Group
) -> list[dist.Work]:
    """Tensors on their way to and from ranks of the group; both ends know which are empty."""
    ends: list[tuple[Any, int, Tensor]] = [(dist.isend, rank, part) for rank, parts in sent for part in parts]
    ends += [(dist.irecv, rank, part) for rank, parts in received for part in parts]
    transfers = [dist.P2POp(op, part, global_rank(rank, group), group=group) for op, rank, part in ends if part.numel()]
    with translate_collective_errors(group):
        return dist.batch_isend_irecv(transfers) if transfers else []


def shift(sent: Sequence[Tensor], to: int, received: Sequence[Tensor], source: int, group: Group) -> list[dist.Work]:
    """Contiguous tensors on their way round, when all ranks send to the next of some order; all call it."""
    world = dist.get_world_size(group)
    if sent[0].device.type != "cpu" or world > FEW_RANKS:
        return begin([(to, sent)], [(source, received)], group)
    # Where ranks share cores, threads that wait for single messages of gloo are busy for milliseconds.
    requests: list[dist.Work] = []
    with translate_collective_errors(group):
        for out, come in zip(sent, received, strict=True):
            # A tensor of one number may have any strides.
            out, come = (part.as_strided((part.numel(),), (1,)).view(torch.uint8) for part in (out, come))
            to_come, to_go = (
                [len(part) * (rank == of) for rank in range(world)] for part, of in ((come, source), (out, to))
            )
            requests.append(dist.all_to_all_single(come, out, to_come, to_go, group=group, async_op=True))
    return requests


def finish(requests: Sequence[dist.Work], group: Group) -> None:
    with translate_collective_errors(group):
        for request in requests:
            request.wait()


def told_of_places(places: Tensor, count: int, world: int) -> tuple[int, list[int], list[int]]:
    # places: (n,) int64 ascending
    """What a rank says of where its rows stand among `count`: how many, the ends, and which are for which rank."""
    bounds = torch.tensor([count * r // world for r in range(world + 1)], device=places.device)
    edges = torch.searchsorted(places, bounds).tolist()
    return len(places), places[:: max(len(places) - 1, 1)][:2].tolist(), edges  # ascending: the ends tell of gaps


def in_places(
    rows: Tensor, places: Tensor, count: int, told: Sequence[tuple[int, list[int], list[int]]], group: Group
) -> tuple[Tensor, list[int]]:
    # rows: (n, D) of this rank  places: (n,) int64 ascending, where they stand among `count` rows of all
    # told: what every rank said of its places  ->  (m, D) of this rank, how many every rank has
    """Rows such that those of all ranks, one after the other, are in order: where they are not, they change ranks."""
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    bounds, edges = [count * r // world for r in range(world + 1)], told[rank][2]
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
