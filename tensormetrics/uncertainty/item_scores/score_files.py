"""Per-item scores in files: logs of lm-evaluation-harness and inspect_ai, CSV, TSV, JSON and JSONL.

The format of a file is detected from its content, never from its name.
"""

import csv
import io
import itertools
import json
import math
import os
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from ...core.results.text_tables import import_pandas
from ...core.text.files import delimiter_of, parsing, read_bytes, text_of
from .item_scores import Scores

MAX_BYTES = 2**30
HARNESS = {  # fields of a sample in logs of lm-evaluation-harness that are no metrics
    *("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"),
    *("doc_hash", "prompt_hash", "target_hash"),
}
GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}  # of inspect_ai: correct, partial, incorrect, no answer
TRUTHS = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}
MISSING = "", "nan", "na", "null", "none"
SCORE = "score_"  # before the name of a scorer in inspect_ai's data frames

Record = Mapping[str, Any]


class Records(NamedTuple):
    """Objects of a file, with the line of each, or its number within one JSON text."""

    rows: list[Record]
    locations: list[str]  # such as "scores.csv, line 3"


class Request(NamedTuple):
    """Arguments of `read_scores`."""

    path: str | os.PathLike
    metric: str | None
    filter: str | None
    ids: str | None
    groups: str | None


def read_scores(
    path: str | os.PathLike,
    metric: str | None = None,
    *,
    filter: str | None = None,
    ids: str | None = None,
    groups: str | None = None,
) -> Scores:
    """Read the score of each item from a log or a table.

    The format is detected from the content; files compressed by gzip are opened.

    - `samples_*.jsonl` of lm-evaluation-harness: items are `doc_id`; a `filter` must be chosen where there are several.
    - JSON logs of inspect_ai: items are sample `id`, repeats are epochs. C counts 1, P 0.5, I and N 0. Samples that
      failed with an error are missing.
    - Data frames of samples of inspect_ai (`samples_df`) as CSV or Parquet.
    - CSV and TSV with a heading, JSONL and JSON lists of objects: items are the column "id", or rows in their order.

    Args:
        path: Path of the file, at most 1 GiB of text.
        metric: Name of the metric, scorer ("scorer/key" of one with several values) or column. By default the only
            metric or scorer, or the column "score".
        filter: Name of the answers' filter in a log of lm-evaluation-harness.
        ids: Column of the items' names, if it is another.
        groups: Column of what the items belong to, also one of `doc` or `metadata` in a log.

    Returns:
        The scores by id, in the order of the file.

    Raises:
        ValueError: If the format is unknown, a metric, filter or column does not exist, or a score is no number.
        OSError: If the file cannot be read.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        ...     _ = file.write("id,correct,topic\\nq1,1,law\\nq2,0,law\\nq3,1,art\\n")
        ...     file.flush()
        ...     read_scores(file.name, "correct", groups="topic")
        Scores(correct=0.6667, items=3)
    """
    request = Request(path, metric, filter, ids, groups)
    contents = _contents(path)
    return _of_records(contents, request) if isinstance(contents, Records) else _of_inspect(contents, request)


def read_records(path: str | os.PathLike) -> Records:
    """Read the rows of a table: CSV and TSV with a heading, JSONL, a JSON list of objects, or Parquet."""
    contents = _contents(path)
    if not isinstance(contents, Records):
        raise ValueError(f"{path}: got a log of inspect_ai, wanted a table, JSONL or a JSON list of objects")
    return contents


def _contents(path: str | os.PathLike) -> Records | dict[str, Any]:
    """Return the objects of a file, or the full log of inspect_ai."""
    data = read_bytes(path, MAX_BYTES)
    if data.startswith(b"PAR1"):
        with parsing(path, "a Parquet file"):
            frame = import_pandas().read_parquet(io.BytesIO(data))
        rows = frame.to_dict("records")
        return Records(rows, [f"{path}, row {i}" for i in range(1, len(rows) + 1)])
    text = _text(data, path)
    start = text.lstrip()[:1]
    if start == "[":
        rows = _json(text, str(path))
        return _objects(rows, [f"{path}, object {i}" for i in range(1, len(rows) + 1)])
    if start == "{":
        log = _whole_json(text)
        if log is not None and isinstance(log.get("samples"), list):
            return log
        return _json_lines(text, path)
    return _delimited(text, path)


def _text(data: bytearray, path: str | os.PathLike) -> str:
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


def _objects(rows: Sequence[Any], locations: list[str]) -> Records:
    for row, location in zip(rows, locations, strict=True):
        if not isinstance(row, dict):
            raise ValueError(f"{location}: got a {type(row).__name__}, wanted an object")
    return Records([*rows], locations)


def _json_lines(text: str, path: str | os.PathLike) -> Records:
    lines = [(f"{path}, line {n}", line) for n, line in enumerate(io.StringIO(text), 1) if line.strip()]
    return _objects([_json(line, location) for location, line in lines], [location for location, _ in lines])


def _delimited(text: str, path: str | os.PathLike) -> Records:
    reader = csv.reader(io.StringIO(text, newline=None), delimiter=delimiter_of(io.StringIO(text)), strict=True)
    rows: list[Record] = []
    locations: list[str] = []
    heading = None
    try:
        for cells in reader:
            if not cells:
                continue
            cells = [cell.strip() for cell in cells]
            if heading is None:
                heading = cells
                continue
            location = f"{path}, line {reader.line_num}"
            if len(cells) != len(heading):
                raise ValueError(f"{location}: got {len(cells)} cells, wanted {len(heading)} as the heading has")
            rows.append(dict(zip(heading, cells, strict=True)))
            locations.append(location)
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}") from None
    return Records(rows, locations)


def _of_records(records: Records, request: Request) -> Scores:
    if not records.rows:
        raise ValueError(f"{request.path}: got no items, wanted at least one")
    first = records.rows[0]
    if "doc_id" in first and {*first} & {"metrics", "filter", "resps", "doc_hash"}:
        return _of_harness(records, request)
    return _of_table(records, request)


def _of_harness(records: Records, request: Request) -> Scores:
    records = _filtered(records, request)
    first = records.rows[0]
    names = first.get("metrics")
    if not isinstance(names, list):
        names = [key for key, value in first.items() if key not in HARNESS and isinstance(value, int | float)]
    metric = _selected("metric", request.metric, names, request.path)
    values = []
    for row, location in zip(*records, strict=True):
        value = row.get(metric)
        if isinstance(value, list | dict):
            raise ValueError(
                f"{location}: {metric} is a metric of the whole corpus, wanted one with a number for each item"
            )
        values.append(_number(value, location))
    key = request.ids or "doc_id"
    items = [_field(row, key, "doc", location) for row, location in zip(*records, strict=True)]
    scores = _scores(values, items, records, request, metric, "doc")
    scores.hashes.update(
        {name: row["doc_hash"] for name, row in zip(items, records.rows, strict=True) if row.get("doc_hash")}
    )
    return scores


def _filtered(records: Records, request: Request) -> Records:
    filters = [*dict.fromkeys(row.get("filter") for row in records.rows)]
    if request.filter is None and len(filters) > 1:
        raise ValueError(f"filter: {request.path} has {', '.join(map(repr, filters))}; write filter= to choose one")
    if request.filter is None:
        return records
    if request.filter not in filters:
        raise ValueError(f"filter: got {request.filter!r}, wanted one of {', '.join(map(repr, filters))}")
    is_filtered = [row.get("filter") == request.filter for row in records.rows]
    rows = itertools.compress(records.rows, is_filtered)
    return Records([*rows], [*itertools.compress(records.locations, is_filtered)])


def _of_inspect(log: dict[str, Any], request: Request) -> Scores:
    rows = log["samples"]
    records = _objects(rows, [f"{request.path}, sample {i}" for i in range(1, len(rows) + 1)])
    scorers = [*dict.fromkeys(name for row in rows for name in row.get("scores") or ())]
    scorer, _, key = (request.metric or "").partition("/")
    scorer = _selected("metric", scorer or None, scorers, request.path)
    values = []
    for row, location in zip(*records, strict=True):
        score = (row.get("scores") or {}).get(scorer)
        value = None if row.get("error") or score is None else score.get("value")
        if isinstance(value, dict):
            names = [f"{scorer}/{name}" for name in value]
            name = _selected("metric", f"{scorer}/{key}" if key else None, names, request.path)
            value = value[name.removeprefix(f"{scorer}/")]
        values.append(_grade(value, location))
    items = [_field(row, request.ids or "id", "metadata", location) for row, location in zip(*records, strict=True)]
    scores = _scores(values, items, records, request, request.metric or scorer, "metadata")
    return _with_repeats(scores, [row.get("epoch") for row in rows], request.path)


def _of_table(records: Records, request: Request) -> Scores:
    columns = [*dict.fromkeys(name for row in records.rows for name in row)]
    scorers = {name.removeprefix(SCORE): name for name in columns if name.startswith(SCORE)}
    has_ids = "sample_id" in columns or "id" in columns
    if scorers and has_ids and (request.metric in scorers or (request.metric is None and "score" not in columns)):
        metric = _selected("metric", request.metric, [*scorers], request.path)
        column, read = scorers[metric], _grade
    else:
        metric = column = _selected("metric", request.metric or "score", columns, request.path)
        read = _number
    values = [read(row.get(column), location) for row, location in zip(*records, strict=True)]
    key = request.ids or next((name for name in ("id", "sample_id") if name in columns), None)
    items = None if key is None else [_field(row, key, "", location) for row, location in zip(*records, strict=True)]
    scores = _scores(values, items, records, request, metric, "")
    if not scorers:
        return scores
    return _with_repeats(scores, [row.get("epoch") for row in records.rows], request.path)


def _scores(
    values: list[float],
    items: list[Hashable] | None,
    records: Records,
    request: Request,
    metric: str,
    nested: str,
) -> Scores:
    groups = None
    if request.groups is not None:
        groups = [_field(row, request.groups, nested, location) for row, location in zip(*records, strict=True)]
    with parsing(request.path, "scores of items"):
        return Scores(values, items, groups, name=metric)


def _with_repeats(scores: Scores, repeats: list[Any], path: str | os.PathLike) -> Scores:
    if any(repeat is not None for repeat in repeats):
        with parsing(path, "scores of items"):
            return Scores(scores.scores, scores.ids, scores.groups, repeats, name=scores.name)
    return scores


def _selected(name: str, request: str | None, names: Sequence[str], path: str | os.PathLike) -> str:
    """Return the requested entry, or the only one if none is requested."""
    if request is None and len(names) == 1:
        return names[0]
    if request is None or request not in names:
        got = "several and none chosen" if request is None else repr(request)
        raise ValueError(f"{name}: got {got}, wanted one of {', '.join(map(repr, names)) or 'none'} of {path}")
    return request


def _field(row: Record, key: str, nested: str, location: str) -> Hashable:
    inner = row.get(nested)
    value = row.get(key, inner.get(key) if isinstance(inner, Mapping) else None)
    if value is None or value == "":
        raise ValueError(f"{location}: got no {key!r}, wanted one for each item; it has {', '.join(map(repr, row))}")
    return value if isinstance(value, Hashable) else json.dumps(value, sort_keys=True)


def _number(value: Any, location: str, labels: Mapping[str, float] = TRUTHS) -> float:
    if value is None:
        return math.nan
    if isinstance(value, str):
        text = value.strip()
        if text.lower() in MISSING:
            return math.nan
        score = labels.get(text, labels.get(text.lower()))
        if score is not None:
            return score
        value = text
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{location}: got {value!r:.60} for a score, wanted a number") from None


def _grade(value: Any, location: str) -> float:
    return _number(value, location, GRADES | TRUTHS)
