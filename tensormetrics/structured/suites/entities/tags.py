"""Readers of chunk tags: B-PER, I-PER, O and their kin."""

import hashlib
import warnings
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .... import _checks
from ...._device_cache import cached_per_device

_PREFIXES = {"O": 0, "B": 1, "I": 2, "E": 3, "L": 3, "S": 4, "U": 4}
_RULED = _PREFIXES | {"!": 0, "=": 1}  # whether labels are equal
O, B, I, E, S = range(5)  # noqa: E741
UNNAMED = "_"  # the label of a bare B, I, E or S


class Scheme(NamedTuple):
    """What a token is after another one. A rule is the prefixes of both (. for any) and whether their labels are equal
    (=), differ (!), or either (?). A span ends before the first token that does not continue it, and counts if a rule
    of `ends` holds there. Tags whose prefix is none of `prefixes` are read as O."""

    prefixes: str
    begins: str
    continues: str
    ends: str


_IOBES = Scheme("BIES", ".B? .S?", "BI= BE= II= IE=", "S.? E.?")
_SCHEMES = {
    "lenient": Scheme("BIES", ".B? .I? .E? .S?", "BI= BE= II= IE=", "..?"),
    "iob1": Scheme("BI", "OI? II! BI? IB= BB=", "BI= II=", "II! IO? IB? BO? BI! BB="),
    "iob2": Scheme("BI", ".B?", "BI= II=", "IO? II! IB? BO? BI! BB?"),
    "ioe1": Scheme("IE", "OI? II! EI? EE=", "II= IE=", "II! IO? IE! EI= EE="),
    "ioe2": Scheme("IE", "OI? OE? EI? EE? II! IE!", "IE= II=", "E.?"),
    "iobes": _IOBES,
    "bilou": _IOBES,
}
MODES = tuple(_SCHEMES)


class TagSpans(NamedTuple):
    """The spans of documents, in order; a row is label, first and last token (inclusive), or -1 in the padding."""

    spans: Tensor  # (D, S, 3) int64, S the most of one document
    lengths: Tensor  # (D,) int64
    labels: dict[int, str]  # the names of the numbers


def read_tags(
    tags: Sequence[Sequence[str]], mode: str = "lenient", labels: Sequence[str] | None = None, suffix: bool = False
) -> TagSpans:
    """The spans that tags `O` and `<prefix>-<label>` mark, prefix one of B, I, E (or L), S (or U); a bare prefix has
    label "_". With `suffix` tags are `<label>-<prefix>`.

    "lenient", as conlleval: a span ends where another tag than its label's I or E comes or after E or S, and begins
    wherever a tag other than O does not continue one. "iob2": B, then I of one label; "iob1": B only where a span
    follows one of its label; "ioe2": I..., then E; "ioe1": E only where one of its label follows; "iobes", "bilou": S,
    or B, I..., E. All are seqeval's; tags that do not fit are left out, with a warning.
    Labels are numbered by their place in `labels`, or else by a number made of their text, so that sides which are read
    apart agree. An unknown prefix, or a label that `labels` lacks, is a ValueError with document and position.

    >>> found = read_tags([["B-PER", "I-PER", "O", "B-LOC"]], labels=["LOC", "PER"])
    >>> found.spans
    tensor([[[1, 0, 1],
             [0, 3, 3]]])
    """
    labels = None if labels is None else _checks.as_list("labels", labels)
    vocabulary = Vocabulary(labels or (), suffix)
    codes, lengths = vocabulary.read(documents_of(tags))
    if labels is not None:
        vocabulary.check(labels)
    spans = Marked.read(*vocabulary.parts(codes), lengths, mode)
    warn_of(spans.unfit(mode), mode)
    rows, counts = spans.rows()
    numbers = [*range(len(vocabulary.labels))] if labels is not None else list(map(_number, vocabulary.labels))
    rows[:, 0] = torch.tensor([*numbers, 0], device="cpu")[rows[:, 0]]
    inside = torch.arange(int(counts.max()) if len(counts) else 0, device="cpu") < counts[:, None]
    table = torch.full((*inside.shape, 3), -1, device="cpu")
    table[inside] = rows
    return TagSpans(table, counts, dict(zip(numbers, vocabulary.labels, strict=True)))


def _number(label: str) -> int:
    return int.from_bytes(hashlib.blake2b(label.encode(), digest_size=7).digest(), "big")


def documents_of(tags: Iterable[Iterable[Any]], name: str = "tags") -> list[Sequence[Any]]:
    """The documents as lists; TypeError for what is none."""
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise TypeError(f"{name}: got {tags!r:.60}, wanted a list of documents, lists of tags")
    documents: list[Any] = list(tags)
    for number, row in enumerate(documents):
        if isinstance(row, str):
            raise TypeError(f"document {number}: got the text {row!r:.60}, wanted a list of tags; write [tags]")
        if not isinstance(row, Iterable):
            raise TypeError(f"document {number}: got {row!r:.60}, wanted a list of tags")
        if not hasattr(row, "__len__"):
            documents[number] = list(row)
    return documents


class Vocabulary(dict):
    """Distinct tags and their numbers, from 0 on; a new one is read, and its label appended to `labels`."""

    def __init__(self, labels: Iterable[str] = (), suffix: bool = False) -> None:
        self.labels, self.suffix = list(labels), suffix
        self.codes: list[tuple[int, int]] = []  # prefix and label of each number

    def __missing__(self, tag: str) -> int:
        self.codes.append(tag_code(tag, self.labels, "tag", self.suffix))
        self[tag] = len(self.codes) - 1
        return self[tag]

    def learn(self, documents: Sequence[Sequence[str]]) -> None:
        """Number the tags of these documents."""
        try:
            for tag in set().union(*documents):
                self[tag]
        except (TypeError, ValueError):
            for document, row in enumerate(documents):
                for position, tag in enumerate(row):
                    tag_code(tag, self.labels, f"document {document}, position {position}", self.suffix)
            raise

    def read(self, documents: Sequence[Sequence[str]]) -> tuple[Tensor, Tensor]:
        # ->  numbers of all tags (T,), lengths of the documents (D,)
        self.learn(documents)
        lengths = list(map(len, documents))
        found = map(self.__getitem__, chain.from_iterable(documents))
        if len(self) < 256:  # one byte each is quicker
            numbers = np.frombuffer(bytes(found), np.uint8).astype(np.int64)
        else:
            numbers = np.fromiter(found, np.int64, sum(lengths))
        return torch.from_numpy(numbers), torch.tensor(lengths, dtype=torch.int64, device="cpu")

    def parts(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        # numbers: (...) of tags, those behind the last for O  ->  prefix, label (...)
        table = torch.tensor([*self.codes, (O, -1)], device=numbers.device)
        prefix, label = table.unbind(-1)
        return prefix[numbers], label[numbers]

    def check(self, labels: Sequence[str]) -> None:
        """ValueError for labels that were met and are not among these."""
        if len(self.labels) > len(labels):
            raise ValueError(
                f"labels: got tags of {sorted(self.labels[len(labels) :])}, wanted some of {tuple(labels)}"
            )


def tag_code(tag: str, labels: list[str], where: str, suffix: bool = False) -> tuple[int, int]:
    """The numbers of a tag's prefix and label, -1 for none; a label not among `labels` is appended to them."""
    if not isinstance(tag, str):
        raise TypeError(
            f"{where}: got {tag!r:.60}, wanted a tag such as 'B-PER'; for numbers of tags give a vocabulary"
        )
    label, dash, prefix = tag.rpartition("-") if suffix else tag.partition("-")[::-1]
    if prefix not in _PREFIXES or bool(dash) != bool(label) or (prefix == "O" and dash):
        form = "a label, a dash and a prefix{}" if suffix else "a prefix{}, a dash and a label"
        raise ValueError(f"{where}: got tag {tag!r}, wanted 'O', or {form.format(' of B, I, E, L, S, U')}")
    if prefix == "O":
        return O, -1
    label = label or UNNAMED
    if label not in labels:
        labels.append(label)
    return _PREFIXES[prefix], labels.index(label)


@cached_per_device
def _rules(device: torch.device, mode: str) -> Tensor:
    # ->  (3, 50) bool: whether a token begins, continues, ends; by prefix before, prefix, whether labels are equal
    _checks.check_choice("mode", mode, MODES)
    prefixes, *kinds = _SCHEMES[mode]
    table = torch.zeros(3, 5, 5, 2, dtype=torch.bool, device="cpu")
    for kind, rules in zip(table, kinds, strict=True):
        for rule in rules.split():  # a letter each: the prefix before, the prefix, whether labels are equal
            places = [slice(None) if letter in ".?" else _RULED[letter] for letter in rule]
            kind[tuple(places)] = True
    read_as = torch.tensor([_PREFIXES[letter] if letter in prefixes else O for letter in "OBIES"], device="cpu")
    return table[:, read_as][:, :, read_as].flatten(1).to(device)


def mark_spans(prefix: Tensor, label: Tensor, mode: str) -> tuple[Tensor, Tensor]:
    # prefix, label: (..., W) int64  ->  whether a span begins there (..., W) bool, and its last token (..., W)
    """The spans of each row of tokens, with O before and behind it."""
    width = prefix.shape[-1]
    prefix, label = (torch.nn.functional.pad(part, (1, 1), value=value) for part, value in ((prefix, O), (label, -1)))
    rule = (prefix[..., :-1] * 5 + prefix[..., 1:]) * 2 + (label[..., :-1] == label[..., 1:])
    begins, continues, ends = (kind[rule] for kind in _rules(prefix, mode))  # (..., W + 1)
    token = torch.arange(width + 1, device=prefix.device)
    # A token that begins a span is in one, another one is if it continues that of the token before.
    decided = (2 * token + begins).where(begins | ~continues, -1).cummax(-1).values
    inside = torch.nn.functional.pad(decided % 2 == 1, (1, -1))  # the token before
    first = begins & ~(continues & inside)
    stop = token.where(~continues, width).flip(-1).cummin(-1).values.flip(-1)[..., 1:]
    return first[..., :-1] & ends.gather(-1, stop), stop - 1


def padded_spans(prefix: Tensor, label: Tensor, mode: str) -> tuple[Tensor, Tensor]:
    # prefix, label: (..., W) int64  ->  spans (..., W, 3), lengths (...)
    """The spans of documents of one width, without reading how many there are."""
    width = prefix.shape[-1]
    taken, last = mark_spans(prefix, label, mode)
    slot = (taken.long().cumsum(-1) - 1).where(taken, width)  # all others go to a place behind
    rows = torch.stack([label, torch.arange(width, device=prefix.device).expand_as(last), last], -1)
    spans = rows.new_zeros(*prefix.shape[:-1], width + 1, 3).scatter(-2, slot[..., None].expand_as(rows), rows)
    return spans[..., :width, :], taken.sum(-1)


class Marked(NamedTuple):
    """The tokens of all documents one after another, an O behind each document."""

    prefix: Tensor  # (T + D,)
    label: Tensor  # (T + D,)
    last: Tensor  # (T + D,) of the span that begins there, -1 where none does
    first: Tensor  # (spans,) where they begin
    document: Tensor  # (spans,)
    start: Tensor  # (D,) the first token of each

    @classmethod
    def read(cls, prefix: Tensor, label: Tensor, lengths: Tensor, mode: str) -> "Marked":
        # prefix, label: (T,)  lengths: (D,)
        start = (lengths + 1).cumsum(0) - lengths - 1
        token = torch.ones(len(prefix) + len(lengths), dtype=torch.bool, device="cpu")
        token[start + lengths] = False
        prefix, label = (
            torch.full(token.shape, outside, device="cpu").masked_scatter_(token, part)
            for part, outside in ((prefix, O), (label, -1))
        )
        begins, last = mark_spans(prefix, label, mode)
        (first,) = begins.nonzero(as_tuple=True)
        document = torch.searchsorted(start, first, right=True) - 1
        return cls(prefix, label, last.where(begins, -1), first, document, start)

    def rows(self) -> tuple[Tensor, Tensor]:
        # ->  label, first, last (spans, 3), how many each document has (D,)
        start = self.start[self.document]
        rows = torch.stack([self.label[self.first], self.first - start, self.last[self.first] - start], -1)
        return rows, torch.bincount(self.document, minlength=len(self.start))

    def unfit(self, mode: str) -> "Unfit":
        """Count what does not fit the scheme."""
        begins = self.prefix[self.first]
        fitting = Unfit(spans=len(begins), loose=int(((begins == I) | (begins == E)).sum()))
        if mode == "lenient":
            return fitting
        used = torch.tensor([letter in "O" + _SCHEMES[mode].prefixes for letter in "OBIES"], device="cpu")
        tags = int((self.prefix != O).sum())
        strange = bool((~used[self.prefix]).any())
        return fitting._replace(
            tags=tags, lost=tags - int((self.last[self.first] - self.first + 1).sum()), strange=strange
        )


class Unfit(NamedTuple):
    """What does not fit a scheme, in some documents."""

    tags: int = 0  # other than O
    lost: int = 0  # of these, in no span
    strange: bool = False  # whether the scheme lacks a prefix
    spans: int = 0
    loose: int = 0  # of these, begun by I or E

    def plus(self, other: "Unfit") -> "Unfit":
        tags, lost, strange, *spans = (a + b for a, b in zip(self, other, strict=True))
        return Unfit(tags, lost, bool(strange), *spans)


def warn_of(unfit: Unfit, mode: str, name: str = "", share: float = 0.0, depth: int = 0) -> None:
    """A warning for a prefix that has no place in the scheme, and where more than this share of tags is lost; `depth`
    calls lie between the user's and the one that warns."""
    if unfit.strange or unfit.lost > share * unfit.tags:
        prefixes = ", ".join(_SCHEMES[mode].prefixes)
        warnings.warn(
            f"{name}tags do not fit mode={mode!r}: {unfit.lost} of {unfit.tags} tags other than O are left out"
            + f", some whose prefix is none of {prefixes}" * unfit.strange,
            stacklevel=3 + depth,
        )


def warn_of_both(pred: Unfit, ref: Unfit, mode: str, depth: int = 0) -> None:
    """A model may err: half of the predicted tags may be lost, but none of the reference."""
    warn_of(pred, mode, "pred: ", 0.5, depth + 1)
    warn_of(ref, mode, "ref: ", 0.0, depth + 1)
