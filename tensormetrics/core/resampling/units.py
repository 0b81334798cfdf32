"""Sums of rows by unit: a unit is an item, or a group of items, and has one weight in each replicate.

A metric that keeps sums also keeps entries, one for each unit, from which the jackknife, exact tests and the number of
units are read, and weights are drawn. More than `MAX_UNITS` units are added up in as many groups, by a hash of their
ids. Entries are integers, and their sums exact: they are added up without a wait for the device, in any order to the
same bits, and exchanged like any other rows.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ..numbers.exact_sums import parts, total
from ..numbers.splitmix import mix
from .weights import GRIDS

MAX_UNITS = 1000
MAX_ENTRIES = 4096  # items whose rows were not yet added to those of their units
EMPTY = torch.iinfo(torch.int64).max  # id of empty entries; a unit of this id adds to them and stays right
ID, SIZE, GROUPED, ROW = 0, 1, 2, 3  # columns of an entry: id of the unit, or of several if GROUPED; items; parts' bits


class Units(NamedTuple):
    """Units in the order of their ids."""

    ids: Tensor  # (U,) int64
    rows: Tensor  # (U, ...) float64, sums over the unit's items
    sizes: Tensor  # (U,) float64, number of items


def entries_of(split: Tensor, ids: Tensor) -> Tensor:
    # split: (B, 3 K) float64, parts of the rows  ids: (B,) int64  ->  (B, ROW + 3 K) int64
    """Return an entry for each item."""
    head = torch.stack([ids, torch.ones_like(ids), torch.zeros_like(ids)], 1)
    return torch.cat([head, split.view(torch.int64)], 1)


def add_up(entries: Tensor) -> Tensor:
    # entries: (E, ROW + 3 K), several of one id possible  ->  (MAX_UNITS, ROW + 3 K)
    """Return one entry for each unit, or, of too many units, one for each group of units."""
    ids, sizes = entries[:, ID], entries[:, SIZE]
    unit = numbered(ids)
    zeros = torch.zeros(MAX_UNITS, dtype=torch.int64, device=ids.device)
    is_many = (unit.masked_fill(sizes == 0, 0).amax() >= MAX_UNITS) | (entries[:, GROUPED] > 0).any()
    group = torch.where(entries[:, GROUPED] > 0, ids, mix(ids) % MAX_UNITS)
    index = torch.where(is_many, group, unit.clamp(max=MAX_UNITS - 1))  # the clamped ones are empty
    rows = entries[:, ROW:].contiguous().view(torch.float64)
    sums = rows.new_zeros(MAX_UNITS, rows.shape[1]).index_add_(0, index, rows)  # exact, hence in any order
    unit_ids = (zeros + EMPTY).scatter_reduce_(0, index, ids, "amin")
    unit_ids = torch.where(is_many, torch.arange(MAX_UNITS, device=ids.device), unit_ids)
    head = torch.stack([unit_ids, zeros.index_add(0, index, sizes), zeros + is_many.long()], 1)
    return torch.cat([head, sums.view(torch.int64)], 1)


def numbered(ids: Tensor) -> Tensor:
    # ids: (..., N) int64  ->  (..., N) int64, the number of smaller distinct ones
    ordered, order = ids.sort(dim=-1, stable=True)
    is_new = torch.zeros_like(ids)
    is_new[..., 1:] = (ordered[..., 1:] != ordered[..., :-1]).long()
    return torch.empty_like(ids).scatter_(-1, order, is_new.cumsum(-1))


def renumbered(entries: Tensor, shift: Tensor) -> Tensor:
    # shift: ()
    """Return the entries with a number added to the ids of single units."""
    is_unit = (entries[:, SIZE] > 0) & (entries[:, GROUPED] == 0)
    return torch.cat([(entries[:, ID] + shift * is_unit)[:, None], entries[:, SIZE:]], 1)


def read_entries(entries: Tensor) -> tuple[Units, Tensor, bool]:
    # entries: (MAX_UNITS, ROW + 3 K), of `add_up`  ->  rows (U, K); waits for the device
    """Return the units, the parts of their rows (U, 3 K), and whether they are groups of too many units."""
    entries = entries[entries[:, SIZE] > 0]
    split = entries[:, ROW:].contiguous().view(torch.float64)
    rows = total(list(split.unflatten(1, (len(GRIDS), -1)).unbind(1)))
    units = Units(entries[:, ID].contiguous(), rows, entries[:, SIZE].double())
    return units, split, bool(entries[:, GROUPED].any())


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
