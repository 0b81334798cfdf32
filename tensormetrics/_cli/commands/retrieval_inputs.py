"""Queries and references of `tensormetrics retrieval` from files, and what says which of them belong together."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...retrieval.sources.source import RowSource
from ..inputs import BadInput, Column, Rows, read_columns, read_gains, read_labels, read_rows

FILES = {  # argument of the library -> option
    "query": "embeddings",
    "query_labels": "labels",
    "reference": "reference",
    "reference_labels": "reference_labels",
    "query_cameras": "cameras",
    "reference_cameras": "reference_cameras",
    "ids": "ids",
    "reference_ids": "reference_ids",
    "groups": "groups",
    "gains": "gains",
}
Files = Mapping[str, str | None]


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


class Asked(NamedTuple):
    """Who is scored against whom; groups are those of the queries."""

    query: Side
    reference: Side | None
    groups: Column
    gains: tuple[Tensor, Tensor, Tensor] | None


def read_sides(files: Files, levels: bool, in_blocks: bool) -> Asked:
    check_files(files, levels)
    query = _side(files, "query", levels)
    groups = query.labels[0]
    if files["groups"]:
        groups = _as_many(files["groups"], query.rows, files["query"])
    ids = _as_many(files["ids"], query.rows, files["query"]) if files["ids"] else None
    if ids is not None:
        first = torch.from_numpy(np.unique(ids.numbers.numpy(), return_index=True)[1])
        cameras = query.cameras and query.cameras.at(first)
        labels = [column.at(first) for column in query.labels]
        query, groups = Side(part_of(query.rows, slice(None))[first], labels, cameras), groups.at(first)
        ids = ids.at(first)
    reference = _side(files, "reference", levels, in_blocks) if files["reference"] else None
    gains = None
    if files["gains"]:
        rows = Rows(len(query.rows), str(files["query"]), "--ids", ids, files["ids"])
        gains = read_gains(files["gains"], rows, rows if reference is None else _reference_rows(files, reference))
    elif reference is not None:
        query, reference = _with_common_labels(query, reference, files)
    if reference is not None and query.cameras and reference.cameras:
        pair = _joined(query.cameras, reference.cameras, files, "cameras")
        query, reference = query._replace(cameras=pair[0]), reference._replace(cameras=pair[1])
    return Asked(query, reference, groups, gains)


def check_files(files: Files, levels: bool) -> None:
    """BadInput where some make no sense without others, or with them."""
    if not (files["query_labels"] or files["gains"]):
        raise BadInput("LABELS: got no file, wanted one, or --gains FILE")
    if files["gains"] and (levels or files["reference_labels"]):
        option = "--levels" if levels else "--reference-labels"
        raise BadInput(f"{option}: not together with --gains, which say what is relevant; leave one out")
    if not files["gains"] and (files["reference"] is None) != (files["reference_labels"] is None):
        raise BadInput("--reference and --reference-labels: give both or neither")
    if files["reference_ids"] and not (files["gains"] and files["reference"]):
        raise BadInput("--reference-ids: wanted --reference and --gains, which name its rows; leave them out")
    wanted = files["query_cameras"] is not None and files["reference"] is not None
    if (files["reference_cameras"] is not None) != wanted:
        raise BadInput("--reference-cameras: give them where there are both --cameras and --reference, and only there")


def part_of(rows: Any, some: slice) -> Any:
    """Some of them; those of a source are read."""
    return rows.read(*some.indices(len(rows))[:2]) if isinstance(rows, RowSource) else rows[some]


def _side(files: Files, side: str, levels: bool, in_blocks: bool = False) -> Side:
    embeddings, labels, cameras = str(files[side]), files[f"{side}_labels"], files[f"{side}_cameras"]
    rows = read_rows(embeddings, in_blocks)
    if len(rows.shape) != 2:
        raise BadInput(f"{embeddings}: got an array of shape {tuple(rows.shape)}, wanted one row per item: (N, D)")
    if labels is None:  # each is a class of its own: gains say what is relevant
        columns = [Column(torch.arange(len(rows)), None)]
    else:
        columns = read_columns(labels) if levels else [read_labels(labels)]
        _check_length(labels, columns[0], rows, embeddings)
    return Side(rows, columns, _as_many(cameras, rows, embeddings) if cameras else None)


def _reference_rows(files: Files, reference: Side) -> Rows:
    file, embeddings = files["reference_ids"], str(files["reference"])
    ids = _as_many(file, reference.rows, embeddings) if file else None
    return Rows(len(reference.rows), embeddings, "--reference-ids", ids, file)


def _as_many(file: str, rows: Tensor | RowSource, embeddings: str | None) -> Column:
    return _check_length(file, read_labels(file), rows, embeddings)


def _check_length(file: str, column: Column, rows: Tensor | RowSource, embeddings: str | None) -> Column:
    given = len(column.numbers)
    if given != len(rows):
        hint = "; leave out the header" if given == len(rows) + 1 and column.names else ""
        raise BadInput(f"{file}: got {given} labels for the {len(rows)} rows of {embeddings}{hint}")
    return column


def _with_common_labels(query: Side, reference: Side, files: Files) -> tuple[Side, Side]:
    """The same with labels of one numbering, of which some are on both sides."""
    if len(query.labels) != len(reference.labels):
        got = f"{len(reference.labels)} columns, wanted the {len(query.labels)} of {files['query_labels']}"
        raise BadInput(f"{files['reference_labels']}: got {got}")
    joined = [_joined(*columns, files, "labels") for columns in zip(query.labels, reference.labels, strict=True)]
    # In pieces: looking all of them up takes several times what they take.
    pieces = ((a.numbers, piece) for a, b in joined for piece in b.numbers.split(2**20))
    if not any(torch.isin(piece, numbers).any() for numbers, piece in pieces):
        raise BadInput(f"{files['query_labels']}: none of its labels is one of {files['reference_labels']}")
    of_query, of_reference = ([pair[side] for pair in joined] for side in (0, 1))
    return query._replace(labels=of_query), reference._replace(labels=of_reference)


def _joined(a: Column, b: Column, files: Files, what: str) -> tuple[Column, Column]:
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
