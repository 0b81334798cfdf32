"""Labelled spans of text: named entities, chunks, arguments."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ... import _checks
from ._label_scores import LabelScores
from .tags import O, read_tags, tag_code, tag_spans

SCHEMES = ("strict", "exact", "partial", "type")


class SpanScores(LabelScores):
    """Precision, recall and F1 of labelled spans after the best one-to-one matching, in [0, 1]; higher is better.

    A pair is worth 1 under `scheme` "strict" if label and both ends are equal; "exact", both ends; "type", if labels
    are equal and the spans overlap; "partial" 1 if both ends are equal, 1/2 if the spans overlap.
    `labels` names the labels 0, 1, ... and adds a score for each, such as `f1[LOC]`; then the average may also be
    "types", the mean over labels that occur, or "weighted", by the number of reference spans. Not for "exact" and
    "partial", which ignore labels. Other arguments: see `CountMetric`.
    """

    def __init__(
        self, scheme: str = "strict", average: str = "micro", labels: Sequence[str] | None = None, **kwargs: Any
    ) -> None:
        _checks.one_of("scheme", scheme, SCHEMES)
        if labels is not None and scheme in ("exact", "partial"):
            raise ValueError(f"labels: got {labels!r} with scheme={scheme!r}, which ignores labels; leave them out")
        self.scheme = scheme
        super().__init__(average, labels, **kwargs)

    def update(
        self,
        pred_spans: Tensor,  # (..., N, 3) int: label, first, last (inclusive)
        ref_spans: Tensor,  # (..., M, 3) int
        n_pred: Tensor | None = None,  # (...)
        n_ref: Tensor | None = None,  # (...)
    ) -> None:
        """Add documents."""
        _checks.shape("pred_spans", pred_spans, "...", "N", 3)
        _checks.shape("ref_spans", ref_spans, *pred_spans.shape[:-2], "M", 3)
        _checks.integral("pred_spans", pred_spans)
        _checks.integral("ref_spans", ref_spans)
        _checks.same_device(pred_spans=pred_spans, ref_spans=ref_spans)
        worth = span_similarity(pred_spans, ref_spans, self.scheme)
        self.add_matching(worth, pred_spans[..., 0], ref_spans[..., 0], n_pred, n_ref)

    def update_tags(
        self,
        pred: Sequence[Sequence[str]] | Tensor,  # (..., W) int with a vocabulary
        ref: Sequence[Sequence[str]] | Tensor,  # (..., W) int
        mode: str = "lenient",
        vocabulary: Sequence[str] | None = None,
    ) -> None:
        """Add documents given as lists of tags, or as numbers of tags in `vocabulary`; see `read_tags`.

        Of numbers, a token that is negative on either side is left out on both.
        """
        if vocabulary is not None:
            return self._update_numbers(pred, ref, mode, vocabulary)
        if isinstance(pred, Tensor) or isinstance(ref, Tensor):
            raise ValueError("vocabulary: got None for numbers of tags, wanted the tags that they stand for")
        _checks.same_length(pred=pred, ref=ref)
        for document, sides in enumerate(zip(pred, ref, strict=True)):
            if len(sides[0]) != len(sides[1]):
                n, m = map(len, sides)
                raise ValueError(f"document {document}: lengths differ: pred has {n} tags, ref has {m}")
        first = read_tags(pred, mode, self.labels or ())
        second = read_tags(ref, mode, first.labels)
        self._check_labels(second.labels)
        spans, counts = (tuple(t.to(self.device) for t in side) for side in zip(first[:2], second[:2], strict=True))
        self.update(*spans, *counts)

    def _update_numbers(self, pred: Tensor, ref: Tensor, mode: str, vocabulary: Sequence[str]) -> None:
        # pred, ref: (..., W)
        _checks.integral("pred", pred)
        _checks.integral("ref", ref)
        _checks.shape("ref", ref, *pred.shape)
        _checks.same_device(pred=pred, ref=ref)
        labels = list(self.labels or ())
        codes = [tag_code(tag, labels, f"vocabulary[{number}]") for number, tag in enumerate(vocabulary)]
        self._check_labels(labels)
        outside = len(codes)
        codes = torch.tensor([*codes, (O, -1)], device=pred.device)
        kept = (pred >= 0) & (ref >= 0)
        order = kept.sort(dim=-1, descending=True, stable=True).indices
        tags = (codes[side.where(kept, outside).gather(-1, order)].unbind(-1) for side in (pred, ref))
        (pred_spans, n_pred), (ref_spans, n_ref) = (tag_spans(prefix, label, mode) for prefix, label in tags)
        self.update(pred_spans, ref_spans, n_pred, n_ref)

    def _check_labels(self, labels: Sequence[str]) -> None:
        if self.labels is not None and len(labels) > len(self.labels):
            raise ValueError(f"labels: got tags of {labels[len(self.labels) :]}, wanted some of {self.labels}")


def span_similarity(pred: Tensor, ref: Tensor, scheme: str) -> Tensor:
    # pred: (..., N, 3)  ref: (..., M, 3)  ->  (..., N, M) float32
    """What pairs of spans are worth under a scheme of `SpanScores`."""
    (label, first, last), (ref_label, ref_first, ref_last) = (
        pred[..., :, None, :].unbind(-1),
        ref[..., None, :, :].unbind(-1),
    )
    ends = (first == ref_first) & (last == ref_last)
    overlap = (first <= ref_last) & (ref_first <= last)
    if scheme == "strict":
        return (ends & (label == ref_label)).float()
    if scheme == "exact":
        return ends.float()
    if scheme == "type":
        return (overlap & (label == ref_label)).float()
    return (ends.float() + overlap.float()) / 2
