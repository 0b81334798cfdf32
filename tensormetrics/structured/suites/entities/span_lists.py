"""Readers of lists of spans, which may be nested and overlap."""

from collections.abc import Iterable, Sequence
from itertools import chain
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from ....core.arguments import checks


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
