"""Reports and explanations as self-contained HTML pages without scripts, for light and dark displays."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from html import escape
from typing import Any

from ...core.results.estimates import Comparison, Estimate
from ...core.results.table import Table
from ...core.results.table_formats import value_of

STYLE = """
:root { color-scheme: light dark; --line: #d0d0d0; --mark: #ffe28a; --error: #a40000; }
@media (prefers-color-scheme: dark) { :root { --line: #505050; --mark: #6b5600; --error: #ff9d9d; } }
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--line); padding: .2rem .6rem; text-align: left; vertical-align: top; }
td.number, th.number { text-align: right; white-space: nowrap; }
code { font: 13px/1.4 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
mark { background: var(--mark); color: inherit; }
.error { color: var(--error); font-weight: 600; }
summary { cursor: pointer; padding: .3rem 0; }
svg { vertical-align: middle; }
"""
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{body}
</body>
</html>
"""
INDENT = 1.2  # em for each level
WIDTH, HEIGHT = 120, 14  # of the picture of an interval


def report_page(report: Any, worst: int = 10, other: Any = None) -> str:
    """Return the page of a report: its table with pictures of the intervals, and the documents of lowest similarity.

    Args:
        report: A `FieldReport`.
        worst: Maximum number of documents that are explained.
        other: Report of another model to compare with.
    """
    table = report.table()
    remarks = [f"<p>{escape(line)}</p>" for line in (table.caption or "").splitlines()]
    parts = ["<h1>Fields</h1>", _table(table, picture="f1"), *remarks]
    if other is not None:
        parts += ["<h2>Comparison</h2>", "<p>a: this model, b: the other one.</p>", _table(report.compare(other))]
    shown = [document for document in report.worst(worst) if document.num_errors or document.similarity < 1]
    if shown:
        parts.append("<h2>Documents of lowest similarity</h2>")
        for n, explanation in enumerate(report.explain(document.id) for document in shown):
            summary = f"<summary>{escape(explanation.title())}</summary>"
            parts.append(f"<details{'' if n else ' open'}>{summary}{explanation_html(explanation)}</details>")
    return page("Fields of structured documents", parts)


def page(title: str, parts: Sequence[str]) -> str:
    """Return a complete HTML page."""
    return PAGE.format(title=escape(title), style=STYLE, body="\n".join(parts))


def explanation_html(explanation: Any) -> str:
    """Return the table of an explanation, with correct rows in a collapsed element."""
    excerpt = f"<p><code>{escape(explanation.excerpt)}</code></p>" if explanation.excerpt else ""
    errors = _aligned_table(explanation.shown_rows())
    num_folded = len(explanation.rows) - len(explanation.shown_rows())
    if not num_folded:
        return excerpt + errors
    full_table = (
        f"<details><summary>All {len(explanation.rows)} rows</summary>{_aligned_table(explanation.rows)}</details>"
    )
    return f"{excerpt}{errors}{full_table}"


def _aligned_table(rows: Sequence[Any]) -> str:
    if not rows:
        return "<p>No errors.</p>"
    lines = []
    for row in rows:
        prediction, reference = _mark_differences(row.texts, row.status in ("wrong", "near miss"))
        kind = ' class="error"' if row.status not in ("", "correct") else ""
        name = f'<td style="padding-left: {0.6 + INDENT * row.depth:.1f}em">{escape(row.name)}</td>'
        cells = f"<td><code>{prediction}</code></td><td><code>{reference}</code></td>"
        lines.append(f"<tr>{name}{cells}<td{kind}>{escape(row.status_text)}</td></tr>")
    head = "".join(f'<th scope="col">{name}</th>' for name in ("path", "prediction", "reference", "status"))
    return _scrollable(f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>")


def _mark_differences(texts: tuple[str, str], marks: bool) -> tuple[str, str]:
    """Return two texts as HTML; `marks` highlights the differences of similar texts."""
    prediction, reference = texts
    matcher = difflib.SequenceMatcher(None, prediction, reference, autojunk=False)
    if not marks or not prediction or not reference or matcher.ratio() < 0.5:
        return escape(prediction), escape(reference)
    marked: tuple[list[str], list[str]] = [], []
    for tag, *ends in matcher.get_opcodes():
        for target, text, (start, stop) in zip(marked, (prediction, reference), (ends[:2], ends[2:]), strict=True):
            part = escape(text[start:stop])
            target.append(f"<mark>{part}</mark>" if part and tag != "equal" else part)
    return "".join(marked[0]), "".join(marked[1])


def _table(table: Table, picture: str = "") -> str:
    columns = list(table.columns)
    head = f'<th scope="col">{escape(table.index or "")}</th>'
    head += "".join(f'<th scope="col" class="number">{escape(name)}</th>' for name in columns)
    head += f'<th scope="col">{escape(picture)} with its interval</th>' if picture else ""
    lines = []
    for row in table.rows:
        cells = "".join(f'<td class="number">{escape(_cell(table[row, name]))}</td>' for name in columns)
        drawing = f"<td>{_interval(table[row, picture])}</td>" if picture else ""
        lines.append(f'<tr><th scope="row">{escape(row)}</th>{cells}{drawing}</tr>')
    return _scrollable(f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>")


def _cell(value: Any) -> str:
    if value is None or value != value:
        return "-"
    if isinstance(value, Estimate | Comparison):
        return "-" if value_of(value) != value_of(value) else format(value, ".2f")
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _interval(value: Any) -> str:
    """Return a picture of a number in [0, 1] with its interval."""
    estimate = value_of(value)
    if estimate != estimate:
        return ""
    x, center = WIDTH * estimate, HEIGHT / 2
    line = ""
    if isinstance(value, Estimate):
        low, high = (WIDTH * float(end) for end in (value.low, value.high))
        line = (
            f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{center}" y2="{center}" stroke="currentColor" stroke-width="2"/>'
        )
    label = escape(_cell(value) if isinstance(value, Estimate) else f"{estimate:.2f}")
    frame = f'<line x1="0" x2="{WIDTH}" y1="{HEIGHT}" y2="{HEIGHT}" stroke="currentColor" stroke-opacity=".3"/>'
    dot = f'<circle cx="{x:.1f}" cy="{center}" r="3.5" fill="currentColor"/>'
    size = f'width="{WIDTH + 8}" height="{HEIGHT + 2}" viewBox="-4 0 {WIDTH + 8} {HEIGHT + 2}"'
    return f'<svg {size} role="img" aria-label="{label}">{frame}{line}{dot}</svg>'


def _scrollable(table: str) -> str:
    return f'<div class="scroll" tabindex="0">{table}</div>'
