"""Reader of chunk tags: B-PER, I-PER, O and their kin."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ... import _checks

MODES = ("lenient", "iob2", "iobes")
_PREFIXES = {"O": 0, "B": 1, "I": 2, "E": 3, "L": 3, "S": 4, "U": 4}
O, B, I, E, S = range(5)  # noqa: E741


class TagSpans(NamedTuple):
    """The spans of documents, in order; a row is label, first and last token (inclusive)."""

    spans: Tensor  # (D, W, 3) int64
    lengths: Tensor  # (D,) int64
    labels: list[str]


def read_tags(tags: Sequence[Sequence[str]], mode: str = "lenient", labels: Sequence[str] = ()) -> TagSpans:
    """The spans that tags `O` and `<prefix>-<label>` mark, prefix one of B, I, E (or L), S (or U).

    "lenient", as conlleval: a span ends where another tag than its label's I or E comes or after E or S, and begins
    wherever a tag other than O does not continue one. "iob2": B, then I of one label; "iobes": S, or B, I..., E of one
    label; tags that do not fit are ignored. Labels are numbered from `labels` on, new ones in order of appearance.
    An unknown prefix is a ValueError with document and position.
    """
    labels = list(labels)
    seen: dict[str, tuple[int, int]] = {}
    for document, row in enumerate(tags):
        if isinstance(row, str):
            raise TypeError(f"document {document}: got the text {row!r:.60}, wanted a list of tags; write [tags]")
        for position, tag in enumerate(row):
            if tag not in seen:
                seen[tag] = tag_code(tag, labels, f"document {document}, position {position}")
    width = max(map(len, tags), default=0)
    codes = [[seen[tag] for tag in row] + [(O, -1)] * (width - len(row)) for row in tags]
    prefix, label = torch.tensor(codes, dtype=torch.int64).reshape(len(tags), width, 2).unbind(-1)
    return TagSpans(*tag_spans(prefix, label, mode), labels)


def tag_code(tag: str, labels: list[str], where: str) -> tuple[int, int]:
    """The numbers of a tag's prefix and label, -1 for none; a label not among `labels` is appended to them."""
    prefix, _, label = tag.partition("-")
    if prefix not in _PREFIXES:
        raise ValueError(f"{where}: got tag {tag!r}, wanted 'O' or a prefix of B, I, E, L, S, U, a dash and a label")
    if prefix != "O" and label not in labels:
        labels.append(label)
    return _PREFIXES[prefix], labels.index(label) if prefix != "O" else -1


def tag_spans(prefix: Tensor, label: Tensor, mode: str) -> tuple[Tensor, Tensor]:
    # prefix, label: (..., W) int64, prefix 0 to 4 for O, B, I, E, S  ->  spans (..., W, 3), lengths (...)
    """The tensor part of `read_tags`."""
    _checks.one_of("mode", mode, MODES)
    width = prefix.shape[-1]
    before = torch.nn.functional.pad(prefix, (1, 0))[..., :width]
    label_before = torch.nn.functional.pad(label, (1, 0))[..., :width]
    inner = (prefix == I) if mode == "iob2" else (prefix == I) | (prefix == E)
    begins = ~(inner & ((before == B) | (before == I)) & (label == label_before))
    run = begins.long().cumsum(-1) - 1
    token = torch.arange(width, device=prefix.device).expand_as(run)
    last = torch.zeros_like(run).scatter_reduce(-1, run, token, "amax").gather(-1, run)
    if mode == "lenient":
        fits = prefix != O
    elif mode == "iob2":
        fits = prefix == B
    else:
        fits = (prefix == S) | (prefix == B) & (prefix.gather(-1, last) == E)
    taken = begins & fits
    slot = (taken.long().cumsum(-1) - 1).where(taken, width)  # all others go to a place behind
    rows = torch.stack([label, token, last], -1)
    spans = rows.new_zeros(*prefix.shape[:-1], width + 1, 3).scatter(-2, slot[..., None].expand_as(rows), rows)
    return spans[..., :width, :], taken.sum(-1)
