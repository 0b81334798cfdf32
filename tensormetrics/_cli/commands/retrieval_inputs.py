"""Queries, references and relevance of `tensormetrics retrieval`, read from files."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...retrieval.sources.source import EmbeddingSource
from ..inputs.arrays import read_rows
from ..inputs.gains import Rows, read_gains
from ..inputs.labels import Column, concatenated, read_columns, read_labels
from ..option_types import BadInput

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


class EmbeddingTable(NamedTuple):
    """Embeddings of queries or references with their labels."""

    rows: Tensor | EmbeddingSource  # (N, D)
    labels: list[Column]  # one column, or one per level
    cameras: Column | None

    def to(self, device: torch.device) -> dict[str, Any]:
        """Return the arguments of `AccuracyCalculator.update` except the role."""
        labels = [column.codes.to(device) for column in self.labels]
        inputs = {
            "embeddings": self.rows.to(device) if isinstance(self.rows, Tensor) else self.rows,
            "labels": labels[0] if len(labels) == 1 else torch.stack(labels, 1),
        }
        return inputs if self.cameras is None else inputs | {"cameras": self.cameras.codes.to(device)}


class InputsOfFiles(NamedTuple):
    """Queries, references and relevance read from files; `groups` are the resampling clusters of the queries."""

    query: EmbeddingTable
    reference: EmbeddingTable | None
    groups: Column
    gains: tuple[Tensor, Tensor, Tensor] | None


def read_inputs(files: Files, levels: bool, in_blocks: bool) -> InputsOfFiles:
    query = _read_embeddings(files, "query", levels)
    groups = query.labels[0]
    if files["groups"]:
        groups = _read_column(files["groups"], query.rows, files["query"])
    ids = _read_column(files["ids"], query.rows, files["query"]) if files["ids"] else None
    if ids is not None:
        first = torch.from_numpy(np.unique(ids.codes.numpy(), return_index=True)[1])
        cameras = query.cameras and query.cameras.select(first)
        labels = [column.select(first) for column in query.labels]
        query, groups = EmbeddingTable(part_of(query.rows, slice(None))[first], labels, cameras), groups.select(first)
        ids = ids.select(first)
    reference = _read_embeddings(files, "reference", levels, in_blocks) if files["reference"] else None
    gains = None
    if files["gains"]:
        rows = Rows(len(query.rows), str(files["query"]), "--ids", ids, files["ids"])
        gains = read_gains(files["gains"], rows, rows if reference is None else _reference_rows(files, reference))
    elif reference is not None:
        query, reference = _with_common_labels(query, reference, files)
    if reference is not None and query.cameras and reference.cameras:
        pair = _joined(query.cameras, reference.cameras, files, "cameras")
        query, reference = query._replace(cameras=pair[0]), reference._replace(cameras=pair[1])
    return InputsOfFiles(query, reference, groups, gains)


def part_of(rows: Any, row_slice: slice) -> Any:
    """Return a slice of the rows; the rows of a source are read."""
    return rows.read(*row_slice.indices(len(rows))[:2]) if isinstance(rows, EmbeddingSource) else rows[row_slice]


def _read_embeddings(files: Files, role: str, levels: bool, in_blocks: bool = False) -> EmbeddingTable:
    embeddings, labels, cameras = str(files[role]), files[f"{role}_labels"], files[f"{role}_cameras"]
    rows = read_rows(embeddings, in_blocks)
    if len(rows.shape) != 2:
        raise BadInput(f"{embeddings}: got an array of shape {tuple(rows.shape)}, wanted one row per item: (N, D)")
    if labels is None:  # gains define relevance, so each row is a separate class
        columns = [Column(torch.arange(len(rows)), None)]
    else:
        columns = read_columns(labels) if levels else [read_labels(labels)]
        _check_length(labels, columns[0], rows, embeddings)
    return EmbeddingTable(rows, columns, _read_column(cameras, rows, embeddings) if cameras else None)


def _reference_rows(files: Files, reference: EmbeddingTable) -> Rows:
    file, embeddings = files["reference_ids"], str(files["reference"])
    ids = _read_column(file, reference.rows, embeddings) if file else None
    return Rows(len(reference.rows), embeddings, "--reference-ids", ids, file)


def _read_column(file: str, rows: Tensor | EmbeddingSource, embeddings: str | None) -> Column:
    return _check_length(file, read_labels(file), rows, embeddings)


def _check_length(file: str, column: Column, rows: Tensor | EmbeddingSource, embeddings: str | None) -> Column:
    count = len(column.codes)
    if count != len(rows):
        hint = "; leave out the header" if count == len(rows) + 1 and column.names else ""
        raise BadInput(f"{file}: got {count} labels for the {len(rows)} rows of {embeddings}{hint}")
    return column


def _with_common_labels(
    query: EmbeddingTable, reference: EmbeddingTable, files: Files
) -> tuple[EmbeddingTable, EmbeddingTable]:
    """Return both tables with common label codes; raise if they share no label."""
    if len(query.labels) != len(reference.labels):
        got = f"{len(reference.labels)} columns, wanted the {len(query.labels)} of {files['query_labels']}"
        raise BadInput(f"{files['reference_labels']}: got {got}")
    joined = [_joined(*columns, files, "labels") for columns in zip(query.labels, reference.labels, strict=True)]
    # In chunks: looking up all labels at once takes several times their memory.
    chunks = ((a.codes, chunk) for a, b in joined for chunk in b.codes.split(2**20))
    if not any(torch.isin(chunk, codes).any() for codes, chunk in chunks):
        raise BadInput(f"{files['query_labels']}: none of its labels is one of {files['reference_labels']}")
    of_query, of_reference = ([pair[i] for pair in joined] for i in (0, 1))
    return query._replace(labels=of_query), reference._replace(labels=of_reference)


def _joined(a: Column, b: Column, files: Files, kind: str) -> tuple[Column, Column]:
    """Return two columns with common codes of their words."""
    if (a.names is None) != (b.names is None):
        file, other = files[f"reference_{kind}"], files[f"query_{kind}"]
        raise BadInput(f"{file}: wanted {kind} of the kind of {other}, words or integers")
    if a.names is None:
        return a, b
    both, size = concatenated([a, b]), len(a.codes)
    return both._replace(codes=both.codes[:size]), both._replace(codes=both.codes[size:])
