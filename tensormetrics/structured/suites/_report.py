"""Scores of labels as a table of text."""

from collections.abc import Sequence

from torch import Tensor

from ...core.arguments import checks
from ...core.results.estimates import Estimate

HEAD = ("precision", "recall", "f1-score", "support")

Row = tuple[str, Sequence[Tensor | Estimate], int]  # name, scores, support


def report_text(rows: Sequence[Row], means: Sequence[Row], digits: int) -> str:
    """Return a table in the form of scikit-learn's and seqeval's `classification_report`, estimates with intervals."""
    digits = checks.check_int("digits", digits, 0)

    def cell(score: Tensor | Estimate) -> str:
        return format(score if isinstance(score, Estimate) else float(score), f".{digits}f")

    table = [[(name, *map(cell, scores), str(support)) for name, scores, support in part] for part in (rows, means)]
    cells = [text for part in table for _, *scores, _ in part for text in scores]
    wide = max(9, *map(len, cells))
    name_width = max(12, digits, *(len(row[0]) for part in table for row in part))
    widths = (name_width, wide, wide, wide, 9)

    def line(row: Sequence[str]) -> str:
        first, *others = (text.rjust(width) for text, width in zip(row, widths, strict=True))
        return f"{first}  {' '.join(others)}"

    blocks = [[line(row) for row in part] for part in table if part]
    return "\n".join([line(("", *HEAD)), "", *(text for block in blocks for text in [*block, ""])])
