"""Tables as text: how cells are written, and the formats."""

import csv
import html
import io
import math
from collections.abc import Sequence
from typing import Any

ESCAPES = str.maketrans({c: f"\\{c}" for c in "%&_#${}"})


def rendered(table_fmt: str, headers: Sequence[str], rows: Sequence[Sequence[Any]], precision: int = 4) -> str:
    """Numbers, and columns of them, stand to the right."""
    numeric = [all(not isinstance(row[i], str) for row in rows) for i in range(len(headers))]
    return TEXTS[table_fmt](list(headers), [[cell_text(cell, precision) for cell in row] for row in rows], numeric)


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
    hidden = 0 < abs(value) <= 10.0**-precision or 1e6 <= abs(value) < math.inf
    return f"{value:.{precision}{'e' if hidden else 'f'}}"


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
