"""`ComparisonTable`: all pairs of several models, with the models themselves and their ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from .table import Comparisons, Table

RANK_COLUMNS = "first rank", "last rank", "best"


def rank_cells(models: Iterable[str], pairs: Comparisons, column: str) -> Iterator[dict[str, int | bool]]:
    """Yield the ranks that each model may have, and whether the first is one of them, by corrected p-values.

    A model has as many better ones as are significantly better, and as many worse ones (Mogstad, Romano, Shaikh &
    Wilhelm 2024, doi:10.1093/restud/rdad006).
    """
    names = list(models)
    better, worse = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    for (a, b), comparisons in pairs.items():
        comparison = comparisons[column]
        if comparison._is_significant:
            a_wins = (float(comparison.difference) > 0) == comparison.higher_is_better
            worse[a if a_wins else b] += 1
            better[b if a_wins else a] += 1
    for name in names:
        yield dict(zip(RANK_COLUMNS, (1 + better[name], len(names) - worse[name], not better[name]), strict=True))


class ComparisonTable(Table):
    """All pairs of several models, as `compare` makes it of them.

    Attributes:
        models: A `Table` of the models: each score with its interval; of a single score also the first and the last
            rank that the model may have, all of them right with probability `confidence`, and whether it may be the
            best.

    Example:
        >>> from tensormetrics import compare
        >>> table = compare({"a": [1, 1, 1, 1] * 10, "b": [1, 1, 1, 0] * 10, "c": [1, 0, 0, 0] * 10})
        >>> table.best, table.ranks
        (('a',), {'a': (1, 1), 'b': (2, 2), 'c': (3, 3)})
    """

    __slots__ = ("models",)

    models: Table

    @classmethod
    def _of(cls, pairs: Table, models: Table) -> ComparisonTable:
        table = cls(pairs.rows, pairs.higher_is_better, pairs.cells, pairs.title, pairs.caption, pairs.index)
        object.__setattr__(table, "models", models)
        return table

    def __reduce__(self) -> Any:
        return ComparisonTable._of, (self._with(), self.models)

    @property
    def ranks(self) -> dict[str, tuple[int, int]]:
        """Return the first and the last possible rank of each model.

        Raises:
            ValueError: If the models were compared in several scores, or in one without a direction.
        """
        self._check_ranked("ranks")
        ends = ((int(self.models[name, end]) for end in ("first rank", "last rank")) for name in self.models.rows)
        return {name: (first, last) for name, (first, last) in zip(self.models.rows, ends, strict=True)}

    @property
    def best(self) -> tuple[str, ...]:
        """Return the models that cannot be distinguished from the best one, which is among them.

        Raises:
            ValueError: If the models were compared in several scores, or in one without a direction.
        """
        self._check_ranked("best")
        return tuple(name for name in self.models.rows if self.models[name, "best"])

    def _check_ranked(self, method: str) -> None:
        if "best" not in self.models.higher_is_better:
            names = ", ".join(self.models.higher_is_better)
            raise ValueError(f"{method}: got models that were compared in {names}, wanted one score with a direction")
