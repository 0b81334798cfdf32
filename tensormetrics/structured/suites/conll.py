"""Reader of coreference in CoNLL-2011/2012 files."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

Span = tuple[int, int]
NONE = ("-", "_", "*")  # fields without brackets
UNIVERSAL = re.compile(r"\d+([-.]\d+)?(\t[^\t]*){9}$")  # a token of CoNLL-U: its number and nine more columns


def read_conll_coref(lines: Iterable[str], column: int = -1) -> Iterator[tuple[str, list[list[Span]]]]:
    """Yield each document's name and its clusters of (first, last) token numbers, counted through the document.

    `column` holds brackets such as `(3`, `3)`, `(3)`, joined by `|`. Documents are enclosed in `#begin document` and
    `#end document`. Malformed input, such as a bracket that is never closed, is a ValueError with its line; so is
    CoNLL-U, the format of CorefUD, in which mentions may be discontinuous and contain empty nodes.

    >>> lines = ["#begin document (a)", "Ann (0)", "saw -", "her (1", "car 1)", "she (0)", "#end document"]
    >>> list(read_conll_coref(lines))
    [('(a)', [[(0, 0), (4, 4)], [(2, 3)]])]
    """
    if isinstance(lines, str | bytes):
        raise TypeError(f"lines: got one {type(lines).__name__}, wanted lines; write text.splitlines()")
    document: _Document | None = None
    for lineno, line in enumerate(lines, 1):
        if not isinstance(line, str):
            raise TypeError(f"line {lineno}: got {line!r:.60}, wanted text; open files without 'b' in their mode")
        line = line.removeprefix("\ufeff") if lineno == 1 else line  # byte order mark of some editors
        if line.startswith("#begin document"):
            _check_ended(document)
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
            document.check_closed()
            yield document.name, list(document.clusters.values())
            document = None
        elif fields:
            if not -len(fields) <= column < len(fields):
                raise ValueError(f"line {lineno}: got {len(fields)} columns, wanted column={column} among them")
            document.add_token(fields[column], lineno)
    _check_ended(document)


class _Document:
    """Document whose `#begin document` was read, with its clusters so far."""

    def __init__(self, name: str, lineno: int) -> None:
        self.name = name
        self.lineno = lineno
        self.num_tokens = 0
        self.clusters: dict[str, list[Span]] = defaultdict(list)
        self.opened: dict[str, list[tuple[int, int]]] = defaultdict(list)  # cluster -> (token, line) of open brackets

    def add_token(self, field: str, lineno: int) -> None:
        token = self.num_tokens
        for opening, cluster, closing in _brackets(field, lineno):
            if opening:
                self.opened[cluster].append((token, lineno))
            if closing:
                if not self.opened[cluster]:
                    raise ValueError(f"line {lineno}: bracket {cluster}) was never opened")
                self.clusters[cluster].append((self.opened[cluster].pop()[0], token))
        self.num_tokens += 1

    def check_closed(self) -> None:
        for cluster, starts in self.opened.items():
            if starts:
                raise ValueError(f"line {starts[-1][1]}: bracket ({cluster} is never closed")


def _check_ended(document: _Document | None) -> None:
    if document is not None:
        raise ValueError(f"line {document.lineno}: the document {document.name!r} has no end, wanted #end document")


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
