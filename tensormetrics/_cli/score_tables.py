"""Tables of scores, and of their differences from those of a second model, for all commands that score predictions."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..core.results.estimates import Comparison, Estimate
from ..core.results.table import Table
from ..uncertainty import compare
from .inputs import naming
from .output import Size, draw_scores, percent


class Scores(NamedTuple):
    """Values by name, and the estimates of the values that have an interval."""

    values: Mapping[str, float]
    estimates: Mapping[str, Estimate]
    confidence: float

    def table(self, index: str) -> Table:
        """Return a table with a row for each score; `index` is the heading of their names."""
        cells = [[self.estimates.get(name, value)] for name, value in self.values.items()]
        caption = caption_of(self.confidence) if self.estimates else None
        return Table(list(self.values), ["value"], cells, caption=caption, index=index)

    def answer(self) -> dict[str, dict[str, float]]:
        """Return each score and the limits of its interval as JSON values."""
        return {
            name: {"value": value, **dict(zip(("low", "high"), self._ends().get(name, ()), strict=False))}
            for name, value in self.values.items()
        }

    def draw(self, size: Size, classes: Mapping[str, Sequence[float]] | None = None) -> Any:
        """Draw the scores, and small marks for the values of each class."""
        return draw_scores(self.values, self._ends(), classes, self.confidence, size)

    def _ends(self) -> dict[str, tuple[float, float]]:
        return {name: (float(estimate.low), float(estimate.high)) for name, estimate in self.estimates.items()}


def caption_of(confidence: float) -> str:
    return f"{percent(confidence)} intervals"


def table_of_rows(rows: Mapping[str, Mapping[str, Any]], confidence: float, index: str) -> Table:
    """Return a table of rows with a "score"; it and its ends "low" and "high" share one cell."""
    columns = [key for key in next(iter(rows.values())) if key not in ("reason", "low", "high")]
    cells = [{column: row[column] for column in columns} for row in rows.values()]
    has_intervals = any("low" in row for row in rows.values())
    for cell, row in zip(cells if has_intervals else (), rows.values(), strict=False):
        ends = torch.tensor([row["score"], row["low"], row["high"]], dtype=torch.float64)
        cell["score"] = Estimate(*ends, confidence=confidence)
    return Table([*rows], columns, cells, caption=caption_of(confidence) if has_intervals else None, index=index)


class Comparisons(NamedTuple):
    """Differences of scores by name: first model minus second model."""

    results: dict[str, Comparison]
    files: tuple[str, str]
    confidence: float
    has_direction: bool  # whether higher or lower values are better

    @classmethod
    def of(
        cls,
        pairs: Mapping[str, tuple[Any, Any]],
        files: tuple[str, str],
        *,
        confidence: float,
        has_direction: bool = True,
        **options: Any,
    ) -> "Comparisons":
        """Call `compare` with `options` for each pair, keyed by the score's name, or "" for pairs of several scores."""
        results: dict[str, Comparison] = {}
        with naming(**{"a, b": f"{files[0]} and {files[1]}"}, rope="--rope", metrics="--metric"):
            for name, (a, b) in pairs.items():
                result = compare(a, b, confidence=confidence, **options)
                results |= result if isinstance(result, Mapping) else {name: result}
        return cls(results, files, confidence, has_direction)

    def table(self, index: str) -> Table:
        """Return a table with a row for each score: both models, the difference, its p-value and the verdict."""
        heads = [Path(file).name for file in self.files]
        rows: list[dict[str, Any]] = []
        if len({*heads, "difference", "p", "p_rope", "verdict"}) < 6:
            heads = [f"{name}: {head}" for name, head in zip("ab", heads, strict=True)]
        for comparison in self.results.values():
            row = {heads[0]: comparison.a, heads[1]: comparison.b, "difference": comparison, "p": comparison.p_value}
            if comparison.rope is not None:
                row["p_rope"] = comparison.p_rope
            rows.append(row | ({"verdict": comparison.verdict} if self.has_direction else {}))
        caption = f"difference: {heads[0]} - {heads[1]}; {caption_of(self.confidence)}"
        return Table(list(self.results), list(rows[0]), rows, caption=caption, index=index)

    def answer(self) -> dict[str, dict[str, Any]]:
        """Return each difference as a JSON value."""
        return {name: comparison.to_dict() for name, comparison in self.results.items()}
