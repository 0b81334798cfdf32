"""Flat lists of pairs of items, each with the number of the pair of collections it stands in (its owner)."""

import torch
from torch import Tensor

from ...assignment import linear_sum_assignment
from .constraints import Constraint
from .overlap import common


def expand(start: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    # start, count: (P,)  ->  owner, item: (T,), T = count.sum()
    """The ranges start[p] .. start[p] + count[p] - 1, one after another."""
    owner = torch.repeat_interleave(count)
    first = start - (count.cumsum(0) - count)
    return owner, torch.arange(len(owner), device=start.device) + first[owner]


def join(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    # x: (n,), y: (m,) int64  ->  (T,), (T,)
    """The places of all pairs of equal values, by place in x, then in y."""
    ordered, place = y.sort(stable=True)
    start = torch.searchsorted(ordered, x)
    count = torch.searchsorted(ordered, x, right=True) - start
    a, b = expand(start, count)
    return a, place[b]


def counted_overlap(
    owner: Tensor,  # (T,) from 0 on the predicted side, from `owners` on the reference side
    key: Tensor,  # (T,) below `keys`
    owners: int,
    keys: int,
    constraint: Constraint,
    distinct: bool,
) -> Tensor:  # (owners,) float64
    """Overlaps of pairs of collections whose items are equal or not, from how often each key occurs on each side."""
    cells, cell = (owner % max(owners, 1) * keys + key).unique(return_inverse=True)
    times = torch.bincount(cell + len(cells) * (owner >= owners), minlength=2 * len(cells)).view(2, len(cells))
    p, r = times.clamp(max=1) if distinct else times
    value = common(p, r, constraint).double()
    return value.new_zeros(owners).index_add_(0, cells // max(keys, 1), value)


def matched(
    a: Tensor, b: Tensor, value: Tensor, block: Tensor, owner: Tensor, size: int, constraint: Constraint
) -> tuple[Tensor, Tensor]:
    # a, b: (T,) items of the two sides  value: (T,) float64  block, owner: (T,)  ->  (size,) float64, (T,) bool
    """The heaviest relation that the constraint allows in each of `size` collections, and the pairs it consists of.

    Pairs stand in blocks within which alone they compete; a block has one owner. Values <= 0 are never chosen.
    """
    chosen = value > 0
    if constraint is Constraint.ONE_TO_MANY:
        chosen = chosen & _first_largest(a, value)
    elif constraint is Constraint.MANY_TO_ONE:
        chosen = chosen & _first_largest(b, value)
    elif constraint is Constraint.ONE_TO_ONE:
        chosen = chosen & _assigned(a, b, value, block)
    return value.new_zeros(size).index_add_(0, owner, torch.where(chosen, value, 0)), chosen


def _first_largest(group: Tensor, value: Tensor) -> Tensor:
    # group: (T,)  value: (T,)  ->  (T,) bool, one in each group
    order = value.sort(descending=True, stable=True).indices
    order = order[group[order].sort(stable=True).indices]
    ordered = group[order]
    chosen = torch.ones_like(ordered, dtype=torch.bool)
    chosen[1:] = ordered[1:] != ordered[:-1]
    return torch.zeros_like(chosen).index_put_((order,), chosen)


def _assigned(a: Tensor, b: Tensor, value: Tensor, block: Tensor) -> Tensor:
    # (T,) each  ->  (T,) bool
    """One-to-one within each block: the largest where a side has one item, assignment problems of like size else."""
    block = block.unique(return_inverse=True)[1]
    row, rows = places(block, a)
    column, columns = places(block, b)
    shorter = torch.minimum(rows, columns)
    narrow, wide = (shorter == 1)[block], shorter > 1
    chosen = torch.zeros_like(narrow)
    chosen[narrow] = _first_largest(block[narrow], value[narrow])
    height, width = _padded(rows), _padded(columns)
    for h, w in torch.stack([height, width], 1)[wide].unique(dim=0).tolist():
        here = (height == h) & (width == w) & wide
        number = here.cumsum(0) - 1
        (pair,) = here[block].nonzero(as_tuple=True)
        place = number[block[pair]], row[pair], column[pair]
        dense = value.new_zeros(int(here.sum()), h, w).index_put_(place, value[pair].clamp(min=0))
        solution = linear_sum_assignment(
            dense, maximize=True, row_lengths=rows[here], col_lengths=columns[here], check=False
        )
        chosen[pair] = solution.col_of_row[place[:2]] == place[2]
    return chosen


def places(block: Tensor, item: Tensor) -> tuple[Tensor, Tensor]:
    # block, item: (T,)  ->  (T,) place of the item among those of its block, (blocks,) how many there are
    size = int(block.max()) + 1 if len(block) else 0
    keys, rank = (block * (item.max() + 1 if len(item) else 1) + item).unique(return_inverse=True)
    owner = torch.zeros_like(keys).scatter_(0, rank, block)
    count = torch.bincount(owner, minlength=size)
    return rank - (count.cumsum(0) - count)[block], count


def _padded(count: Tensor) -> Tensor:
    """Powers of two up to 32, then multiples of 32: few shapes, little padding."""
    small = 2 ** count.clamp(min=1).double().log2().ceil().long()
    return torch.where(count <= 32, small, (count + 31) // 32 * 32)
