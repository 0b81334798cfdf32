"""`ScoreTable`: several scores of one object, or differences of two, as a `Table` and by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from .cells import single_values
from .estimates import Comparison, Estimate
from .table import Table, table_of

ScoreType = TypeVar("ScoreType", bound=Estimate | Comparison)


class ScoreTable(Table, Mapping[str, ScoreType]):
    """Results by name, as a mapping, and as a table: of scores in one row, of differences in a row for each.

    `scores["f1"]` is a result, of several values where the score has them; other keys are those of a `Table`. A row
    that is wider than the terminal is printed as a column.

    Example:
        >>> from tensormetrics.structured import SpanScores
        >>> metric = SpanScores()
        >>> metric.update_tags([["B-PER", "O"], ["O", "B-LOC"]] * 9, [["B-PER", "O"], ["B-LOC", "O"]] * 9)
        >>> scores = metric.interval()
        >>> print(scores["f1"])
        0.500 [0.275, 0.726]
        >>> print(scores)
                    precision             recall                f1
        SpanScores  0.500 [0.275, 0.726]  0.500 [0.275, 0.726]  0.500 [0.275, 0.726]
    """

    __slots__ = ("results",)

    results: dict[str, ScoreType]

    @classmethod
    def by_name(
        cls, results: Mapping[str, ScoreType], direction: Callable[[str], bool | None], row: str
    ) -> ScoreTable[ScoreType]:
        """Return the table of results by name, where a function says of a name whether higher is better."""
        if not any(isinstance(result, Comparison) for result in results.values()):
            return cls._of(table_of({row: results}, direction), dict(results))
        rows: dict[str, Comparison] = dict(single_values(results))
        caption = "paired by position" if any("by position" in (x.test or "") for x in rows.values()) else None
        cells = [[x, float(x._decisive_p), x.verdict] for x in rows.values()]
        return cls._of(Table([*rows], ("difference", "p", "verdict"), cells, caption=caption), dict(results))

    def __getitem__(self, key: str | tuple[str, str]) -> Any:
        return self.results[key] if isinstance(key, str) and key in self.results else super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        return key in self.results

    def __iter__(self) -> Iterator[str]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)


def scored(results: Any, direction: Callable[[str], bool | None], row: str) -> Any:
    """Return one result as it is, several by name as a `ScoreTable`."""
    return ScoreTable.by_name(results, direction, row) if isinstance(results, Mapping) else results
