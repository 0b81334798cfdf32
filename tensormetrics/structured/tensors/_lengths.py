"""Documents of unequal size: how many entries count, and how to do a few of like size at a time, each few padded to
their own longest."""

import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from ... import _checks

CELLS = 1 << 22  # of the tables of a chunk that are held at a time
GPU_CELLS = 1 << 24  # there a chunk more costs launches
FEW_CELLS = 1 << 17  # what is padded to them costs less than another chunk
WASTE = 4  # so much padding, against what counts, is less than what sorting and cutting cost

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
    _checks.shape(name, lengths, *batch)
    _checks.integral(name, lengths)
    _checks.same_device(**{"items": like, name: lengths})
    return lengths.long().clamp(0, size)


def mask(lengths: Tensor, size: int) -> Tensor:
    # lengths: (...)  ->  (..., size) bool
    return torch.arange(size, device=lengths.device) < lengths[..., None]


def product(n: int | Tensor, m: int | Tensor, *others: int | Tensor) -> int | Tensor:
    return n * m


def total(*lengths: int | Tensor) -> int | Tensor:
    return sum(lengths)


def in_chunks(
    count: Callable[..., Tensor],  # tables of some documents (few, N, ...), then their lengths (few,)  ->  (few, K)
    tables: Sequence[Tensor],
    lengths: Sequence[Tensor],
    cells: Cells = product,
    *,
    flat: bool = False,
    device: torch.device | None = None,
) -> Tensor:  # (D, K)
    """What `count` gives for each document, in their order; see `chunks`."""
    found = [
        (place, count(*some, *sizes)) for place, some, sizes in chunks(tables, lengths, cells, flat=flat, device=device)
    ]
    if len(found) == 1:
        return found[0][1]
    result = found[0][1].new_empty(len(lengths[0]), *found[0][1].shape[1:])
    for place, counts in found:
        result[place] = counts
    return result


def chunks(
    tables: Sequence[Tensor],  # (D, N, ...) each, or flat (T, ...)
    lengths: Sequence[Tensor],  # (D,) int64 each, of the table that stands at the same place
    cells: Cells = product,
    *,
    flat: bool = False,
    device: torch.device | None = None,
) -> Iterator[Chunk]:
    """Chunks of documents whose padded tables have few `cells`; with `flat` rows of all documents follow one another.

    Where lengths are on the CPU documents of like size come together, and are padded to the longest of them alone;
    elsewhere, where reading a length would wait, the tables are cut as they are. There is always one chunk at least.
    """
    device = tables[0].device if device is None else device
    starts = [n.cumsum(0) - n if flat else None for n in lengths]
    for place, widths in cuts(lengths, [table.shape[1] for table in tables] if not flat else [], cells):
        some = [
            _taken(table, start, n, place, width)
            for table, start, n, width in zip(tables, starts, lengths, widths, strict=True)
        ]
        yield place, tuple(t.to(device) for t in some), tuple(n[place].to(device) for n in lengths)


def cuts(
    lengths: Sequence[Tensor], widths: Sequence[int], cells: Cells = product
) -> Iterator[tuple[slice | Tensor, Sequence[int]]]:
    # ->  documents, width of each table
    """Where to cut documents with tables of these `widths`, of which `lengths` (D,) each count; see `chunks`."""
    documents = len(lengths[0])
    if lengths[0].device.type != "cpu":
        few = max(GPU_CELLS // max(cells(*widths), 1), 1)
        yield from ((slice(first, first + few), widths) for first in range(0, max(documents, 1), few))
        return
    sizes = torch.stack(tuple(lengths))  # (S, D)
    longest = sizes.amax(1).tolist() if documents else [0] * len(sizes)
    padded = documents * int(cells(*longest))
    if padded <= FEW_CELLS or padded <= min(CELLS, WASTE * int(torch.as_tensor(cells(*sizes)).sum())):
        yield slice(None), longest
        return
    size, order = sizes.amax(0).sort(stable=True)
    for bucket in order.split(size.double().log2().ceil().unique_consecutive(return_counts=True)[1].tolist()):
        most = sizes[:, bucket].amax(1).tolist()
        for part in bucket.split(max(CELLS // max(int(cells(*most)), 1), 1)):
            yield part, sizes[:, part].amax(1).tolist()


def _taken(table: Tensor, start: Tensor | None, lengths: Tensor, place: slice | Tensor, width: int) -> Tensor:
    # ->  (few, width, ...)
    if start is None:
        return table[:, :width][place]
    first = start[place, None]
    if width == 0:
        return table.new_zeros(len(first), 0, *table.shape[1:])
    return table[(first + torch.arange(width, device="cpu")).clamp(max=len(table) - 1)]


def documents(tensor: Tensor, dims: int) -> Tensor:
    # (..., *item), `dims` dimensions of an item  ->  (D, *item)
    """The leading dimensions, any number of them, as one."""
    lead = tensor.ndim - dims
    return tensor.reshape(math.prod(tensor.shape[:lead]), *tensor.shape[lead:])
