"""Report of the measurements of one machine, a section for each benchmark, and the rows that the README quotes."""

import re
from pathlib import Path
from typing import NamedTuple

GPU, MACHINE = "gpu.md", "2-core-x86-avx512.md"  # the reports that the README quotes
MARKS = "<!-- from benchmarks/results: python -m benchmarks --readme -->\n", "<!-- end -->\n"


class Quote(NamedTuple):
    """Row of the README: two cells of a row of a report, named by its section, its first cells and their columns."""

    operation: str
    rival: str
    report: str
    section: str
    row: str
    column: str
    rival_column: str


QUOTES = [
    Quote(
        "three scores of 60,000 embeddings, 6,000 classes",
        "pytorch-metric-learning with FAISS on the card",
        *(GPU, "Times", "`calculator 60k R neighbors`", "ours", "rivals"),
    ),
    Quote(
        "exact k-NN, 60,000 x 128, k = 10",
        "FAISS on the card",
        *(GPU, "Times", "`knn 60k D128 k10`", "ours", "rivals"),
    ),
    Quote(
        "208 matching problems of 300 x 300",
        "torch-linear-assignment on the card",
        *(GPU, "Times", "`lsa 208x300x300`", "ours", "rivals"),
    ),
    Quote("a WEAT query, 25 + 25 words", "WEFE", MACHINE, "association", "WEAT 25+25 to 25+25 | 2", "ours", "WEFE"),
    Quote(
        "12 metrics of 10,000 posterior samples, 100 classes",
        "prob_conf_mat",
        *(MACHINE, "posterior", "100 classes, 10000 samples, 12 metrics", "ours s", "peer s"),
    ),
    Quote(
        "1,000 documents of 12 x 12 events, from objects",
        "metametric",
        *(MACHINE, "structured_objects", "1000 documents of 12x12 events", "tensormetrics", "metametric"),
    ),
]


def with_section(report: str, machine: str, name: str, table: str) -> str:
    """Return the report with the table of a benchmark instead of an older one; its title becomes the heading."""
    title, _, body = table.strip().removeprefix("# ").partition("\n")
    sections = _sections(report) | {name: f"## {name}: {title}\n\n{body.strip()}\n"}
    return f"# Measured on {machine}\n\n" + "\n".join(sections[key] for key in sorted(sections))


def _sections(report: str) -> dict[str, str]:
    parts = re.split(r"^(?=## )", report, flags=re.MULTILINE)[1:]
    return {re.match(r"## (\w+)", part)[1]: part.rstrip() + "\n" for part in parts}


def quoted(results: Path) -> str:
    """Return the table of the README, from the reports in a folder."""
    lines = ["| on | operation | ours | theirs | theirs / ours |", "|---|---|---|---|---|"]
    for quote in QUOTES:
        rows = _rows(_sections((results / quote.report).read_text())[quote.section])
        ours = _seconds(rows, quote.row, quote.column)
        theirs = _seconds(rows, quote.row, quote.rival_column)
        cells = quote.operation, _written(ours), f"{_written(theirs)}, {quote.rival}", _rounded(theirs / ours, 2)
        lines.append(f"| {'one H100' if quote.report == GPU else 'two cores'} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _rows(section: str) -> list[dict[str, str]]:
    # ->  a dictionary column -> cell for every row of every table in the section
    rows, head = [], []
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
        if not cells or set(line) <= set("|-: "):
            head = head if cells else []
        elif not head:
            head = cells
        else:
            rows.append(dict(zip(head, cells, strict=True)))
    return rows


def _seconds(rows: list[dict[str, str]], start: str, column: str) -> float:
    fitting = [row for row in rows if column in row and " | ".join(row.values()).startswith(start + " | ")]
    if len(fitting) != 1:
        raise ValueError(f"{len(fitting)} rows begin with {start!r} and have a column {column!r}, wanted one")
    number = r"([\d,]*\.?\d+(?:e[+-]\d+)?)"
    value = re.match(number, fitting[0][column]) or re.search(rf"{number}(?=$|, )", fitting[0][column])
    seconds = float(value[1].replace(",", ""))
    return seconds if column.endswith(" s") else seconds / 1000


def _written(seconds: float) -> str:
    return f"{_rounded(seconds, 3)} s" if seconds >= 1 else f"{_rounded(1000 * seconds, 3)} ms"


def _rounded(value: float, digits: int) -> str:
    return f"{float(f'{value:.{digits}g}'):,.10g}"


def write_readme(readme: Path, results: Path) -> None:
    """Write the table between its marks."""
    before, mark, rest = readme.read_text().partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not mark or not end:
        raise ValueError(f"{readme}: wanted the lines {MARKS[0].strip()!r} and {MARKS[1].strip()!r}")
    readme.write_text(before + mark + quoted(results) + end + after)
