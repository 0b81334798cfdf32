"""Tables of scores, and of their differences from those of a second model, for all commands that score predictions."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ..core.results.estimates import Comparison, Estimate
from ..core.results.table import Table
from ..uncertainty import compare
from .naming import naming


def score_table(values: Mapping[str, Any], estimates: Mapping[str, Estimate], confidence: float, index: str) -> Table:
    """Return a table with a row for each score, with its interval if there is one; `index` heads their names."""
    cells = [[estimates.get(name, float(value))] for name, value in values.items()]
    return Table(list(values), ["value"], cells, caption=caption_of(confidence) if estimates else None, index=index)


def score_json(table: Table, column: str = "value") -> dict[str, dict[str, float]]:
    """Return each score of a column, and the limits of its interval, as JSON values."""
    cells = {row: table[row, column] for row in table.rows}
    ends = {row: cell if isinstance(cell, Estimate) else (cell,) for row, cell in cells.items()}
    return {row: dict(zip(("value", "low", "high"), map(float, cell), strict=False)) for row, cell in ends.items()}


def caption_of(confidence: float) -> str:
    return f"{confidence * 100:.10g}% intervals"


def table_of_rows(
    rows: Mapping[str, Mapping[str, Any]], confidence: float, index: str, model: str | None = None
) -> Table:
    """Return a table of rows with a "score"; it and its ends "low" and "high" share one cell; `model` heads columns."""
    columns = [key for key in next(iter(rows.values())) if key not in ("reason", "low", "high")]
    heads = columns if model is None else [model, *(f"{key} of {model}" for key in columns[1:])]
    cells = [{column: row[column] for column in columns} for row in rows.values()]
    has_intervals = any("low" in row for row in rows.values())
    for cell, row in zip(cells if has_intervals else (), rows.values(), strict=False):
        ends = torch.tensor([row["score"], row["low"], row["high"]], dtype=torch.float64)
        cell["score"] = Estimate(*ends, confidence=confidence)
    values = [[*cell.values()] for cell in cells]
    return Table([*rows], heads, values, caption=caption_of(confidence) if has_intervals else None, index=index)


def comparison_table(
    pairs: Mapping[str, tuple[Any, Any]],
    files: tuple[str, str],
    index: str,
    *,
    confidence: float,
    has_direction: bool = True,
    **options: Any,
) -> Table:
    """Compare pairs of results; return a table with a row for each score: both models, the difference, p and verdict.

    Args:
        pairs: First and second model by the score's name, or by "" for pairs of several scores.
        files: Names of the two models.
        index: Heading of the scores' names.
        confidence: Probability of the intervals.
        has_direction: Whether higher or lower values are better.
        **options: Those of `compare`.
    """
    results: dict[str, Comparison] = {}
    with naming(**{"a, b": f"{files[0]} and {files[1]}"}):
        for name, (a, b) in pairs.items():
            result = compare(a, b, confidence=confidence, **options)
            results |= result if isinstance(result, Mapping) else {name: result}
    heads = [Path(file).name for file in files]
    rows: list[dict[str, Any]] = []
    if len({*heads, "difference", "p", "p_rope", "verdict"}) < 6:
        heads = [f"{name}: {head}" for name, head in zip("ab", heads, strict=True)]
    for comparison in results.values():
        row = {heads[0]: comparison.a, heads[1]: comparison.b, "difference": comparison, "p": comparison.p_value}
        if comparison.rope is not None:
            row["p_rope"] = comparison.p_rope
        rows.append(row | ({"verdict": comparison.verdict} if has_direction else {}))
    caption = f"difference: {heads[0]} - {heads[1]}; {caption_of(confidence)}"
    return Table(list(results), list(rows[0]), rows, caption=caption, index=index)


def differences(table: Table) -> dict[str, Comparison]:
    return {row: table[row, "difference"] for row in table.rows}


def comparison_json(table: Table) -> dict[str, dict[str, Any]]:
    return {row: comparison.to_dict() for row, comparison in differences(table).items()}
