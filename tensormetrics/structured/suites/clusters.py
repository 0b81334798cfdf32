"""Accuracy of a clustering under its best relabelling."""

from typing import Any

import torch
from torch import Tensor

from ... import _checks
from ...assignment import linear_sum_assignment
from ..tensors.overlap import numbered
from ..tensors.reduction import CountMetric


class ClusterAccuracy(CountMetric):
    """Share of items whose cluster is the reference's, after the one-to-one relabelling that is best for each document.

    In [0, 1], higher is better; key `accuracy`. Arguments: see `CountMetric`.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(2, **kwargs)

    def update(self, pred: Tensor, ref: Tensor) -> None:
        # pred, ref: (..., W) int, negative where either is padding
        """Add documents of W items."""
        _checks.integral("pred", pred)
        _checks.integral("ref", ref)
        _checks.shape("ref", ref, *pred.shape)
        _checks.same_device(pred=pred, ref=ref)
        counted = (pred >= 0) & (ref >= 0)
        row, col = (numbered(ids.long()[..., None]) for ids in (pred, ref))
        width = pred.shape[-1]
        table = torch.zeros(*pred.shape[:-1], width * width, dtype=torch.float64, device=pred.device)
        table.scatter_add_(-1, row * width + col, counted.double())
        matched = linear_sum_assignment(table.unflatten(-1, (width, width)), maximize=True, check=False).cost
        self.add_documents(torch.stack([matched, counted.sum(-1).double()], -1))

    def read_scores(self, counts: Tensor) -> dict[str, Tensor]:
        # counts: (..., 2)  ->  name: (...)
        matched, items = counts.unbind(-1)
        return {"accuracy": matched / items}
