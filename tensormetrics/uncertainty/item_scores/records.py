"""Rows of files: CSV, TSV, JSON, JSONL and Parquet, and logs in JSON. The content tells the format, never the name."""

import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ...core.results.text_tables import import_pandas
from ...core.text.files import parsing, read_bytes, text_of
from ...core.text.tables import is_number, read_cells

MAX_BYTES = 2**30
HEADING = ["id", "score"]  # of a file without one

Record = Mapping[str, Any]
Log = str | os.PathLike


class Records(NamedTuple):
    """Objects of a file, or of a task in it, with the line of each, or its number within one JSON text."""

    rows: list[Record]
    locations: list[str]  # such as "scores.csv, line 3"
    path: Log
    task: str = ""
    is_log: bool = False  # of inspect_ai
    is_text: bool = False  # of a table whose integers are texts

    def located(self) -> Iterator[tuple[Record, str]]:
        return zip(self.rows, self.locations, strict=True)

    def selected(self, index: Sequence[int]) -> "Records":
        return self._replace(rows=[self.rows[i] for i in index], locations=[self.locations[i] for i in index])


def read_records(path: Log, text: str | None = None) -> Records:
    """Read the rows of a table: CSV and TSV, JSONL, a JSON list of objects, or Parquet; or of a text."""
    records, *others = parts_of(path, text)
    if others or records.is_log:
        raise ValueError(f"{path}: got a log, wanted a table, JSONL or a JSON list of objects")
    return records


def parts_of(path: Log, text: str | None = None) -> list[Records]:
    """Return the objects of a file, of a log of simple_evaluate those of each task."""
    if text is None:
        data = read_bytes(path, MAX_BYTES)
        if data.startswith(b"PAR1"):
            with parsing(path, "a Parquet file"):
                frame = import_pandas().read_parquet(io.BytesIO(data))
            return [_numbered(frame.to_dict("records"), "row", path)]
        text = _text(data, path)
    start = text.lstrip()[:1]
    if start == "[":
        return [_numbered(_json(text, str(path)), "object", path)]
    if start != "{":
        return [_delimited(text, path)]
    try:
        log = json.loads(text)
    except (ValueError, RecursionError):  # an object in each line
        lines = [(f"{path}, line {n}", line) for n, line in enumerate(io.StringIO(text), 1) if line.strip()]
        return [_objects([_json(line, place) for place, line in lines], [place for place, _ in lines], path)]
    samples, header = log.get("samples"), log.get("eval")
    if isinstance(samples, dict) and samples:
        return [_numbered(rows, f"{task}, sample", path)._replace(task=task) for task, rows in samples.items()]
    if isinstance(samples, list) and samples:
        task = str(header.get("task", "")) if isinstance(header, dict) else ""
        return [_numbered(samples, "sample", path)._replace(task=task, is_log=True)]
    if samples in (None, []) and ("samples" in log or isinstance(header, dict)):
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
    return [_objects([log], [f"{path}, line 1"], path)]


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


def _numbered(rows: Sequence[Any], unit: str, path: Log) -> Records:
    return _objects(rows, [f"{path}, {unit} {i}" for i in range(1, len(rows) + 1)], path)


def _objects(rows: Sequence[Any], locations: list[str], path: Log) -> Records:
    for row, location in zip(rows, locations, strict=True):
        if not isinstance(row, dict):
            raise ValueError(f"{location}: got a {type(row).__name__}, wanted an object")
    return Records([*rows], locations, path)


def _delimited(text: str, path: Log) -> Records:
    delimiter, lines = read_cells(text, path)
    table = [*lines] or [(1, ("",))]
    first = table[0][1]
    is_headless = len(first) <= 2 and is_number(first[-1].replace(",", "."))
    heading = HEADING[-len(first) :] if is_headless else first
    table = table[not is_headless :]
    rows: list[Record] = [dict(zip(heading, cells, strict=True)) for _, cells in table]
    records = Records(rows, [f"{path}, line {line}" for line, _ in table], path, is_text=True)
    if is_headless and heading == HEADING and delimiter == ",":
        _check_no_decimal_commas(records)
    return records


def _check_no_decimal_commas(records: Records) -> None:
    """Raise a ValueError if the two columns of a file may be the halves of numbers, since they repeat."""
    seen: set[str] = set()
    for row, location in records.located():
        if not row["id"].lstrip("+-").isdecimal():
            return
        if row["id"] in seen:
            got = f"{row['id']},{row['score']}"
            advice = "write a decimal point, or the columns in a first line"
            raise ValueError(f"{location}: got {got!r}, which looks like a number with a decimal comma; {advice}")
        seen.add(row["id"])
