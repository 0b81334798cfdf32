"""Battles between models from tables, such as those of chatbot arenas."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...uncertainty.battles.outcomes import score_of
from ...uncertainty.item_scores.records import Record, read_records
from ..option_types import BadInput
from .naming import naming
from .text import existing

COLUMNS = {"a": ("model_a", "a"), "b": ("model_b", "b"), "outcome": ("winner", "outcome")}  # by default


class BattleRows(NamedTuple):
    """Columns of battles."""

    a: list[str]
    b: list[str]
    outcomes: list[float]  # NaN where there is no judgement
    groups: list[str] | None


def read_battles(files: Sequence[str], groups: str | None, **columns: str | None) -> BattleRows:
    """Read battles from files; `columns` names the columns of each role in `COLUMNS`, None for the default names."""
    rows = BattleRows([], [], [], None if groups is None else [])
    for file in files:
        with naming():
            records = read_records(existing(file))
        if not records.rows:
            raise BadInput(f"{file}: got no battles, wanted at least one")
        names = {role: _column(role, columns[role], records.rows[0], file) for role in COLUMNS}
        for row, location in zip(*records, strict=True):
            a, b = (_text(row, names[role], location) for role in ("a", "b"))
            rows.a.append(a)
            rows.b.append(b)
            rows.outcomes.append(_outcome(row.get(names["outcome"]), a, b, location))
            if rows.groups is not None:
                rows.groups.append(_text(row, str(groups), location))
    return rows


def _column(role: str, name: str | None, row: Record, file: str) -> str:
    columns = [column for column in ((name,) if name else COLUMNS[role]) if column in row]
    if not columns:
        got = f"no column {name!r}" if name else f"neither {' nor '.join(COLUMNS[role])}"
        raise BadInput(f"--{role}: got {got} in {file}, wanted one of {', '.join(map(repr, row))}")
    return columns[0]


def _text(row: Record, column: str, location: str) -> str:
    value = row.get(column)
    if value is None or value == "":
        raise BadInput(f"{location}: got no {column!r}; it has {', '.join(map(repr, row))}")
    return str(value)


def _outcome(value: Any, a: str, b: str, location: str) -> float:
    try:
        score = score_of(None if value is None else str(value), a, b, location)
    except ValueError as error:
        raise BadInput(str(error)) from None
    return score
