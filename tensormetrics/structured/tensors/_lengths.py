"""Documents of unequal length: lengths, masks, and chunks of documents of similar length with little padding."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.native.device_cache import cached_per_device

CELLS = 1 << 22  # maximum of the tables of one chunk on the CPU
GPU_CELLS = 1 << 24  # larger on a GPU, where each chunk costs kernel launches
SMALL_CELLS = 1 << 17  # padding up to this size costs less than another chunk
CACHED = 1024  # positions up to which they are kept
WASTE = 4  # padding up to this multiple of the valid cells costs less than sorting and splitting

Cells = Callable[..., int | Tensor]  # lengths of one document -> cells of the largest tables it needs
Chunk = tuple[slice | Tensor, tuple[Tensor, ...], tuple[Tensor, ...]]  # documents, their tables, their lengths


def full_or_clamped(
    name: str,
    lengths: Tensor | None,  # (...) or None: all
    like: Tensor,
    batch: Sequence[int],
    size: int,
) -> Tensor:
    # -> (...) int64 in [0, size], on the device of `like`
    if lengths is None:
        return torch.full(batch, size, dtype=torch.int64, device=like.device)
    checks.shape(name, lengths, *batch)
    checks.integral(name, lengths)
    checks.same_device(**{"items": like, name: lengths})
    return lengths.long().clamp(0, size)


def read_tables(
    row: Sequence[int | str], lengths: Mapping[str, Tensor | None], **tables: Tensor
) -> tuple[list[Tensor], list[Tensor]]:
    # lengths by name: (...) or None: all  tables by name: (..., N, *row), (..., M, *row)
    # ->  (D, N, *row), (D, M, *row); (D,) each
    """Check predicted and reference rows and their numbers, and flatten the batch dimensions."""
    (pred_name, pred), (ref_name, ref) = tables.items()
    checks.shape(pred_name, pred, "...", "N", *row)
    batch_dims = pred.ndim - 1 - len(row)
    batch = pred.shape[:batch_dims]
    checks.shape(ref_name, ref, *batch, "M", *pred.shape[batch_dims + 1 :])
    checks.same_device(**tables)
    counts = [
        documents(full_or_clamped(name, n, table, batch, table.shape[batch_dims]), 0)
        for (name, n), table in zip(lengths.items(), tables.values(), strict=True)
    ]
    return [documents(table, 1 + len(row)) for table in tables.values()], counts


def mask(lengths: Tensor, size: int) -> Tensor:
    # lengths: (...)  ->  (..., size) bool
    is_made = lengths.is_cpu or size > CACHED or torch.compiler.is_compiling()
    positions = torch.arange(size, device=lengths.device) if is_made else _positions(lengths, size)
    return positions < lengths[..., None]


def mask_of_both(lengths: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
    # lengths: (...), (...)  ->  (..., N + M) bool, for the sizes N and M
    return torch.cat([mask(n, size) for n, size in zip(lengths, sizes, strict=True)], -1)


@cached_per_device
def _positions(device: torch.device, size: int) -> Tensor:
    return torch.arange(size, device=device)


def product(n: int | Tensor, m: int | Tensor, *others: int | Tensor) -> int | Tensor:
    return n * m


def total(*lengths: int | Tensor) -> int | Tensor:
    return sum(lengths)


def in_chunks(
    count: Callable[..., Tensor],  # tables of a chunk (chunk, N, ...), then its lengths (chunk,)  ->  (chunk, K)
    tables: Sequence[Tensor],
    lengths: Sequence[Tensor],
    cells: Cells = product,
    *,
    flat: bool = False,
    device: torch.device | None = None,
) -> Tensor:  # (D, K)
    """Compute `count` of each document, in order; see `chunks`."""
    results = [
        (index, count(*chunk, *sizes))
        for index, chunk, sizes in chunks(tables, lengths, cells, flat=flat, device=device)
    ]
    if len(results) == 1:
        return results[0][1]
    result = results[0][1].new_empty(len(lengths[0]), *results[0][1].shape[1:])
    for index, counts in results:
        result[index] = counts
    return result


def chunks(
    tables: Sequence[Tensor],  # (D, N, ...) each, or flat (T, ...)
    lengths: Sequence[Tensor],  # (D,) int64 each, of the table of the same index
    cells: Cells = product,
    *,
    flat: bool = False,
    device: torch.device | None = None,
) -> Iterator[Chunk]:
    """Yield chunks of documents whose padded tables have few `cells`; `flat` tables are concatenated documents.

    If lengths are on the CPU, a chunk has documents of similar length, padded to the longest of them. On a GPU, where
    reading a length would synchronize, chunks are consecutive documents. There is always at least one chunk.
    """
    device = tables[0].device if device is None else device
    starts = [n.cumsum(0) - n if flat else None for n in lengths]
    for index, widths in cuts(lengths, [table.shape[1] for table in tables] if not flat else [], cells):
        parts = zip(tables, starts, widths, strict=True)
        chunk = [_select(table, start, index, width) for table, start, width in parts]
        yield index, tuple(t.to(device) for t in chunk), tuple(n[index].to(device) for n in lengths)


def cuts(
    lengths: Sequence[Tensor], widths: Sequence[int], cells: Cells = product
) -> Iterator[tuple[slice | Tensor, Sequence[int]]]:
    # ->  documents, width of each table
    """Yield the documents and table widths of each chunk; `lengths` of the `widths` columns are valid."""
    documents = len(lengths[0])
    if lengths[0].device.type != "cpu":
        chunk_rows = max(GPU_CELLS // max(cells(*widths), 1), 1)
        yield from ((slice(first, first + chunk_rows), widths) for first in range(0, max(documents, 1), chunk_rows))
        return
    sizes = torch.stack(tuple(lengths))  # (S, D)
    longest = sizes.amax(1).tolist() if documents else [0] * len(sizes)
    padded = documents * int(cells(*longest))
    if padded <= SMALL_CELLS or padded <= min(CELLS, WASTE * int(torch.as_tensor(cells(*sizes)).sum())):
        yield slice(None), longest
        return
    size, order = sizes.amax(0).sort(stable=True)
    for bucket in order.split(size.double().log2().ceil().unique_consecutive(return_counts=True)[1].tolist()):
        max_sizes = sizes[:, bucket].amax(1).tolist()
        for part in bucket.split(max(CELLS // max(int(cells(*max_sizes)), 1), 1)):
            yield part, sizes[:, part].amax(1).tolist()


def _select(table: Tensor, start: Tensor | None, index: slice | Tensor, width: int) -> Tensor:
    # ->  (chunk, width, ...)
    if start is None:
        return table[:, :width][index]
    first = start[index, None]
    if width == 0:
        return table.new_zeros(len(first), 0, *table.shape[1:])
    return table[(first + torch.arange(width, device="cpu")).clamp(max=len(table) - 1)]


def documents(tensor: Tensor, dims: int) -> Tensor:
    # (..., *item), `dims` dimensions of an item  ->  (D, *item)
    """Flatten the batch dimensions."""
    batch_dims = tensor.ndim - dims
    return tensor.reshape(math.prod(tensor.shape[:batch_dims]), *tensor.shape[batch_dims:])
