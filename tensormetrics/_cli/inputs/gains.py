"""Graded relevance in files: a query, a reference and a gain to a line."""

import math
import re
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ...core.text.files import file_suffix
from ...core.text.tables import is_number
from ..option_types import BadInput
from .labels import Column
from .text import existing, open_text, rows_of


@dataclass(frozen=True)
class Rows:
    """Rows that lines may name: by index, or by id if there are ids."""

    num_rows: int
    file: str
    option: str  # that names the file of ids
    ids: Column | None
    ids_file: str | None

    @cached_property
    def positions(self) -> dict[str | int, int]:
        """Return the row of each name."""
        if self.ids is None:
            return {row: row for row in range(self.num_rows)}
        positions: dict[str | int, int] = {}
        for row, name in enumerate(self.ids.values() if self.ids.names else self.ids.codes.tolist()):
            if positions.setdefault(name, row) != row:
                raise BadInput(f"{self.ids_file}: got the id {name!r} more than once, wanted a different one per row")
        return positions

    def find(self, cell: str, role: str, location: str) -> int:
        """Return the row that a cell names."""
        has_words = self.ids is not None and self.ids.names is not None
        is_index = not has_words and re.fullmatch(r"[+-]?\d{1,20}", cell)  # int64 has 19 digits
        row = self.positions.get(int(cell) if is_index else cell)
        if row is None:
            rows = f"a row of {self.file}, 0 to {self.num_rows - 1}; names are given by {self.option}"
            expected = rows if self.ids is None else f"an id in {self.ids_file}"
            raise BadInput(f"{location}: got the {role} {cell!r}, wanted {expected}")
        return row


def read_gains(file: str, queries: Rows, references: Rows) -> tuple[Tensor, Tensor, Tensor]:
    # ->  (n,) int64 rows of queries, (n,) int64 rows of references, (n,) float64
    """Read gains, each pair at most once; negative gains become 0."""
    path = existing(file)
    gains: dict[tuple[int, int], float] = {}
    if file_suffix(path) in (".csv", ".tsv"):
        rows = rows_of(path)
    else:  # columns between white space
        rows = [(line, cells) for line, text in enumerate(open_text(path), 1) if (cells := text.split())]
    for row, (line, cells) in enumerate(rows):
        location = f"{path}, line {line}"
        if len(cells) not in (3, 4):
            wanted = "a query, a reference and a gain, or TREC's `query 0 document gain`"
            raise BadInput(f"{location}: got {len(cells)} columns, wanted {wanted}")
        if row == 0 and not is_number(cells[-1]) and not any(map(str.isdigit, cells[-1])):  # a heading
            continue
        *_, document, number = cells
        pair = queries.find(cells[0], "query", location), references.find(document, "reference", location)
        gain = float(number) if is_number(number) else math.nan
        if not math.isfinite(gain):
            raise BadInput(f"{location}: got the gain {number!r}, wanted a finite number")
        if pair in gains:
            raise BadInput(f"{location}: got {document!r} for {cells[0]!r} again, wanted each pair once")
        gains[pair] = max(gain, 0.0)
    if not gains:
        raise BadInput(f"{path}: got no gain, wanted lines of a query, a reference and a gain")
    query, reference = torch.tensor([*gains]).unbind(1)
    return query, reference, torch.tensor([*gains.values()], dtype=torch.float64)
