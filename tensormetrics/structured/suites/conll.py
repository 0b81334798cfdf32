"""Readers of coreference: CoNLL-2011/2012 files, and JSON with lists of clusters."""

import io
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain
from os import PathLike
from typing import Any

from ...core.text.files import read_text
from ...core.text.joining import Item
from ...uncertainty.item_scores.records import read_records

Span = tuple[int, int]
NONE = ("-", "_", "*")  # fields without brackets
UNIVERSAL = re.compile(r"\d+([-.]\d+)?(\t[^\t]*){9}$")  # a token of CoNLL-U: its number and nine more columns
NAMES, WORDS = ("doc_key", "doc_id", "id", "name"), ("sentences", "tokens", "document")  # keys of JSON documents


def read_coref_file(path: str | PathLike) -> list[Item]:
    """Return the name and the clusters of each document of a file, and the words beside them.

    The file is as `read_conll_coref` takes it, or JSON: each line, or item of a list, is a document, an object with
    `"clusters"`. A mention is `[first, last]` or a text.
    """
    text = read_text(path)
    if text.lstrip()[:1] in ("{", "["):
        return _json_documents(text, path)
    try:
        documents = [*_conll_documents(io.StringIO(text, newline=None), -1)]
    except ValueError as error:
        raise ValueError(f"{path}, {error}") from error
    are_ids = len({document.name for document in documents}) == len(documents)
    return [Item(d.parts(), d.lines or [d.lineno], d.words, d.name if are_ids else None) for d in documents]


def _json_documents(text: str, path: str | PathLike) -> list[Item]:
    items = []
    for number, (record, location) in enumerate(read_records(path, text).located(), 1):
        if "clusters" not in record:
            raise ValueError(f"{location}: got {', '.join(map(repr, record))}, wanted a key 'clusters'")
        words: list[Any] = next((record[key] for key in WORDS if isinstance(record.get(key), list)), [])
        words = [*map(str, chain(*words) if words and isinstance(words[0], list) else words)]
        name = next((record[key] for key in NAMES if key in record), None)
        document = number if name is None else name, record["clusters"]
        items.append(Item(document, [number] * max(len(words), 1), words, name))
    return items


def read_conll_coref(lines: Iterable[str], column: int = -1) -> Iterator[tuple[str, list[list[Span]]]]:
    """Yield each document's name and its clusters of (first, last) token numbers, counted through the document.

    Args:
        lines: Lines of a file, documents enclosed in `#begin document` and `#end document`.
        column: Index of the column with brackets such as `(3`, `3)`, `(3)`, joined by `|`.

    Returns:
        An iterator of (name, clusters).

    Raises:
        ValueError: If a line is malformed, such as a bracket that is never closed, or the file is CoNLL-U, the format
            of CorefUD, in which mentions may be discontinuous and contain empty nodes.

    >>> lines = ["#begin document (a)", "Ann (0)", "saw -", "her (1", "car 1)", "she (0)", "#end document"]
    >>> list(read_conll_coref(lines))
    [('(a)', [[(0, 0), (4, 4)], [(2, 3)]])]
    """
    if isinstance(lines, str | bytes):
        raise TypeError(f"lines: got one {type(lines).__name__}, wanted lines; write text.splitlines()")
    return (document.parts() for document in _conll_documents(lines, column))


def _conll_documents(lines: Iterable[str], column: int) -> "Iterator[_Document]":
    document: _Document | None = None
    for lineno, line in enumerate(chain(lines, ["#begin document"]), 1):
        if not isinstance(line, str):
            raise TypeError(f"line {lineno}: got {line!r:.60}, wanted text; open files without 'b' in their mode")
        line = line.removeprefix("\ufeff") if lineno == 1 else line  # byte order mark of some editors
        if line.startswith("#begin document"):
            if document is not None:
                place = f"line {document.lineno}: the document {document.name!r}"
                raise ValueError(f"{place} has no end, wanted #end document")
            document = _Document(line.removeprefix("#begin document").strip(), lineno)
            continue
        ends = line.startswith("#end document")
        fields = [] if line.startswith("#") else line.split()
        if document is None:
            if line.startswith("# global.Entity") or UNIVERSAL.match(line):
                raise ValueError(
                    f"line {lineno}: got CoNLL-U, the format of CorefUD, wanted CoNLL-2012: brackets in one column, "
                    "between #begin document and #end document"
                )
            if ends or fields:
                raise ValueError(f"line {lineno}: got {line.strip()!r} outside of a document, wanted #begin document")
        elif ends:
            for cluster, starts in document.opened.items():
                if starts:
                    raise ValueError(f"line {starts[-1][1]}: bracket ({cluster} is never closed")
            yield document
            document = None
        elif fields:
            if not -len(fields) <= column < len(fields):
                raise ValueError(f"line {lineno}: got {len(fields)} columns, wanted column={column} among them")
            document.add_token(fields, column, lineno)


class _Document:
    """Document whose `#begin document` was read, with its clusters so far."""

    def __init__(self, name: str, lineno: int) -> None:
        self.name = name
        self.lineno = lineno
        self.lines: list[int] = []
        self.words: list[str] = []  # the fourth column of CoNLL-2012, or else the first
        self.clusters: dict[str, list[Span]] = defaultdict(list)
        self.opened: dict[str, list[tuple[int, int]]] = defaultdict(list)  # cluster -> (token, line) of open brackets

    def parts(self) -> tuple[str, list[list[Span]]]:
        return self.name, list(self.clusters.values())

    def add_token(self, fields: list[str], column: int, lineno: int) -> None:
        token = len(self.words)
        self.lines.append(lineno)
        self.words.append(fields[3 if len(fields) > 4 and fields[2].isdigit() else 0] if fields[1:] else "")
        for opening, cluster, closing in _brackets(fields[column], lineno):
            if opening:
                self.opened[cluster].append((token, lineno))
            if closing:
                if not self.opened[cluster]:
                    raise ValueError(f"line {lineno}: bracket {cluster}) was never opened")
                self.clusters[cluster].append((self.opened[cluster].pop()[0], token))


def _brackets(field: str, line: int) -> list[tuple[str, str, str]]:
    """Parse the opening, cluster and closing of each bracket."""
    if field in NONE:
        return []
    brackets = []
    for part in field.split("|"):
        match = re.fullmatch(r"(\(?)([^()]+)(\)?)", part)
        if match is None or not (match[1] or match[3]):
            raise ValueError(f"line {line}: got {field!r}, wanted '-' or brackets such as (3|4)")
        brackets.append((match[1], match[2], match[3]))
    return brackets
