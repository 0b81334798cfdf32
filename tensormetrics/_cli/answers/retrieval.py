"""Whether nearest neighbours among embeddings share labels, and clusters do."""

import os
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..._uncertainty.estimates import Estimate
from ...retrieval import AccuracyCalculator, FaissKNN, KeOpsKNN
from ...retrieval.calculator.metric_names import statistic_of
from ...retrieval.scores.embedding_metric import Role
from ...retrieval.scores.query_metric import Classes, averaged
from ...retrieval.sources.source import RowSource
from ..inputs import BadInput, Column, naming, read_columns, read_labels, read_rows
from ..output import Table, draw_scores, find_device, on_a_terminal, percent, publish, status_of, stdout_aside

KNN = {"faiss": FaissKNN, "keops": KeOpsKNN}
FILES = {  # argument of the library -> option
    "query": "embeddings",
    "query_labels": "labels",
    "reference": "reference",
    "reference_labels": "reference_labels",
    "query_cameras": "cameras",
    "reference_cameras": "reference_cameras",
    "ids": "ids",
    "groups": "groups",
}
HINTS = {  # of the library -> of the command
    "write k=None or k='max_bin_count'": "leave --k out, or write --k max_bin_count",
    "write exclude=('nearest_centroid_accuracy',)": "leave out --metric nearest_centroid_accuracy",
    "where the neighbours come from a function": "with --knn faiss or keops",
}


OPTIONS = {"include": "--metric", "k": "--k", "distance": "--distance", "ties": "--ties", "cameras": "--cameras"}


class Side(NamedTuple):
    """Queries or references."""

    rows: Tensor | RowSource  # (N, D)
    labels: list[Column]  # one, or one a level
    cameras: Column | None

    def to(self, place: torch.device) -> dict[str, Any]:
        """What `AccuracyCalculator.update` is given, but the role."""
        numbers = [column.numbers.to(place) for column in self.labels]
        given = {
            "embeddings": self.rows.to(place) if isinstance(self.rows, Tensor) else self.rows,
            "labels": numbers[0] if len(numbers) == 1 else torch.stack(numbers, 1),
        }
        return given if self.cameras is None else given | {"cameras": self.cameras.numbers.to(place)}


def answer(
    metrics: tuple[str, ...],
    k: str | None,
    knn: str,
    distance: str,
    ties: str,
    average: str,
    levels: bool,
    per_class: bool,
    index: str | None,
    audit: int | None,
    state: str | None,
    state_seconds: float,
    replicates: int,
    confidence: float,
    device: str | None,
    text_format: str,
    json_file: Any,
    plot: Any,
    **options: str | None,
) -> int:
    files = {name: options[option] for name, option in FILES.items()}
    depth, ranks = _depth(k), int(os.environ.get("WORLD_SIZE", "1"))
    if per_class and (levels or ranks > 1):
        why = "together with --levels; leave one out" if levels else "on several ranks; run it without torchrun"
        raise BadInput(f"--per-class: not {why}")
    if state and (ranks > 1 or not files["reference"]):
        raise BadInput("--state: wanted a --reference, which is read in blocks, and one process; leave it out")
    if (index or audit) and knn != "faiss":
        raise BadInput(f"--{'index' if index else 'audit'}: wanted --knn faiss, whose search may not be exact")
    place = find_device(device)
    query, reference, groups = _read(files, levels, bool(state))
    aside = stdout_aside() if knn == "keops" else nullcontext()  # it tells what it compiles
    with naming(HINTS, **files, **OPTIONS), aside:
        searcher: dict[str, Any] = {"distance": distance}
        if knn != "torch":
            factory: dict[str, Any] = {"index_init_fn": index} if index else {}
            searcher = {"knn_func": KNN[knn](distance=distance, **factory), "audit": audit}
        calculator = AccuracyCalculator(
            metrics,
            avg_of_avgs=average == "macro",
            k=depth,
            device=place,
            ties=ties,  # type: ignore[arg-type]  # one of the choices
            label_levels=levels,
            progress=on_a_terminal(),
            **searcher,
        )
        if ranks > 1:
            values = _on_ranks(calculator, query.to(place), reference and reference.to(place), groups)
            if int(os.environ["RANK"]):
                return status_of(values.values())
        else:
            kept = {"state": state, "state_seconds": state_seconds}
            values = _in_one_process(calculator, query.to(place), reference and reference.to(place), kept)
        assert calculator.last is not None  # what it has just scored
        scored = calculator.last.scores
        intervals = {}
        if replicates and any(statistic_of(name) == "mean" for name in scored):
            weighed = groups.given() if ranks == 1 else None
            found = calculator.interval(confidence=confidence, replicates=replicates, groups=weighed)
            intervals = {name: (float(each.low), float(each.high)) for name, each in found.items()}
        by_class = _by_class(scored, query.labels[0]) if per_class else {}
        exact = calculator.audited(confidence=confidence) if audit else {}
    head = ["metric", "value", *([f"{percent(confidence)} interval"] if replicates else [])]
    tables = [Table.of(head, ([name, value, intervals.get(name)] for name, value in values.items()))]
    tables += _tables_of(exact, values, confidence)
    if by_class:
        tables.append(Table.of(["class", *scored], ([label, *row.values()] for label, row in by_class.items())))
    report: dict[str, Any] = {
        "files": {name: file for name, file in files.items() if file},
        "queries": len(query.rows),
        "metrics": {
            name: {"value": value, **dict(zip(("low", "high"), intervals.get(name, ()), strict=False))}
            for name, value in values.items()
        },
        "per_class": by_class,
        **({"audit": _told(exact, audit)} if audit else {}),
    }
    spread = {name: [row[name] for row in by_class.values()] for name in scored} if by_class else {}
    return publish(
        tables,
        report,
        lambda: draw_scores(values, intervals, spread, confidence=confidence),
        values.values(),
        text_format=text_format,
        json_file=json_file,
        plot=plot,
    )


def _tables_of(exact: dict[str, Estimate], values: dict[str, float], confidence: float) -> list[Table]:
    """Approximate scores beside exact ones, and the recall of the index at some k."""
    if not exact:
        return []
    interval = f"{percent(confidence)} interval"
    scores = (
        [name, values[name], float(each.value), (float(each.low), float(each.high))]
        for name, each in exact.items()
        if name != "recall"
    )
    recall = _told(exact)["recall"]
    some = [row for row in recall if row["k"] in (1, 2, 5, 10, 20, 50, 100, 200, 500, len(recall))]
    rows = ([row["k"], row["value"], (row["low"], row["high"])] for row in some)
    return [
        Table.of(["metric", "by the index", "exact", interval], scores),
        Table.of(["k", "recall of the index", interval], rows),
    ]


def _told(exact: dict[str, Estimate], audit: int | None = None) -> dict[str, Any]:
    def ends(estimate: Estimate) -> dict[str, Any]:
        return {name: each.tolist() for name, each in estimate._asdict().items()}

    by_k = zip(*(each.tolist() for each in exact["recall"]), strict=True)
    recall = [{"k": k, **dict(zip(Estimate._fields, each, strict=True))} for k, each in enumerate(by_k, 1)]
    scores = {name: ends(each) for name, each in exact.items() if name != "recall"}
    return {"queries": audit, "recall": recall, "exact": scores}


def _depth(k: str | None) -> int | Literal["max_bin_count"] | None:
    if k is None:
        return None
    if k == "max_bin_count":
        return "max_bin_count"
    if k.isdecimal() and int(k):
        return int(k)
    raise BadInput(f"--k: got {k!r}, wanted an integer >= 1 or max_bin_count; leave it out for all neighbours")


def _read(files: Mapping[str, str | None], levels: bool, in_blocks: bool) -> tuple[Side, Side | None, Column]:
    """The queries, the references if there are any, and the groups of the queries."""
    if (files["reference"] is None) != (files["reference_labels"] is None):
        raise BadInput("--reference and --reference-labels: give both or neither")
    wanted = files["query_cameras"] is not None and files["reference"] is not None
    if (files["reference_cameras"] is not None) != wanted:
        raise BadInput("--reference-cameras: give them where there are both --cameras and --reference, and only there")
    query = _side(files, "query", levels)
    groups = query.labels[0]
    if files["groups"]:
        groups = _as_many(files["groups"], query.rows, files["query"])
    if files["ids"]:
        ids = _as_many(files["ids"], query.rows, files["query"]).numbers
        first = torch.from_numpy(np.unique(ids.numpy(), return_index=True)[1])
        cameras = query.cameras and query.cameras.at(first)
        labels = [column.at(first) for column in query.labels]
        query, groups = Side(_part(query.rows, slice(None))[first], labels, cameras), groups.at(first)
    if not files["reference"]:
        return query, None, groups
    reference = _side(files, "reference", levels, in_blocks)
    if len(query.labels) != len(reference.labels):
        got = f"{len(reference.labels)} columns, wanted the {len(query.labels)} of {files['query_labels']}"
        raise BadInput(f"{files['reference_labels']}: got {got}")
    joined = [_joined(*columns, files, "labels") for columns in zip(query.labels, reference.labels, strict=True)]
    # In pieces: looking all of them up takes several times what they take.
    pieces = ((a.numbers, piece) for a, b in joined for piece in b.numbers.split(2**20))
    if not any(torch.isin(piece, numbers).any() for numbers, piece in pieces):
        raise BadInput(f"{files['query_labels']}: none of its labels is one of {files['reference_labels']}")
    query, reference = (side._replace(labels=[pair[i] for pair in joined]) for i, side in enumerate((query, reference)))
    if query.cameras and reference.cameras:
        pair = _joined(query.cameras, reference.cameras, files, "cameras")
        query, reference = query._replace(cameras=pair[0]), reference._replace(cameras=pair[1])
    return query, reference, groups


def _part(rows: Any, some: slice) -> Any:
    """Some of them; those of a source are read."""
    return rows.read(*some.indices(len(rows))[:2]) if isinstance(rows, RowSource) else rows[some]


def _side(files: Mapping[str, str | None], side: str, levels: bool, in_blocks: bool = False) -> Side:
    embeddings, labels, cameras = str(files[side]), str(files[f"{side}_labels"]), files[f"{side}_cameras"]
    rows = read_rows(embeddings, in_blocks)
    if len(rows.shape) != 2:
        raise BadInput(f"{embeddings}: got an array of shape {tuple(rows.shape)}, wanted one row per item: (N, D)")
    columns = read_columns(labels) if levels else [read_labels(labels)]
    _check_length(labels, columns[0], rows, embeddings)
    return Side(rows, columns, _as_many(cameras, rows, embeddings) if cameras else None)


def _as_many(file: str, rows: Tensor | RowSource, embeddings: str | None) -> Column:
    return _check_length(file, read_labels(file), rows, embeddings)


def _check_length(file: str, column: Column, rows: Tensor | RowSource, embeddings: str | None) -> Column:
    given = len(column.numbers)
    if given != len(rows):
        hint = "; leave out the header" if given == len(rows) + 1 and column.names else ""
        raise BadInput(f"{file}: got {given} labels for the {len(rows)} rows of {embeddings}{hint}")
    return column


def _joined(a: Column, b: Column, files: Mapping[str, str | None], what: str) -> tuple[Column, Column]:
    """Two numberings of words into one."""
    if (a.names is None) != (b.names is None):
        own, other = files[f"reference_{what}"], files[f"query_{what}"]
        raise BadInput(f"{own}: wanted {what} of the kind of {other}, words or integers")
    if a.names is None or b.names is None:
        return a, b
    names = sorted({*a.names, *b.names})
    number = {word: i for i, word in enumerate(names)}
    first, second = (
        Column(torch.tensor([number[word] for word in side.names or ()])[side.numbers], names) for side in (a, b)
    )
    return first, second


def _in_one_process(
    calculator: AccuracyCalculator, query: dict[str, Any], reference: dict[str, Any] | None, kept: dict[str, Any]
) -> dict[str, float]:
    references = reference or {}
    return calculator.get_accuracy(
        query["embeddings"],
        query["labels"],
        references.get("embeddings"),
        references.get("labels"),
        query_cameras=query.get("cameras"),
        reference_cameras=references.get("cameras"),
        **kept,
    )


def _on_ranks(
    calculator: AccuracyCalculator, query: dict[str, Any], reference: dict[str, Any] | None, groups: Column
) -> dict[str, float]:
    """Each rank holds a part of the rows; all get the answer of one process."""
    torch.distributed.init_process_group("gloo")
    try:
        rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()

        def own(rows: Any) -> Any:
            return _part(rows, slice(len(rows) * rank // ranks, len(rows) * (rank + 1) // ranks))

        def parts(side: dict[str, Any]) -> dict[str, Any]:
            return {name: own(rows) for name, rows in side.items()}

        role: Role = "both" if reference is None else "query"
        calculator.update(**parts(query), role=role, groups=own(groups.given()))
        if reference is not None:
            calculator.update(**parts(reference), role="reference")
        return {name: float(value) for name, value in calculator.compute().items()}
    finally:
        torch.distributed.destroy_process_group()


def _by_class(scores: dict[str, Tensor], labels: Column) -> dict[str, dict[str, float]]:
    # scores: (Q,) each
    numbers = labels.numbers.to(next(iter(scores.values())).device)
    classes = Classes.of(numbers, torch.ones_like(numbers, dtype=torch.bool))
    rows: dict[str, dict[str, float]] = {
        str(labels.names[n] if labels.names else n): {} for n in classes.labels.tolist()
    }
    for metric, score in scores.items():
        for row, value in zip(rows.values(), averaged(score, classes, "class", statistic_of(metric)), strict=True):
            row[metric] = float(value)
    return rows
