"""Readers of text files: lines, rows of cells, and JSON."""

import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...core.text.files import is_empty, parsing, read_text
from ...core.text.tables import Row, read_cells
from ..option_types import BadInput


def existing(file: str | Path) -> Path:
    path = Path(file)
    if path.is_dir():
        raise BadInput(f"{file}: this is a folder, wanted a file")
    if not path.exists():
        raise BadInput(f"{file}: there is no such file")
    if not os.access(path, os.R_OK):
        raise BadInput(f"{file}: this file may not be read")
    if is_empty(path):
        raise BadInput(f"{file}: the file is empty")
    return path


def open_text(file: str | Path) -> io.StringIO:
    """Read the text of a file with any line ends."""
    return io.StringIO(read_text(existing(file)), newline=None)


def rows_of(file: str | Path) -> list[Row]:
    """Read the rows of a table that are not blank."""
    return [*read_cells(read_text(existing(file)), file)[1]]


def json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield (line number, value) of every line that is not blank."""
    for line, text in enumerate(open_text(path), 1):
        if text.strip():
            with parsing(f"{path}, line {line}", "JSON"):
                value = json.loads(text.rstrip(), parse_constant=_refuse)
            yield line, value


def _refuse(constant: str) -> None:
    raise ValueError(f"got {constant}, wanted a finite number")
