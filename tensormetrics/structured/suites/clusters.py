"""One-to-one matching of two clusterings of the items of documents, and the accuracy under the best one."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Unpack

from ...assignment import linear_sum_assignment
from ...core.arguments import checks
from ...core.numbers.exact_sums import scatter_add
from ...core.resampling.weights import ResamplingUnits
from ..tensors import _lengths
from ..tensors._groups import group_rows
from ..tensors._lengths import cuts, documents, in_chunks, total
from ..tensors.reduction import CountMetric


class ClusterMatchScores(CountMetric):
    """Fraction of items in the reference's cluster after the best one-to-one relabeling of each document.

    In [0, 1], higher is better; key `accuracy`.

    >>> metric = ClusterMatchScores()
    >>> metric.update(torch.tensor([1, 1, 2, 2]), torch.tensor([7, 7, 7, 8]))
    >>> metric.compute()
    {'accuracy': tensor(0.7500, dtype=torch.float64)}
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(2, **kwargs)

    def update(self, pred: Tensor, ref: Tensor, **items: Unpack[ResamplingUnits]) -> None:
        """Add documents of W items.

        Shapes: pred, ref: (..., W) int, negative in the padding of either.
        """
        tables = read_ids(pred=pred, ref=ref)
        lengths = torch.minimum(*map(used_width, tables))
        self.add_documents(in_chunks(_count, tables, (lengths, lengths), total), **items)

    def read_scores(self, counts: Tensor) -> dict[str, Tensor]:
        # counts: (..., 2)  ->  name: (...)
        matched, items = counts.unbind(-1)
        return {"accuracy": matched / items}


def _count(pred: Tensor, ref: Tensor, lengths: Tensor, _: Tensor) -> Tensor:
    # pred, ref: (D, W)  lengths: (D,)  ->  (D, 2)
    counted = (pred >= 0) & (ref >= 0) & _lengths.mask(lengths, pred.shape[1])
    # Items that do not count form one cluster, so that the tables have few rows and columns.
    row, col = (group_rows(ids.where(counted, -1)[..., None]).ids for ids in (pred, ref))
    sizes = [ids.amax(-1) + 1 if ids.shape[1] else ids.sum(-1) for ids in (row, col)]
    return torch.stack([assigned(counted.double(), row, col, *sizes), counted.sum(-1).double()], -1)


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
