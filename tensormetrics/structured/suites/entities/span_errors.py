"""Categories of predicted and reference entities: correct, incorrect, partial, missed, spurious."""

from collections.abc import Iterable, Sequence
from itertools import chain
from numbers import Integral
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ....assignment import linear_sum_assignment
from ....core.arguments import checks
from ....core.results.table import Table
from ...tensors import _lengths
from ...tensors._lengths import chunks
from .spans import SCHEMES, read_pair, span_similarity
from .tags import MODES, Marked, Vocabulary, documents_of_pair, warn_about_both

CATEGORIES = ("correct", "incorrect", "partial", "missed", "spurious")
MISSED, SPURIOUS = map(CATEGORIES.index, ("missed", "spurious"))


class SpanErrors(NamedTuple):
    """Spans by category, in order.

    A row is the document and the indices of the predicted and the reference span within the document, -1 for none.
    `len(errors.missed)` is the number of missed spans.
    """

    correct: Tensor  # (K, 3) int64: pairs of score 1
    incorrect: Tensor  # (K, 3): pairs of score 0
    partial: Tensor  # (K, 3): pairs of score 1/2
    missed: Tensor  # (K, 3): of the reference, without a partner
    spurious: Tensor  # (K, 3): predicted, without a partner
    labels: tuple[str, ...]  # L of them, sorted
    counts: Tensor  # (5, L + 1, L + 1) int64: spans of each category by predicted and reference label, the last none

    def table(self) -> Table:
        """Count the spans of each label: spurious ones by the predicted label, all others by the reference label.

        Example:
            >>> print(span_errors([["B-PER", "O", "B-LOC"]], [["B-PER", "O", "B-ORG"]]).table())
            label  correct  incorrect  partial  missed  spurious
            LOC          0          0        0       0         0
            ORG          0          1        0       0         0
            PER          1          0        0       0         0
            all          1          1        0       0         0
        """
        size = len(self.labels)
        by_label = self.counts[:, :, :size].sum(1)  # (5, L)
        by_label[SPURIOUS] = self.counts[SPURIOUS, :size].sum(1)
        rows = torch.cat([by_label, by_label.sum(1, keepdim=True)], 1).T.tolist()
        return Table([*self.labels, _other_than("all", self.labels)], CATEGORIES, rows, index="label")

    def confusions(self) -> Table:
        """Count the pairs of labels: a row for each reference label, a column for each predicted label.

        Example:
            >>> print(span_errors([["B-PER", "O", "B-LOC"]], [["B-PER", "O", "B-ORG"]]).confusions())
            reference  LOC  ORG  PER  missed
            LOC          0    0    0       0
            ORG          1    0    0       0
            PER          0    0    1       0
            spurious     0    0    0
        """
        counts = self.counts.sum(0).T.tolist()  # reference, predicted
        counts[-1][-1] = None
        rows, columns = ([*self.labels, _other_than(name, self.labels)] for name in ("spurious", "missed"))
        return Table(rows, columns, counts, index="reference")


def _other_than(name: str, labels: Sequence[str]) -> str:
    return name if name not in labels else _other_than(f"({name})", labels)


def span_errors(
    pred: Iterable[Iterable[str | tuple[str, int, int]]],
    ref: Iterable[Iterable[str | tuple[str, int, int]]],
    scheme: str = "strict",
    mode: str = "lenient",
    suffix: bool = False,
) -> SpanErrors:
    """Sort spans into the categories of MUC: correct, incorrect, partial, missed and spurious.

    Overlapping spans are paired one-to-one to maximize the score under `scheme` of `SpanScores`, and then the number of
    pairs: precision is (correct + partial / 2) / predicted, as in `SpanScores`. Only "partial" has partial pairs, and
    it has no incorrect ones.

    Args:
        pred: Documents: lists of tags, or lists of spans (label, first, last) with inclusive ends, which may be nested,
            overlap and have any order.
        ref: Documents in the same form.
        scheme: Score of a pair, see `SpanScores`.
        mode: Tagging scheme, see `read_tags`, which returns the spans that the indices refer to. Not for spans.
        suffix: Tags are `<label>-<prefix>`. Not for spans.

    Returns:
        A named tuple of each category, (K, 3) int64, whose rows are the document and the indices of the predicted and
        the reference span in it, -1 for none; its `table()` and `confusions()` count labels.

    Raises:
        ValueError: If numbers of documents or of tags differ, a tag or a span is invalid, or only one input has tags.

    Example:
        >>> span_errors([["B-PER", "O", "B-LOC"]], [["B-PER", "I-PER", "O"]]).incorrect
        tensor([[0, 0, 0]])
        >>> nested = [[("ORG", 0, 3), ("LOC", 2, 3)]]
        >>> span_errors(nested, [[("ORG", 0, 3), ("PER", 2, 3)]]).incorrect
        tensor([[0, 1, 1]])

    References:
        N. Chinchor, B. Sundheim 1993, aclanthology.org/M93-1007
    """
    checks.check_choice("scheme", scheme, SCHEMES)
    checks.check_choice("mode", mode, MODES)
    pred, ref = documents_of_pair(pred, ref, suffix)
    if are_spans(pred, ref):
        if mode != "lenient" or suffix:
            raise ValueError(f"got mode={mode!r} and suffix={suffix} with spans, wanted tags, or neither of the two")
        labels, tables, counts = read_span_lists(pred, ref)
    else:
        labels, tables, counts = _spans_of_tags(pred, ref, mode, suffix)
    order = sorted(range(len(labels)), key=labels.__getitem__)
    new_label = torch.empty(len(labels) + 1, dtype=torch.int64, device="cpu")
    new_label[[*order, -1]] = torch.arange(len(labels) + 1, device="cpu")
    tables = [torch.cat([new_label[table[:, :1]], table[:, 1:]], 1) for table in tables]
    category_rows: list[list[Tensor]] = [[] for _ in CATEGORIES]
    for index, spans, (n, m) in chunks(tables, counts, flat=True):
        documents = torch.arange(len(counts[0]), device="cpu")[index]
        for rows, more in zip(category_rows, _categories(spans[0], spans[1], n, m, scheme, documents), strict=True):
            rows.append(more)
    categories = [torch.cat(rows) for rows in category_rows]
    for column in (2, 1, 0):  # order by document, then index
        categories = [rows[rows[:, column].sort(stable=True).indices] for rows in categories]
    size = len(labels) + 1
    cells = [torch.bincount(rows[:, 3] % size * size + rows[:, 4] % size, minlength=size**2) for rows in categories]
    names = tuple(labels[index] for index in order)
    table = torch.stack(cells).view(len(CATEGORIES), size, size)
    correct, incorrect, partial, missed, spurious = (rows[:, :3] for rows in categories)
    return SpanErrors(correct, incorrect, partial, missed, spurious, names, table)


def _spans_of_tags(
    pred: Sequence[Sequence[str]], ref: Sequence[Sequence[str]], mode: str, suffix: bool
) -> tuple[list[str], list[Tensor], list[Tensor]]:
    # ->  labels, (spans, 3) each, (D,) each
    vocabulary = Vocabulary((), suffix)
    *tags, lengths = read_pair(pred, ref, vocabulary)
    marked = [Marked.read(*vocabulary.parts(ids), lengths, mode) for ids in tags]
    warn_about_both(marked[0].tag_errors(mode), marked[1].tag_errors(mode), mode)
    tables, counts = zip(*(part.rows() for part in marked), strict=True)
    return vocabulary.labels, [*tables], [*counts]


def _categories(pred: Tensor, ref: Tensor, n: Tensor, m: Tensor, scheme: str, documents: Tensor) -> list[Tensor]:
    # pred: (D, N, 3)  ref: (D, M, 3)  n, m, documents: (D,)  ->  rows of the five categories with labels, (K, 5) each
    pred_valid, ref_valid = _lengths.mask(n, pred.shape[1]), _lengths.mask(m, ref.shape[1])
    touching = (span_similarity(pred, ref, "partial") > 0) & pred_valid[..., None] & ref_valid[..., None, :]
    score = span_similarity(pred, ref, scheme).double() * touching
    # All pairs together add less than 1/2, the smallest difference of scores, so scores take precedence.
    weight = score + touching / (2.0 * max(pred.shape[1], ref.shape[1]) + 2)
    partner = linear_sum_assignment(weight, maximize=True, row_lengths=n, col_lengths=m, check=False).col_of_row
    index = partner.clamp(min=0)[..., None]
    paired = (partner >= 0) & pred_valid
    if ref.shape[1]:
        paired &= touching.gather(-1, index)[..., 0]
        score = score.gather(-1, index)[..., 0]
    else:
        score = torch.zeros_like(partner, dtype=torch.float64)
    document, position = paired.nonzero(as_tuple=True)
    is_matched = torch.zeros_like(ref_valid).index_put_((document, partner[paired]), torch.tensor(True, device="cpu"))
    labels = pred[document, position, 0], ref[document, partner[paired], 0]
    rows = torch.stack([documents[document], position, partner[paired], *labels], -1)
    score = score[paired]
    unmatched = []
    for offset, (spans, free) in enumerate(((pred, pred_valid & ~paired), (ref, ref_valid & ~is_matched))):
        document, position = free.nonzero(as_tuple=True)
        row = torch.full((len(position), 5), -1, device="cpu")
        row[:, 0], row[:, 1 + offset], row[:, 3 + offset] = documents[document], position, spans[document, position, 0]
        unmatched.append(row)
    return [rows[score == 1], rows[score == 0], rows[(score > 0) & (score < 1)], *reversed(unmatched)]


def are_spans(pred: Sequence[Sequence[Any]], ref: Sequence[Sequence[Any]]) -> bool:
    """Return whether documents are lists of spans instead of tags; False if all are empty.

    Raises:
        ValueError: If one argument has tags, the other one spans.
    """
    forms = {}
    for name, documents in (("pred", pred), ("ref", ref)):
        first = next(chain.from_iterable(documents), None)
        if first is not None:
            forms[name] = "tags" if isinstance(first, str) else "spans"
    if len({*forms.values()}) > 1:
        raise ValueError(f"pred: got {forms['pred']} and ref {forms['ref']}, wanted the same form in both")
    return "spans" in forms.values()


def read_span_lists(*inputs: Sequence[Sequence[Any]]) -> tuple[list[str], list[Tensor], list[Tensor]]:
    # ->  labels, (spans, 3) each, (D,) each
    """Read spans (label, first, last) of predicted and reference documents.

    Raises:
        ValueError: If numbers of documents differ, or a span is invalid; the message has its position.
    """
    checks.check_consistent_length(pred=inputs[0], ref=inputs[1])
    labels: dict[str, int] = {}
    tables, counts = [], []
    for name, documents in zip(("pred", "ref"), inputs, strict=True):
        rows = [
            _row(span, labels, f"{name}: document {index}, span {position}")
            for index, document in enumerate(documents)
            for position, span in enumerate(document)
        ]
        tables.append(torch.tensor(rows, dtype=torch.int64, device="cpu").view(-1, 3))
        counts.append(torch.tensor(list(map(len, documents)), dtype=torch.int64, device="cpu"))
    return list(labels), tables, counts


def _row(span: Any, labels: dict[str, int], where: str) -> tuple[int, int, int]:
    parts = tuple(span) if isinstance(span, Iterable) and not isinstance(span, str | dict) else ()
    are_ends = [isinstance(end, Integral) and not isinstance(end, bool) for end in parts[1:]]
    if not (len(parts) == 3 and isinstance(parts[0], str) and all(are_ends) and parts[1] <= parts[2]):
        expected = "(label, first, last) with first <= last, such as ('PER', 0, 1)"
        raise ValueError(f"{where}: got {span!r:.60}, wanted {expected}")
    label, first, last = parts
    return labels.setdefault(label, len(labels)), int(first), int(last)
