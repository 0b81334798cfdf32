"""Sums of rows by unit: a unit is an item, or a group of items, and has one weight in each replicate.

A metric that keeps sums also keeps a store of the rows of up to `MAX_UNITS` units, from which the jackknife, exact tests
and the number of units are read. The store is one integer tensor of fixed shape, so that it is updated without a wait
for the device, merged in any order to the same bits, and exchanged like any other state.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ..._exact_sums import parts, total
from .weights import GRIDS

MAX_UNITS = 1000
EMPTY = torch.iinfo(torch.int64).max  # id of empty entries; a unit of this id adds to them and stays right
HEADER = 1  # entries before those of units: overflow and items
ID, SIZE, ROWS = 0, 1, 2  # columns of an entry; of the header: overflow, items


class Units(NamedTuple):
    """Units in the order of their ids."""

    ids: Tensor  # (U,) int64
    rows: Tensor  # (U, ...) float64, sums over the unit's items
    sizes: Tensor  # (U,) float64, number of items


def empty_store(width: int) -> Tensor:
    # ->  (HEADER + MAX_UNITS, ROWS + 3 width) int64
    """Return a store without units for rows of `width` numbers."""
    store = torch.zeros(HEADER + MAX_UNITS, ROWS + len(GRIDS) * width, dtype=torch.int64)
    store[HEADER:, ID] = EMPTY
    return store


def add_to_store(store: Tensor, rows: Tensor, ids: Tensor) -> Tensor:
    # rows: (B, K) float64  ids: (B,) int64
    """Return the store with the rows of a batch added to those of their units."""
    count = len(rows)
    if store.device.type == "cpu" and bool(store[0, ID]):
        header = store[:HEADER].clone()
        header[0, SIZE] += count
        return torch.cat([header, store[HEADER:]])
    sizes = torch.ones(count, 1, dtype=torch.int64, device=rows.device)
    bits = torch.cat(parts(rows, grids=GRIDS), 1).view(torch.int64)
    entries = torch.cat([ids[:, None], sizes, bits], 1)
    return _collapsed(torch.cat([store[HEADER:], entries]), store[0, ID], store[0, SIZE] + count)


def merge_stores(stores: Tensor) -> Tensor:
    # stores: (W, entries, columns)  ->  (entries, columns)
    """Return one store with the units of all; empty, with the mark of overflow, if these are too many."""
    return _collapsed(stores[:, HEADER:].flatten(0, 1), stores[:, 0, ID].amax(), stores[:, 0, SIZE].sum())


def _collapsed(entries: Tensor, overflow: Tensor, items: Tensor) -> Tensor:
    # entries: (E, columns), several of one id possible  overflow, items: ()
    ids, order = entries[:, ID].sort(stable=True)
    is_first = torch.ones_like(ids)
    is_first[1:] = (ids[1:] != ids[:-1]).long()
    unit = is_first.cumsum(0) - 1
    entries = entries[order]
    sizes = torch.zeros_like(ids).index_add_(0, unit, entries[:, SIZE])
    rows = entries[:, ROWS:].contiguous().view(torch.float64)
    sums = torch.zeros_like(rows).index_add_(0, unit, rows)  # exact, hence in any order
    unit_ids = torch.full_like(ids, EMPTY).scatter_(0, unit, ids)
    is_full = (overflow > 0) | ((sizes > 0).sum() > MAX_UNITS)
    kept = torch.cat([unit_ids[:, None], sizes[:, None], sums.view(torch.int64)], 1)[:MAX_UNITS]
    blank = torch.zeros_like(kept)
    blank[:, ID] = EMPTY
    header = torch.zeros_like(kept[:HEADER])
    header[0, ID], header[0, SIZE] = is_full.long(), items
    return torch.cat([header, torch.where(is_full, blank, kept)])


def units_of_store(store: Tensor, shape: tuple[int, ...]) -> tuple[Units | None, int]:
    # ->  units with rows of `shape`, items; waits for the device
    """Return the units, None where there were too many, and the number of items."""
    overflow, items = store[0, : SIZE + 1].tolist()
    if overflow:
        return None, items
    entries = store[HEADER:]
    entries = entries[entries[:, SIZE] > 0]
    rows = total(list(entries[:, ROWS:].contiguous().view(torch.float64).unflatten(1, (len(GRIDS), -1)).unbind(1)))
    return Units(entries[:, ID], rows.view(-1, *shape), entries[:, SIZE].double()), items


def units_of_items(rows: Tensor, ids: Tensor, cells: Tensor | None, width: int) -> Units | None:
    # rows: (N, K) float64  ids: (N,) int64  cells: (N,) int64 in [0, width)  ->  rows (U, width, K)
    """Return the units of items that are all at hand; None where these are more than a store holds."""
    distinct, unit = ids.unique(return_inverse=True)
    if len(distinct) > MAX_UNITS:
        return None
    sizes = torch.zeros(len(distinct), dtype=torch.float64, device=rows.device)
    sizes.index_add_(0, unit, torch.ones_like(rows[:, 0]) if rows.shape[1] else sizes.new_ones(len(rows)))
    index = unit * width if cells is None else unit * width + cells
    pieces = [rows.new_zeros(len(distinct) * width, rows.shape[1]) for _ in GRIDS]
    for piece, part in zip(pieces, parts(rows, grids=GRIDS), strict=True):
        piece.index_add_(0, index, part)
    return Units(distinct, total(pieces).view(len(distinct), width, rows.shape[1]), sizes)
