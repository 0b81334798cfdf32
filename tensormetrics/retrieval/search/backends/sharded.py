"""k nearest neighbours among references that are spread over the ranks of a process group."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from .... import _checks
from ...relevance import rows_of
from ...rows import budget
from ..backend import nearest, search_arguments
from ..distance import Distance
from ..knn import TorchKNN

Kind = tuple[tuple[int, ...], torch.dtype]


class ShardedKNN:
    """Exact k nearest neighbours over the references of all ranks; every rank calls it, with its own rows.

    The index of a reference is its position among those of all ranks, in rank order. Results have the same bits as
    `TorchKNN`'s for the concatenated references, for any number of ranks and any split, with ranks without rows too.
    Blocks of references go round a ring: besides its own rows, a rank holds the block it searches and the next one.
    Where the distance is a function, bits are the same as far as its values do not depend on the other references.

    Args:
        group: the process group; default all ranks.
        knn: the TorchKNN that searches a block, with its distance and memory budget.
    """

    def __init__(self, group: dist.ProcessGroup | None = None, knn: TorchKNN | None = None) -> None:
        if not isinstance(knn, TorchKNN | None):
            raise TypeError(f"knn: got a {type(knn).__name__}, wanted a TorchKNN, whose order can be merged")
        self.group = group
        self.knn = knn or TorchKNN()

    @torch.no_grad()
    def __call__(
        self,
        query: Tensor,
        k: int,
        reference: Tensor,
        ref_includes_query: bool,
        *,
        self_index: Tensor | None = None,
        ignore: Tensor | Callable[[slice], Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        # query: (Q, D)  reference: (R, D)  self_index: (Q,) int64  ignore: (Q, N), N of all ranks
        # ->  (Q, k) floating, (Q, k) int64
        """Distances and global indices of the k nearest references of this rank's queries, nearest first.

        `ref_includes_query=True`: this rank's reference i is its query i. `self_index` is global, and `ignore` has a
        column for each reference of all ranks. A tensor without rows may have any dtype, and shape (0,). An exception
        is raised on the rank where it happens and, as a RuntimeError that names this rank, on all others; ranks that
        differ in D or dtype all raise a ValueError.
        """
        try:
            query, reference = _with_columns(query, reference), _with_columns(reference, query)
            sides = query, k, reference, ref_includes_query, self_index
            query, k, reference, own = search_arguments(*sides, most=2**63 - 1)  # how many there are is not yet known
            _checks.same_device(query=query, ignore=ignore if isinstance(ignore, Tensor) else None)
            outcome = _kind(query), _kind(reference)
        except Exception as error:
            outcome = error
        queries, references = zip(*_exchange(outcome, self.group), strict=True)
        _check_alike(queries, references)
        query, reference = _like_others(query, queries), _like_others(reference, references)
        sizes = [shape[0] for shape, _ in references]
        if own is None:
            own = torch.full((len(query),), -1, device=query.device)
        elif self_index is None:
            own = own + sum(sizes[: dist.get_rank(self.group)])
        delta, indices = self._search(query, own, ignore, k, reference, sizes)
        distance = self.knn.order
        if isinstance(distance, Distance):
            delta = distance.from_canonical(delta)
        elif distance.largest_first:
            delta = -delta
        dtype = torch.promote_types(torch.promote_types(query.dtype, reference.dtype), torch.float32)
        return delta.to(dtype), indices

    def _search(
        self,
        query: Tensor,
        self_index: Tensor,
        ignore: Tensor | Callable[[slice], Tensor] | None,
        k: int,
        block: Tensor,
        sizes: list[int],
    ) -> tuple[Tensor, Tensor]:
        # query: (Q, D)  self_index: (Q,) global  ignore: (Q, N)  block: (R, D), our references
        # ->  (Q, k) float64, (Q, k) int64
        delta = torch.full((len(query), k), torch.inf, dtype=torch.float64, device=query.device)
        indices = torch.full((len(query), k), -1, device=query.device)
        rank, world = dist.get_rank(self.group), len(sizes)
        block, failure = block.contiguous(), None
        for step in range(world):
            owner, last = (rank - step) % world, step == world - 1
            arriving = block.new_empty(0 if last else sizes[owner - 1], block.shape[1])
            passing = [] if last else self._pass_on(block, arriving)
            try:
                if failure is None and len(query) and len(block):
                    ignored = rows_of("ignore", ignore, (len(query), sum(sizes)))
                    self._merge(delta, indices, query, self_index, ignored, block, sum(sizes[:owner]))
            except Exception as error:  # the others wait for our blocks
                failure = error
            for request in passing:
                request.wait()
            block = arriving
        _exchange(failure, self.group)
        return delta, indices

    def _pass_on(self, block: Tensor, arriving: Tensor) -> list[dist.Work]:
        # block: (R, D)  arriving: (R', D), filled when the requests are done
        rank, world = dist.get_rank(self.group), dist.get_world_size(self.group)
        ends = ((dist.isend, block, (rank + 1) % world), (dist.irecv, arriving, (rank - 1) % world))
        # Both ends know which blocks are empty.
        transfers = [dist.P2POp(op, rows, group=self.group, group_peer=peer) for op, rows, peer in ends if len(rows)]
        return dist.batch_isend_irecv(transfers) if transfers else []

    def _merge(
        self,
        delta: Tensor,
        indices: Tensor,
        query: Tensor,
        self_index: Tensor,
        ignored: Callable[[slice], Tensor] | None,
        block: Tensor,
        offset: int,
    ) -> None:
        # delta, indices: (Q, k), changed in place  query: (Q, D)  self_index: (Q,)  block: (R, D) from index `offset`
        k = indices.shape[1]
        here = (self_index >= offset) & (self_index < offset + len(block))
        own = torch.where(here, self_index - offset, -1)
        stop = offset + len(block)
        hidden = None if ignored is None else lambda rows: ignored(rows)[:, offset:stop]
        search = query, min(k, len(block)), block, False
        distance = self.knn.order
        if not isinstance(distance, Distance):
            values, found = self.knn(*search, self_index=own, ignore=hidden)
            values = torch.cat([delta, -values if distance.largest_first else values], 1)
            candidates = torch.cat([indices, torch.where(found < 0, -1, found + offset)], 1)
            delta[:], indices[:] = nearest(values, candidates, k)
            return
        found = self.knn.indices(*search, self_index=own, ignore=hidden)
        memory = budget(self.knn.memory_budget, query.device) // 2
        # On a CPU small pieces stay in the cache.
        pairs = max((memory if query.is_cuda else min(memory, 2**23)) // (40 * query.shape[1] + 64), 1)
        columns = min(pairs, 16)
        rows = max(min(pairs // columns, memory // (256 * k)), 1)
        for start in range(0, len(query), rows):
            tile = slice(start, start + rows)
            near = found[tile]
            deltas = _canonical(distance, query[tile], block, near, delta[tile, -1], columns)
            values = torch.cat([delta[tile], deltas], 1)
            candidates = torch.cat([indices[tile], torch.where(near < 0, -1, near + offset)], 1)
            delta[tile], indices[tile] = nearest(values, candidates, k)


def _canonical(distance: Distance, query: Tensor, block: Tensor, found: Tensor, worst: Tensor, columns: int) -> Tensor:
    # query: (Q, D)  block: (R, D)  found: (Q, C) nearest first  worst: (Q,)  ->  (Q, C) float64
    """Canonical distances, `columns` at a time; infinity from where all queries have found enough nearer ones."""
    delta = torch.full(found.shape, torch.inf, dtype=torch.float64, device=query.device)
    for start in range(0, found.shape[1], columns):
        piece = found[:, start : start + columns].clamp(min=0)
        evaluated = distance.canonical(query[:, None], block[piece])
        delta[:, start : start + columns] = evaluated
        # Waits for the device, to spare most of the work on all blocks but the first.
        if (evaluated[:, -1] > worst).all():
            break
    return delta


def _exchange(outcome: Any, group: dist.ProcessGroup | None) -> list[Any]:
    """The outcome of every rank, in rank order. Where one is an exception, all ranks raise."""
    failed = isinstance(outcome, Exception)
    outcomes: list[Any] = [None] * dist.get_world_size(group)
    # An exception may not survive pickling; its text does.
    said = f"{type(outcome).__name__}: {outcome}" if failed else outcome
    dist.all_gather_object(outcomes, (failed, said), group=group)
    if failed:
        raise outcome
    for rank, (failed, said) in enumerate(outcomes):
        if failed:
            raise RuntimeError(f"rank {rank} failed with {said}")
    return [said for _, said in outcomes]


def _kind(rows: Tensor) -> Kind:
    return tuple(rows.shape), rows.dtype


def _with_columns(rows: Tensor, like: Tensor) -> Tensor:
    # rows: (N, D) or (0,)  like: (M, D) or (0,)  ->  (N, D)
    return rows.new_empty(0, like.shape[-1]) if rows.shape == (0,) else rows


def _check_alike(queries: tuple[Kind, ...], references: tuple[Kind, ...]) -> None:
    """Rows of all ranks have one number of columns, and one dtype on either side."""
    held = [{(shape[1], dtype) for shape, dtype in side if shape[0]} for side in (queries, references)]
    if max(map(len, held)) > 1 or len({columns for side in held for columns, _ in side}) > 1:
        got = "; ".join(
            f"query {query[0]} {query[1]} and reference {reference[0]} {reference[1]} on rank {rank}"
            for rank, (query, reference) in enumerate(zip(queries, references, strict=True))
        )
        raise ValueError(f"query and reference: got {got}; wanted one number of columns and one dtype of each")


def _like_others(rows: Tensor, kinds: tuple[Kind, ...]) -> Tensor:
    # rows: (N, D)  ->  the same; without rows, with the columns and the dtype of the other ranks' rows
    if len(rows):
        return rows
    columns, dtype = next(((shape[1], dtype) for shape, dtype in kinds if shape[0]), (rows.shape[1], rows.dtype))
    return rows.new_empty(0, columns, dtype=dtype)
