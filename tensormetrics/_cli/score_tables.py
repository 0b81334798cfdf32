"""What commands that score predictions share: tables of scores, and of their differences from a second model's."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..uncertainty import compare
from ..uncertainty.results.estimates import Comparison, Estimate
from ..uncertainty.results.table import Table
from .inputs import naming
from .output import Size, draw_scores, percent


class Scores(NamedTuple):
    """Numbers by name, and those of them that have an interval as estimates."""

    values: Mapping[str, float]
    estimates: Mapping[str, Estimate]
    confidence: float

    def table(self, index: str) -> Table:
        """Return a table of a row for each score; `index` says what a score is called."""
        cells = [[self.estimates.get(name, value)] for name, value in self.values.items()]
        caption = caption_of(self.confidence) if self.estimates else None
        return Table(list(self.values), ["value"], cells, caption=caption, index=index)

    def answer(self) -> dict[str, dict[str, float]]:
        """Return each score with its ends as JSON has them."""
        return {
            name: {"value": value, **dict(zip(("low", "high"), self._ends().get(name, ()), strict=False))}
            for name, value in self.values.items()
        }

    def draw(self, size: Size, classes: Mapping[str, Sequence[float]] | None = None) -> Any:
        """Draw the scores, and small marks for the values of each class."""
        return draw_scores(self.values, self._ends(), classes, self.confidence, size)

    def _ends(self) -> dict[str, tuple[float, float]]:
        return {name: (float(each.low), float(each.high)) for name, each in self.estimates.items()}


def caption_of(confidence: float) -> str:
    return f"{percent(confidence)} intervals"


def estimate_of(value: float, ends: tuple[float, float], confidence: float) -> Estimate:
    return Estimate(*torch.tensor([value, *ends], dtype=torch.float64), confidence=confidence)


class Comparisons(NamedTuple):
    """Differences of scores by name, of the model in the first file from that in the second."""

    results: dict[str, Comparison]
    files: tuple[str, str]
    confidence: float
    has_direction: bool  # whether more is better, or less

    @classmethod
    def of(
        cls,
        pairs: Mapping[str, tuple[Any, Any]],
        files: tuple[str, str],
        hints: Mapping[str, str] | None = None,
        *,
        confidence: float,
        has_direction: bool = True,
        **options: Any,
    ) -> "Comparisons":
        """Compare pairs of what `compare` takes, by name or "" where it has several scores, with `options` of it."""
        results: dict[str, Comparison] = {}
        with naming({"a, b: ": f"{files[0]} and {files[1]}: ", **(hints or {})}, rope="--rope"):
            for name, (a, b) in pairs.items():
                result = compare(a, b, confidence=confidence, **options)
                results |= result if isinstance(result, Mapping) else {name: result}
        return cls(results, files, confidence, has_direction)

    def table(self, index: str) -> Table:
        """Return a table of a row for each score: of both models, the difference, and what is to be said of it."""
        heads = [Path(file).name for file in self.files]
        rows: list[dict[str, Any]] = []
        if len({*heads, "difference", "p", "p_rope", "verdict"}) < 6:
            heads = [f"{side}: {head}" for side, head in zip("ab", heads, strict=True)]
        for comparison in self.results.values():
            row = {heads[0]: comparison.a, heads[1]: comparison.b, "difference": comparison, "p": comparison.p_value}
            if comparison.rope is not None:
                row["p_rope"] = comparison.p_rope
            rows.append(row | ({"verdict": comparison.verdict} if self.has_direction else {}))
        caption = f"difference: {heads[0]} - {heads[1]}; {caption_of(self.confidence)}"
        return Table(list(self.results), list(rows[0]), rows, caption=caption, index=index)

    def answer(self) -> dict[str, dict[str, Any]]:
        """Return each difference as JSON has it."""
        return {name: comparison.to_dict() for name, comparison in self.results.items()}
