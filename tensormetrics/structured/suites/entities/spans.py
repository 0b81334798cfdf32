"""Labelled spans of text: named entities, chunks, arguments."""

from collections.abc import Sequence
from os import PathLike
from typing import Any, cast

import torch
from torch import Tensor
from typing_extensions import Unpack

from ....core.arguments import checks
from ....core.resampling.weights import ResamplingUnits
from ...tensors._lengths import Cells, documents, in_chunks, product, total
from .._label_scores import LabelScores
from .._tables import check_tensors
from .tags import (
    MODES,
    Marked,
    TagErrors,
    Vocabulary,
    documents_of_pair,
    lost_tags,
    padded_spans,
    tag_code,
    warn_about_both,
    warn_about_swap,
)

SCHEMES = ("strict", "exact", "partial", "type")
TOKENS = 1 << 16  # of one chunk of documents
EQUALITY = ("strict", "exact")  # pairs have score 1 or 0, so matches can be counted without pairs


class SpanScores(LabelScores):
    """Precision, recall and F1 of labeled spans after the best one-to-one matching, in [0, 1]; higher is better.

    Args:
        scheme: Pairs of score 1: "strict", of equal label and ends; "exact", of equal ends; "type", of equal labels,
            that overlap; "partial", of equal ends, and 1/2 for pairs that overlap. "exact" and "partial" ignore labels.

    >>> metric = SpanScores()
    >>> metric.update_tags([["B-PER", "O", "B-LOC"]], [["B-PER", "O", "B-ORG"]])  # predicted, reference
    >>> metric.compute()["f1"]
    tensor(0.5000, dtype=torch.float64)
    """

    def __init__(
        self, scheme: str = "strict", average: str = "micro", labels: Sequence[str] | None = None, **kwargs: Any
    ) -> None:
        checks.check_choice("scheme", scheme, SCHEMES)
        if labels is not None and scheme in ("exact", "partial"):
            raise ValueError(f"labels: got {labels!r} with scheme={scheme!r}, which ignores labels; leave them out")
        self.scheme = scheme
        super().__init__(average, labels, **kwargs)
        number = (
            "" if labels is None else f"labels that are not below {len(self.labels or ())}, the number of labels, or "
        )
        self.add_invalid(f"{number}numbers of tags that are not in their vocabulary")
        self.add_unwarned(6)

    update_of_lists = "update_tags"

    def update(
        self,
        pred_spans: Tensor,
        ref_spans: Tensor,
        n_pred: Tensor | None = None,
        n_ref: Tensor | None = None,
        **items: Unpack[ResamplingUnits],
    ) -> None:
        """Add documents of N and M spans. Rows beyond `n_pred` and `n_ref` and rows of a negative label are padding.

        Shapes: pred_spans: (..., N, 3) int (label, first, last inclusive); ref_spans: (..., M, 3) int; n_pred: (...);
        n_ref: (...).

        Labels are indices of `labels`, or any numbers that mean the same in prediction and reference. Lists of tags go
        to `update_tags`.
        """
        rows = {"pred_spans": pred_spans, "ref_spans": ref_spans}
        check_tensors("rows (label, first, last)", "tags", **rows)
        tables, lengths = self.read_rows(n_pred, n_ref, 3, **rows)
        self.add_documents(in_chunks(self._count, tables, lengths, self._cells), **items)

    def update_tags(
        self,
        pred: Sequence[Sequence[str]] | str | PathLike | Tensor,
        ref: Sequence[Sequence[str]] | str | PathLike | Tensor | None = None,
        mode: str = "lenient",
        vocabulary: Sequence[str] | None = None,
        suffix: bool = False,
        **items: Unpack[ResamplingUnits],
    ) -> None:
        """Add documents as lists of tags, as files of them, or as indices of tags in `vocabulary`; see `read_tags`.

        One file may have both, as for conlleval: the reference in the last column but one, the prediction in the last.

        Shapes: pred: (..., W) int with a vocabulary; ref: (..., W) int.

        Tokens with a negative index in `pred` or `ref` are ignored in both. A warning is issued if tags do not fit the
        scheme: any reference tag, more than half of the predicted tags, or any prefix that it lacks; or if lists
        look swapped. On a GPU `compute` warns, of all updates, and raises for numbers that are not in a vocabulary.
        """
        checks.check_choice("mode", mode, MODES)
        if vocabulary is not None:
            return self._update_numbers(cast(Tensor, pred), cast(Tensor, ref), mode, vocabulary, suffix, **items)
        if isinstance(pred, Tensor) or isinstance(ref, Tensor):
            raise ValueError("vocabulary: got None for numbers of tags, wanted the tags that they stand for")
        tagset = Vocabulary(self.labels or (), suffix)
        pred_tags, ref_tags, lengths = read_pair(*documents_of_pair(pred, ref, suffix), tagset)
        if self.labels is not None:
            tagset.check(self.labels)
        counts, errors = self.count_tags(tagset, pred_tags, ref_tags, lengths, mode)
        warn_about_both(*errors, mode)
        warn_about_swap(*errors)
        self.add_update(counts, **items)

    def _update_numbers(
        self,
        pred: Tensor,
        ref: Tensor,
        mode: str,
        vocabulary: Sequence[str],
        suffix: bool,
        **items: Unpack[ResamplingUnits],
    ) -> None:
        # pred, ref: (..., W)
        checks.integral("pred", pred)
        checks.integral("ref", ref)
        checks.shape("ref", ref, *pred.shape)
        checks.same_device(pred=pred, ref=ref)
        tagset = Vocabulary(self.labels or (), suffix)
        tagset.codes = [tag_code(tag, tagset.labels, f"vocabulary[{i}]", suffix) for i, tag in enumerate(vocabulary)]
        if self.labels is not None:
            tagset.check(self.labels)
        pred, ref = documents(pred, 1), documents(ref, 1)
        valid = (pred >= 0) & (ref >= 0)
        wrong = (torch.maximum(pred, ref) >= len(vocabulary)) & valid
        if valid.is_cpu:
            if wrong.any():
                document, token = wrong.nonzero()[0].tolist()
                got = int(torch.maximum(pred, ref)[document, token])
                raise ValueError(
                    f"vocabulary: document {document}: got tag {got} at token {token}, wanted a number below "
                    f"{len(vocabulary)}, that of one of the tags, or a negative one for padding"
                )
            counts, errors = self.count_tags(tagset, pred[valid], ref[valid], valid.sum(-1), mode)
            warn_about_both(*errors, mode)
            return self.add_update(counts, **items)
        self.num_invalid = self.num_invalid + wrong.sum()
        valid &= ~wrong
        order = valid.sort(dim=-1, descending=True, stable=True).indices
        parts = [tagset.parts(ids.where(valid, len(vocabulary)).gather(-1, order)) for ids in (pred, ref)]
        (pred_spans, n_pred), (ref_spans, n_ref) = (padded_spans(*part, mode) for part in parts)
        if mode != "lenient":  # which every tag fits
            lost = [
                lost_tags(prefix, spans[..., 1], spans[..., 2], n.sum(), mode)  # rows of the padding are 0
                for (prefix, _), spans, n in zip(parts, (pred_spans, ref_spans), (n_pred, n_ref), strict=True)
            ]
            self.unwarned = self.unwarned + torch.cat(lost)
        self.add_update(in_chunks(self._count, (pred_spans, ref_spans), (n_pred, n_ref), self._cells), **items)

    def warn_of(self, counts: list[int]) -> None:
        warn_about_both(TagErrors(*counts[:3]), TagErrors(*counts[3:]), None)

    def count_tags(
        self, vocabulary: Vocabulary, pred: Tensor, ref: Tensor, lengths: Tensor, mode: str
    ) -> tuple[Tensor, tuple[TagErrors, TagErrors]]:
        # pred, ref: (T,) tag ids of all documents, on the CPU  lengths: (D,)  ->  (D, 3) or (D, 3 L)
        counts, errors = [], [TagErrors(), TagErrors()]
        chunk_sizes = (lengths.cumsum(0) // TOKENS).unique_consecutive(return_counts=True)[1].tolist()
        sizes = lengths.split(chunk_sizes or [0])
        tokens = [int(size.sum()) for size in sizes]
        for size, *tags in zip(sizes, pred.split(tokens), ref.split(tokens), strict=True):
            marked = [Marked.read(*vocabulary.parts(ids), size, mode) for ids in tags]
            found = [part.tag_errors(mode) for part in marked]
            errors = [TagErrors(*map(sum, zip(*pair, strict=True))) for pair in zip(errors, found, strict=True)]
            counts.append(self._count_marked(*marked))
        return torch.cat(counts).to(self.device), (errors[0], errors[1])

    def _count_marked(self, pred: Marked, ref: Marked) -> Tensor:
        # ->  (D, 3) or (D, 3 L)
        if self.scheme not in EQUALITY:
            tables, counts = zip(pred.rows(), ref.rows(), strict=True)
            return in_chunks(self._count, tables, counts, self._cells, flat=True)
        # Spans of tags begin at different tokens, so each has one candidate.
        same = pred.last[ref.first] == ref.last[ref.first]
        if self.scheme == "strict":
            same &= pred.label[ref.first] == ref.label[ref.first]
        labels = len(self.labels or [""])
        cells = [part.document * labels + (part.label[part.first] if self.labels else 0) for part in (pred, ref)]
        counts = (torch.bincount(cell, minlength=len(ref.start) * labels) for cell in (cells[1][same], *cells))
        return torch.cat([count.view(-1, labels) for count in counts], -1).double()

    def _count(self, pred: Tensor, ref: Tensor, n_pred: Tensor, n_ref: Tensor) -> Tensor:
        # pred: (D, N, 3)  ref: (D, M, 3)  ->  (D, 3) or (D, 3 L)
        labels = pred[..., 0], ref[..., 0]
        if self.scheme in EQUALITY:
            keys = (pred, ref) if self.scheme == "strict" else (pred[..., 1:], ref[..., 1:])
            return self.count_equal(*keys, *labels, n_pred, n_ref)
        return self.count_matched(span_similarity(pred, ref, self.scheme), *labels, n_pred, n_ref)

    @property
    def _cells(self) -> Cells:
        return total if self.scheme in EQUALITY else product


def read_pair(
    pred: Sequence[Sequence[str]], ref: Sequence[Sequence[str]], vocabulary: Vocabulary
) -> tuple[Tensor, Tensor, Tensor]:
    # ->  predicted, reference tag ids (T,), lengths of the documents (D,)
    """Read predicted and reference tags of the same tokens."""
    checks.check_consistent_length(pred=pred, ref=ref)
    (pred_tags, lengths), (ref_tags, n_ref) = vocabulary.read(pred), vocabulary.read(ref)
    for document in (lengths != n_ref).nonzero().flatten().tolist():
        n, m = int(lengths[document]), int(n_ref[document])
        raise ValueError(f"document {document}: lengths differ: pred has {n} tags, ref has {m}")
    return pred_tags, ref_tags, lengths


def span_similarity(pred: Tensor, ref: Tensor, scheme: str) -> Tensor:
    # pred: (..., N, 3)  ref: (..., M, 3)  ->  (..., N, M) float32
    """Compute the scores of pairs of spans under a scheme of `SpanScores`."""
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
