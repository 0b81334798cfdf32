"""Accuracy of a clustering under its best relabelling."""

from typing import Any

import torch
from torch import Tensor
from typing_extensions import Unpack

from ...core.resampling.weights import ResamplingUnits
from ..tensors import _lengths
from ..tensors._groups import group_rows
from ..tensors._lengths import in_chunks, total
from ..tensors.reduction import CountMetric
from ._contingency import assigned, read_ids, used_width


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
