"""Sums of rows by unit: a unit is an item, or a group of items, and has one weight in each replicate.

A metric that keeps sums also keeps a store of the rows of up to `MAX_UNITS` units, from which the jackknife, exact
tests and the number of units are read. The store is one integer tensor of fixed shape, so that it is updated without a
wait for the device, merged in any order to the same bits, and exchanged like any other state.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ..numbers.exact_sums import parts, total
from .weights import GRIDS

MAX_UNITS = 1000
MAX_ENTRIES = 1000  # of items that were not yet added to their units
EMPTY = torch.iinfo(torch.int64).max  # id of empty entries; a unit of this id adds to them and stays right
ID, SIZE, ROW = 0, 1, 2  # columns of an entry: id of the unit, number of items, bits of the row's parts
OVERFLOW = 0  # the first entry of a store is not 0 if there were too many units


class Units(NamedTuple):
    """Units in the order of their ids."""

    ids: Tensor  # (U,) int64
    rows: Tensor  # (U, ...) float64, sums over the unit's items
    sizes: Tensor  # (U,) float64, number of items


def empty_store(width: int) -> Tensor:
    # ->  (1 + MAX_UNITS, ROW + 3 width) int64
    """Return a store without units for rows of `width` numbers."""
    store = torch.zeros(1 + MAX_UNITS, ROW + len(GRIDS) * width, dtype=torch.int64, device="cpu")
    store[1:, ID] = EMPTY
    return store


def entries_of(split: Tensor, ids: Tensor) -> Tensor:
    # split: (B, 3 K) float64, parts of the rows  ids: (B,) int64  ->  (B, ROW + 3 K) int64
    """Return an entry for each item."""
    entries = torch.empty(len(ids), ROW + split.shape[1], dtype=torch.int64, device=ids.device)
    entries[:, ID], entries[:, SIZE], entries[:, ROW:] = ids, 1, split.view(torch.int64)
    return entries


def is_full(store: Tensor) -> bool:
    """Return whether there were too many units, if the answer needs no synchronization with a device."""
    return store.device.type == "cpu" and bool(store[0, OVERFLOW])


def merge_stores(stores: Tensor) -> Tensor:
    # stores: (W, entries, columns)  ->  (entries, columns)
    """Return one store with the units of all; empty, with the mark of overflow, if these are too many."""
    return _collapsed(stores[:, 1:].flatten(0, 1), stores[:, 0, OVERFLOW].amax())


def add_entries(store: Tensor, entries: Tensor) -> Tensor:
    """Return the store with the entries added to their units."""
    return _collapsed(torch.cat([store[1:], entries]), store[0, OVERFLOW])


def _collapsed(entries: Tensor, overflow: Tensor) -> Tensor:
    # entries: (E, columns), several of one id possible  overflow: ()
    ids, order = entries[:, ID].sort(stable=True)
    is_first = torch.ones_like(ids)
    is_first[1:] = (ids[1:] != ids[:-1]).long()
    unit = is_first.cumsum(0) - 1
    entries = entries[order]
    sizes = torch.zeros_like(ids).index_add_(0, unit, entries[:, SIZE])
    rows = entries[:, ROW:].contiguous().view(torch.float64)
    sums = torch.zeros_like(rows).index_add_(0, unit, rows)  # exact, hence in any order
    unit_ids = torch.full_like(ids, EMPTY).scatter_(0, unit, ids)
    is_overflow = (overflow > 0) | ((sizes > 0).sum() > MAX_UNITS)
    collapsed = torch.cat([unit_ids[:, None], sizes[:, None], sums.view(torch.int64)], 1)[:MAX_UNITS]
    blank = torch.zeros_like(collapsed)
    blank[:, ID] = EMPTY
    header = torch.zeros_like(collapsed[:1])
    header[0, OVERFLOW] = is_overflow.long()
    return torch.cat([header, torch.where(is_overflow, blank, collapsed)])


def units_of_store(store: Tensor) -> Units | None:
    # ->  rows (U, K); waits for the device
    """Return the units, None where there were too many."""
    if bool(store[0, OVERFLOW]):
        return None
    entries = store[1:]
    entries = entries[entries[:, SIZE] > 0]
    rows = entries[:, ROW:].contiguous().view(torch.float64).unflatten(1, (len(GRIDS), -1))
    return Units(entries[:, ID], total(list(rows.unbind(1))), entries[:, SIZE].double())


def units_of_items(rows: Tensor, ids: Tensor, cells: Tensor | None, width: int) -> Units | None:
    # rows: (N, K) float64  ids: (N,) int64  cells: (N,) int64 in [0, width)  ->  rows (U, width, K)
    """Return the units of all items; None if there are more than a store holds."""
    distinct, unit = ids.unique(return_inverse=True)
    if len(distinct) > MAX_UNITS:
        return None
    sizes = torch.zeros(len(distinct), dtype=torch.float64, device=rows.device)
    sizes.index_add_(0, unit, torch.ones_like(rows[:, 0]) if rows.shape[1] else sizes.new_ones(len(rows)))
    index = unit * width if cells is None else unit * width + cells
    sums = [rows.new_zeros(len(distinct) * width, rows.shape[1]) for _ in GRIDS]
    for part_sum, part in zip(sums, parts(rows, grids=GRIDS), strict=True):
        part_sum.index_add_(0, index, part)
    return Units(distinct, total(sums).view(len(distinct), width, rows.shape[1]), sizes)


def units_of_values(ids: Tensor) -> Units | None:
    # ids: (N,) int64  ->  rows (U,), all 0
    """Return the units of items whose value is no function of sums; None where these are more than a store holds."""
    distinct, sizes = ids.unique(return_counts=True)
    return None if len(distinct) > MAX_UNITS else Units(distinct, torch.zeros_like(sizes.double()), sizes.double())


def unit_counts(ids: Tensor) -> tuple[int, float]:
    # ids: (N,) int64
    """Return the number of units, and of units of equal size with the same information."""
    sizes = ids.unique(return_counts=True)[1].double()
    return len(sizes), float(sizes.sum().square() / sizes.square().sum()) if len(sizes) else 0.0


def group_size(ids: Tensor) -> float:
    # ids: (N,) int64
    """Return the size of the group of an average item."""
    sizes = ids.unique(return_counts=True)[1].double()
    return float(sizes.square().sum() / sizes.sum()) if len(sizes) else 1.0
