"""Tables of fractions of simulated data sets for the pages on coverage."""

import argparse
from collections.abc import Iterable

from _common import conditions

Cells = tuple[str, ...]


class Report:
    """Report of several tables under one heading, printed and written to `--output` line by line."""

    def __init__(self, options: argparse.Namespace, title: str, packages: tuple[str, ...]) -> None:
        self._output, self._lines = options.output, []
        self._write(f"# {title}", "", conditions(options, packages))

    def table(self, title: str, columns: Cells, rows: Iterable[Cells]) -> None:
        self._write("", title, "", f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}")
        for row in rows:
            self._write(f"| {' | '.join(row)} |")

    def _write(self, *lines: str) -> None:
        self._lines += lines
        print(*lines, sep="\n", flush=True)
        if self._output:
            self._output.write_text("\n".join([*self._lines, ""]))


def fraction(x: float) -> str:
    """Write .950 for .95."""
    return f"{x:.3f}".removeprefix("0")
