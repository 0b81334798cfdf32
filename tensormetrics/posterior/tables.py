"""Rows of results as text, or as the objects that other programs take."""

import csv
import html
import io
import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from .. import _checks

ESCAPES = str.maketrans({c: f"\\{c}" for c in "%&_#${}"})


def format_table(
    rows: Sequence[dict[str, Any]],
    headers: Sequence[str],
    table_fmt: str = "github",
    precision: int = 4,
    *,
    blank_below: float = -math.inf,
    percent: Sequence[str] = (),
) -> Any:
    """`rows`, which map headers to texts, numbers (also 0-d tensors) and intervals (low, high), as a table.

    "records" gives the rows with Python numbers, "pd" or "pandas" a DataFrame of them. "github", "pipe", "html",
    "latex", "csv" and "plain" are texts, and any other format tabulate's. Text shows `precision` decimals, columns of
    `percent` as such, and leaves cells of at most `blank_below` empty.

    >>> print(format_table([{"model": "a", "acc": 0.9, "HDI": (0.85, 0.94)}], ["model", "acc", "HDI"], precision=2))
    | model |  acc |          HDI |
    | ----- | ---- | ------------ |
    | a     | 0.90 | [0.85, 0.94] |
    """
    precision = _checks.integer_at_least("precision", precision, 0)
    rows = [{header: _plain(row[header]) for header in headers} for row in rows]
    if table_fmt == "records":
        return rows
    if table_fmt in ("pd", "pandas"):
        return _pandas().DataFrame(rows, columns=list(headers))
    cells = [
        ["" if _below(row[h], blank_below) else cell_text(row[h], precision, h in percent) for h in headers]
        for row in rows
    ]
    if table_fmt in TEXTS:
        numeric = [all(not isinstance(row[h], str) for row in rows) for h in headers]
        return TEXTS[table_fmt](list(headers), cells, numeric)
    tabulate = _tabulate()
    if table_fmt not in tabulate.tabulate_formats:
        known = ", ".join(["records", "pandas", *TEXTS])
        raise ValueError(f"table_fmt: got {table_fmt!r}, wanted {known} or a format of tabulate")
    return tabulate.tabulate(cells, list(headers), tablefmt=table_fmt, disable_numparse=True)


def cell_text(value: Any, precision: int = 4, percent: bool = False) -> str:
    """Fixed decimals, or scientific ones for what these would hide."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, tuple):
        return f"[{', '.join(cell_text(end, precision) for end in value)}]"
    if percent:
        return f"{value:.{max(precision - 2, 0)}%}"
    if isinstance(value, int):
        return str(value)
    return f"{value:.{precision}{'e' if 0 < abs(value) <= 10.0**-precision else 'f'}}"


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_plain(end) for end in value)
    return value.item() if isinstance(value, Tensor) else value


def _below(value: Any, limit: float) -> bool:
    return isinstance(value, float) and -math.inf < limit and value <= limit


def _aligned(headers: list[str], cells: list[list[str]], numeric: list[bool]) -> list[list[str]]:
    widths = [max(3, *map(len, column)) for column in zip(headers, *cells, strict=True)]
    return [
        [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ]
        for row in (headers, *cells)
    ]


def _pipe(headers: list[str], cells: list[list[str]], numeric: list[bool], colons: bool = True) -> str:
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in cells]
    lines = _aligned(headers, escaped, numeric)
    rule = ["-" * (len(h) - 1) + (":" if right and colons else "-") for h, right in zip(lines[0], numeric, strict=True)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (lines[0], rule, *lines[1:]))


def _github(headers: list[str], cells: list[list[str]], numeric: list[bool]) -> str:
    return _pipe(headers, cells, numeric, colons=False)


def _aligned_text(headers: list[str], cells: list[list[str]], numeric: list[bool]) -> str:
    return "\n".join("  ".join(line).rstrip() for line in _aligned(headers, cells, numeric))


def _html(headers: list[str], cells: list[list[str]], numeric: list[bool]) -> str:
    def row(tag: str, line: list[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in line) + "</tr>"

    body = "\n".join(row("td", line) for line in cells)
    return f"<table>\n<thead>\n{row('th', headers)}\n</thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _latex(headers: list[str], cells: list[list[str]], numeric: list[bool]) -> str:
    def row(line: list[str]) -> str:
        return " & ".join(cell.replace("\\", r"\textbackslash ").translate(ESCAPES) for cell in line) + r" \\"

    columns = "".join("r" if right else "l" for right in numeric)
    lines = [rf"\begin{{tabular}}{{{columns}}}", r"\hline", row(headers), r"\hline", *map(row, cells), r"\hline"]
    return "\n".join([*lines, r"\end{tabular}"])


def _csv(headers: list[str], cells: list[list[str]], numeric: list[bool]) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([headers, *cells])
    return file.getvalue().rstrip("\n")


TEXTS = {
    "github": _github,
    "pipe": _pipe,
    "html": _html,
    "latex": _latex,
    "csv": _csv,
    "plain": _aligned_text,
}


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise ImportError(
            "table_fmt 'pandas' needs pandas: pip install \"tensormetrics[tables]\", or use 'records'"
        ) from None
    return pandas


def _tabulate() -> Any:
    try:
        import tabulate
    except ImportError:
        raise ImportError(
            'this table_fmt needs tabulate: pip install "tensormetrics[tables]", or use ' + ", ".join(map(repr, TEXTS))
        ) from None
    return tabulate
