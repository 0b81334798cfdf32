"""Readers of labels: integers, or words, which are encoded as integers."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...core.text.files import file_suffix
from ...core.text.tables import is_number
from ...retrieval.sources.arrow import TABLES, read_column
from ...retrieval.sources.files import list_files
from ..option_types import BadInput
from .arrays import read_tensor, split_location
from .text import json_lines, open_text, rows_of

INT64 = torch.iinfo(torch.int64)
KINDS = {int: "an integer of at most 64 bits", str: "a word"}  # of labels
Words = list[int] | list[str]


class Column(NamedTuple):
    """Labels as (N,) int64 codes: the labels themselves, or indices of the sorted `names` if they are words."""

    codes: Tensor
    names: list[str] | None

    def select(self, rows: Tensor) -> "Column":
        return Column(self.codes[rows], self.names)

    def values(self) -> Tensor | list[str]:
        """Return the labels as in the file."""
        return self.codes if self.names is None else [self.names[code] for code in self.codes.tolist()]


def read_labels(location: str) -> Column:
    expected = "one label per row: (N,); levels of labels, (N, L), are an option of retrieval"
    return read_columns(location, expected, max_columns=1)[0]


def read_columns(location: str, expected: str = "labels: (N, L)", max_columns: int | None = None) -> list[Column]:
    """Read a column of labels for each level; several files are concatenated."""
    files = list_files(location)
    if len(files) == 1:
        return _columns_of(location, *files[0], expected, max_columns)
    parts = [_columns_of(f"{file}:{name}" if name else file, file, name, expected, max_columns) for file, name in files]
    if len({tuple(column.names is None for column in columns) for columns in parts}) > 1:
        raise BadInput(f"{location}: got columns of different kinds, wanted the same in each file")
    return [concatenated(columns) for columns in zip(*parts, strict=True)]


def concatenated(columns: Sequence[Column]) -> Column:
    """Concatenate columns; words are encoded again."""
    if columns[0].names is None:
        return Column(torch.cat([column.codes for column in columns]), None)
    names = sorted({word for column in columns for word in column.names or ()})
    code = {word: n for n, word in enumerate(names)}
    tables = ((torch.tensor([code[word] for word in column.names or ()]), column.codes) for column in columns)
    return Column(torch.cat([table[codes] for table, codes in tables]), names)


def _columns_of(location: str, file: str, name: str | None, expected: str, max_columns: int | None) -> list[Column]:
    if Path(file).suffix in TABLES:
        codes, words = read_column(file, name)
        column = Column(torch.from_numpy(np.array(codes, dtype=np.int64)), words)
        return [column if words is None else concatenated([column])]
    path, _ = split_location(location)
    if (kind := file_suffix(path)) in TEXT_LABELS:
        return [_numbered(path, words) for words in TEXT_LABELS[kind](path, max_columns)]
    labels = read_tensor(location)
    if labels.is_floating_point():
        raise BadInput(f"{location}: got {labels.dtype}, wanted integer labels")
    if labels.dtype == torch.uint64 and (labels.view(torch.int64) < 0).any():
        raise BadInput(f"{location}: got a label above {INT64.max}, wanted {KINDS[int]}")
    columns = labels[:, None] if labels.ndim == 1 else labels
    if columns.ndim != 2 or columns.shape[1] > (max_columns or columns.shape[1]):
        raise BadInput(f"{location}: got an array of shape {tuple(labels.shape)}, wanted {expected}")
    return [Column(column.long(), None) for column in columns.unbind(1)]


def _numbered(path: Path, words: Words) -> Column:
    if not words:
        raise BadInput(f"{path}: got no label, wanted one per line")
    if isinstance(words[0], int):
        return Column(torch.tensor(words), None)
    names, codes = np.unique(np.array(words), return_inverse=True)
    return Column(torch.from_numpy(codes), names.tolist())


def _labels_of_lines(path: Path, max_columns: int | None) -> list[Words]:
    """Read one label per line: words, unless all are integers."""
    return [_whole(path, [(line, text.strip()) for line, text in enumerate(open_text(path), 1) if text.strip()])]


def _labels_of_table(path: Path, max_columns: int | None) -> list[Words]:
    rows = rows_of(path)
    width = len(rows[0][1]) if rows else 1
    if rows and len(rows[0][1]) > (max_columns or len(rows[0][1])):
        raise BadInput(f"{path}, line {rows[0][0]}: got {len(rows[0][1])} columns, wanted one label")
    columns = [[(line, row[i]) for line, row in rows] for i in range(width)]
    are_numbers = [[is_number(cell) for _, cell in column] for column in columns]
    header = len(rows) > 1 and all(not first and all(rest) for first, *rest in are_numbers)
    return [_whole(path, column[header:]) for column in columns]


def _whole(path: Path, cells: list[tuple[int, str]]) -> Words:
    if empty := [line for line, cell in cells if not cell]:
        raise BadInput(f"{path}, line {empty[0]}: got an empty cell, wanted a label")
    if not all(is_number(cell) for _, cell in cells):
        return [cell for _, cell in cells]
    labels = []
    for line, cell in cells:
        value = float(cell)
        if not value.is_integer() or not INT64.min <= value < INT64.max:
            raise BadInput(f"{path}, line {line}: got {cell[:60]!r}, wanted {' or '.join(KINDS.values())}")
        labels.append(int(cell) if cell.lstrip("+-").isdecimal() else int(value))
    return labels


def _labels_of_json(path: Path, max_columns: int | None) -> list[Words]:
    labels: list[Any] = []
    for line, label in json_lines(path):
        kinds = {type(labels[0]): KINDS[type(labels[0])]} if labels else KINDS
        if type(label) not in kinds or (type(label) is int and not INT64.min <= label <= INT64.max):
            raise BadInput(f"{path}, line {line}: got {json.dumps(label)[:60]}, wanted {' or '.join(kinds.values())}")
        labels.append(label)
    return [labels]


TEXT_LABELS = {".txt": _labels_of_lines, ".csv": _labels_of_table, ".jsonl": _labels_of_json}
