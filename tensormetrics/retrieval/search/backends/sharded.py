"""k nearest neighbors among references that are sharded over the ranks of a process group."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from ....core.arguments import checks
from ....core.arguments.checks import takes_arrays
from ....core.arguments.repr import ConstructorRepr
from ....core.metric.distributed import (
    TensorMeta,
    all_gather_status,
    check_same_options,
    described,
    raise_on_all_ranks,
    tensor_meta,
    travel_device,
)
from ...deterministic import chunk_slices
from ...inputs import budget
from ...relevance import masks_of
from ..backend import nearest, search_arguments
from ..distance import Distance
from ..knn import TorchKNN
from ..ring_pass import Ring, block_rows, travel_memory


class ShardedKNN(ConstructorRepr):
    """Exact k nearest neighbors over the references of all ranks; every rank calls it, with its own rows.

    The index of a reference is its position among the references of all ranks, in rank order. Results have the same
    bits as `TorchKNN`'s for the concatenated references, for any number of ranks and any split, even if some ranks have
    no rows. Blocks of references go round a ring: in addition to its own rows, a rank holds the block it searches and
    the next one. If the distance is a function, bits are the same if its values do not depend on the other references.

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
        """Return distances and global indices of the k nearest references of this rank's queries, nearest first.

        `ref_includes_query=True`: this rank's reference i is its query i. `self_index` is global, and `ignore` has a
        column for each reference of all ranks. A tensor without rows may have any dtype, and shape (0,). An exception
        is raised on the rank where it happens and, as a RuntimeError that names this rank, on all others; ranks that
        differ in D or dtype all raise a ValueError.
        """
        try:
            checks.tensor("query", query)
            checks.tensor("reference", reference)
            query, reference = _with_columns(query, reference), _with_columns(reference, query)
            arguments = query, k, reference, ref_includes_query, self_index
            query, k, reference, excluded = search_arguments(*arguments, max_references=2**63 - 1)  # N is not yet known
            checks.same_device(query=query, ignore=ignore if isinstance(ignore, Tensor) else None)
            options = {"distance": described(self.knn.distance), "exact": repr(self.knn.exact), "k": repr(k)}
            outcome = tensor_meta(query), tensor_meta(reference), options
        except BaseException as error:
            outcome = error
        queries, references, options = zip(*all_gather_status(outcome, self.group), strict=True)
        check_same_options(options)
        _check_compatible(queries, references)
        query, reference = _like_others(query, queries), _like_others(reference, references)
        home, travel = query.device, travel_device([kind[2] for kind in (*queries, *references)], self.group)
        if travel is not None:
            with raise_on_all_ranks(self.group):
                is_self_retrieval = query is reference
                values = query, reference, excluded, ignore
                query, reference, excluded, ignore = (_moved(value, travel) for value in values)
                reference = query if is_self_retrieval else reference
        sizes = [shape[0] for shape, *_ in references]
        if excluded is None:
            excluded = torch.full((len(query),), -1, device=query.device)
        elif self_index is None:
            excluded = excluded + sum(sizes[: dist.get_rank(self.group)])
        with raise_on_all_ranks(self.group):
            delta, indices = self.search(query, k, reference, excluded, sizes, ignore)
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
        self_index: Tensor,
        sizes: list[int],
        ignore: Tensor | Callable[[slice], Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Search the neighbors of checked rows.

        Shapes: query: (Q, D); reference: (R, D); self_index: (Q,) global; sizes: R of every rank; ignore: (Q, N) -> (Q,
        k) float64, smaller is nearer, (Q, k) int64.
        """
        delta = query.new_full((len(query), k), torch.inf, dtype=torch.float64)
        neighbors = delta, self_index.new_full((len(query), k), -1)
        memory = min(all_gather_status(budget(self.knn.memory_budget, query.device), self.group))
        row_bytes = 8 * reference.shape[1] * reference.element_size()
        memory = travel_memory(memory, row_bytes, max(sizes, default=0), self.group)

        def merge(start: int, block: Tensor) -> None:
            if len(query) and len(block):
                ignored = masks_of(ignore, (len(query), sum(sizes)))
                merge_block(self.knn, neighbors, query, self_index, ignored, block, start)

        Ring([reference], sizes, self.group, block_rows(reference, memory))(merge)
        return neighbors


def merge_block(
    knn: TorchKNN,
    neighbors: tuple[Tensor, Tensor],
    query: Tensor,
    self_index: Tensor,
    ignored: Callable[[slice], Tensor] | None,
    block: Tensor,
    offset: int,
) -> None:
    # neighbors: (Q, k) distances and indices, updated in place  query: (Q, D)  self_index: (Q,)
    # block: (R, D) from index `offset`
    """Merge the neighbors in a block of references into those that were found before."""
    (delta, indices), k = neighbors, neighbors[1].shape[1]
    is_in_block = (self_index >= offset) & (self_index < offset + len(block))
    self_column = torch.where(is_in_block, self_index - offset, -1)
    stop = offset + len(block)
    block_ignored = None if ignored is None else lambda rows: ignored(rows)[:, offset:stop]
    search = query, min(k, len(block)), block, False
    distance = knn.order
    if not isinstance(distance, Distance):
        values, columns = knn(*search, self_index=self_column, ignore=block_ignored)
        values = torch.cat([delta, -values if distance.largest_first else values], 1)
        candidates = torch.cat([indices, torch.where(columns < 0, -1, columns + offset)], 1)
        delta[:], indices[:] = nearest(values, candidates, k)
        return
    block_columns = knn.indices(*search, self_index=self_column, ignore=block_ignored)
    memory = budget(knn.memory_budget, query.device) // 2
    rows = max(memory // (256 * k + 32 * query.shape[1]), 1)
    for tile in chunk_slices(len(query), rows):
        tile_columns = block_columns[tile]
        row = torch.arange(len(tile_columns), device=tile_columns.device).repeat_interleave(tile_columns.shape[1])
        pairs = row, tile_columns.flatten().clamp(min=0), memory // 2
        values = torch.cat([delta[tile], distance.of_pairs(query[tile], block, *pairs).view(tile_columns.shape)], 1)
        candidates = torch.cat([indices[tile], torch.where(tile_columns < 0, -1, tile_columns + offset)], 1)
        delta[tile], indices[tile] = nearest(values, candidates, k)


def _moved(value: Any, device: torch.device) -> Any:
    """Return a tensor, or a function that gives one, on a device."""
    if isinstance(value, Tensor):
        return value.to(device)
    return value and (lambda rows: value(rows).to(device))


def _with_columns(rows: Tensor, like: Tensor) -> Tensor:
    # rows: (N, D) or (0,)  like: (M, D) or (0,)  ->  (N, D)
    return rows.new_empty(0, like.shape[-1]) if rows.shape == (0,) else rows


def _check_compatible(queries: tuple[TensorMeta, ...], references: tuple[TensorMeta, ...]) -> None:
    """Check that rows of all ranks have one number of columns, queries one dtype, and references one dtype."""
    held = [{(shape[1], dtype) for shape, dtype, _ in metas if shape[0]} for metas in (queries, references)]
    if max(map(len, held)) > 1 or len({columns for metas in held for columns, _ in metas}) > 1:
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
