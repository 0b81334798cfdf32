"""Redistribution of rows over ranks, and a ring that passes blocks while the previous block is used."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from ...core.metric.distributed import (
    MAX_DIRECT_RANKS,
    Group,
    all_gather_status,
    global_rank,
    translate_collective_errors,
)

FEWEST = 64  # the fewest rows to send at once
HIGHEST_FLOOR = 2**24  # bytes; if 64 rows take more, working on them takes longer than sending a message


class Ring:
    """Ring of ranks: `ring(work)` calls `work(first, *block)` for blocks of rows of every rank, the local ones first.

    tensors: one row each for every row of this rank; `sizes`: the number of rows of every rank, in rank order; `first`
    is the global number of a block's first row. A block has at most `max_rows` rows, the same on all ranks. In addition
    to its own rows a rank holds the block it works on and the next one. After every block the ranks exchange whether
    they failed.
    """

    def __init__(self, tensors: Sequence[Tensor], sizes: list[int], group: Group = None, max_rows: int = 2**62) -> None:
        self.tensors, self.sizes, self.group = [tensor.contiguous() for tensor in tensors], sizes, group
        self.rank, self.world = dist.get_rank(group), dist.get_world_size(group)
        self.max_rows = max(min(max_rows, max(sizes)), 1)
        self.buffers: list[list[Tensor]] = []

    def __call__(self, work: Callable[..., None]) -> None:
        failure: BaseException | None = None
        try:
            # If a rank runs out of memory, no other rank may wait for it.
            buffers = range(2 - len(self.buffers) if self.world > 1 else 0)
            self.buffers += [[t.new_empty(self.max_rows, *t.shape[1:]) for t in self.tensors] for _ in buffers]
        except BaseException as error:
            failure = error
        all_gather_status(failure, self.group)
        turns = [(step, start) for step in range(self.world) for start in range(0, max(self.sizes), self.max_rows)]
        block, requests = self._begin(0, *turns[0]) if turns else ([], [])
        for turn, (step, start) in enumerate(turns):
            finish(requests, self.group)
            if turn:
                all_gather_status(failure, self.group)
            requests = []
            current, owner = block, (self.rank - step) % self.world
            if turn + 1 < len(turns):
                block, requests = self._begin(turn + 1, *turns[turn + 1])
            try:
                work(sum(self.sizes[:owner]) + min(start, self.sizes[owner]), *current)
            except BaseException as error:  # the others wait for our blocks
                failure = error
        all_gather_status(failure, self.group)

    def _begin(self, turn: int, step: int, start: int) -> tuple[list[Tensor], list[dist.Work]]:
        local = [tensor[start : start + self.max_rows] for tensor in self.tensors]
        if not step:
            return local, []
        to, owner = (self.rank + step) % self.world, (self.rank - step) % self.world
        size = min(max(self.sizes[owner] - start, 0), self.max_rows)
        arriving = [buffer[:size] for buffer in self.buffers[turn % len(self.buffers)]]
        return arriving, shift(local, to, arriving, owner, self.group)


def block_rows(rows: Tensor, memory: int) -> int:
    """Return the number of rows to send at once, so that two blocks and their temporaries take half of the memory."""
    return max(memory // 8 // max(rows.shape[1] * rows.element_size(), 1), FEWEST)


def travel_memory(memory: int, bytes_per_row: int, rows: int, group: Group) -> int:
    # memory, bytes_per_row, rows: the same on all ranks; rows: the largest number on any rank
    """Return the memory budget, raised to the needs of `FEWEST` rows; the first rank warns if it was below."""
    at_least = min(FEWEST, rows)
    floor = min(at_least * bytes_per_row, HIGHEST_FLOOR)
    if memory < floor and not dist.get_rank(group):
        warnings.warn(
            f"memory_budget: got {memory} bytes, for which rows travel between ranks few at a time; {floor} are used, "
            f"for {at_least} rows at once",
            stacklevel=2,
        )
    return max(memory, floor)


def start_transfers(
    sent: Sequence[tuple[int, Sequence[Tensor]]], received: Sequence[tuple[int, Sequence[Tensor]]], group: Group
) -> list[dist.Work]:
    """Start to send tensors to and receive tensors from ranks; empty ones, known at both ends, are not sent."""
    ends: list[tuple[Any, int, Tensor]] = [(dist.isend, rank, part) for rank, parts in sent for part in parts]
    ends += [(dist.irecv, rank, part) for rank, parts in received for part in parts]
    transfers = [dist.P2POp(op, part, global_rank(rank, group), group=group) for op, rank, part in ends if part.numel()]
    with translate_collective_errors(group):
        return dist.batch_isend_irecv(transfers) if transfers else []


def shift(sent: Sequence[Tensor], to: int, received: Sequence[Tensor], source: int, group: Group) -> list[dist.Work]:
    """Start to send contiguous tensors round the ring; every rank sends to `to` and receives from `source`."""
    world = dist.get_world_size(group)
    if sent[0].device.type != "cpu" or world > MAX_DIRECT_RANKS:
        return start_transfers([(to, sent)], [(source, received)], group)
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


def summarize_positions(positions: Tensor, count: int, world: int) -> tuple[int, list[int], list[int]]:
    # positions: (n,) int64 ascending
    """Return the number of a rank's rows, the ends of their positions, and which of them belong to which rank."""
    bounds = torch.tensor([count * r // world for r in range(world + 1)], device=positions.device)
    edges = torch.searchsorted(positions, bounds).tolist()
    # Positions ascend: their ends reveal gaps.
    return len(positions), positions[:: max(len(positions) - 1, 1)][:2].tolist(), edges


def redistribute_rows(
    rows: Tensor, positions: Tensor, count: int, summaries: Sequence[tuple[int, list[int], list[int]]], group: Group
) -> tuple[Tensor, list[int]]:
    # rows: (n, D) of this rank  positions: (n,) int64 ascending, among the `count` rows of all ranks
    # summaries: `summarize_positions` of every rank  ->  (m, D) of this rank, how many every rank has
    """Move rows between ranks, unless they are in order already, so that in rank order their positions ascend."""
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    bounds, edges = [count * r // world for r in range(world + 1)], summaries[rank][2]
    sizes, before = [length for length, *_ in summaries], 0
    in_order = True
    for length, ends, _ in summaries:
        in_order &= not length or (ends[0] == before and ends[-1] == before + length - 1)
        before += length
    if in_order:
        return rows, sizes
    lengths = [edges[rank + 1] - edges[rank] for *_, edges in summaries]  # rows that every rank has for this one
    sent = [(r, [part[edges[r] : edges[r + 1]].contiguous() for part in (rows, positions)]) for r in range(world)]
    received = [(r, [part.new_empty(n, *part.shape[1:]) for part in (rows, positions)]) for r, n in enumerate(lengths)]
    received[rank] = sent[rank]
    remote = [[pair for pair in pairs if pair[0] != rank] for pairs in (sent, received)]
    finish(start_transfers(remote[0], remote[1], group), group)
    targets = torch.cat([positions for _, (_, positions) in received])
    local = rows.new_empty(len(targets), *rows.shape[1:])
    local[targets - bounds[rank]] = torch.cat([part for _, (part, _) in received])
    return local, [stop - start for start, stop in zip(bounds, bounds[1:], strict=False)]
