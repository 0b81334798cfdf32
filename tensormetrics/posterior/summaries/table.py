"""Tables of results as text, as records, or as a DataFrame."""

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ...core.arguments import checks
from ...core.results.text_tables import TEXTS, cell_text, import_pandas


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
    "latex", "csv" and "plain" return text, and any other name is passed to the package tabulate. Text shows `precision`
    decimals and the columns named in `percent` as percentages; floats of at most `blank_below` are left blank.

    >>> print(format_table([{"model": "a", "acc": 0.9, "HDI": (0.85, 0.94)}], ["model", "acc", "HDI"], precision=2))
    | model |  acc |          HDI |
    | ----- | ---- | ------------ |
    | a     | 0.90 | [0.85, 0.94] |
    """
    precision = checks.check_int("precision", precision, 0)
    rows = [{header: _to_python(row[header]) for header in headers} for row in rows]
    if table_fmt == "records":
        return rows
    if table_fmt in ("pd", "pandas"):
        return import_pandas().DataFrame(rows, columns=list(headers))
    cells = [
        ["" if _is_blank(row[h], blank_below) else cell_text(row[h], precision, h in percent) for h in headers]
        for row in rows
    ]
    if table_fmt in TEXTS:
        has_no_text = [all(not isinstance(row[h], str) for row in rows) for h in headers]
        return TEXTS[table_fmt](list(headers), cells, has_no_text)
    tabulate = _tabulate(table_fmt)
    if table_fmt not in tabulate.tabulate_formats:
        valid = ", ".join(["records", "pandas", *TEXTS])
        raise ValueError(f"table_fmt: got {table_fmt!r}, wanted {valid} or a format of tabulate")
    return tabulate.tabulate(cells, list(headers), tablefmt=table_fmt, disable_numparse=True)


def _to_python(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_to_python(item) for item in value)
    return value.item() if isinstance(value, Tensor) else value


def _is_blank(value: Any, limit: float) -> bool:
    # A limit of -inf, the default, leaves no cell blank, not even one of -inf.
    return isinstance(value, float) and -math.inf < limit and value <= limit


def _tabulate(table_fmt: str) -> Any:
    try:
        import tabulate
    except ImportError:
        raise ImportError(
            f"table_fmt: got {table_fmt!r}, wanted {', '.join(map(repr, TEXTS))}, or a format of tabulate, which is "
            'not installed; write pip install "tensormetrics[tables]"'
        ) from None
    return tabulate
