"""Scores of matched items that have labels, all together and for each label."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ... import _checks
from ..tensors import _lengths
from ..tensors.normalizers import normalize
from ..tensors.overlap import set_overlap
from ..tensors.reduction import CountMetric

SCORES = ("precision", "recall", "f1")


class LabelScores(CountMetric):
    """Base of the metrics of labelled items: precision, recall and F1 after the best one-to-one matching.

    `labels` names the labels 0, 1, ... and adds a score for each, such as `f1[LOC]`; then the average may also be
    "types", the mean over labels that occur, or "weighted", by the number of reference items.
    """

    def __init__(self, average: str = "micro", labels: Sequence[str] | None = None, **kwargs: Any) -> None:
        _checks.one_of("average", average, ("micro", "macro", "types", "weighted"))
        by_label = average in ("types", "weighted")
        if by_label and labels is None:
            raise ValueError(f"labels: got None with average={average!r}, wanted the names of the labels")
        self.labels = None if labels is None else tuple(labels)
        self.label_average = average if by_label else None
        super().__init__(3 * len(labels or [""]), "micro" if by_label else average, **kwargs)

    def add_matching(
        self,
        worth: Tensor,  # (..., N, M); with `labels` > 0 for equal labels alone
        pred_labels: Tensor,  # (..., N) int
        ref_labels: Tensor,  # (..., M) int
        n_pred: Tensor | None,  # (...)
        n_ref: Tensor | None,  # (...)
    ) -> None:
        """Add documents whose pairs of items are worth this much."""
        *batch, n, m = worth.shape
        n_pred = _lengths.full_or_clamped("n_pred", n_pred, worth, batch, n)
        n_ref = _lengths.full_or_clamped("n_ref", n_ref, worth, batch, m)
        if self.labels is None:
            counts = torch.stack([set_overlap(worth, n_pred, n_ref), n_pred, n_ref], -1)
        else:  # pairs have equal labels, so a label's share of the matching is well defined
            found = set_overlap(worth, n_pred, n_ref, return_pairs=True)
            sides = (
                (pred_labels, found.ref_of_pred >= 0),
                (pred_labels, _lengths.mask(n_pred, n)),
                (ref_labels, _lengths.mask(n_ref, m)),
            )
            counts = torch.cat([self._per_label(labels, counted) for labels, counted in sides], -1)
        self.add_documents(counts)

    def read_scores(self, counts: Tensor) -> dict[str, Tensor]:
        # counts: (..., 3) or (..., 3 L)  ->  name: (...)
        by_label = counts.unflatten(-1, (3, -1)).unbind(-2)  # each (..., L)
        total = [part.sum(-1) for part in by_label]
        seen = (by_label[1] + by_label[2] > 0).to(counts.dtype)
        weight = {"types": seen, "weighted": by_label[2]}.get(self.label_average)
        scores = {}
        for name in SCORES:
            each = normalize(*by_label, name)
            if weight is None:
                scores[name] = normalize(*total, name)
            else:
                scores[name] = normalize((each * weight).sum(-1), weight.sum(-1), total[0], "precision")
            for label, score in zip(self.labels or (), each.unbind(-1), strict=self.labels is not None):
                scores[f"{name}[{label}]"] = score
        return scores

    def _per_label(self, labels: Tensor, counted: Tensor) -> Tensor:
        # labels: (..., N)  counted: (..., N) bool  ->  (..., L)
        label = torch.arange(len(self.labels), device=labels.device)
        return ((labels[..., None] == label) & counted[..., None]).sum(-2).double()
