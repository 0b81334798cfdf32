"""Graded relevance in files: a query, a reference and a gain to a line."""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from ..options import BadInput
from .labels import Column
from .text import csv_rows, existing, is_number, open_text


class Rows(NamedTuple):
    """What lines may name: rows by their number, from 0 on, or by an id where there are ids."""

    number: int
    file: str
    option: str  # by which ids are given
    ids: Column | None
    ids_file: str | None

    def places(self) -> dict[str | int, int]:
        """The row of each name."""
        if self.ids is None:
            return {number: number for number in range(self.number)}
        places: dict[str | int, int] = {}
        for row, name in enumerate(self.ids.given() if self.ids.names else self.ids.numbers.tolist()):
            if places.setdefault(name, row) != row:
                raise BadInput(f"{self.ids_file}: got the id {name!r} more than once, wanted a different one per row")
        return places

    def key(self, cell: str) -> str | int:
        """The name as `places` has it."""
        words = self.ids is not None and self.ids.names is not None
        return int(cell) if not words and re.fullmatch(r"[+-]?\d{1,20}", cell) else cell  # int64 has 19 digits

    def wanted(self) -> str:
        if self.ids is not None:
            return f"an id in {self.ids_file}"
        return f"a row of {self.file}, 0 to {self.number - 1}; names are given by {self.option}"


def read_gains(file: str, queries: Rows, references: Rows) -> tuple[Tensor, Tensor, Tensor]:
    # ->  (n,) int64 rows of queries, (n,) int64 rows of references, (n,) float64
    """Each pair once; gains below 0 count as 0."""
    path, sides = existing(file), (queries, references)
    places = [queries.places(), references.places()]
    gains: dict[tuple[int, int], float] = {}
    for line, *names, gain in _triples(path):
        rows = []
        for what, name, side, place in zip(("query", "reference"), names, sides, places, strict=True):
            row = place.get(side.key(name))
            if row is None:
                raise BadInput(f"{path}, line {line}: got the {what} {name!r}, wanted {side.wanted()}")
            rows.append(row)
        if not is_number(gain) or not math.isfinite(float(gain)):
            raise BadInput(f"{path}, line {line}: got the gain {gain!r}, wanted a finite number")
        if (rows[0], rows[1]) in gains:
            raise BadInput(f"{path}, line {line}: got {names[1]!r} for {names[0]!r} again, wanted each pair once")
        gains[rows[0], rows[1]] = max(float(gain), 0.0)
    if not gains:
        raise BadInput(f"{path}: got no gain, wanted lines of a query, a reference and a gain")
    pairs = torch.tensor(list(gains))
    return pairs[:, 0], pairs[:, 1], torch.tensor(list(gains.values()), dtype=torch.float64)


def _triples(path: Path) -> Iterator[tuple[int, str, str, str]]:
    """Line number, query, reference and gain; without a heading, and without the second of TREC's four columns."""
    width, wanted = 0, "a query, a reference and a gain, or TREC's `query 0 document gain`"
    for number, (line, cells) in enumerate(_rows(path)):
        if len(cells) not in (3, 4):
            raise BadInput(f"{path}, line {line}: got {len(cells)} columns, wanted {wanted}")
        width = width or len(cells)
        if len(cells) != width:
            raise BadInput(f"{path}, line {line}: got {len(cells)} columns, wanted {width} as above")
        query, *_, reference, gain = (cell.strip() for cell in cells)
        if number or is_number(gain) or any(map(str.isdigit, gain)):  # what else stands first is a heading
            yield line, query, reference, gain


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """(line number, cells) of every row: of .csv and .tsv by what separates the first, of others by white space."""
    if path.suffix in (".csv", ".tsv"):
        yield from csv_rows(path, None)
        return
    for line, text in enumerate(open_text(path), 1):
        if cells := text.split():
            yield line, cells
