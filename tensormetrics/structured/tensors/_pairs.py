"""Flat lists of pairs of items, each with the index of its pair of collections (its owner)."""

from collections.abc import Callable

import torch
from torch import Tensor

from ...assignment import linear_sum_assignment
from ...core.numbers.exact_sums import scatter_add
from ._lengths import cuts
from .constraints import Constraint
from .overlap import common


def expand(start: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    # start, count: (P,)  ->  owner, item: (T,), T = count.sum()
    """Concatenate the ranges start[p] .. start[p] + count[p] - 1."""
    owner = torch.repeat_interleave(count)
    first = start - (count.cumsum(0) - count)
    return owner, torch.arange(len(owner), device=start.device) + first[owner]


def join(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    # x: (n,), y: (m,) int64  ->  (T,), (T,)
    """Return the indices of all pairs of equal values, ordered by index in x, then in y."""
    ordered, order = y.sort(stable=True)
    start = torch.searchsorted(ordered, x)
    count = torch.searchsorted(ordered, x, right=True) - start
    a, b = expand(start, count)
    return a, order[b]


def join_once(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    # x: (n,), y: (m,) int64  ->  (T,), (T,)
    """Return the indices of pairs of equal values, the n-th of x with the n-th of y, ordered by index in x."""
    blocks = torch.cat([x, y]).unique(return_inverse=True)[1].split([len(x), len(y)])
    times = [positions_in_blocks(part, torch.arange(len(part), device=x.device))[0] for part in blocks]
    return join(*(part * (len(x) + len(y)) + before for part, before in zip(blocks, times, strict=True)))


def counted_overlap(
    owner: Tensor,  # (T,) in [0, owners) for predicted items, + `owners` for reference items
    key: Tensor,  # (T,) below `keys`
    owners: int,
    keys: int,
    constraint: Constraint,
    distinct: bool,
) -> Tensor:  # (owners,) float64
    """Compute overlaps of pairs of collections from the counts of each key; items are equal or not."""
    cells, cell = (owner % max(owners, 1) * keys + key).unique(return_inverse=True)
    counts = torch.bincount(cell + len(cells) * (owner >= owners), minlength=2 * len(cells)).view(2, len(cells))
    p, r = counts.clamp(max=1) if distinct else counts
    value = common(p, r, constraint).double()
    return value.new_zeros(owners).index_add_(0, cells // max(keys, 1), value)


def matched(
    a: Tensor, b: Tensor, value: Tensor, block: Tensor, owner: Tensor, size: int, constraint: Constraint
) -> tuple[Tensor, Tensor]:
    # a, b: (T,) predicted, reference items  value: (T,) float64  block, owner: (T,)  ->  (size,) float64, (T,) bool
    """Find the heaviest relation that the constraint allows in each of `size` collections, and its pairs.

    Only pairs of the same block compete; a block has one owner. Values <= 0 are never selected.
    """
    selected = value > 0
    if constraint is Constraint.ONE_TO_MANY:
        selected = selected & _first_largest(a, value)
    elif constraint is Constraint.MANY_TO_ONE:
        selected = selected & _first_largest(b, value)
    elif constraint is Constraint.ONE_TO_ONE:
        selected = selected & assigned(a, b, value, block)
    return scatter_add(value.new_zeros(size), owner, torch.where(selected, value, 0)), selected


def _first_largest(group: Tensor, value: Tensor) -> Tensor:
    # group: (T,)  value: (T,)  ->  (T,) bool, one in each group
    order = value.sort(descending=True, stable=True).indices
    order = order[group[order].sort(stable=True).indices]
    ordered = group[order]
    selected = torch.ones_like(ordered, dtype=torch.bool)
    selected[1:] = ordered[1:] != ordered[:-1]
    return torch.zeros_like(selected).index_put_((order,), selected)


def best_columns(value: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    # value: (B, N, M) >= 0  rows, columns: (B,)  ->  (B, N) column of each row, -1 for none
    return linear_sum_assignment(value, maximize=True, row_lengths=rows, col_lengths=columns, check=False).col_of_row


def assigned(a: Tensor, b: Tensor, value: Tensor, block: Tensor, solve: Callable[..., Tensor] = best_columns) -> Tensor:
    # (T,) each  ->  (T,) bool
    """Match one-to-one within each block: the largest value if one collection has a single item, else by assignment.

    Assignment problems of similar size are solved together.
    """
    if not len(block):
        return block > 0
    block = block.unique(return_inverse=True)[1]
    row, rows = positions_in_blocks(block, a)
    column, columns = positions_in_blocks(block, b)
    shorter = torch.minimum(rows, columns)
    (narrow,), (problems,) = (shorter == 1)[block].nonzero(as_tuple=True), (shorter > 1).nonzero(as_tuple=True)
    selected = torch.zeros_like(block, dtype=torch.bool)
    if len(narrow):
        selected[narrow] = _first_largest(block[narrow], value[narrow])
    for part, (height, width) in cuts((rows[problems].cpu(), columns[problems].cpu()), ()) if len(problems) else ():
        blocks = problems[part]
        table = torch.full_like(rows, -1).index_put_((blocks,), torch.arange(len(blocks), device=rows.device))[block]
        (pair,) = (table >= 0).nonzero(as_tuple=True)
        index = table[pair], row[pair], column[pair]
        dense = value.new_zeros(len(blocks), height, width).index_put_(index, value[pair].clamp(min=0))
        selected[pair] = solve(dense, rows[blocks], columns[blocks])[index[:2]] == index[2]
    return selected


def positions_in_blocks(block: Tensor, item: Tensor) -> tuple[Tensor, Tensor]:
    # block, item: (T,)  ->  (T,) position of the item within its block, (blocks,) number of items
    stride = item.max() + 1 if len(item) else 1
    keys, rank = (block * stride + item).unique(return_inverse=True)
    count = torch.bincount(keys // stride)
    return rank - (count.cumsum(0) - count)[block], count
