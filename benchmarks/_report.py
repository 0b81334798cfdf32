"""Report of the measurements of one machine, a section for each benchmark, and the rows that the README quotes."""

import re
import textwrap
from pathlib import Path
from typing import NamedTuple

MACHINE = "2-core-x86-avx512.md"  # the report that the README quotes
MARKS = "<!-- from benchmarks/results: python -m benchmarks --readme -->\n", "<!-- end -->\n"
RATIOS = "<!-- ratios from benchmarks/results: python -m benchmarks --readme -->\n", "<!-- end of ratios -->\n"


class Quote(NamedTuple):
    """Row of the README: two cells of a section, each named by the first cells of its row and by its column."""

    operation: str
    rival: str
    section: str
    row: str
    column: str
    rival_column: str
    rival_row: str = ""  # if it differs from that of ours


QUOTES = [
    Quote(
        "all ranks of 10,000 embeddings: five scores, k = None",
        "pytorch-metric-learning",
        "retrieval",
        "five scores, 10,000 x 128, 100 classes, k = None | ours",
        "wall s",
        "wall s",
        "five scores, 10,000 x 128, 100 classes, k = None | peer, faiss",
    ),
    Quote(
        "three scores of 60,000 embeddings, 6,000 classes, k = 10",
        "pytorch-metric-learning",
        "retrieval",
        "three scores, 60,000 x 128, 6,000 classes, k = 10 | ours",
        "wall s",
        "wall s",
        "three scores, 60,000 x 128, 6,000 classes, k = 10 | peer, faiss",
    ),
    Quote(
        "exact k-NN, 60,000 x 128, k = 10",
        "faiss-cpu",
        "retrieval",
        "search, 60,000 x 128, k = 10 | ours",
        "wall s",
        "wall s",
        "search, 60,000 x 128, k = 10 | faiss",
    ),
    Quote(
        "exact k-NN, 10,000 x 128, k = 10",
        "faiss-cpu",
        "retrieval",
        "search, 10,000 x 128, k = 10 (faiss differs in 0.0e+00 of the entries) | ours",
        "wall s",
        "wall s",
        "search, 10,000 x 128, k = 10 (faiss differs in 0.0e+00 of the entries) | faiss",
    ),
    Quote(
        "AMI, 60,000 items, 6,000 classes and clusters",
        "scikit-learn",
        "retrieval_clustering",
        "AMI, 60,000 items, 6,000 x 6,000",
        "tensormetrics",
        "scikit-learn",
    ),
    Quote("a WEAT query, 25 + 25 words", "WEFE", "association", "WEAT 25+25 to 25+25 | 2", "ours", "WEFE"),
    Quote("an RND query, 25 + 25 words", "WEFE", "association", "RND 25+25 to 25 | 2", "ours", "WEFE"),
    Quote(
        "a WEAT query with 10,000 permutations (WEFE: 5 of them, times 2,000)",
        "WEFE",
        "association",
        "WEAT with p-value, 10,000 permutations (WEFE: 5 draws times 2000) | 2",
        "ours",
        "WEFE",
    ),
    Quote("2,106 RND sub-queries", "WEFE", "association", "run_queries, RND, 2,106 sub-queries | 2", "ours", "WEFE"),
    Quote(
        "12 metrics of 10,000 posterior samples, 100 classes",
        "prob_conf_mat",
        "posterior",
        "100 classes, 10000 samples, 12 metrics",
        "ours s",
        "peer s",
    ),
    Quote(
        "45 comparisons of 10 experiments, 100 classes",
        "prob_conf_mat",
        "posterior_study",
        "45 comparisons, 100 classes, 1000 samples at hand",
        "ours ms",
        "peer ms",
    ),
    Quote(
        "10 experiments of 1,000,000 samples pooled by beta",
        "prob_conf_mat",
        "posterior_study",
        "10 experiments of 1000000 samples pooled by beta",
        "ours ms",
        "peer ms",
    ),
    Quote(
        "1,000 documents of 12 x 12 events, from objects",
        "metametric",
        "structured_objects",
        "1000 documents of 12x12 events",
        "tensormetrics",
        "metametric",
    ),
    Quote(
        "1,000 JSON documents of 30 values, all fields",
        "stickler",
        "structured_fields",
        "1000 documents, lists of 1 to 11",
        "tensormetrics s",
        "stickler s",
    ),
    Quote(
        "coreference of 300 documents, all metrics",
        "scorch",
        "structured",
        "the same from lists of clusters | 1",
        "ours",
        "rival",
    ),
    Quote(
        "entities of 3,453 sentences, tags to report",
        "seqeval",
        "structured_corpora",
        "entities, 3,453 sentences as in CoNLL-2003, report, against seqeval",
        "ours",
        "rival",
    ),
    Quote(
        "five measures of a million ranked documents, from files",
        "pytrec_eval",
        "retrieval_runs",
        "1,000 queries of 1,000 documents",
        "ours ms",
        "pytrec_eval ms",
    ),
    Quote(
        "Smatch of two graphs, 20 variables, proved optimal", "smatchpp", "structured_latent", "20", "batch", "smatchpp"
    ),
    Quote(
        "10,000 matching problems of 30 x 30",
        "scipy",
        "assignment",
        "uniform 10000 x 30 x 30",
        "ours 64 ms",
        "scipy ms",
    ),
    Quote(
        "one matching problem of 1,000 x 1,000",
        "scipy",
        "assignment",
        "geometric 1 x 1000 x 1000",
        "ours 64 ms",
        "scipy ms",
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


def quoted(report: str) -> str:
    """Return the table of the README."""
    lines = ["| operation | ours | theirs | theirs / ours |", "|---|---|---|---|"]
    for quote, ours, theirs in _measured(report):
        times = _rounded(theirs / ours, 2)
        lines.append(f"| {quote.operation} | {_written(ours)} | {_written(theirs)}, {quote.rival} | {times} |")
    return "\n".join(lines) + "\n"


def ratios(report: str) -> str:
    """Return the README's sentence: for each rival, the range of ratios of the quoted rows."""
    factors: dict[str, list[float]] = {}
    for quote, ours, theirs in _measured(report):
        factors.setdefault(quote.rival, []).append(theirs / ours)
    spans = {rival: dict.fromkeys(_rounded(end(times), 2) for end in (min, max)) for rival, times in factors.items()}
    parts = ", ".join(f"{rival} {' to '.join(span)}" for rival, span in spans.items())
    text = f"Times faster than these, on two CPU cores, values checked first ([how](#how-fast)): {parts}."
    return "\n".join(textwrap.wrap(text, 120, break_on_hyphens=False)) + "\n"


def _measured(report: str) -> list[tuple[Quote, float, float]]:
    # ->  each quote with our seconds and those of the rival
    tables = {name: _rows(section) for name, section in _sections(report).items()}
    return [
        (
            quote,
            _seconds(tables[quote.section], quote.row, quote.column),
            _seconds(tables[quote.section], quote.rival_row or quote.row, quote.rival_column),
        )
        for quote in QUOTES
    ]


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
    value = float(re.match(r"[\d.]+(e[+-]\d+)?", fitting[0][column].replace(",", ""))[0])
    return value if column.endswith(" s") else value / 1000


def _written(seconds: float) -> str:
    return f"{_rounded(seconds, 3)} s" if seconds >= 1 else f"{_rounded(1000 * seconds, 3)} ms"


def _rounded(value: float, digits: int) -> str:
    return f"{float(f'{value:.{digits}g}'):,.10g}"


def write_readme(readme: Path, report: Path) -> None:
    """Write the table and the sentence between their marks."""
    text, results = readme.read_text(), report.read_text()
    for marks, content in (RATIOS, ratios(results)), (MARKS, quoted(results)):
        before, mark, rest = text.partition(marks[0])
        _, end, after = rest.partition(marks[1])
        if not mark or not end:
            raise ValueError(f"{readme}: wanted the lines {marks[0].strip()!r} and {marks[1].strip()!r}")
        text = before + mark + content + end + after
    readme.write_text(text)
