"""Tables of text, as spreadsheets and data frames write them: rows of cells, and the numbers in them."""

import csv
import io
import os
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

DIRECTIVE = re.compile('("?)sep=(.)\\1', re.IGNORECASE)  # first line of some spreadsheets
SEPARATED = re.compile(r"[+-]?[0-9]*([.,][0-9]+)+")
GROUPS = re.compile(r"[+-]?[1-9][0-9]{0,2}([.,])[0-9]{3}(\1[0-9]{3})*")  # perhaps of thousands
GAP = "[ \u00a0\u202f'\u2019]"
GAPPED = re.compile(rf"[+-]?[1-9][0-9]{{0,2}}({GAP})[0-9]{{3}}(\1[0-9]{{3}})*([.,][0-9]+)?")


Row = tuple[int, tuple[str, ...]]  # line number, cells; garbage collection skips tuples of text


def read_cells(text: str, path: str | os.PathLike, delimiter: str | None = None) -> tuple[str, Iterator[Row]]:
    """Return the delimiter of a table, that of its first line: a tab, semicolon or comma, and its rows.

    Cells are stripped of spaces; lines without a cell are left out. A ValueError names the line, also of other length.
    """
    lines = io.StringIO(text, newline="")  # splitlines() would split cells, too
    directive = DIRECTIVE.fullmatch(lines.readline().rstrip("\r\n"))
    start = lines.tell() if directive else 0
    if delimiter is None:
        lines.seek(start)
        delimiter = directive[2] if directive else _delimiter(next((line for line in lines if line.strip()), ""))
    lines.seek(start)
    return delimiter, _rows(csv.reader(lines, delimiter=delimiter, strict=True), path, 1 if directive else 0)


def _rows(reader: Any, path: str | os.PathLike, skipped: int) -> Iterator[Row]:
    width = 0
    try:
        for row in filter(None, reader):
            line, width = skipped + reader.line_num, width or len(row)
            if len(row) != width:
                raise ValueError(f"{path}, line {line}: got {len(row)} columns, wanted {width} as above")
            yield line, (*map(str.strip, row),)
    except csv.Error as error:
        raise ValueError(f"{path}, line {skipped + reader.line_num}: {error}") from None


def blocks_of(text: str) -> list[list[tuple[int, str]]]:
    """Return the numbered lines of each block of a text; blank lines separate blocks."""
    numbered = enumerate(io.StringIO(text, newline=None), 1)
    return [[*lines] for is_blank, lines in groupby(numbered, lambda line: line[1].isspace()) if not is_blank]


def _delimiter(line: str) -> str:
    def separates(mark: str) -> bool:
        try:
            return len(next(csv.reader([line], delimiter=mark), ())) > 1
        except csv.Error:  # the line is one cell, which is too long for one
            return False

    return next(filter(separates, "\t;,"), ",")


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell  # which float() leaves out


def is_frame(data: Any) -> bool:
    """Return whether an object has the methods of a pandas or polars DataFrame."""
    return hasattr(data, "columns") and hasattr(data, "to_dict") and hasattr(data, "__getitem__")


def with_points(cells: Sequence[Any], delimiter: str, location: Callable[[int], str]) -> list[Any]:
    """Write decimal points and no groups of thousands in numbers, where the cells show which sign is which.

    Args:
        cells: Texts of numbers; others are kept.
        delimiter: What separates the cells; a comma is no decimal comma.
        location: Place of a cell in the file by its index, for messages.
    """
    texts = [cell if isinstance(cell, str) else "" for cell in cells]
    if delimiter == "," and not re.search(rf"{GAP}|,|\.[^\n]*\.", "\n".join(texts)):
        return [*cells]  # at most a point in each
    texts = [re.sub(GAP, "", text) if GAPPED.fullmatch(text) else text for text in texts]  # of France, Switzerland
    separated = dict.fromkeys(text for text in texts if SEPARATED.fullmatch(text))
    decimal = {"."} if delimiter == "," else set()
    for cell in separated:
        groups = GROUPS.fullmatch(cell)
        last = cell[max(cell.rfind("."), cell.rfind(","))]
        if not groups:
            decimal.add(last)
        elif cell.count(last) > 1:
            decimal.add(",."[last == ","])
    if separated and len(decimal) != 1:
        cell = next(iter(separated))
        raise ValueError(f"{location(texts.index(cell))}: got {cell!r}, wanted one sign for decimals, as 1090.0 or 1,5")
    point = "".join(decimal) or "."
    group = ",."[point == ","]
    texts = [text.replace(group, "").replace(point, ".") if text in separated else text for text in texts]
    return [text if isinstance(cell, str) else cell for cell, text in zip(cells, texts, strict=True)]
