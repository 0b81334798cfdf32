"""Rows of files: CSV, TSV, JSON, JSONL and Parquet, and logs in JSON. The content tells the format, never the name."""

import io
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...core.results.text_tables import import_pandas
from ...core.text.files import parsing, read_bytes, text_of
from ...core.text.tables import is_number, read_cells

MAX_BYTES = 2**30
HEADING = ["id", "score"]  # of a file without one

Record = Mapping[str, Any]
Log = str | os.PathLike


class Records(NamedTuple):
    """Objects of a file, with the line of each, or its number within one JSON text."""

    rows: list[Record]
    locations: list[str]  # such as "scores.csv, line 3"

    def selected(self, index: Sequence[int]) -> "Records":
        return Records([self.rows[i] for i in index], [self.locations[i] for i in index])


def read_records(path: Log) -> Records:
    """Read the rows of a table: CSV and TSV, JSONL, a JSON list of objects, or Parquet."""
    contents = contents_of(path)
    if not isinstance(contents, Records):
        raise ValueError(f"{path}: got a log of inspect_ai, wanted a table, JSONL or a JSON list of objects")
    return contents


def contents_of(path: Log) -> Records | dict[str, Any]:
    """Return the objects of a file, or the full log of inspect_ai or simple_evaluate."""
    data = read_bytes(path, MAX_BYTES)
    if data.startswith(b"PAR1"):
        with parsing(path, "a Parquet file"):
            frame = import_pandas().read_parquet(io.BytesIO(data))
        rows = frame.to_dict("records")
        return Records(rows, [f"{path}, row {i}" for i in range(1, len(rows) + 1)])
    text = _text(data, path)
    start = text.lstrip()[:1]
    if start == "[":
        return numbered(_json(text, str(path)), f"{path}, object")
    if start == "{":
        log = _whole_json(text)
        return _json_lines(text, path) if log is None else _of_object(log, text, path)
    return _delimited(text, path)


def _of_object(log: dict[str, Any], text: str, path: Log) -> Records | dict[str, Any]:
    """Return the log that one JSON object is, or the object as a record."""
    samples = log.get("samples")
    if isinstance(samples, list | dict) and samples:
        return log
    if samples in (None, []) and ("samples" in log or isinstance(log.get("eval"), dict)):
        raise ValueError(
            f"{path}: got a log of inspect_ai without samples, as --header-only writes; wanted the log with its samples"
        )
    if isinstance(log.get("results"), dict):
        raise ValueError(
            f"{path}: got results of lm-evaluation-harness without items; wanted samples_*.jsonl, which --log_samples "
            "writes beside it"
        )
    if len(text.strip().splitlines()) > 1:
        names = ", ".join(map(repr, [*log][:5]))
        raise ValueError(
            f"{path}: got one JSON object of {names}; wanted a list of objects, or one object in each line"
        )
    return Records([log], [f"{path}, line 1"])


def _text(data: bytearray, path: Log) -> str:
    if data.startswith(b"PK"):
        raise ValueError(
            f"{path}: got an archive, such as an .eval log of inspect_ai; write it as JSON: inspect log convert"
        )
    if len(data) > MAX_BYTES:
        raise ValueError(f"{path}: got more than 1 GiB of text, wanted at most that; split the file")
    text = text_of(data, path)
    if not text.strip():
        raise ValueError(f"{path}: got an empty file, wanted scores")
    return text


def _json(text: str, location: str) -> Any:
    with parsing(location, "JSON"):
        return json.loads(text)


def _whole_json(text: str) -> dict[str, Any] | None:
    """Return the JSON object of the full text; None for one object per line."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def numbered(rows: Sequence[Any], location: str) -> Records:
    return _objects(rows, [f"{location} {i}" for i in range(1, len(rows) + 1)])


def _objects(rows: Sequence[Any], locations: list[str]) -> Records:
    for row, location in zip(rows, locations, strict=True):
        if not isinstance(row, dict):
            raise ValueError(f"{location}: got a {type(row).__name__}, wanted an object")
    return Records([*rows], locations)


def _json_lines(text: str, path: Log) -> Records:
    lines = [(f"{path}, line {n}", line) for n, line in enumerate(io.StringIO(text), 1) if line.strip()]
    return _objects([_json(line, location) for location, line in lines], [location for location, _ in lines])


def _delimited(text: str, path: Log) -> Records:
    delimiter, table = read_cells(text, path)
    rows: list[Record] = []
    locations: list[str] = []
    heading, is_headless = None, False
    for line, cells in table:
        location = f"{path}, line {line}"
        if heading is None:
            is_headless = len(cells) <= 2 and is_number(cells[-1].replace(",", "."))
            heading = HEADING[-len(cells) :] if is_headless else cells
            if not is_headless:
                continue
        if len(cells) != len(heading):
            raise ValueError(f"{location}: got {len(cells)} columns, wanted {len(heading)} as above")
        rows.append(dict(zip(heading, cells, strict=True)))
        locations.append(location)
    if is_headless and heading == HEADING and delimiter == ",":
        _check_no_decimal_commas(rows, locations)
    return Records(rows, locations)


def _check_no_decimal_commas(rows: list[Record], locations: list[str]) -> None:
    """Raise a ValueError if the two columns of a file may be the halves of numbers, since they repeat."""
    names = [row["id"] for row in rows]
    if len({*names}) == len(names) or not all(name.lstrip("+-").isdecimal() for name in names):
        return
    again = Counter(names).most_common(1)[0][0]
    i = names.index(again, names.index(again) + 1)
    raise ValueError(
        f"{locations[i]}: got '{again},{rows[i]['score']}', which looks like a number with a decimal comma; write a "
        "decimal point, or the columns in a first line"
    )
