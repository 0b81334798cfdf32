"""Confusion matrices from files, labels and pairs, and back. Rows are the truth, columns the prediction."""

import csv
import io
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ... import _checks
from ..._files import delimiter_of, parsing, read_bytes, text_of
from .dirichlet import LARGEST
from .errors import ConfMatIOError, ConfMatIOWarning

SEPARATED = re.compile(r"[+-]?[0-9]+([.,][0-9]+)+")
GROUPS = re.compile(r"[+-]?[1-9][0-9]{0,2}([.,])[0-9]{3}(\1[0-9]{3})*")  # perhaps of thousands
GAP = "[ \u00a0\u202f'\u2019]"
GAPPED = re.compile(rf"[+-]?[1-9][0-9]{{0,2}}({GAP})[0-9]{{3}}(\1[0-9]{{3}})*([.,][0-9]+)?")
COUNT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def validate_confusion_matrix(confusion_matrix: Any, *, allow_empty_rows: bool = False) -> Tensor:
    """The matrix as float64, after all checks: square, C >= 2, finite counts >= 0, no class without items.

    Shapes: confusion_matrix: (C, C) -> (C, C).

    ConfMatIOError says what is wrong, also of rows that add up to more than 1e37, of which float32 could not draw. A
    class that is never predicted: ConfMatIOWarning.

    >>> validate_confusion_matrix([[2, 1], [0, 1]])
    tensor([[2., 1.],
            [0., 1.]], dtype=torch.float64)
    """
    try:
        given = confusion_matrix if isinstance(confusion_matrix, Tensor) else np.array(confusion_matrix)
        matrix = _checks.as_tensor(given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfMatIOError(f"confusion_matrix: wanted rows of numbers, all of one length; {error}") from None
    if matrix.is_complex():
        raise ConfMatIOError("confusion_matrix: got complex numbers, wanted counts")
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or len(matrix) < 2:
        raise ConfMatIOError(f"confusion_matrix: got shape {tuple(matrix.shape)}, wanted (C, C) with C >= 2")
    matrix = matrix.double()
    if bad := torch.nonzero(~(matrix.isfinite() & (matrix >= 0))).tolist():
        i, j = bad[0]
        raise ConfMatIOError(f"confusion_matrix: got {float(matrix[i, j])} at [{i}, {j}], wanted finite counts >= 0")
    if large := torch.nonzero(matrix.sum(1) > LARGEST).flatten().tolist():
        i, most = large[0], float(matrix[large[0]].max())
        raise ConfMatIOError(
            f"confusion_matrix: got {most:g} in row {i}, wanted rows that add up to at most {LARGEST:g}"
        )
    if not allow_empty_rows:
        refuse_empty_rows(matrix)
    if empty := torch.nonzero(matrix.sum(0) == 0).flatten().tolist():
        warnings.warn(
            f"confusion_matrix: class {empty[0]} is never predicted, so its precision is undefined",
            ConfMatIOWarning,
            stacklevel=2,
        )
    return matrix


def refuse_empty_rows(matrix: Tensor) -> None:  # (C, C)
    if empty := torch.nonzero(matrix.sum(1) == 0).flatten().tolist():
        raise ConfMatIOError(
            f"confusion_matrix: row {empty[0]} is empty, so nothing is known of that class; "
            "leave the class out, or give a positive confusion_prior"
        )


def load_csv(
    location: str | Path, *, encoding: str | None = None, delimiter: str | None = None, with_labels: bool = False
) -> Tensor | tuple[Tensor, list[str] | None]:
    """A confusion matrix from a file of counts, as pandas and spreadsheets write it: rows are the truth.

    Shapes: -> (C, C).

    Class names may stand in a first row, in a first column, or in both; these then have the same order. Numbers may be
    names where both stand, or from 0 on. With `with_labels` the answer is (matrix, names), names being None where there
    are none. `delimiter=None` takes semicolons, tabs or commas, whichever separate the cells of the first line, or what
    a line such as `sep=;` says. Decimal commas and groups of thousands are read where the file shows which is which.
    `encoding=None` takes UTF-8, and UTF-16 that says so. ConfMatIOError names the line that is wrong, or says that the
    last row and column are totals. FileNotFoundError: there is no such file.

    >>> from pathlib import Path
    >>> _ = Path("matrix.csv").write_text(chr(10).join([";cat;dog", "cat;90,5;6", "dog;5;88"]))
    >>> load_csv("matrix.csv", with_labels=True)
    (tensor([[90.5000,  6.0000],
            [ 5.0000, 88.0000]], dtype=torch.float64), ['cat', 'dog'])
    """
    if delimiter is not None and (not isinstance(delimiter, str) or len(delimiter) != 1):
        raise ValueError(f"delimiter: got {delimiter!r}, wanted None or one character")
    rows = _csv_rows(location, encoding, delimiter)
    if not rows:
        raise ConfMatIOError(f"{location}: the file is empty, wanted rows of counts")
    height, width = len(rows), len(rows[0][1])
    for line, cells in rows:
        if len(cells) != width:
            raise ConfMatIOError(f"{location}, line {line}: got {len(cells)} columns, wanted {width} as above")
    both = height == width and not all(map(_is_count, rows[0][1]))  # a corner, too
    header = both or (height == width + 1 and _are_names(rows[0][1]))
    index = both or (height + 1 == width and _are_names([cells[0] for _, cells in rows]))
    if not header and not index and height != width:
        wanted = "a square, with at most one row and one column of names"
        raise ConfMatIOError(f"{location}: got {height} rows of {width} columns, wanted {wanted}")
    columns = rows[0][1][index:] if header else None
    names = [cells[0] for _, cells in rows[header:]] if index else columns
    if columns is not None and names != columns:
        wanted = "the same names"
        strange = [cell for cell in rows[0][1] if not _is_count(cell)]
        if names is not None and all(map(_is_count, names)) and len(strange) == 1:  # perhaps these are no names
            wanted += f", or a count instead of {strange[0]!r}"
        raise ConfMatIOError(f"{location}: rows are called {names}, columns {columns}, wanted {wanted}")
    if names is not None and (len(set(names)) < len(names) or "" in names):
        raise ConfMatIOError(f"{location}: got classes called {names}, wanted distinct names")
    for line, cells in rows[header:]:
        if wrong := [cell for cell in cells[index:] if not _is_count(cell)]:
            raise ConfMatIOError(f"{location}, line {line}: got {wrong[0]!r}, wanted a count")
    counts = [[float(cell) for cell in cells[index:]] for _, cells in rows[header:]]
    with parsing(location, "a confusion matrix", ConfMatIOError):
        matrix = validate_confusion_matrix(counts, allow_empty_rows=True)
    inner = matrix[:-1, :-1]
    if len(inner) > 1 and matrix.sum() > 0 and torch.equal(matrix[:-1, -1], inner.sum(1)):
        if torch.equal(matrix[-1], matrix[:-1].sum(0)):
            raise ConfMatIOError(f"{location}: the last row and column are the totals of the others; leave them out")
    return (matrix, names) if with_labels else matrix


def _csv_rows(location: str | Path, encoding: str | None, delimiter: str | None) -> list[tuple[int, list[str]]]:
    """(line number, cells) of the rows that are not blank."""
    data = read_bytes(location)
    try:
        text = data.decode(encoding) if encoding else text_of(data, location)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        got = f"{location}, line {line}: got the byte {data[error.start]:#04x}"
        raise ConfMatIOError(f"{got}, which is no {encoding}; name the encoding of the file") from None
    except ValueError as error:
        raise ConfMatIOError(str(error)) from None
    lines = list(io.StringIO(text, newline=""))  # splitlines() would split cells, too
    if lines and (said := re.fullmatch('("?)sep=(.)\\1', lines[0].rstrip("\r\n"), re.IGNORECASE)):  # for spreadsheets
        delimiter, lines[0] = delimiter or said[2], ""
    delimiter = delimiter or delimiter_of(lines)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    try:
        rows = [(reader.line_num, [_without_gaps(cell.strip()) for cell in cells]) for cells in reader]
    except csv.Error as error:
        raise ConfMatIOError(f"{location}, line {reader.line_num}: {error}") from None
    rows = [(line, cells) for line, cells in rows if any(cells)]
    while rows and len(rows[0][1]) > 1 and all(cells[-1:] == [""] for _, cells in rows):
        rows = [(line, cells[:-1]) for line, cells in rows]  # columns that a spreadsheet only thinks are in use
    return _with_points(location, rows, delimiter)


def _without_gaps(cell: str) -> str:
    """Spaces and apostrophes between groups of thousands, as in French and Swiss tables, left out."""
    return re.sub(GAP, "", cell) if GAPPED.fullmatch(cell) else cell


def _with_points(
    location: str | Path, rows: list[tuple[int, list[str]]], delimiter: str
) -> list[tuple[int, list[str]]]:
    """The rows with decimal points and without groups of thousands, where cells show which sign is which."""
    found = [(line, cell) for line, cells in rows for cell in cells if SEPARATED.fullmatch(cell)]
    decimal = {"."} if delimiter == "," else set()
    for _, cell in found:
        groups = GROUPS.fullmatch(cell)
        last = cell[max(cell.rfind("."), cell.rfind(","))]
        if not groups:
            decimal.add(last)
        elif cell.count(last) > 1:
            decimal.add(",."[last == ","])
    if found and len(decimal) != 1:
        line, cell = found[0]
        raise ConfMatIOError(f"{location}, line {line}: got {cell!r}, wanted one sign for decimals, as 1090.0 or 1,5")
    point = "".join(decimal) or "."
    group = ",."[point == ","]

    def plain(cell: str) -> str:
        return cell.replace(group, "").replace(point, ".") if SEPARATED.fullmatch(cell) else cell

    return [(line, list(map(plain, cells))) for line, cells in rows]


def _are_names(cells: list[str]) -> bool:
    """Words, or the numbers from 0 that pandas gives to what has no names. Other numbers may be counts."""
    return not all(map(_is_count, cells)) or cells == [str(k) for k in range(len(cells))]


def _is_count(cell: str) -> bool:
    """Python's float() takes "1_0", Arabic digits and words too."""
    return COUNT.fullmatch(cell) is not None


def compute_confusion_matrix(
    y_true: Any,
    y_pred: Any,
    *,
    labels: Sequence | None = None,
    num_classes: int | None = None,
) -> Tensor:
    """Counts of the pairs of labels, which may be numbers or strings.

    Shapes: y_true: (N,); y_pred: (N,) -> (C, C) int64.

    The classes are `labels` in this order, or 0..num_classes-1, or all labels that occur, sorted.

    >>> compute_confusion_matrix(["cat", "dog", "dog"], ["cat", "cat", "dog"])  # rows are the truth
    tensor([[1, 0],
            [1, 1]])
    """
    cells, found = label_cells(y_true, y_pred, labels=labels, num_classes=num_classes)
    C = len(found)
    return torch.bincount(cells, minlength=C * C).view(C, C)


def label_cells(
    y_true: Any,  # (N,)
    y_pred: Any,  # (N,)
    *,
    labels: Sequence | None = None,
    num_classes: int | None = None,
) -> tuple[Tensor, np.ndarray]:  # (N,) int64, (C,)
    """The cell of the confusion matrix that each item belongs to, truth * C + prediction; and the C classes."""
    true, pred = _labels("y_true", y_true), _labels("y_pred", y_pred)
    try:
        return _places(true, pred, labels, num_classes)
    except TypeError:  # of a comparison
        kinds = sorted(
            {type(label).__name__ for given in (true, pred, labels or ()) for label in np.asarray(given).tolist()}
        )
        raise ValueError(f"y_true, y_pred, labels: got {' and '.join(kinds)}, wanted words or numbers alone") from None


def _places(
    true: np.ndarray, pred: np.ndarray, labels: Sequence | None, num_classes: int | None
) -> tuple[Tensor, np.ndarray]:
    if len(true) != len(pred):
        raise ValueError(f"lengths differ: y_true has {len(true)}, y_pred has {len(pred)}")
    if labels is not None and num_classes is not None:
        raise ValueError("labels, num_classes: got both, wanted one")
    if num_classes is not None:
        labels = np.arange(_checks.integer_at_least("num_classes", num_classes, 2))
    if labels is None:
        labels = np.union1d(true, pred)
        labels = labels[labels == labels]  # nan is none
    labels = _labels("labels", labels)
    C, order = len(labels), np.argsort(labels, kind="stable")
    if len(np.unique(labels)) != C:
        raise ValueError(f"labels: got {labels.tolist()}, wanted distinct ones")
    places = []
    for name, given in ("y_true", true), ("y_pred", pred):
        place = np.searchsorted(labels, given, sorter=order).clip(max=max(C - 1, 0)) if C else np.zeros(0, int)
        place = order[place] if C else place
        if len(unknown := given[labels[place] != given] if C else given):
            raise ValueError(f"{name}: got {unknown[0].item()!r}, which is none of the labels {labels.tolist()}")
        places.append(place)
    return torch.from_numpy(places[0] * C + places[1]), labels


def confusion_matrix_to_pred_cond(confusion_matrix: Any, *, pred_first: bool = True) -> Tensor:
    """One pair (prediction, condition) for each count, or (condition, prediction) with `pred_first=False`.

    Shapes: confusion_matrix: (C, C) -> (N, 2).

    >>> confusion_matrix_to_pred_cond([[2, 1], [0, 1]])
    tensor([[0, 0],
            [0, 0],
            [1, 0],
            [1, 1]])
    """
    matrix = validate_confusion_matrix(confusion_matrix, allow_empty_rows=True)
    counts = matrix.long()
    if (counts != matrix).any():
        raise ValueError("confusion_matrix: got fractional counts, which are no pairs; round them first")
    C = len(counts)
    cell = torch.repeat_interleave(torch.arange(C * C, device=counts.device), counts.flatten())
    pairs = torch.stack([cell // C, cell % C], -1)
    return pairs.flip(-1) if pred_first else pairs


def pred_cond_to_confusion_matrix(
    pairs: Any,
    *,
    pred_first: bool = True,
    num_classes: int | None = None,
) -> Tensor:
    """The inverse of `confusion_matrix_to_pred_cond`; C is the greatest label + 1 if `num_classes` is not given.

    Shapes: pairs: (N, 2) -> (C, C) int64.

    >>> pred_cond_to_confusion_matrix([[0, 0], [1, 0], [1, 1]])
    tensor([[1, 1],
            [0, 1]])
    """
    pairs = _checks.as_tensor(pairs)
    _checks.shape("pairs", pairs, "N", 2)
    _checks.integral("pairs", pairs)
    if num_classes is None:
        num_classes = max(2, int(pairs.max()) + 1) if len(pairs) else 2
    first, second = pairs.cpu().unbind(-1)
    true, pred = (second, first) if pred_first else (first, second)
    return compute_confusion_matrix(true, pred, num_classes=num_classes)


def checked_labels(labels: Any, num_classes: int) -> tuple[str, ...] | None:
    """The names of the classes as text, or None. ValueError unless there is one for each."""
    if labels is None:
        return None
    names = tuple(map(str, _labels("labels", labels).tolist()))
    if isinstance(labels, str) or len(names) != num_classes or len(set(names)) != num_classes:
        raise ValueError(f"labels: got {labels!r}, wanted {num_classes} distinct names")
    return names


def _labels(name: str, values: Any) -> np.ndarray:  # (N,)
    try:
        array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    except ValueError:
        raise ValueError(f"{name}: got nested lists, wanted a one-dimensional list of labels") from None
    if array.ndim != 1:
        raise ValueError(f"{name}: got shape {array.shape}, wanted a one-dimensional list of labels")
    return array
