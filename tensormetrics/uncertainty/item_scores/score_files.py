"""Per-item scores in files: logs of lm-evaluation-harness and inspect_ai, CSV, TSV, JSON and JSONL.

The format of a file is detected from its content, never from its name.
"""

import glob
import hashlib
import json
import math
import os
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, overload

import torch

from ...core.text.files import parsing
from ...core.text.tables import with_points
from .item_scores import Scores, as_list
from .records import Log, Record, Records, parts_of, read_records

HARNESS = {  # fields of a sample in logs of lm-evaluation-harness that are no metrics
    *("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"),
    *("doc_hash", "prompt_hash", "target_hash"),
}
GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}  # of inspect_ai: correct, partial, incorrect, no answer
TRUTHS = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}
MISSING = "", "nan", "na", "null", "none"
SCORE = "score_"  # before the name of a scorer in inspect_ai's data frames
TELLING = "model", "split", "task", "subset"  # columns that tell rows of equal ids apart
INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
OF_LOG = re.compile(r"^samples_|_\d{4}-\d\d-\d\dT[-\d.:]+$")  # around the task in names of lm-evaluation-harness


class Request(NamedTuple):
    """Arguments of `read_scores`."""

    metric: str | None
    filter: str | None
    ids: str | None
    groups: str | None


@overload
def read_scores(
    path: Log, metric: str | None = None, *, ids: str | None = None, groups: str | None = None, model: str
) -> dict[str, Scores]: ...
@overload
def read_scores(
    path: Log | Sequence[Log],
    metric: str | None = None,
    *,
    filter: str | None = None,
    ids: str | None = None,
    groups: str | None = None,
    model: None = None,
) -> Scores: ...
def read_scores(
    path: Any,
    metric: str | None = None,
    *,
    filter: str | None = None,
    ids: str | None = None,
    groups: str | None = None,
    model: str | None = None,
) -> Scores | dict[str, Scores]:
    """Read the score of each item from a log or a table.

    The format is detected from the content; files compressed by gzip are opened.

    - `samples_*.jsonl` of lm-evaluation-harness, and results of its `simple_evaluate` as JSON: items are `doc_id`, with
      `doc_hash` where one id has several documents; a `filter` must be chosen where there are several.
    - JSON logs of inspect_ai: items are sample `id`, repeats are epochs. C counts 1, P 0.5, I and N 0. Samples without
      a score, such as those that failed with an error, are missing.
    - Data frames of samples of inspect_ai (`samples_df`) as CSV or Parquet.
    - CSV and TSV, JSONL and JSON lists of objects: items are the column "id", or rows in their order. Without a heading
      the columns are "id" and "score", or "score" alone.

    Several files are the logs of one model: an item is its id in its task, which inspect_ai's logs name, and names of
    files else. Logs of one task are repeats.

    Args:
        path: Path of the file, at most 1 GiB of text; or several, their folder or a pattern such as "samples_*.jsonl".
        metric: Name of the metric, scorer or column; "scorer/key" of one with several values, "scorer/0" of a list. By
            default the only metric or scorer, or the column "score".
        filter: Name of the answers' filter in a log of lm-evaluation-harness.
        ids: Column of the items' names, if it is another.
        groups: Column of what the items belong to, also one of `doc` or `metadata` in a log; "task" of several logs.
        model: Column of one table that names the model of each row.

    Returns:
        The scores by id, in the order of the file; with `model` those of each model, for `compare`.

    Raises:
        ValueError: If the format is unknown, a metric, filter or column does not exist, a score is no number, or rows
            of one id are different items.
        OSError: If the file cannot be read.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        ...     _ = file.write("id,correct,topic\\nq1,1,law\\nq2,0,law\\nq3,1,art\\n")
        ...     file.flush()
        ...     read_scores(file.name, "correct", groups="topic")
        Scores(correct=0.6667, items=3)
    """
    request = Request(metric, filter, ids, groups)
    if model is not None:
        records, models = read_records(path), dict[str, list[int]]()
        for i, (row, location) in enumerate(records.located()):
            models.setdefault(str(field_of(row, model, "", location)), []).append(i)
        return {name: _of_records(records.selected(rows), request) for name, rows in models.items()}
    parts = [part for file in _files(path) for part in parts_of(file)]
    return _of_records(parts[0], request) if len(parts) == 1 else _joined(parts, request)


def _files(path: Log | Sequence[Log]) -> list[Log]:
    """Return the files of a list, a folder or a pattern."""
    if not isinstance(path, str | os.PathLike):
        if not path:
            raise ValueError("path: got an empty list, wanted the path of a file")
        return [*path]
    if os.path.isdir(path):
        files = sorted(Path(path).glob("samples_*.jsonl")) or sorted(Path(path).glob("*.json"))
        wanted = "samples_*.jsonl of lm-evaluation-harness or *.json of inspect_ai"
    elif isinstance(path, str) and glob.has_magic(path) and not os.path.exists(path):
        files, wanted = [Path(file) for file in sorted(glob.glob(path))], "a pattern that matches files"
    else:
        return [path]
    if not files:
        raise ValueError(f"{path}: got no such files, wanted {wanted}")
    return [*files]


def _joined(parts: list[Records], request: Request) -> Scores:
    """Return the scores of one model from several logs."""
    parts = [part._replace(task=part.task or OF_LOG.sub("", OF_LOG.sub("", Path(part.path).stem))) for part in parts]
    by_task = request.groups == "task"
    columns = request._replace(groups=None) if by_task else request
    read = [_of_records(part, columns) for part in parts]
    tasks: dict[str, list[str]] = {}  # task -> its files
    ids: list[Hashable] = []
    groups: list[Hashable] = []
    hashes: dict[Hashable, str] = {}
    for part, scores in zip(parts, read, strict=True):
        files = tasks.setdefault(part.task, [])
        if str(part.path) in files:
            raise ValueError(f"{part.path}: got this file twice, wanted distinct files")
        files.append(str(part.path))
        if scores.name != read[0].name:
            got = f"{read[0].name!r} of {parts[0].path} and {scores.name!r} of {part.path}"
            raise ValueError(f"metric: got {got}; write metric=")
        if len(files) > 1 and not scores.hashes:
            raise ValueError(f"{part.path}: got another file {part.task!r}, wanted files of different names")
        names = [f"{part.task}/{name}" for name in (range(len(scores)) if scores.ids is None else as_list(scores.ids))]
        own = names if scores.groups is None else [f"{part.task}/{group}" for group in as_list(scores.groups)]
        ids, groups = ids + names, groups + ([part.task] * len(names) if by_task else own)
        documents = [f"{part.task}/{name}" for name in scores.hashes]
        _add_documents(hashes, documents, scores.hashes.values(), [str(part.path)] * len(documents))
    bounds = {scores.bounds for scores in read}
    has_groups = by_task or request.groups is not None
    joined = Scores(
        torch.cat([scores.scores for scores in read]),
        ids,
        groups if has_groups else None,
        bounds=bounds.pop() if len(bounds) == 1 else None,
        name=read[0].name,
    )
    joined.hashes = hashes
    return joined


def _of_records(records: Records, request: Request) -> Scores:
    if not records.rows:
        raise ValueError(f"{records.path}: got no items, wanted at least one")
    if records.is_log:
        return _of_inspect(records, request)
    first = records.rows[0]
    if "doc_id" in first and {*first} & {"metrics", "filter", "resps", "doc_hash"}:
        return _of_harness(records, request)
    return _of_table(records, request)


def _of_harness(records: Records, request: Request) -> Scores:
    filters = [*dict.fromkeys(row.get("filter") for row in records.rows)]
    chosen = _selected("filter", request.filter, filters, records.path)
    records = records.selected([i for i, row in enumerate(records.rows) if row.get("filter") == chosen])
    first = records.rows[0]
    names = first.get("metrics")
    if not isinstance(names, list):
        names = [key for key, value in first.items() if key not in HARNESS and isinstance(value, int | float)]
    root = request.metric if request.metric in names else (request.metric or "").partition("/")[0]
    metric = _selected("metric", root or None, names, records.path)
    cells = []
    for row, location in records.located():
        value = row.get(metric)
        if isinstance(value, list | dict) and request.metric in (None, metric):
            raise ValueError(
                f"{location}: {metric} is a metric of the whole corpus, wanted one with a number for each item"
            )
        cells.append(_entry(value, metric, request, records.path))
    items = _column(records, request.ids or "doc_id", "doc")
    digests = [row.get("doc_hash") or _digest([row.get("doc"), row.get("arguments")]) for row in records.rows]
    if request.ids is None:
        items = _distinct_documents(items, digests, records.locations)
    scores = _scores(cells, items, records, request, metric, "doc")
    _add_documents(scores.hashes, items, [row.get("doc_hash") for row in records.rows], records.locations)
    return scores


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def _distinct_documents(items: list[Hashable], digests: list[str], locations: list[str]) -> list[Hashable]:
    """Return names of the items of a log: their ids, with the digest of the document if one id has several."""
    documents: dict[tuple[Hashable, str], str] = {}
    for name, digest, location in zip(items, digests, locations, strict=True):
        if (name, digest) in documents:
            raise ValueError(
                f"{location}: got the item {name} again, after {documents[name, digest]}; wanted each item once; write "
                "ids= to average items of equal ids"
            )
        documents[name, digest] = location
    if len({*items}) == len(items):
        return items
    return [f"{name}/{digest}" for name, digest in zip(items, digests, strict=True)]


def _add_documents(
    hashes: dict[Hashable, str], items: Iterable[Hashable], digests: Iterable[str | None], locations: Sequence[str]
) -> None:
    """Add digests of documents by the name of their item; ValueError where one name has two documents."""
    for name, digest, location in zip(items, digests, locations, strict=True):
        if digest and hashes.setdefault(name, digest) != digest:
            raise ValueError(f"{location}: got the item {name} with another document; wanted different ids; write ids=")


def _of_inspect(records: Records, request: Request) -> Scores:
    rows = records.rows
    scorers = [*dict.fromkeys(name for row in rows for name in row.get("scores") or ())]
    if not scorers:
        raise ValueError(f"{records.path}: got a log whose samples have no scores; score it: inspect score")
    scorer = _selected("metric", (request.metric or "").partition("/")[0] or None, scorers, records.path)
    cells = [((row.get("scores") or {}).get(scorer) or {}).get("value") for row in rows]
    cells = [_entry(cell, scorer, request, records.path) for cell in cells]
    items = _column(records, request.ids or "id", "metadata")
    scores = _scores(cells, items, records, request, request.metric or scorer, "metadata", is_graded=True)
    if request.ids is None:
        digests = [_digest(row["input"]) if "input" in row else None for row in rows]
        _add_documents(scores.hashes, items, digests, records.locations)
    return scores


def _entry(value: Any, name: str, request: Request, path: Log) -> Any:
    """Return the number that the path of a metric names in a dictionary or a list of scores."""
    keys = (request.metric or "").removeprefix(name).split("/")[1:]
    while isinstance(value, dict | list):
        entries = value if isinstance(value, dict) else {str(i): entry for i, entry in enumerate(value)}
        wanted = f"{name}/{keys.pop(0)}" if keys else None
        chosen = _selected("metric", wanted, [f"{name}/{entry}" for entry in entries], path)
        value, name = entries[chosen.removeprefix(f"{name}/")], chosen
    return value


def _of_table(records: Records, request: Request) -> Scores:
    columns = [*dict.fromkeys(chain.from_iterable(records.rows))]
    scorers = {name.removeprefix(SCORE): name for name in columns if name.startswith(SCORE)}
    has_ids = "sample_id" in columns or "id" in columns
    if scorers and has_ids and (request.metric in scorers or (request.metric is None and "score" not in columns)):
        metric = _selected("metric", request.metric, [*scorers], records.path)
        column = scorers[metric]
    else:
        scorers = {}
        metric = request.metric or score_column(columns, (request.ids, request.groups))
        root = metric if metric in columns else metric and metric.partition("/")[0]
        column = _selected("metric", root, columns, records.path)
        metric = metric or column
    cells = [row.get(column) for row in records.rows]
    cells = [_entry(cell, column, request, records.path) if isinstance(cell, dict | list) else cell for cell in cells]
    if any(isinstance(cell, str) and "," in cell for cell in cells):
        cells = with_points(cells, "", records.locations.__getitem__)
    key = request.ids or id_column(columns)
    items = None if key is None else _column(records, key, "")
    if items is not None and request.ids is None and len({*items}) < len(items):
        check_ids(items, {name: [row.get(name) for row in records.rows] for name in TELLING}, records.path)
    return _scores(cells, items, records, request, metric, "", is_graded=bool(scorers))


def id_column(columns: Sequence[str]) -> str | None:
    """Return the column of a table that names the items."""
    return next((name for name in ("id", "sample_id") if name in columns), None)


def score_column(columns: Sequence[str], others: Sequence[str | None]) -> str | None:
    """Return the column of a table that is named score, or the only one that names no items, groups or the like."""
    scores = [name for name in columns if name not in (id_column(columns), *others, *TELLING)]
    return "score" if "score" in columns else scores[0] if len(scores) == 1 else None


def check_ids(items: Sequence[Hashable], columns: Mapping[str, Sequence[Any]], table: Any) -> None:
    """Raise a ValueError if rows have equal ids that another column of the table tells apart."""
    num_repeats = len(items) - len({*items})
    for name, values in columns.items() if num_repeats else ():
        different = len({*map(str, values)})
        if different > 1 and len({*zip(items, map(str, values), strict=True)}) == len(items):
            advice = "model='model'" if name == "model" else f"groups={name!r} and ids= of distinct names"
            raise ValueError(
                f"id: {table} has {num_repeats} rows whose id occurs before, and {different} values of {name!r} that "
                f"tell them apart; write {advice}, or ids='id' if they are repeats of one item"
            )


def _scores(
    cells: list[Any],
    items: list[Hashable] | None,
    records: Records,
    request: Request,
    metric: str,
    nested: str,
    is_graded: bool = False,
) -> Scores:
    """Return the scores of cells; those of inspect_ai are grades, from 0 to 1, or numbers, and may have epochs."""
    labels = GRADES | TRUTHS if is_graded else TRUTHS
    values = [_number(cell, location, labels) for cell, location in zip(cells, records.locations, strict=True)]
    groups = None if request.groups is None else _column(records, request.groups, nested)
    epochs = [row.get("epoch") for row in records.rows] if is_graded else []
    repeats = epochs if any(epoch is not None for epoch in epochs) else None
    bounds = (0, 1) if is_graded and any(isinstance(cell, str) and cell in GRADES for cell in cells) else None
    with parsing(records.path, "scores of items"):
        return Scores(values, items, groups, repeats, bounds=bounds, name=metric)


def _column(records: Records, key: str, nested: str) -> list[Hashable]:
    """Return names of items or groups; those of a table of text are integers where all are, as in a DataFrame."""
    names = [field_of(row, key, nested, location) for row, location in records.located()]
    if records.is_text and all(INTEGER.fullmatch(str(name)) for name in names):
        return [int(str(name)) for name in names]
    return names


def _selected(name: str, request: str | None, names: Sequence[Any], path: Log) -> Any:
    """Return the requested entry, or the only one if none is requested."""
    if request is None and len(names) == 1:
        return names[0]
    if request is None or request not in names:
        got = repr(request) if request is not None else "several and none chosen" if names else "none"
        raise ValueError(f"{name}: got {got}, wanted one of {', '.join(map(repr, names)) or 'none'} of {path}")
    return request


def field_of(row: Record, key: str, nested: str, location: str) -> Hashable:
    """Return the name under a key of a row, or of the object `nested` in it."""
    value = row.get(key)
    if key not in row and isinstance(inner := row.get(nested), Mapping):
        value = inner.get(key)
    if value is None or value == "":
        raise ValueError(f"{location}: got no {key!r}, wanted one for each item; it has {', '.join(map(repr, row))}")
    return value if isinstance(value, str) or isinstance(value, Hashable) else json.dumps(value, sort_keys=True)


def _number(value: Any, location: str, labels: Mapping[str, float]) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        text = "" if value is None else value.strip() if isinstance(value, str) else None
    if text is not None:
        if text.lower() in MISSING:
            return math.nan
        score = labels.get(text, labels.get(text.lower()))
        if score is not None:
            return score
    hint = "; this looks like a percentage: write a fraction" if text and text.endswith("%") else ""
    raise ValueError(f"{location}: got {value!r:.60} for a score, wanted a number{hint}")
