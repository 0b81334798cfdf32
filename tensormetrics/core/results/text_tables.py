"""Tables as text: how cells are written, and the formats."""

import csv
import html
import io
import math
import os
import unicodedata
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..text.files import open_atomic

GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho varsigma sigma tau "
    "upsilon phi chi psi omega"
).split()
GREEK_CAPITALS = "Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega".split()  # others look like Latin letters
LATEX = {
    **{character: f"\\{character}" for character in "{}$&#_%"},
    **{"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"},
    **{
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "\n": " ",
        "\t": " ",
        "\N{NO-BREAK SPACE}": "~",
    },
    **{"\N{MINUS SIGN}": "$-$", "±": r"$\pm$", "×": r"$\times$", "≤": r"$\leq$", "≥": r"$\geq$", "≠": r"$\neq$"},
    **{"→": r"$\rightarrow$", "∞": r"$\infty$", "\N{EN DASH}": "--", "\N{EM DASH}": "---", "\N{MICRO SIGN}": r"$\mu$"},
    **{chr(ord("α") + i): rf"$\{name}$" for i, name in enumerate(GREEK)},
    **{chr(ord("Α") + GREEK.index(name.lower())): rf"$\{name}$" for name in GREEK_CAPITALS},
    "ο": "o",
}
LATEX_TABLE = str.maketrans(LATEX)


def rendered(table_fmt: str, headers: Sequence[str], rows: Sequence[Sequence[Any]], precision: int = 4) -> str:
    """Format a table as text; numbers, and columns of numbers, are aligned to the right."""
    numeric = [all(not isinstance(row[i], str) for row in rows) for i in range(len(headers))]
    return TEXTS[table_fmt](list(headers), [[cell_text(cell, precision) for cell in row] for row in rows], numeric)


def cell_text(value: Any, precision: int = 4) -> str:
    """Format a cell: fixed decimals, or scientific notation for numbers that these would hide."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, tuple):
        return f"[{', '.join(cell_text(end, precision) for end in value)}]"
    if isinstance(value, int):
        return str(value)
    is_scientific = 0 < abs(value) <= 10.0**-precision or 1e6 <= abs(value) < math.inf
    return f"{value:.{precision}{'e' if is_scientific else 'f'}}"


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


def _aligned_text(headers: list[str], cells: list[list[str]], numeric: list[bool]) -> str:
    return "\n".join("  ".join(line).rstrip() for line in _aligned(headers, cells, numeric))


def _html(headers: list[str], cells: list[list[str]], numeric: list[bool]) -> str:
    def row(tag: str, line: list[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in line) + "</tr>"

    body = "\n".join(row("td", line) for line in cells)
    return f"<table>\n<thead>\n{row('th', headers)}\n</thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _latex(headers: list[str], cells: list[list[str]], numeric: list[bool]) -> str:
    return latex_tabular(
        [escaped_latex(header) for header in headers], [[*map(escaped_latex, row)] for row in cells], numeric
    )


def latex_tabular(
    headers: Sequence[str], cells: Sequence[Sequence[str]], numeric: Sequence[bool], booktabs: bool = False
) -> str:
    """Return a `tabular` of texts that are LaTeX already."""

    def row(line: Sequence[str]) -> str:
        return " & ".join(line) + r" \\"

    rules = (r"\toprule", r"\midrule", r"\bottomrule") if booktabs else (r"\hline",) * 3
    columns = "".join("r" if right else "l" for right in numeric)
    lines = [rf"\begin{{tabular}}{{{columns}}}", rules[0], row(headers), rules[1], *map(row, cells), rules[2]]
    return "\n".join([*lines, r"\end{tabular}"])


def escaped_latex(text: str) -> str:
    """Write a text so that pdflatex and XeLaTeX print it; UserWarning for characters that fonts may lack."""
    for character in sorted({c for c in text if not c.isascii() and c not in LATEX}):
        if unicodedata.name(character, "").startswith("LATIN ") and character.isalpha():
            continue
        warnings.warn(f"{character!r} (U+{ord(character):04X}): LaTeX's fonts may lack it", stacklevel=2)
    return text.translate(LATEX_TABLE)


def import_pandas() -> Any:
    """Import pandas; the ImportError names the extra that has it."""
    try:
        import pandas
    except ImportError:
        raise ImportError('tables need pandas; write pip install "tensormetrics[tables]"') from None
    return pandas


def _csv(headers: list[str], cells: list[list[str]], numeric: list[bool]) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([headers, *cells])
    return file.getvalue().rstrip("\n")


def data_frame(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], names: Sequence[str], index_name: str | None = None
) -> Any:
    """Return a pandas DataFrame of rows that have names."""
    pandas = import_pandas()
    return pandas.DataFrame(list(rows), columns=list(columns), index=pandas.Index(list(names), name=index_name))


TEXTS: dict[str, Callable[..., str]] = {
    "github": partial(_pipe, colons=False),
    "pipe": _pipe,
    "html": _html,
    "latex": _latex,
    "csv": _csv,
    "plain": _aligned_text,
}


def json_value(value: Any) -> Any:
    """Convert a value to JSON types: NaN becomes null and an infinity a text, since JSON has neither."""
    if isinstance(value, dict):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def saved(text: str, path: str | os.PathLike | None) -> str:
    """Return the text, and write it to `path` if there is one."""
    if path is not None:
        with open_atomic(path) as file:
            file.write(text.encode())
    return text
