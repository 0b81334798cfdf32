"""Confusion matrices from CSV files, as pandas and spreadsheets write them."""

import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from ...core.text.files import parsing, read_bytes, text_of
from ...core.text.tables import Row, read_cells, with_points
from .confusion_matrix import validate_confusion_matrix
from .errors import ConfMatIOError

COUNT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def load_csv(
    location: str | Path, *, encoding: str | None = None, delimiter: str | None = None, with_labels: bool = False
) -> Tensor | tuple[Tensor, list[str] | None]:
    """Read a confusion matrix from a CSV file, as pandas and spreadsheets write it: rows are the truth.

    Class names may be in the first row, in the first column, or in both; these then have the same order. Numbers may be
    names if both have them, or from 0 on. Decimal commas and groups of thousands are read if the file is unambiguous.

    Args:
        location: Path of the file.
        encoding: By default UTF-8, and UTF-16 with a byte order mark.
        delimiter: By default semicolons, tabs or commas, whichever separate the cells of the first line, or the
            delimiter of a line such as `sep=;`.
        with_labels: Whether the names of the classes are returned too.

    Returns:
        The matrix (C, C), or (matrix, names), where names is None if the file has none.

    Raises:
        ConfMatIOError: If a line is wrong, which it names, or the last row and column are totals; it is a ValueError.
        FileNotFoundError: If the file does not exist.

    >>> from pathlib import Path
    >>> _ = Path("matrix.csv").write_text(chr(10).join([";cat;dog", "cat;90,5;6", "dog;5;88"]))
    >>> load_csv("matrix.csv", with_labels=True)
    (tensor([[90.5000,  6.0000],
            [ 5.0000, 88.0000]], dtype=torch.float64), ['cat', 'dog'])
    """
    if delimiter is not None and (not isinstance(delimiter, str) or len(delimiter) != 1):
        raise ValueError(f"delimiter: got {delimiter!r}, wanted None or one character")
    rows = _csv_rows(location, encoding, delimiter)
    height, width = len(rows), len(rows[0][1])
    has_both = height == width and not all(map(_is_count, rows[0][1]))  # names in the first row and column
    has_header = has_both or (height == width + 1 and _are_names(rows[0][1]))
    has_index = has_both or (height + 1 == width and _are_names([cells[0] for _, cells in rows]))
    if not has_header and not has_index and height != width:
        expected = "a square, with at most one row and one column of names"
        raise ConfMatIOError(f"{location}: got {height} rows of {width} columns, wanted {expected}")
    columns = [*rows[0][1][has_index:]] if has_header else None
    names = [cells[0] for _, cells in rows[has_header:]] if has_index else columns
    if names is not None and columns is not None and names != columns:
        expected = "the same names"
        non_counts = [cell for cell in rows[0][1] if not _is_count(cell)]
        if all(map(_is_count, names)) and len(non_counts) == 1:  # perhaps these are no names
            expected += f", or a count instead of {non_counts[0]!r}"
        raise ConfMatIOError(f"{location}: rows are called {names}, columns {columns}, wanted {expected}")
    if names is not None and (len(set(names)) < len(names) or "" in names):
        raise ConfMatIOError(f"{location}: got classes called {names}, wanted distinct names")
    for line, cells in rows[has_header:]:
        if wrong := [cell for cell in cells[has_index:] if not _is_count(cell)]:
            raise ConfMatIOError(f"{location}, line {line}: got {wrong[0]!r}, wanted a count")
    counts = [[*map(float, cells[has_index:])] for _, cells in rows[has_header:]]
    with parsing(location, "a confusion matrix", ConfMatIOError):
        matrix = validate_confusion_matrix(counts, allow_empty_rows=True)
    inner = matrix[:-1, :-1]
    if len(inner) > 1 and matrix.sum() > 0 and torch.equal(matrix[:-1, -1], inner.sum(1)):
        if torch.equal(matrix[-1], matrix[:-1].sum(0)):
            raise ConfMatIOError(f"{location}: the last row and column are the totals of the others; leave them out")
    return (matrix, names) if with_labels else matrix


def _csv_rows(location: str | Path, encoding: str | None, delimiter: str | None) -> list[Row]:
    """Read the rows that are not blank."""
    data = read_bytes(location)
    try:
        delimiter, table = read_cells(text_of(data, location, encoding), location, delimiter)
        rows = [(line, row) for line, row in table if any(row)]
        while rows and len(rows[0][1]) > 1 and all(row[-1] == "" for _, row in rows):
            rows = [(line, row[:-1]) for line, row in rows]  # columns that a spreadsheet only thinks are in use
        lines = [line for line, row in rows for _ in row]
        cells = [cell for _, row in rows for cell in row]
        numbers = iter(with_points(cells, delimiter, lambda i: f"{location}, line {lines[i]}"))
    except ValueError as error:
        raise ConfMatIOError(str(error)) from None
    if not rows:
        raise ConfMatIOError(f"{location}: the file is empty, wanted rows of counts")
    return [(line, (*islice(numbers, len(row)),)) for line, row in rows]


def _are_names(cells: Sequence[str]) -> bool:
    """Return whether cells are text, or the numbers from 0 that pandas writes for names; others may be counts."""
    return not all(map(_is_count, cells)) or [*cells] == [str(k) for k in range(len(cells))]


def _is_count(cell: str) -> bool:
    """Return whether a cell is a number; Python's float() takes "1_0", Arabic digits and "nan" too."""
    return COUNT.fullmatch(cell) is not None
