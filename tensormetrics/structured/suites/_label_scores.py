"""Scores of matched items that have labels, all together and for each label."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ... import _checks
from ..tensors import _lengths
from ..tensors.normalizers import normalize
from ..tensors.overlap import numbered, set_overlap
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

    def count_equal(
        self,
        pred_keys: Tensor,  # (D, N, F) int: two rows are worth 1 if they are equal, else 0
        ref_keys: Tensor,  # (D, M, F) int
        pred_labels: Tensor,  # (D, N) int, equal where the keys are if there are `labels`; negative rows do not count
        ref_labels: Tensor,  # (D, M) int
        n_pred: Tensor,  # (D,)
        n_ref: Tensor,  # (D,)
    ) -> Tensor:  # (D, 3) or (D, 3 L)
        """How many rows are matched, predicted and wanted: exact counts, no table of pairs."""
        n = pred_keys.shape[1]
        group = numbered(torch.cat([pred_keys, ref_keys], 1).long())
        p, r = (
            torch.zeros_like(group).scatter_add_(-1, side, _counted(labels, lengths).long())
            for side, labels, lengths in ((group[:, :n], pred_labels, n_pred), (group[:, n:], ref_labels, n_ref))
        )
        counts = torch.stack([torch.minimum(p, r), p, r], 1)  # (D, 3, groups)
        if self.labels is None:
            return counts.sum(-1).double()
        label = torch.zeros_like(group).scatter_(-1, group, torch.cat([pred_labels, ref_labels], 1).long())
        return self._per_label(label[:, None], counts).flatten(1)

    def count_matched(
        self,
        worth: Tensor,  # (D, N, M) of pairs; with `labels` > 0 for equal labels alone
        pred_labels: Tensor,  # (D, N) int, negative rows do not count
        ref_labels: Tensor,  # (D, M) int
        n_pred: Tensor,  # (D,)
        n_ref: Tensor,  # (D,)
    ) -> Tensor:  # (D, 3) or (D, 3 L)
        """What the best one-to-one matching is worth, and how many items are predicted and wanted."""
        pred_inside, ref_inside = _counted(pred_labels, n_pred), _counted(ref_labels, n_ref)
        worth = worth * (pred_inside[..., None] & ref_inside[..., None, :])
        if self.labels is None:
            counts = (set_overlap(worth, n_pred, n_ref), pred_inside.sum(-1), ref_inside.sum(-1))
            return torch.stack([count.double() for count in counts], -1)
        # Pairs have equal labels, so a label's share of the matching is well defined.
        found = set_overlap(worth, n_pred, n_ref, return_pairs=True).ref_of_pred >= 0
        sides = ((pred_labels, found), (pred_labels, pred_inside), (ref_labels, ref_inside))
        return torch.cat([self._per_label(labels, counted) for labels, counted in sides], -1)

    def check_numbers(self, name: str, labels: Tensor, lengths: Tensor) -> None:
        # labels: (D, N) int  lengths: (D,)
        """ValueError for a number that no label has; on the CPU alone, since it reads values."""
        if self.labels is None or labels.device.type != "cpu":
            return
        wrong = ((labels >= len(self.labels)) & _counted(labels, lengths)).nonzero()
        if len(wrong):
            document, row = wrong[0].tolist()
            raise ValueError(
                f"{name}: document {document}: got label {int(labels[document, row])} in row {row}, wanted a number "
                f"below {len(self.labels)}, that of one of {self.labels}, or a negative one for padding"
            )

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

    def _per_label(self, labels: Tensor, counts: Tensor) -> Tensor:
        # labels: (..., N)  counts: (..., N)  ->  (..., L) float64
        size = len(self.labels)
        place = labels.long().where((labels >= 0) & (labels < size), size).expand_as(counts)
        sums = torch.zeros(*counts.shape[:-1], size + 1, dtype=torch.float64, device=counts.device)
        return sums.scatter_add_(-1, place, counts.double())[..., :size]


def _counted(labels: Tensor, lengths: Tensor) -> Tensor:
    # labels: (D, N)  lengths: (D,)  ->  (D, N) bool
    return _lengths.mask(lengths, labels.shape[-1]) & (labels >= 0)
