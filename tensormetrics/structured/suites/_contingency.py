"""Two clusterings of the items of documents, matched one cluster to one."""

import torch
from torch import Tensor

from ...assignment import linear_sum_assignment
from ..tensors._lengths import cuts

BLOCK = 32


def used_width(ids: Tensor) -> Tensor:
    # ids: (D, W)  ->  (D,) items up to the last that is not negative; W on a GPU, where nothing is cut by it
    width = ids.shape[1]
    if not width or ids.device.type != "cpu":
        return ids.new_full((len(ids),), width)
    # The largest of each block, in one pass over the padding; then the last block that is used.
    whole = width // BLOCK * BLOCK
    blocks = [ids[:, :whole].unflatten(1, (-1, BLOCK)).amax(-1)] if whole else []
    blocks += [ids[:, whole:].amax(-1, keepdim=True)] if whole < width else []
    last = _last_used(torch.cat(blocks, 1)).clamp(min=1) * BLOCK - BLOCK
    place = (last[:, None] + torch.arange(BLOCK, device="cpu")).clamp(max=width - 1)
    return (last + _last_used(ids.gather(1, place))).clamp(max=width)


def _last_used(ids: Tensor) -> Tensor:
    # ids: (D, W)  ->  (D,)
    return ((ids >= 0) * torch.arange(1, ids.shape[1] + 1, device="cpu")).amax(-1)


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
