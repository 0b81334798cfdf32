"""What became of each entity: correct, incorrect, partial, missed, spurious."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .... import _checks
from ....assignment import linear_sum_assignment
from ...tensors import _lengths
from ...tensors._lengths import chunks
from .spans import SCHEMES, read_both, span_similarity
from .tags import MODES, Marked, Vocabulary, warn_of_both


class SpanErrors(NamedTuple):
    """Spans by what became of them, in order; a row is document, place of the predicted and of the reference span
    among those of their document, counted from 0, -1 for none. `len(errors.missed)` is how many were missed."""

    correct: Tensor  # (K, 3) int64: worth 1
    incorrect: Tensor  # (K, 3): paired, but worth nothing
    partial: Tensor  # (K, 3): worth 1/2
    missed: Tensor  # (K, 3): of the reference, without a partner
    spurious: Tensor  # (K, 3): predicted, without a partner


def span_errors(
    pred: Sequence[Sequence[str]],
    ref: Sequence[Sequence[str]],
    scheme: str = "strict",
    mode: str = "lenient",
    suffix: bool = False,
) -> SpanErrors:
    """The categories of MUC (N. Chinchor, B. Sundheim 1993, aclanthology.org/M93-1007) for lists of tags.

    Spans that overlap are paired one-to-one so that the worth under `scheme` of `SpanScores` is largest, and then the
    number of pairs: precision is (correct + partial / 2) / predicted, as there. Only "partial" has partial pairs, and
    it has no incorrect ones. `mode` and `suffix`: see `read_tags`, which gives the spans that the places mean.

    >>> span_errors([["B-PER", "O", "B-LOC"]], [["B-PER", "I-PER", "O"]]).incorrect
    tensor([[0, 0, 0]])
    """
    _checks.one_of("scheme", scheme, SCHEMES)
    _checks.one_of("mode", mode, MODES)
    known = Vocabulary((), suffix)
    *tags, lengths = read_both(pred, ref, known)
    sides = [Marked.read(*known.parts(side), lengths, mode) for side in tags]
    warn_of_both(sides[0].unfit(mode), sides[1].unfit(mode), mode)
    tables, counts = zip(*(side.rows() for side in sides), strict=True)
    found: list[list[Tensor]] = [[] for _ in SpanErrors._fields]
    for place, spans, (n, m) in chunks(tables, counts, flat=True):
        documents = torch.arange(len(lengths), device="cpu")[place]
        for rows, more in zip(found, _categories(spans[0], spans[1], n, m, scheme, documents), strict=True):
            rows.append(more)
    return SpanErrors(*(_ordered(torch.cat(rows)) for rows in found))


def _categories(pred: Tensor, ref: Tensor, n: Tensor, m: Tensor, scheme: str, documents: Tensor) -> list[Tensor]:
    # pred: (D, N, 3)  ref: (D, M, 3)  n, m, documents: (D,)  ->  rows of the five categories, (K, 3) each
    pred_inside, ref_inside = _lengths.mask(n, pred.shape[1]), _lengths.mask(m, ref.shape[1])
    touching = (span_similarity(pred, ref, "partial") > 0) & pred_inside[..., None] & ref_inside[..., None, :]
    worth = span_similarity(pred, ref, scheme).double() * touching
    # A pair more counts less than half a point in all, so that worth comes first.
    weight = worth + touching / (2.0 * max(pred.shape[1], ref.shape[1]) + 2)
    partner = linear_sum_assignment(weight, maximize=True, row_lengths=n, col_lengths=m, check=False).col_of_row
    index = partner.clamp(min=0)[..., None]
    paired = (partner >= 0) & pred_inside
    if ref.shape[1]:
        paired &= touching.gather(-1, index)[..., 0]
        worth = worth.gather(-1, index)[..., 0]
    else:
        worth = torch.zeros_like(partner, dtype=torch.float64)
    document, place = paired.nonzero(as_tuple=True)
    taken = torch.zeros_like(ref_inside).index_put_((document, partner[paired]), torch.tensor(True, device="cpu"))
    rows = torch.stack([documents[document], place, partner[paired]], -1)
    worth = worth[paired]
    alone = []
    for side, free in enumerate((pred_inside & ~paired, ref_inside & ~taken)):
        document, place = free.nonzero(as_tuple=True)
        row = torch.full((len(place), 3), -1, device="cpu")
        row[:, 0], row[:, 1 + side] = documents[document], place
        alone.append(row)
    return [rows[worth == 1], rows[worth == 0], rows[(worth > 0) & (worth < 1)], *reversed(alone)]


def _ordered(rows: Tensor) -> Tensor:
    # (K, 3)  ->  (K, 3) by document, then place
    for column in (2, 1, 0):
        rows = rows[rows[:, column].sort(stable=True).indices]
    return rows
