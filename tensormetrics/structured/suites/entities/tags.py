"""Readers of chunk tags such as B-PER, I-PER, O, in lists and in files with a token and its tag on a line."""

import hashlib
import re
import warnings
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ....core.arguments import checks
from ....core.arguments.callers import level_of_caller
from ....core.native.device_cache import cached_per_device
from ....core.text.joining import Item, join_paths
from .tag_files import read_tag_file

_PREFIXES = {"O": 0, "B": 1, "I": 2, "M": 2, "E": 3, "L": 3, "S": 4, "U": 4}
_RULED = _PREFIXES | {"!": 0, "=": 1}  # whether labels are equal
O, B, I, E, S = range(5)  # noqa: E741
MIN_SPANS = 10  # needed to distinguish tags of a model from reference tags
MAX_LOOSE = 0.2  # fraction of spans begun by I or E: more indicate a scheme such as IOB1, fewer indicate errors
UNNAMED = "_"  # the label of a bare B, I, E or S


class Scheme(NamedTuple):
    """Tagging scheme as rules about consecutive tokens.

    A rule is the prefixes of both tokens (. for any) and whether their labels are equal (=), differ (!), or either (?).
    A span ends before the first token that does not continue it, and counts if a rule of `ends` applies there. Tags
    with a prefix that is not in `prefixes` are read as O.
    """

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
    """The spans of documents, in order; a row is label, first and last token (inclusive), or -1 in the padding.

    Args:
        spans: Rows of each document, (D, S, 3) int64, S the largest number of one document.
        lengths: Numbers of spans, (D,) int64.
        labels: Names of the labels by number.
    """

    spans: Tensor
    lengths: Tensor
    labels: dict[int, str]


def read_tags(
    tags: Sequence[Sequence[str]] | str | PathLike,
    mode: str = "lenient",
    labels: Sequence[str] | None = None,
    suffix: bool = False,
) -> TagSpans:
    """Read the spans of tags `O` and `<prefix>-<label>`, prefix one of B, I, M (as I), E (or L), S (or U).

    A bare prefix has the label "_".

    Args:
        tags: A list of tags for each document, or the path of a file with a token and its tag on each line, and blank
            lines between sentences.
        mode: "lenient", as conlleval: a span ends before a tag other than I or E of its label, or after E or S, and
            begins at any tag other than O that does not continue one. "iob2": B, then I of one label; "iob1": B only if
            a span follows one of the same label; "ioe2": I..., then E; "ioe1": E only if a span of the same label
            follows; "iobes", "bilou": S, or B, I..., E. These are schemes of seqeval; tags that do not fit are ignored,
            with a warning.
        labels: Names of the labels, which are numbered by their index here, or by default by a hash of their text, so
            that predictions and references that are read separately agree.
        suffix: Whether tags are `<label>-<prefix>`.

    Returns:
        The spans, arguments of `SpanScores.update`.

    Raises:
        ValueError: If a prefix is unknown, with document and position, or a label is not in `labels`.

    >>> result = read_tags([["B-PER", "I-PER", "O", "B-LOC"]], labels=["LOC", "PER"])
    >>> result.spans
    tensor([[[1, 0, 1],
             [0, 3, 3]]])
    """
    labels = None if labels is None else checks.as_list("labels", labels)
    vocabulary = Vocabulary(labels or (), suffix)
    codes, lengths = vocabulary.read(documents_of(tags, suffix))
    if labels is not None:
        vocabulary.check(labels)
    spans = Marked.read(*vocabulary.parts(codes), lengths, mode)
    warn_about(spans.tag_errors(mode), mode)
    rows, counts = spans.rows()
    digests = (hashlib.blake2b(label.encode(), digest_size=7).digest() for label in vocabulary.labels)
    ids = [i if labels is not None else int.from_bytes(digest, "big") for i, digest in enumerate(digests)]
    rows[:, 0] = torch.tensor([*ids, 0], device="cpu")[rows[:, 0]]
    valid = torch.arange(int(counts.max()) if len(counts) else 0, device="cpu") < counts[:, None]
    table = torch.full((*valid.shape, 3), -1, device="cpu")
    table[valid] = rows
    return TagSpans(table, counts, dict(zip(ids, vocabulary.labels, strict=True)))


def is_path(tags: Any) -> bool:
    return isinstance(tags, PathLike) or (isinstance(tags, str) and Path(tags).is_file())


def read_tagged(path: str | PathLike, suffix: bool, labels: list[str], column: int = -1) -> list[Item]:
    """Return the tags of each sentence of a file; a ValueError has the line of a wrong one. `labels` grows."""
    sentences = read_tag_file(path, column)
    lines: dict[str, int] = {}
    for tags, numbers, *_ in sentences:
        for tag, line in zip(tags, numbers, strict=True):
            lines.setdefault(tag, line)
    for tag, line in lines.items():
        tag_code(tag, labels, f"{path}, line {line}", suffix)
    return sentences


def documents_of(tags: Any, suffix: bool, name: str = "tags") -> list[Sequence[Any]]:
    """Convert documents, or a file of them, to lists; anything else is a TypeError."""
    if is_path(tags):
        return [sentence.value for sentence in read_tagged(tags, suffix, [])]
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise TypeError(f"{name}: got {tags!r:.60}, wanted a list of documents, lists of tags, or the path of a file")
    documents: list[Any] = list(tags)
    for index, row in enumerate(documents):
        if isinstance(row, str):
            raise TypeError(f"document {index}: got the text {row!r:.60}, wanted a list of tags; write [tags]")
        if not isinstance(row, Iterable):
            raise TypeError(f"document {index}: got {row!r:.60}, wanted a list of tags")
        if not hasattr(row, "__len__"):
            documents[index] = list(row)
    return documents


def documents_of_pair(pred: Any, ref: Any, suffix: bool) -> tuple[list[Sequence[Any]], list[Sequence[Any]]]:
    """Convert predicted and reference documents to lists; two files must have the same tokens, one has both tags."""
    if is_path(pred) and ref is None:
        ref = [sentence.value for sentence in read_tagged(pred, suffix, [], -2)]
    elif is_path(pred) and is_path(ref):
        pred, ref = join_paths(pred, ref, partial(read_tagged, suffix=suffix, labels=[]), "sentence")
    return documents_of(pred, suffix, "pred"), documents_of(ref, suffix, "ref")


class Vocabulary(dict):
    """Distinct tags and their ids from 0; new tags are parsed, and their labels appended to `labels`."""

    def __init__(self, labels: Iterable[str] = (), suffix: bool = False) -> None:
        self.labels, self.suffix = list(labels), suffix
        self.codes: list[tuple[int, int]] = []  # prefix and label of each id

    def __missing__(self, tag: str) -> int:
        self.codes.append(tag_code(tag, self.labels, "tag", self.suffix))
        self[tag] = len(self.codes) - 1
        return self[tag]

    def learn(self, documents: Sequence[Sequence[str]]) -> None:
        """Add the tags of some documents."""
        try:
            for tag in set().union(*documents):
                self[tag]
        except (TypeError, ValueError):
            for document, row in enumerate(documents):
                for position, tag in enumerate(row):
                    tag_code(tag, self.labels, f"document {document}, position {position}", self.suffix)
            raise

    def read(self, documents: Sequence[Sequence[str]]) -> tuple[Tensor, Tensor]:
        # ->  ids of all tags (T,), lengths of the documents (D,)
        self.learn(documents)
        lengths = list(map(len, documents))
        ids = map(self.__getitem__, chain.from_iterable(documents))
        if len(self) < 256:  # single bytes are faster
            array = np.frombuffer(bytes(ids), np.uint8).astype(np.int64)
        else:
            array = np.fromiter(ids, np.int64, sum(lengths))
        return torch.from_numpy(array), torch.tensor(lengths, dtype=torch.int64, device="cpu")

    def parts(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        # ids: (...) of tags, larger ones for O  ->  prefix, label (...)
        table = torch.tensor([*self.codes, (O, -1)], device="cpu").to(ids.device, non_blocking=True)
        prefix, label = table.unbind(-1)
        return prefix[ids], label[ids]

    def check(self, labels: Sequence[str]) -> None:
        """Raise a ValueError for labels that occurred and are not among the expected ones."""
        if len(self.labels) > len(labels):
            raise ValueError(
                f"labels: got tags of {sorted(self.labels[len(labels) :])}, wanted some of {tuple(labels)}"
            )


def tag_code(tag: str, labels: list[str], where: str, suffix: bool = False) -> tuple[int, int]:
    """Parse a tag to the codes of its prefix and label, -1 for none; a new label is appended to `labels`."""
    if not isinstance(tag, str):
        raise TypeError(
            f"{where}: got {tag!r:.60}, wanted a tag such as 'B-PER'; for numbers of tags give a vocabulary"
        )
    label, dash, prefix = tag.rpartition("-") if suffix else tag.partition("-")[::-1]
    if prefix not in _PREFIXES or bool(dash) != bool(label) or (prefix == "O" and dash):
        template = "a label, a dash and a prefix{}" if suffix else "a prefix{}, a dash and a label"
        wanted = f"wanted 'O', or {template.format(' of B, I, M, E, L, S, U')}{_looks_like(tag, suffix)}"
        raise ValueError(f"{where}: got tag {tag!r}, {wanted}")
    if prefix == "O":
        return O, -1
    label = label or UNNAMED
    if label not in labels:
        labels.append(label)
    return _PREFIXES[prefix], labels.index(label)


def _looks_like(tag: str, suffix: bool) -> str:
    """Return the end of a message that says what a wrong tag looks like."""
    first, dash, rest = tag.rpartition("-")
    if dash and first and (first if suffix else rest) in _PREFIXES:
        return f"; this looks like a tag {'without' if suffix else 'with'} the option suffix"
    if re.search(r'[,;{}"]', tag):
        return "; this looks like a table or JSON: write a line for each token, with blanks between its columns"
    is_label = tag.isalpha() and tag.isupper() and len(tag) > 1
    return f"; this looks like a label alone: write {f'{tag}-I' if suffix else f'I-{tag}'}" if is_label else ""


@cached_per_device
def _rules(device: torch.device, mode: str) -> Tensor:
    # ->  (3, 50) bool: whether a token begins, continues, ends; by prefix before, prefix, whether labels are equal
    checks.check_choice("mode", mode, MODES)
    prefixes, *kinds = _SCHEMES[mode]
    table = torch.zeros(3, 5, 5, 2, dtype=torch.bool, device="cpu")
    for kind, rules in zip(table, kinds, strict=True):
        for rule in rules.split():  # a letter each: the prefix before, the prefix, whether labels are equal
            index = [slice(None) if letter in ".?" else _RULED[letter] for letter in rule]
            kind[tuple(index)] = True
    read_as = torch.tensor([_PREFIXES[letter] if letter in prefixes else O for letter in "OBIES"], device="cpu")
    return table[:, read_as][:, :, read_as].flatten(1).to(device)


def mark_spans(prefix: Tensor, label: Tensor, mode: str) -> tuple[Tensor, Tensor]:
    # prefix, label: (..., W) int64  ->  whether a span begins at the token (..., W) bool, and its last token (..., W)
    """Find the spans of each row of tokens, with O before and after it."""
    width = prefix.shape[-1]
    prefix, label = (torch.nn.functional.pad(part, (1, 1), value=value) for part, value in ((prefix, O), (label, -1)))
    rule = (prefix[..., :-1] * 5 + prefix[..., 1:]) * 2 + (label[..., :-1] == label[..., 1:])
    begins, continues, ends = (kind[rule] for kind in _rules(prefix, mode))  # (..., W + 1)
    token = torch.arange(width + 1, device=prefix.device)
    # A token is in a span if it begins one, or if it continues the span of the previous token.
    decided = (2 * token + begins).where(begins | ~continues, -1).cummax(-1).values
    in_span = torch.nn.functional.pad(decided % 2 == 1, (1, -1))  # the previous token
    first = begins & ~(continues & in_span)
    stop = token.where(~continues, width).flip(-1).cummin(-1).values.flip(-1)[..., 1:]
    return first[..., :-1] & ends.gather(-1, stop), stop - 1


def lost_tags(prefix: Tensor, first: Tensor, last: Tensor, spans: Tensor | int, mode: str) -> Tensor:
    # prefix: (...)  first, last: tokens of spans, equal for none  spans: their number  ->  (3,) int64
    """Count the tags other than O, those in no span and those whose prefix is not in the scheme."""
    tags = (prefix != O).sum()
    unknown = torch.zeros_like(prefix, dtype=torch.bool)
    for code in {*range(1, 5)} - {_PREFIXES[letter] for letter in _SCHEMES[mode].prefixes}:
        unknown |= prefix == code
    return torch.stack([tags, tags - (last - first).sum() - spans, unknown.sum()])


def padded_spans(prefix: Tensor, label: Tensor, mode: str) -> tuple[Tensor, Tensor]:
    # prefix, label: (..., W) int64  ->  spans (..., W, 3), lengths (...)
    """Extract the spans of documents of equal width without reading their number, which would synchronize."""
    width = prefix.shape[-1]
    begins, last = mark_spans(prefix, label, mode)
    slot = (begins.long().cumsum(-1) - 1).where(begins, width)  # all other tokens write to an extra slot
    rows = torch.stack([label, torch.arange(width, device=prefix.device).expand_as(last), last], -1)
    spans = rows.new_zeros(*prefix.shape[:-1], width + 1, 3).scatter(-2, slot[..., None].expand_as(rows), rows)
    return spans[..., :width, :], begins.sum(-1)


class Marked(NamedTuple):
    """The tokens of all documents, each document followed by an O, and their spans."""

    prefix: Tensor  # (T + D,)
    label: Tensor  # (T + D,)
    last: Tensor  # (T + D,) of the span that begins at the token, -1 for none
    first: Tensor  # (spans,) first tokens
    document: Tensor  # (spans,)
    start: Tensor  # (D,) first token of each document

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
        # ->  label, first, last (spans, 3), number of spans of each document (D,)
        start = self.start[self.document]
        rows = torch.stack([self.label[self.first], self.first - start, self.last[self.first] - start], -1)
        return rows, torch.bincount(self.document, minlength=len(self.start))

    def tag_errors(self, mode: str) -> "TagErrors":
        """Count the tags that do not fit the scheme."""
        begins, last = self.prefix[self.first], self.last[self.first]
        loose, lost = int(((begins == I) | (begins == E)).sum()), [0, 0, 0]  # every tag is lenient
        if mode != "lenient":
            lost = lost_tags(self.prefix, self.first, last, len(begins), mode).tolist()
        return TagErrors(lost[0], lost[1], lost[2], len(begins), loose)


class TagErrors(NamedTuple):
    """Numbers of tags and spans of some documents that do not fit a scheme."""

    tags: int = 0  # other than O
    lost: int = 0  # number of these in no span
    unknown: int = 0  # number of tags whose prefix is not in the scheme
    spans: int = 0
    loose: int = 0  # number of these that begin with I or E


def warn_about(errors: TagErrors, mode: str | None, name: str = "", max_fraction: float = 0.0) -> None:
    """Warn of prefixes that are not in the scheme, or if more than this fraction of tags is lost."""
    if errors.unknown or errors.lost > max_fraction * errors.tags:
        what, prefixes = "their mode", "of it"
        if mode is not None:
            what, prefixes = f"mode={mode!r}", f"of {', '.join(_SCHEMES[mode].prefixes)}"
        warnings.warn(
            f"{name}tags do not fit {what}: {errors.lost} of {errors.tags} tags other than O are left out"
            + f", some whose prefix is none {prefixes}" * (errors.unknown > 0),
            stacklevel=level_of_caller(),
        )


def warn_about_both(pred: TagErrors, ref: TagErrors, mode: str | None) -> None:
    """Warn of tag errors: models make errors, so half of the predicted tags may be lost, but no reference tag."""
    warn_about(pred, mode, "pred: ", 0.5)
    warn_about(ref, mode, "ref: ", 0.0)


def warn_about_swap(pred: TagErrors, ref: TagErrors) -> None:
    """Warn if only the reference has errors that are typical of models."""
    are_enough = min(pred.spans, ref.spans) >= MIN_SPANS
    if are_enough and pred.loose == 0 < ref.loose <= MAX_LOOSE * ref.spans:
        warnings.warn(
            f"ref: {ref.loose} of {ref.spans} spans begin by I, as errors of models do, but none of pred does; if they "
            "are swapped, as in seqeval, write ner_report(y_true=..., y_pred=...)",
            stacklevel=level_of_caller(),
        )
