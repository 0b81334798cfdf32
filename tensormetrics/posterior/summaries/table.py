"""Rows of results as text, or as the objects that other programs take."""

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ... import _checks
from ..._tables import TEXTS, cell_text, import_pandas


def format_table(
    rows: Sequence[dict[str, Any]],
    headers: Sequence[str],
    table_fmt: str = "github",
    precision: int = 4,
    *,
    blank_below: float = -math.inf,
    percent: Sequence[str] = (),
) -> Any:
    """Format `rows`, which map headers to texts, numbers (also 0-d tensors) and intervals (low, high), as a table.

    "records" gives the rows with Python numbers, "pd" or "pandas" a DataFrame of them. "github", "pipe", "html",
    "latex", "csv" and "plain" are texts, and any other format tabulate's. Text shows `precision` decimals, columns of
    `percent` as such, and leaves cells of at most `blank_below` empty.

    >>> print(format_table([{"model": "a", "acc": 0.9, "HDI": (0.85, 0.94)}], ["model", "acc", "HDI"], precision=2))
    | model |  acc |          HDI |
    | ----- | ---- | ------------ |
    | a     | 0.90 | [0.85, 0.94] |
    """
    precision = _checks.check_int("precision", precision, 0)
    rows = [{header: _to_python(row[header]) for header in headers} for row in rows]
    if table_fmt == "records":
        return rows
    if table_fmt in ("pd", "pandas"):
        return import_pandas().DataFrame(rows, columns=list(headers))
    cells = [
        ["" if _below(row[h], blank_below) else cell_text(row[h], precision, h in percent) for h in headers]
        for row in rows
    ]
    if table_fmt in TEXTS:
        numeric = [all(not isinstance(row[h], str) for row in rows) for h in headers]
        return TEXTS[table_fmt](list(headers), cells, numeric)
    tabulate = _tabulate()
    if table_fmt not in tabulate.tabulate_formats:
        valid = ", ".join(["records", "pandas", *TEXTS])
        raise ValueError(f"table_fmt: got {table_fmt!r}, wanted {valid} or a format of tabulate")
    return tabulate.tabulate(cells, list(headers), tablefmt=table_fmt, disable_numparse=True)


def _to_python(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_to_python(end) for end in value)
    return value.item() if isinstance(value, Tensor) else value


def _below(value: Any, limit: float) -> bool:
    return isinstance(value, float) and -math.inf < limit and value <= limit


def _tabulate() -> Any:
    try:
        import tabulate
    except ImportError:
        raise ImportError(
            'this table_fmt needs tabulate: pip install "tensormetrics[tables]", or use ' + ", ".join(map(repr, TEXTS))
        ) from None
    return tabulate
