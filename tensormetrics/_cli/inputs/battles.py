"""Battles between models from tables, such as those of chatbot arenas."""

from collections.abc import Sequence
from typing import Any

from ...uncertainty.battles.outcomes import score_of
from ...uncertainty.item_scores.records import Record, read_records
from ...uncertainty.item_scores.score_files import field_of
from ..option_types import BadInput
from .text import existing

ONE_HOT = {"winner_model_a": "a", "winner_model_b": "b", "winner_tie": "tie"}  # of Kaggle's battles
COLUMNS = {"a": ("model_a", "a"), "b": ("model_b", "b"), "outcome": ("winner", "outcome")}  # by default


def read_battles(files: Sequence[str], groups: str | None, **columns: str | None) -> dict[str, list[Any]]:
    """Read "a", "b", "outcome", NaN where there is no judgement, and "groups" of battles from files.

    `columns` names the columns of each role in `COLUMNS`, None for the default names.
    """
    battles: dict[str, list[Any]] = {role: [] for role in (*COLUMNS, *(["groups"] if groups else []))}
    for file in files:
        records = read_records(existing(file))
        if not records.rows:
            raise BadInput(f"{file}: got no battles, wanted at least one")
        names = {role: _column(role, columns[role], records.rows[0], file) for role in COLUMNS}
        texts = {"a": names["a"], "b": names["b"], **({"groups": groups} if groups else {})}
        for row, location in records.located():
            battle: dict[str, Any] = {role: str(field_of(row, name, "", location)) for role, name in texts.items()}
            winner = next((word for name, word in ONE_HOT.items() if str(row.get(name)) in ("1", "1.0")), None)
            outcome = row.get(names["outcome"], winner)
            score = score_of(None if outcome is None else str(outcome), battle["a"], battle["b"], location)
            for role, value in {**battle, "outcome": score}.items():
                battles[role].append(value)
    return battles


def _column(role: str, name: str | None, row: Record, file: str) -> str:
    columns = [column for column in ((name,) if name else COLUMNS[role]) if column in row]
    if not columns and role == "outcome" and name is None and row.keys() >= ONE_HOT.keys():
        return ""
    if not columns:
        got = f"no column {name!r}" if name else f"neither {' nor '.join(COLUMNS[role])}"
        raise BadInput(f"--{role}: got {got} in {file}, wanted one of {', '.join(map(repr, row))}")
    return columns[0]
