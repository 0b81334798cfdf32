"""Labels in files: integers, or words, which are numbered."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..._files import file_suffix
from ...retrieval.sources.arrow import TABLES, read_column
from ...retrieval.sources.files import found_files
from ..option_types import BadInput
from .arrays import read_tensor, split_location
from .naming import naming
from .text import csv_rows, is_number, json_lines, open_text

INT64 = torch.iinfo(torch.int64)
KINDS = {int: "an integer of at most 64 bits", str: "a word"}  # of labels
Words = list[int] | list[str]


class Column(NamedTuple):
    """(N,) int64 labels, and if they are words these, sorted, which they number."""

    numbers: Tensor
    names: list[str] | None

    def at(self, rows: Tensor) -> "Column":
        return Column(self.numbers[rows], self.names)

    def given(self) -> Tensor | list[str]:
        """As the file has them."""
        return self.numbers if self.names is None else [self.names[number] for number in self.numbers.tolist()]


def read_labels(location: str) -> Column:
    columns = read_columns(
        location, wanted="one label per row: (N,); levels of labels, (N, L), are an option of retrieval", most=1
    )
    return columns[0]


def read_columns(location: str, wanted: str = "labels: (N, L)", most: int | None = None) -> list[Column]:
    """A column of labels for each level. Several files follow each other."""
    with naming():
        files = found_files(location)
    if len(files) == 1:
        return _columns_of(location, *files[0], wanted, most)
    parts = [_columns_of(f"{file}:{name}" if name else file, file, name, wanted, most) for file, name in files]
    if len({tuple(column.names is None for column in columns) for columns in parts}) > 1:
        raise BadInput(f"{location}: got columns of different kinds, wanted the same in each file")
    return [_in_turn(columns) for columns in zip(*parts, strict=True)]


def _in_turn(columns: Sequence[Column]) -> Column:
    """One column after the other; words are numbered anew."""
    if columns[0].names is None:
        return Column(torch.cat([column.numbers for column in columns]), None)
    names = sorted({word for column in columns for word in column.names or ()})
    number = {word: n for n, word in enumerate(names)}
    tables = ((torch.tensor([number[word] for word in column.names or ()]), column.numbers) for column in columns)
    return Column(torch.cat([table[numbers] for table, numbers in tables]), names)


def _columns_of(location: str, file: str, name: str | None, wanted: str, most: int | None) -> list[Column]:
    if Path(file).suffix in TABLES:
        with naming():
            numbers, words = read_column(file, name)
        column = Column(torch.from_numpy(np.array(numbers, dtype=np.int64)), words)
        return [column if words is None else _in_turn([column])]
    path, _ = split_location(location)
    if (kind := file_suffix(path)) in TEXT_LABELS:
        return [_numbered(path, words) for words in TEXT_LABELS[kind](path, most)]
    labels = read_tensor(location)
    if labels.is_floating_point():
        raise BadInput(f"{location}: got {labels.dtype}, wanted integer labels")
    if labels.dtype == torch.uint64 and (labels.view(torch.int64) < 0).any():
        raise BadInput(f"{location}: got a label above {INT64.max}, wanted {KINDS[int]}")
    columns = labels[:, None] if labels.ndim == 1 else labels
    if columns.ndim != 2 or columns.shape[1] > (most or columns.shape[1]):
        raise BadInput(f"{location}: got an array of shape {tuple(labels.shape)}, wanted {wanted}")
    return [Column(column.long(), None) for column in columns.unbind(1)]


def _numbered(path: Path, words: Words) -> Column:
    if not words:
        raise BadInput(f"{path}: got no label, wanted one per line")
    if isinstance(words[0], int):
        return Column(torch.tensor(words), None)
    names, numbers = np.unique(np.array(words), return_inverse=True)
    return Column(torch.from_numpy(numbers), names.tolist())


def _labels_of_lines(path: Path, most: int | None) -> list[Words]:
    """Words, unless all are numbers."""
    return [_whole(path, [(line, text.strip()) for line, text in enumerate(open_text(path), 1) if text.strip()])]


def _labels_of_table(path: Path, most: int | None) -> list[Words]:
    rows = list(csv_rows(path, None))
    width = len(rows[0][1]) if rows else 1
    for line, row in rows:
        if len(row) > (most or len(row)):
            raise BadInput(f"{path}, line {line}: got {len(row)} columns, wanted one label")
        if len(row) != width:
            raise BadInput(f"{path}, line {line}: got {len(row)} columns, wanted {width} as above")
    columns = [[(line, row[i]) for line, row in rows] for i in range(width)]
    numbers = [[is_number(cell) for _, cell in column] for column in columns]
    header = len(rows) > 1 and all(not first and all(rest) for first, *rest in numbers)
    return [_whole(path, column[header:]) for column in columns]


def _whole(path: Path, cells: list[tuple[int, str]]) -> Words:
    if empty := [line for line, cell in cells if not cell]:
        raise BadInput(f"{path}, line {empty[0]}: got an empty cell, wanted a label")
    if not all(is_number(cell) for _, cell in cells):
        return [cell for _, cell in cells]
    labels = []
    for line, cell in cells:
        number = float(cell)
        if not number.is_integer() or not INT64.min <= number < INT64.max:
            raise BadInput(f"{path}, line {line}: got {cell[:60]!r}, wanted {' or '.join(KINDS.values())}")
        labels.append(int(cell) if cell.lstrip("+-").isdecimal() else int(number))
    return labels


def _labels_of_json(path: Path, most: int | None) -> list[Words]:
    labels: list[Any] = []
    for line, label in json_lines(path):
        kinds = {type(labels[0]): KINDS[type(labels[0])]} if labels else KINDS
        if type(label) not in kinds or (type(label) is int and not INT64.min <= label <= INT64.max):
            raise BadInput(f"{path}, line {line}: got {json.dumps(label)[:60]}, wanted {' or '.join(kinds.values())}")
        labels.append(label)
    return [labels]


TEXT_LABELS = {".txt": _labels_of_lines, ".csv": _labels_of_table, ".jsonl": _labels_of_json}
