"""Formats of a `Table`, here `table`: writers of text, LaTeX, CSV and JSON, and the reader of JSON."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from ..arguments import checks
from ..text.files import parsing, read_text
from .cells import Cell
from .estimates import Comparison, Estimate
from .formatting import interval_text, value_rows
from .result import Result
from .text_tables import cell_text, escaped_latex, json_value, latex_tabular, rendered

SCHEMA = "tensormetrics/table/1"
EXTRA_FIELDS = "low", "high", "p_value", "p_better", "p_rope", "p_corrected", "p_not_worse", "p_equivalent"
Intervals: TypeAlias = Literal["brackets", "plusminus"] | None


def value_of(cell: Cell) -> float:
    """Return the number of a cell, NaN if it has none."""
    return math.nan if cell is None or isinstance(cell, str) else float(cell)


def to_text(table: Any, text_format: str, precision: int = 3) -> str:
    headers = [table.index, *table.higher_is_better]
    rows = [
        [name, *(_text(cell, precision) for cell in row)] for name, row in zip(table.rows, table.cells, strict=True)
    ]
    return rendered(text_format, headers, rows, precision)


def _text(cell: Cell, precision: int, intervals: Intervals = "brackets") -> Any:
    """Write a result as text; numbers, texts and None stay."""
    if not isinstance(cell, Result):
        return cell
    is_comparison = isinstance(cell, Comparison)
    return interval_text(*value_rows(cell)[0], precision=precision, is_signed=is_comparison, intervals=intervals)


def to_latex(table: Any, precision: int, intervals: Intervals, bold: str | None, booktabs: bool) -> str:
    checks.check_choice("intervals", intervals, ("brackets", "plusminus", None))
    checks.check_choice("bold", bold, ("best", "tied", None))
    is_bold = {name: _bold_rows(table, name, bold) for name in table.higher_is_better}
    rows = []
    for name, row in zip(table.rows, table.cells, strict=True):
        texts = [cell_text(_text(cell, precision, intervals), precision) for cell in row]
        bolds = [name in names for names in is_bold.values()]
        is_number = [not isinstance(cell, str) for cell in row]
        rows.append([escaped_latex(name), *map(_latex_cell, texts, is_number, bolds)])
    is_text = [any(isinstance(row[i], str) for row in table.cells) for i in range(len(table.higher_is_better))]
    numeric = [False, *(not text for text in is_text)]
    return latex_tabular([*map(escaped_latex, (table.index, *table.higher_is_better))], rows, numeric, booktabs)


def _bold_rows(table: Any, column: str, bold: str | None) -> Sequence[str]:
    higher = table.higher_is_better[column]
    values = {row: value_of(table[row, column]) for row in table.rows}
    values = {row: value for row, value in values.items() if not math.isnan(value)}
    if bold is None or higher is None or not values:
        return ()
    best = (max if higher else min)(values.values())
    tied = table.tied(column) if bold == "tied" else ()
    return [row for row, value in values.items() if value == best or row in tied]


def _latex_cell(text: str, is_number: bool, is_bold: bool) -> str:
    if not is_number:
        return escaped_latex(text)
    value, space, interval = map(escaped_latex, text.replace("-", "\N{MINUS SIGN}").partition(" "))
    return (rf"\textbf{{{value}}}" if is_bold else value) + space + interval


def latex_float(tabular: str, caption: str | None, label: str | None) -> str:
    """Return a `table` around a tabular where there is a caption or a label."""
    if label is not None and not re.fullmatch(r"[\w:.-]+", label, re.ASCII):
        raise ValueError(f"label: got {label!r}, wanted letters, digits and any of : _ . -")
    if caption is None and label is None:
        return tabular
    lines = [r"\begin{table}", r"\centering"]
    lines += [rf"\caption{{{escaped_latex(caption)}}}"] if caption is not None else []
    lines += [rf"\label{{{label}}}"] if label is not None else []
    return "\n".join([*lines, tabular, r"\end{table}"])


def frame_columns(table: Any, style: str = "numbers") -> tuple[list[str], list[list[Any]]]:
    """Return headers and rows: texts, or numbers with a separate column for each end and each p-value."""
    checks.check_choice("style", style, ("numbers", "text"))
    if style == "text":
        return [*table.higher_is_better], [[cell_text(_text(cell, 3), 3) for cell in row] for row in table.cells]
    headers: list[str] = []
    columns: list[list[Any]] = []
    for i, name in enumerate(table.higher_is_better):
        cells = [row[i] for row in table.cells]
        fields = [field for field in EXTRA_FIELDS if any(isinstance(getattr(x, field, None), Tensor) for x in cells)]
        headers += [name, *(f"{name}/{field}" for field in fields)]
        columns.append([float(cell) if isinstance(cell, Result) else cell for cell in cells])
        columns += [[_field(cell, field) for cell in cells] for field in fields]
    return headers, [list(row) for row in zip(*columns, strict=True)]


def _field(cell: Cell, field: str) -> float | None:
    value = getattr(cell, field, None)
    return None if value is None else float(value)


def to_csv(table: Any) -> str:
    headers, rows = frame_columns(table)
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([table.index, *headers])
    writer.writerows([name, *row] for name, row in zip(table.rows, rows, strict=True))
    return file.getvalue()


def document_of(table: Any) -> dict[str, Any]:
    columns = [{"name": name, "higher_is_better": better} for name, better in table.higher_is_better.items()]
    rows = [
        {
            "name": name,
            "cells": {column: _encoded(cell) for column, cell in table._row(name).items() if cell is not None},
        }
        for name in table.rows
    ]
    texts = {"title": table.title, "caption": table.caption, "index": table.index}
    models = {"models": document_of(table.models)} if hasattr(table, "models") else {}
    return {"schema": SCHEMA, **texts, "columns": columns, "rows": rows, **models}


def _encoded(cell: Cell) -> Any:
    if isinstance(cell, str):
        return cell
    return json_value(cell.to_dict() if isinstance(cell, Result) else {"value": cell})


def name_of(source: str | os.PathLike) -> str:
    """Return how errors call a text, "source", or the path of a file."""
    return "source" if _is_text(source) else str(source)


def _is_text(source: str | os.PathLike) -> bool:
    return isinstance(source, str) and source.lstrip().startswith("{")


def from_json(source: str | os.PathLike) -> dict[str, Any]:
    """Return the arguments of the `Table` that a text or file holds, and as "models" those of a table of models."""
    where = name_of(source)
    text = str(source) if _is_text(source) else read_text(source)
    with parsing(where, "what Table.to_json wrote"):
        document = json.loads(text)
    return _arguments(document, where)


def _arguments(document: Any, where: str) -> dict[str, Any]:
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        got = document.get("schema") if isinstance(document, dict) else type(document).__name__
        raise ValueError(f"{where}: got the schema {got!r}, wanted {SCHEMA!r}")
    try:
        columns = {column["name"]: column["higher_is_better"] for column in document["columns"]}
        cells = [{name: _decoded(cell) for name, cell in row["cells"].items()} for row in document["rows"]]
        texts = {name: document[name] for name in ("title", "caption", "index")}
        models = {"models": _arguments(document["models"], where)} if "models" in document else {}
        rows = [row["name"] for row in document["rows"]]
        return {"rows": rows, "columns": columns, "cells": cells, **texts, **models}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{where}: does not fit {SCHEMA!r}: {type(error).__name__}: {error}") from error


def _decoded(cell: Any) -> Cell:
    if isinstance(cell, str):
        return cell
    if cell.keys() == {"value"}:
        return cell["value"] if isinstance(cell["value"], int) else _float(cell["value"])
    kind = Comparison if "difference" in cell else Estimate
    fields = {name: _decoded_field(kind, name, field) for name, field in cell.items()}
    return kind(**fields)


def _decoded_field(kind: type[Estimate] | type[Comparison], name: str, field: Any) -> Any:
    if isinstance(field, dict):
        return _decoded(field)
    if name in kind.tensors or (name in kind.optional and field is not None):
        return torch.tensor(_float(field), dtype=torch.float64, device="cpu")
    return tuple(field) if isinstance(field, list) else field


def _float(value: float | str | None) -> float:
    return math.nan if value is None else float(value)
