"""Ranks that several models may have, by the p-values of all pairs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .table import Comparisons

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
