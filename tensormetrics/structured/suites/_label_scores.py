"""Scores of matched labeled items, in total and for each label."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.resampling.draws import Bounds
from ...core.resampling.intervals import interval as intervals
from ...core.resampling.resampling import Joined, Resampled, combine
from ...core.results.estimates import Estimate, check_confidence
from ...core.results.table import Table
from ..tensors import _lengths
from ..tensors._groups import count_groups, group_rows
from ..tensors._lengths import read_tables
from ..tensors.normalizers import LABEL_AVERAGES, mean_over_labels, normalize
from ..tensors.overlap import set_overlap
from ..tensors.reduction import CountMetric, bounds_of_overlaps

SCORES = ("precision", "recall", "f1")
HEAD = ("precision", "recall", "f1-score", "support")
MEANS = (("micro", "micro"), ("macro", "types"), ("weighted", "weighted"))  # name in a report, `average`


class LabelScores(CountMetric):
    """Base of the metrics of labeled items: precision, recall and F1 after the best one-to-one matching.

    Args:
        average: "micro" or "macro" over documents; with `labels` also "types", the mean over labels that occur, or
            "weighted", by the number of reference items.
        labels: Names of the labels 0, 1, ..., which add a score for each, such as `f1[LOC]`.
    """

    def __init__(self, average: str = "micro", labels: Sequence[str] | None = None, **kwargs: Any) -> None:
        checks.check_choice("average", average, ("micro", "macro", *LABEL_AVERAGES))
        labels = None if labels is None else checks.as_list("labels", labels)
        by_label = average in LABEL_AVERAGES
        if by_label and labels is None:
            raise ValueError(f"labels: got None with average={average!r}, wanted the names of the labels")
        self.labels = None if labels is None else tuple(labels)
        self.label_average = average if by_label else None
        super().__init__(3 * len(labels or [""]), "micro" if by_label else average, **kwargs)
        if self.labels is not None:
            self.add_invalid(f"labels that are not below {len(self.labels)}, the number of labels")

    def count_equal(
        self,
        pred_keys: Tensor,
        ref_keys: Tensor,
        pred_labels: Tensor,
        ref_labels: Tensor,
        n_pred: Tensor,
        n_ref: Tensor,
    ) -> Tensor:
        """Count matched, predicted and reference rows, exactly and without a table of pairs.

        Shapes: pred_keys: (D, N, F) int: rows match if they are equal; ref_keys: (D, M, F) int; pred_labels: (D, N)
        int, with `labels` equal for equal keys; rows with negative labels do not count; ref_labels: (D, M) int; n_pred:
        (D,); n_ref: (D,) -> (D, 3) or (D, 3 L).
        """
        sizes = pred_keys.shape[1], ref_keys.shape[1]
        group = group_rows(torch.cat([pred_keys, ref_keys], 1).long()).ids
        labels = torch.cat([pred_labels, ref_labels], 1).long()
        p, r = count_groups(group, _lengths.mask_of_both((n_pred, n_ref), sizes) & (labels >= 0), sizes[0])
        counts = torch.stack([torch.minimum(p, r), p, r], 1)  # (D, 3, groups)
        if self.labels is None:
            return counts.sum(-1).double()
        label = torch.zeros_like(group).scatter_(-1, group, labels)
        return self._without_invalid(self._per_label(label[:, None], counts))

    def count_matched(
        self,
        similarity: Tensor,
        pred_labels: Tensor,
        ref_labels: Tensor,
        n_pred: Tensor,
        n_ref: Tensor,
    ) -> Tensor:
        """Compute the value of the best one-to-one matching, and the numbers of predicted and reference items.

        Shapes: similarity: (D, N, M); with `labels` > 0 only for equal labels; pred_labels: (D, N) int, rows with
        negative labels do not count; ref_labels: (D, M) int; n_pred: (D,); n_ref: (D,) -> (D, 3) or (D, 3 L).
        """
        pred_valid, ref_valid = _counted(pred_labels, n_pred), _counted(ref_labels, n_ref)
        negative = pred_labels < 0, ref_labels < 0
        if similarity.device.type != "cpu" or any(bool(mask.any()) for mask in negative):
            similarity = similarity.masked_fill(negative[0][..., None] | negative[1][..., None, :], 0)
        if self.labels is None:
            counts = (set_overlap(similarity, n_pred, n_ref), pred_valid.sum(-1), ref_valid.sum(-1))
            return torch.stack([count.double() for count in counts], -1)
        # Pairs have equal labels, so each pair counts for one label.
        partner = set_overlap(similarity, n_pred, n_ref, return_pairs=True).ref_of_pred
        assert partner is not None  # items are matched one-to-one
        selections = ((pred_labels, partner >= 0), (pred_labels, pred_valid), (ref_labels, ref_valid))
        return self._without_invalid(torch.stack([self._per_label(*selection) for selection in selections], 1))

    def read_rows(
        self, n_pred: Tensor | None, n_ref: Tensor | None, width: int | str, **rows: Tensor
    ) -> tuple[list[Tensor], list[Tensor]]:
        # rows by name: (..., N, F), (..., M, F), a label first  ->  (D, N, F), (D, M, F); (D,) each
        """Check predicted and reference rows and their labels, and flatten the batch dimensions."""
        tables, lengths = read_tables([width], {"n_pred": n_pred, "n_ref": n_ref}, **rows)
        for name, table, length in zip(rows, tables, lengths, strict=True):
            checks.integral(name, table)
            self._check_numbers(name, table[..., 0], length)
        return tables, lengths

    def _check_numbers(self, name: str, labels: Tensor, lengths: Tensor) -> None:
        """Raise a ValueError for a number without a label; on a GPU, where this would wait, they are counted later.

        Shapes: labels: (D, N) int; lengths: (D,).
        """
        if self.labels is None or not labels.is_cpu:
            return
        wrong = (labels >= len(self.labels)) & _counted(labels, lengths)
        if wrong.any():
            document, row = wrong.nonzero()[0].tolist()
            raise ValueError(
                f"{name}: document {document}: got label {int(labels[document, row])} in row {row}, wanted a number "
                f"below {len(self.labels)}, that of one of {self.labels}, or a negative one for padding"
            )

    def read_scores(self, counts: Tensor) -> dict[str, Tensor]:
        # counts: (..., 3) or (..., 3 L)  ->  name: (...)
        by_label = counts.unflatten(-1, (3, -1))
        matched, pred, ref = by_label.unbind(-2)
        scores = {}
        for name in SCORES:
            scores[name] = averaged(by_label, name, self.label_average or "micro")
            label_scores = normalize(matched, pred, ref, name)
            for label, score in zip(self.labels or (), label_scores.unbind(-1), strict=self.labels is not None):
                scores[f"{name}[{label}]"] = score
        return scores

    def count_bounds(self) -> Bounds:
        return self._count_bounds(1 / len(self.labels or ("",)))

    def _count_bounds(self, fraction: float) -> Bounds:
        """Return the bounds of an item that counts as a fraction of an item of each label."""
        worst, best, *_ = bounds_of_overlaps(torch.cat([self.sums[:-1].unflatten(-1, (3, -1)).sum(-1), self.sums[-1:]]))
        labels = len(self.labels or ("",))
        return Bounds(fraction * worst.repeat_interleave(labels), fraction * best.repeat_interleave(labels))

    def _resampled_sums(self, replicates: int | None, seed: int | None) -> Resampled | Joined:
        resampled = self._resampled_state(replicates, seed)
        if self.labels is None or self.average == "macro":
            return resampled
        order = list(self.read_sums(self.sums))

        def join(results: list[dict[str, Any]]) -> dict[str, Any]:
            return {name: (results[0] | results[1])[name] for name in order}

        means = resampled._replace(read=partial(self._read_part, of_labels=False))
        return combine([means, self._resampled_labels(resampled)], join)

    def _read_part(self, sums: Tensor, of_labels: bool) -> dict[str, Tensor]:
        return {name: score for name, score in self.read_sums(sums).items() if name.endswith("]") is of_labels}

    def _resampled_labels(self, resampled: Resampled) -> Resampled:
        """Return the scores of single labels; for each, the bounds are those of one full item of the label."""
        bounds, none = self._count_bounds(1.0), torch.zeros(1, dtype=torch.float64, device="cpu")
        ends = Bounds(torch.cat([bounds.worst, none]), torch.cat([bounds.best, none]))
        return resampled._replace(read=partial(self._read_part, of_labels=True), bounds=ends)

    def report(self, digits: int = 2, confidence: float = 0.95) -> str:
        """Return the scores as a text table: a row for each label that occurs, then the averages.

        Support is the number of reference items, "macro avg" the mean over labels. Each score is followed by its
        interval, unless `replicates` is 0.
        """
        table, digits = self.report_table(confidence=confidence), checks.check_int("digits", digits, 0)
        cells = [
            (row, *(format(x if isinstance(x, Estimate) else float(x), f".{digits}f") for x in scores), str(support))
            for row in table.rows
            for *scores, support in [[table[row, name] for name in HEAD]]
        ]
        wide = max(9, *(len(text) for _, *scores, _ in cells for text in scores))
        widths = (max(12, digits, *map(len, table.rows)), wide, wide, wide, 9)

        def line(row: Sequence[str]) -> str:
            first, *others = (text.rjust(width) for text, width in zip(row, widths, strict=True))
            return f"{first}  {' '.join(others)}"

        lines = [line(row) for row in cells]
        num_means = min(len(MEANS), len(lines))  # one if no label occurs
        blocks = [block for block in (lines[:-num_means], lines[-num_means:]) if block]
        return "\n".join([line(("", *HEAD)), "", *(text for block in blocks for text in [*block, ""])])

    def report_table(self, *, confidence: float = 0.95) -> Table:
        """Return the rows of `report` as a table: precision, recall, F1 and support of each label and average.

        Args:
            confidence: Mass of the intervals, in (0, 1).

        Raises:
            ValueError: If the average is "macro", which keeps no counts of labels.
        """
        if self.average == "macro":
            raise ValueError(
                "average: got 'macro', the mean over documents, which keeps no counts of labels; for the mean over "
                "labels write average='types'"
            )
        confidence = check_confidence(confidence)
        with self._whole_state("report"):
            counts = self.sums[:-1].unflatten(-1, (3, -1))  # (3, L)
            scores = self._report_scores(counts, confidence)
        rows: dict[str, list[Any]] = {
            label: [*(scores[f"{name}[{label}]"] for name in SCORES), int(counts[2, i])]
            for i, label in enumerate(self.labels or ())
            if counts[1:, i].any()
        }
        for name, average in MEANS[: 3 if rows else 1]:
            rows[f"{name} avg"] = [*(scores[f"{score}, {average}"] for score in SCORES), int(counts[2].sum())]
        return Table([*rows], {**dict.fromkeys(HEAD[:3], True), HEAD[3]: None}, [*rows.values()], index="label")

    def _report_scores(self, counts: Tensor, confidence: float) -> dict[str, Tensor | Estimate]:
        # counts: (3, L)
        """Return the scores of all labels and averages, with intervals where items are kept."""

        def means(sums: Tensor) -> dict[str, Tensor]:
            by_label = sums[..., :-1].unflatten(-1, (3, -1))
            return {
                f"{score}, {average}": averaged(by_label, score, average) for score in SCORES for _, average in MEANS
            }

        if not self._keeps_items:
            return {**means(self.sums), **self.read_scores(counts.flatten())}
        resampled = self._resampled_state(None, None)
        scores = intervals(resampled._replace(read=means), confidence)
        return scores | (intervals(self._resampled_labels(resampled), confidence) if self.labels else {})

    def _per_label(self, labels: Tensor, counts: Tensor) -> Tensor:
        # labels: (..., N), negative only where nothing counts  counts: (..., N)  ->  (..., L + 1) float64, the last of
        # numbers without a label
        size = len(self.labels or ())
        sums = torch.zeros(*counts.shape[:-1], size + 1, dtype=torch.float64, device=counts.device)
        return sums.scatter_add_(-1, labels.long().clamp(0, size).expand_as(counts), counts.double())

    def _without_invalid(self, sums: Tensor) -> Tensor:
        # sums: (D, 3, L + 1) of matched, predicted and reference items  ->  (D, 3 L)
        if not sums.is_cpu:  # elsewhere `_check_numbers` has refused them
            self.num_invalid = self.num_invalid + sums[:, 1:, -1].sum().long()
        return sums[..., :-1].contiguous().flatten(1)


def averaged(counts: Tensor, score: str, average: str) -> Tensor:
    # counts: (..., 3, L)  ->  (...)
    matched, pred, ref = counts.unbind(-2)
    if average == "micro":
        return normalize(matched.sum(-1), pred.sum(-1), ref.sum(-1), score)
    return mean_over_labels(normalize(matched, pred, ref, score), pred, ref, average).nan_to_num(0.0)


def _counted(labels: Tensor, lengths: Tensor) -> Tensor:
    # labels: (D, N)  lengths: (D,)  ->  (D, N) bool
    return _lengths.mask(lengths, labels.shape[-1]) & (labels >= 0)
