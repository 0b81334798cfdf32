"""Two clusterings of the items of documents, matched one cluster to one."""

from torch import Tensor

from ...assignment import linear_sum_assignment
from ..tensors._lengths import cuts


def used_width(used: Tensor) -> Tensor:
    # used: (D, W) bool  ->  (D,) items up to the last that is used
    if not used.shape[1]:
        return used.sum(-1)
    last = used.shape[1] - 1 - used.byte().flip(-1).argmax(-1)
    return (last + 1) * used.gather(-1, last[:, None])[:, 0]


def assigned(weight: Tensor, row: Tensor, col: Tensor, n_rows: Tensor, n_cols: Tensor) -> Tensor:
    # weight: (D, W) added to the cells at row, col (D, W)  n_rows, n_cols: (D,) clusters  ->  (D,)
    """The heaviest one-to-one matching of clusters; a table has as many rows and columns as there are clusters."""
    width, best = weight.shape[-1], weight.new_zeros(len(weight))
    for place, (height, depth) in cuts((n_rows, n_cols), (width, width)):
        height, depth = max(height, 1), max(depth, 1)  # items that weigh nothing may stand in a cell that is none
        cell = row[place] * depth + col[place]
        table = weight.new_zeros(len(cell), height * depth).scatter_add_(-1, cell, weight[place])
        lengths = {"row_lengths": n_rows[place], "col_lengths": n_cols[place]}
        table = table.unflatten(-1, (height, depth))
        best[place] = linear_sum_assignment(table, maximize=True, check=False, **lengths).cost
    return best
