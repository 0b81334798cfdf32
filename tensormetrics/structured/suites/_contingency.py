"""One-to-one matching of two clusterings of the items of documents."""

import numpy as np
import torch
from torch import Tensor

from ...assignment import linear_sum_assignment
from ...core.arguments import checks
from ...core.numbers.exact_sums import scatter_add
from ..tensors._lengths import cuts, documents


def read_ids(**ids: Tensor) -> list[Tensor]:
    # predicted and reference clusters of items by name, (..., W) each  ->  (D, W) each
    (_, pred), (ref_name, ref) = ids.items()
    for name, clusters in ids.items():
        checks.integral(name, clusters)
    checks.shape(ref_name, ref, *pred.shape)
    checks.same_device(**ids)
    return [documents(clusters, 1).long() for clusters in (pred, ref)]


def used_width(ids: Tensor) -> Tensor:
    # ids: (D, W)  ->  (D,) number of items up to the last that is not negative; W on a GPU, which does not trim
    width = ids.shape[1]
    if not width or ids.device.type != "cpu":
        return ids.new_full((len(ids),), width)
    used = (ids >= 0).numpy()[:, ::-1]  # whose first True NumPy finds without reading on
    return torch.from_numpy(np.where(used.any(1), width - used.argmax(1), 0))


def assigned(weight: Tensor, row: Tensor, col: Tensor, n_rows: Tensor, n_cols: Tensor) -> Tensor:
    # weight: (D, W) added to the cells at row, col (D, W)  n_rows, n_cols: (D,) clusters  ->  (D,)
    """Compute the weight of the heaviest one-to-one matching of clusters in tables of clusters by clusters."""
    width, best = weight.shape[-1], weight.new_zeros(len(weight))
    for index, (height, depth) in cuts((n_rows, n_cols), (width, width)):
        height, depth = max(height, 1), max(depth, 1)  # items of weight 0 may have an invalid cell
        cell = row[index] * depth + col[index]
        table = scatter_add(weight.new_zeros(len(cell), height * depth), cell, weight[index])
        lengths = {"row_lengths": n_rows[index], "col_lengths": n_cols[index]}
        table = table.unflatten(-1, (height, depth))
        best[index] = linear_sum_assignment(table, maximize=True, check=False, **lengths).cost
    return best
