"""Graded relevance in files: a query, a reference and a gain to a line."""

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...core.text.files import file_suffix
from ..option_types import BadInput
from .labels import Column
from .text import csv_rows, existing, is_number, open_text


class Rows(NamedTuple):
    """Rows that lines may name: by index, or by id if there are ids."""

    num_rows: int
    file: str
    option: str  # that names the file of ids
    ids: Column | None
    ids_file: str | None

    def positions(self) -> dict[str | int, int]:
        """Return the row of each name."""
        if self.ids is None:
            return {row: row for row in range(self.num_rows)}
        positions: dict[str | int, int] = {}
        for row, name in enumerate(self.ids.values() if self.ids.names else self.ids.codes.tolist()):
            if positions.setdefault(name, row) != row:
                raise BadInput(f"{self.ids_file}: got the id {name!r} more than once, wanted a different one per row")
        return positions

    def key(self, cell: str) -> str | int:
        """Convert a cell to a key of `positions`."""
        words = self.ids is not None and self.ids.names is not None
        return int(cell) if not words and re.fullmatch(r"[+-]?\d{1,20}", cell) else cell  # int64 has 19 digits

    def rows(self, cells: Iterable[str]) -> list[int]:
        """Return the row that each cell names, -1 for an unknown name."""
        positions = self.positions()
        return [positions.get(self.key(cell), -1) for cell in cells]

    def expected(self) -> str:
        if self.ids is not None:
            return f"an id in {self.ids_file}"
        return f"a row of {self.file}, 0 to {self.num_rows - 1}; names are given by {self.option}"


def read_gains(file: str, queries: Rows, references: Rows) -> tuple[Tensor, Tensor, Tensor]:
    # ->  (n,) int64 rows of queries, (n,) int64 rows of references, (n,) float64
    """Read gains, each pair at most once; negative gains become 0."""
    path = existing(file)
    lines, *names, gains = _columns(path)
    rows = []
    for role, cells, table in zip(("query", "reference"), names, (queries, references), strict=True):
        indices = _read_distinct(cells, table.rows, np.int64)
        if wrong := np.flatnonzero(indices < 0).tolist():
            location = f"{path}, line {lines[wrong[0]]}"
            raise BadInput(f"{location}: got the {role} {cells[wrong[0]]!r}, wanted {table.expected()}")
        rows.append(indices)
    values = _read_distinct(
        gains, lambda cells: [float(cell) if is_number(cell) else math.nan for cell in cells], np.float64
    )
    if wrong := np.flatnonzero(~np.isfinite(values)).tolist():
        raise BadInput(f"{path}, line {lines[wrong[0]]}: got the gain {gains[wrong[0]]!r}, wanted a finite number")
    pairs = rows[0] * references.num_rows + rows[1]
    first = np.unique(pairs, return_index=True)[1]
    if len(first) < len(pairs):
        again = int(np.setdiff1d(np.arange(len(pairs)), first)[0])
        got = f"got {names[1][again]!r} for {names[0][again]!r} again"
        raise BadInput(f"{path}, line {lines[again]}: {got}, wanted each pair once")
    return torch.from_numpy(rows[0]), torch.from_numpy(rows[1]), torch.from_numpy(values.clip(min=0))


def _read_distinct(cells: Sequence[str], read: Callable[[Collection[str]], Sequence[float]], dtype: type) -> np.ndarray:
    """Convert cells by `read`, which gets each distinct text once."""
    distinct = set(cells)
    table = dict(zip(distinct, read(distinct), strict=True))
    return np.fromiter(map(table.__getitem__, cells), dtype, len(cells))


def _columns(path: Path) -> tuple[list[int], list[str], list[str], list[str]]:
    """Read line numbers, queries, references and gains, without a heading and the second of TREC's four columns."""
    expected = "a query, a reference and a gain, or TREC's `query 0 document gain`"
    lines, queries, references, gains, width = [], [], [], [], 0
    for line, cells in _rows(path):
        if len(cells) != width:
            if width or len(cells) not in (3, 4):
                as_above = f"{width} as above" if width and len(cells) in (3, 4) else expected
                raise BadInput(f"{path}, line {line}: got {len(cells)} columns, wanted {as_above}")
            width = len(cells)
            if not is_number(cells[-1]) and not any(map(str.isdigit, cells[-1])):  # a heading
                continue
        lines.append(line)
        queries.append(cells[0])
        references.append(cells[-2])
        gains.append(cells[-1])
    if not lines:
        raise BadInput(f"{path}: got no gain, wanted lines of a query, a reference and a gain")
    return lines, queries, references, gains


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, cells) of every row; .csv and .tsv use the delimiter of the first row, others white space."""
    if file_suffix(path) in (".csv", ".tsv"):
        yield from csv_rows(path, None)
        return
    for line, text in enumerate(open_text(path), 1):
        if cells := text.split():
            yield line, cells
