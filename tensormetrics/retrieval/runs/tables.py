"""Runs and judgements in other forms than TREC's: JSON, tables with a heading, data frames, ranks without scores."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np

from ...core.text.files import delimiter_of, parsing, text_of

QUERY = "query", "qid", "query_id", "query-id", "q_id", "topic", "topic_id"
DOCUMENT = "document", "doc", "docid", "doc_id", "docno", "document_id", "pid", "passage_id", "corpus-id", "corpus_id"
SCORES, RANKS = ("score", "sim", "similarity"), ("rank", "position")
GAINS = "gain", "relevance", "rel", "label", "score", "judgement", "judgment"
BEIR = "query-id", "corpus-id", "score"  # heading of judgements
Columns = tuple[Sequence[str], Sequence[str], Sequence[Any]]  # queries, documents, values


def read_table(data: bytes | bytearray, path: str | PathLike, is_run: bool) -> Mapping[str, Any] | Columns | None:
    """Return what a file of JSON, of a table with a heading, or of ranks holds; None for other files."""
    start = data[:4096] if b"\0" not in data[:4096] else text_of(data, path).encode()  # of UTF-16
    start = bytes(start).lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith(b"{"):
        with parsing(path, "JSON"):
            return json.loads(text_of(data, path))
    lines = start.decode("utf-8", "replace").splitlines()[:1]
    delimiter = delimiter_of(lines)
    with parsing(path, "a table"):
        heading = [cell.strip().lower() for cell in next(csv.reader(lines, delimiter=delimiter), [])]
    if not {*heading} & {*QUERY} or not {*heading} & {*DOCUMENT}:
        return None
    if is_run and (*heading,) == BEIR:
        raise ValueError(f"{path}: got judgements (query-id corpus-id score), wanted a run; were the two swapped?")
    with parsing(path, "a table"):
        text = io.StringIO(text_of(data, path).lstrip(), newline=None)
        rows = [row for row in csv.reader(text, delimiter=delimiter) if row]
    for line, row in enumerate(rows, 1):
        if len(row) != len(heading):
            raise ValueError(f"{path}, line {line}: got {len(row)} fields, wanted {len(heading)}: {' '.join(heading)}")
    columns = dict(zip(heading, zip(*rows[1:], strict=True) if rows[1:] else [()] * len(heading), strict=True))
    return columns_of(str(path), columns, is_run)


def columns_of(name: str, columns: Any, is_run: bool) -> Columns:
    # columns: a mapping or a data frame
    """Return queries, documents and values of a table by the names of its columns; ranks become scores."""
    lower = {str(column).lower(): list(columns[column]) for column in columns}
    wanted = {"queries": QUERY, "documents": DOCUMENT, "values": (*SCORES, *RANKS) if is_run else GAINS}
    found = {kind: next((column for column in names if column in lower), None) for kind, names in wanted.items()}
    for kind, column in found.items():
        if column is None:
            got, names = ", ".join(map(str, columns)), ", ".join(wanted[kind])
            raise ValueError(f"{name}: got the columns {got}, wanted one of {kind}: {names}")
    queries, documents, values = (lower[column] for column in found.values() if column is not None)
    numbers = [_number(name, found["values"], value) for value in values]
    if found["values"] in RANKS:
        numbers = [-number for number in numbers]
    return [*map(str, queries)], [*map(str, documents)], numbers


def ranks_as_scores(queries: np.ndarray, values: np.ndarray) -> np.ndarray | None:
    # queries, values: (n,)  ->  (n,)
    """Return the scores of a third column without a heading: itself, or its ranks negated; None for gains."""
    if (values % 1 != 0).any():
        return values
    order = np.lexsort((values, queries))
    query, rank = queries[order], values[order]
    starts = np.flatnonzero(np.append(True, query[1:] != query[:-1]))[: len(query)]
    expected = 1 + np.arange(len(query)) - np.repeat(starts, np.diff(np.append(starts, len(query))))
    return -values if (rank == expected).all() else None


def _number(name: str, column: str | None, value: Any) -> float:
    try:
        return float(value.strip().replace(",", ".") if isinstance(value, str) else value)
    except (TypeError, ValueError):
        raise ValueError(f"{name}: got the {column} {value!r:.60}, wanted a number") from None


def ranked_lists(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run in which lists of documents, the best first, have scores."""

    def scored(documents: Any) -> Any:
        return {d: -i for i, d in enumerate(documents, 1)} if isinstance(documents, list | tuple) else documents

    return {query: scored(documents) for query, documents in run.items()}


def is_frame(data: Any) -> bool:
    return hasattr(data, "columns") and hasattr(data, "to_dict") and hasattr(data, "__getitem__")
