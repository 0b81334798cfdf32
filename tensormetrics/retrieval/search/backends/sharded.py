"""k nearest neighbours among references that are spread over the ranks of a process group."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from .... import _checks
from ...._checks import takes_arrays
from ...._distributed import (
    TensorMeta,
    all_gather_status,
    check_same_options,
    described,
    raise_on_all_ranks,
    tensor_meta,
    travel_device,
)
from ...._repr import ConstructorRepr
from ...inputs import budget, check_squares
from ...relevance import rows_of
from .. import operators
from ..backend import nearest, search_arguments
from ..distance import Distance
from ..knn import TorchKNN
from ..ring.normalization import frame_of, told_of
from ..ring.ring_pass import Ring, at_once, travel_memory
from ..ring.symmetric import Known
from ..ring.symmetric_ring import MutualRing


class ShardedKNN(ConstructorRepr):
    """Exact k nearest neighbours over the references of all ranks; every rank calls it, with its own rows.

    The index of a reference is its position among those of all ranks, in rank order. Results have the same bits as
    `TorchKNN`'s for the concatenated references, for any number of ranks and any split, with ranks without rows too.
    Blocks of references go round a ring: besides its own rows, a rank holds the block it searches and the next one.
    Where the distance is a function, bits are the same as far as its values do not depend on the other references.

    Args:
        group: the process group; default all ranks.
        knn: the TorchKNN that searches a block, with its distance and memory budget.

    >>> x = torch.tensor([[0.0], [0.1], [5.0], [5.3]])
    >>> torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    >>> distances, indices = ShardedKNN()(x, 1, x, True)  # each process gives its own rows
    >>> indices.flatten()
    tensor([1, 0, 3, 2])
    >>> torch.distributed.destroy_process_group()
    """

    def __init__(self, group: dist.ProcessGroup | None = None, knn: TorchKNN | None = None) -> None:
        if not isinstance(knn, TorchKNN | None):
            raise TypeError(f"knn: got a {type(knn).__name__}, wanted a TorchKNN, whose order can be merged")
        self.group = group
        self.knn = knn or TorchKNN()

    @takes_arrays
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
            _checks.tensor("query", query)
            _checks.tensor("reference", reference)
            query, reference = _with_columns(query, reference), _with_columns(reference, query)
            sides = query, k, reference, ref_includes_query, self_index
            query, k, reference, own = search_arguments(*sides, most=2**63 - 1)  # how many there are is not yet known
            _checks.same_device(query=query, ignore=ignore if isinstance(ignore, Tensor) else None)
            options = {"distance": described(self.knn.distance), "exact": repr(self.knn.exact), "k": repr(k)}
            outcome = tensor_meta(query), tensor_meta(reference), options
        except BaseException as error:
            outcome = error
        queries, references, options = zip(*all_gather_status(outcome, self.group), strict=True)
        check_same_options(options)
        _check_alike(queries, references)
        query, reference = _like_others(query, queries), _like_others(reference, references)
        home, travel = query.device, travel_device([kind[2] for kind in (*queries, *references)], self.group)
        if travel is not None:
            with raise_on_all_ranks(self.group):
                is_self_retrieval = query is reference
                query, reference, own, ignore = (_moved(each, travel) for each in (query, reference, own, ignore))
                reference = query if is_self_retrieval else reference
        sizes = [shape[0] for shape, *_ in references]
        if own is None:
            own = torch.full((len(query),), -1, device=query.device)
        elif self_index is None:
            own = own + sum(sizes[: dist.get_rank(self.group)])
        with raise_on_all_ranks(self.group):
            delta, indices = self.search(query, k, reference, own, sizes, ignore)
        distance = self.knn.order
        if isinstance(distance, Distance):
            delta = distance.from_canonical(delta)
        elif distance.largest_first:
            delta = -delta
        dtype = torch.promote_types(torch.promote_types(query.dtype, reference.dtype), torch.float32)
        return delta.to(home, dtype), indices.to(home)

    @torch.no_grad()
    def search(
        self,
        query: Tensor,
        k: int,
        reference: Tensor,
        own: Tensor,
        sizes: list[int],
        ignore: Tensor | Callable[[slice], Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Neighbours of rows that a door has checked.

        Shapes: query: (Q, D); reference: (R, D); own: (Q,) global; sizes: R of every rank; ignore: (Q, N) -> (Q, k)
        float64, smaller is nearer, (Q, k) int64.
        """
        known = Known(
            query.new_full((len(query), k), torch.inf, dtype=torch.float64), own.new_full((len(query), k), -1)
        )
        here = torch.arange(len(query), device=query.device) + sum(sizes[: dist.get_rank(self.group)])
        same = query is reference or not len(query) + len(reference)
        alone = same and ignore is None and torch.equal(own, here)
        # More would travel than is saved where many neighbours do.
        distance, few = self.knn.order, 12 * k <= 2 * query.shape[1] * query.element_size()
        halved = isinstance(distance, Distance) and distance.euclidean and self.knn.exact
        alone &= few and halved and operators.selects(query.device)
        memory = budget(self.knn.memory_budget, query.device)
        told = None
        if alone and isinstance(distance, Distance):
            check_squares(query=query)
            told = told_of(query, distance)
        every, memories = zip(*all_gather_status((told, memory), self.group), strict=True)
        most = max(sizes, default=0)
        least = travel_memory(min(memories), 8 * reference.shape[1] * reference.element_size(), most, self.group)
        if None not in every:
            ring = MutualRing(query, sizes, memory, self.knn, frame_of(every, query), at_once(query, least), self.group)
            ring(known)
            return known.delta, known.index

        def merge(start: int, block: Tensor) -> None:
            if len(query) and len(block):
                ignored = rows_of("ignore", ignore, (len(query), sum(sizes)))
                merge_block(self.knn, (known.delta, known.index), query, own, ignored, block, start)

        Ring([reference], sizes, self.group, at_once(reference, least))(merge)
        return known.delta, known.index


def merge_block(
    knn: TorchKNN,
    found: tuple[Tensor, Tensor],
    query: Tensor,
    self_index: Tensor,
    ignored: Callable[[slice], Tensor] | None,
    block: Tensor,
    offset: int,
) -> None:
    # found: (Q, k) distances and indices, changed in place  query: (Q, D)  self_index: (Q,)
    # block: (R, D) from index `offset`
    """Puts the neighbours among a block of references with those that were found before."""
    (delta, indices), k = found, found[1].shape[1]
    here = (self_index >= offset) & (self_index < offset + len(block))
    own = torch.where(here, self_index - offset, -1)
    stop = offset + len(block)
    hidden = None if ignored is None else lambda rows: ignored(rows)[:, offset:stop]
    search = query, min(k, len(block)), block, False
    distance = knn.order
    if not isinstance(distance, Distance):
        values, columns = knn(*search, self_index=own, ignore=hidden)
        values = torch.cat([delta, -values if distance.largest_first else values], 1)
        candidates = torch.cat([indices, torch.where(columns < 0, -1, columns + offset)], 1)
        delta[:], indices[:] = nearest(values, candidates, k)
        return
    near_here = knn.indices(*search, self_index=own, ignore=hidden)
    memory = budget(knn.memory_budget, query.device) // 2
    rows = max(memory // (256 * k + 32 * query.shape[1]), 1)
    for start in range(0, len(query), rows):
        tile = slice(start, start + rows)
        near = near_here[tile]
        row = torch.arange(len(near), device=near.device).repeat_interleave(near.shape[1])
        pairs = row, near.flatten().clamp(min=0), memory // 2
        values = torch.cat([delta[tile], distance.of_pairs(query[tile], block, *pairs).view(near.shape)], 1)
        candidates = torch.cat([indices[tile], torch.where(near < 0, -1, near + offset)], 1)
        delta[tile], indices[tile] = nearest(values, candidates, k)


def _moved(given: Any, device: torch.device) -> Any:
    """Return a tensor, or a function that gives one, on a device."""
    if isinstance(given, Tensor):
        return given.to(device)
    return given and (lambda rows: given(rows).to(device))


def _with_columns(rows: Tensor, like: Tensor) -> Tensor:
    # rows: (N, D) or (0,)  like: (M, D) or (0,)  ->  (N, D)
    return rows.new_empty(0, like.shape[-1]) if rows.shape == (0,) else rows


def _check_alike(queries: tuple[TensorMeta, ...], references: tuple[TensorMeta, ...]) -> None:
    """Rows of all ranks have one number of columns, and one dtype on either side."""
    held = [{(shape[1], dtype) for shape, dtype, _ in side if shape[0]} for side in (queries, references)]
    if max(map(len, held)) > 1 or len({columns for side in held for columns, _ in side}) > 1:
        got = "; ".join(
            f"query {query[0]} {query[1]} and reference {reference[0]} {reference[1]} on rank {rank}"
            for rank, (query, reference) in enumerate(zip(queries, references, strict=True))
        )
        raise ValueError(f"query and reference: got {got}; wanted one number of columns and one dtype of each")


def _like_others(rows: Tensor, kinds: tuple[TensorMeta, ...]) -> Tensor:
    # rows: (N, D)  ->  the same; without rows, with the columns and the dtype of the other ranks' rows
    if len(rows):
        return rows
    columns, dtype = next(((shape[1], dtype) for shape, dtype, _ in kinds if shape[0]), (rows.shape[1], rows.dtype))
    return rows.new_empty(0, columns, dtype=dtype)
