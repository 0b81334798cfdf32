"""Runs and judgements in other forms than TREC's: JSON, tables with a heading, data frames, ranks without scores."""

import json
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np

from ...core.text.files import parsing, text_of
from ...core.text.tables import read_cells, with_points
from ...uncertainty.item_scores.records import read_records

QUERY = "query", "qid", "query_id", "query-id", "q_id", "topic", "topic_id"
DOCUMENT = "document", "doc", "docid", "doc_id", "docno", "document_id", "pid", "passage_id", "corpus-id", "corpus_id"
SCORES, RANKS = ("score", "sim", "similarity"), ("rank", "position")
GAINS = "gain", "relevance", "rel", "label", "score", "judgement", "judgment"
BEIR = "query-id", "corpus-id", "score"  # heading of judgements
Columns = tuple[Sequence[str], Sequence[str], Sequence[Any]]  # queries, documents, values


def read_table(data: bytes | bytearray, path: str | PathLike, is_run: bool) -> Mapping[str, Any] | Columns | None:
    """Return what a file of JSON, of a table with a heading, or of ranks holds; None for other files."""
    start = text_of(data[:4096], path) if b"\0" in data[:4096] else data[:4096].decode("utf-8-sig", "replace")
    if start.lstrip()[:1] in ("{", "["):
        text, answer = text_of(data, path), None
        with parsing(path, "JSON"):
            try:
                answer = json.loads(text)
            except json.JSONDecodeError as error:
                if error.msg != "Extra data":  # lines of JSON
                    raise
        if isinstance(answer, dict) and all(isinstance(documents, dict | list) for documents in answer.values()):
            return answer
        records = [answer] if isinstance(answer, dict) else read_records(path, text).rows
        if not records:
            raise ValueError(f"{path}: got an empty list, wanted at least one row")
        return columns_of(str(path), {name: [row.get(name) for row in records] for name in records[0]}, is_run)
    first = next(read_cells(start.lstrip().partition("\n")[0], path)[1], (0, ()))
    heading = [cell.lower() for cell in first[1]]
    if not {*heading} & {*QUERY} or not {*heading} & {*DOCUMENT}:
        return None
    if is_run and (*heading,) == BEIR:
        raise ValueError(f"{path}: got judgements (query-id corpus-id score), wanted a run; were the two swapped?")
    text = text_of(data, path)
    delimiter, table = read_cells(text, path)
    rows = [row for _, row in table]
    if not rows[1:]:
        raise ValueError(f"{path}: got a heading without rows, wanted at least one row")
    columns = dict(zip(heading, zip(*rows[1:], strict=True), strict=True))
    return columns_of(
        str(path), columns, is_run, delimiter, lambda row: f"{path}, line {[*read_cells(text, path)[1]][row + 1][0]}"
    )


def columns_of(
    name: str, columns: Any, is_run: bool, delimiter: str = "", place: Callable[[int], str] | None = None
) -> Columns:
    # columns: a mapping or a data frame
    """Return queries, documents and values of a table by the names of its columns; ranks become scores."""
    lower = {str(column).lower(): list(columns[column]) for column in columns}
    wanted = {"queries": QUERY, "documents": DOCUMENT, "values": (*SCORES, *RANKS) if is_run else GAINS}
    found = {kind: next((column for column in names if column in lower), None) for kind, names in wanted.items()}
    for kind, column in found.items():
        if column is None:
            got, names = ", ".join(map(str, columns)), ", ".join(wanted[kind])
            of_others = kind == "values" and {*lower} & {*(GAINS if is_run else (*SCORES, *RANKS))}
            advice = "; were the two swapped?" if of_others else ""
            raise ValueError(f"{name}: got the columns {got}, wanted one of {kind}: {names}{advice}")
    queries, documents, values = (lower[column] for column in found.values() if column is not None)
    place = place or (lambda row: name)
    if "," in "".join(map(str, values)):
        values = with_points(values, delimiter, place)
    numbers: list[float] = []
    try:
        numbers.extend(map(float, values))
    except (TypeError, ValueError):
        row = len(numbers)
        raise ValueError(f"{place(row)}: got the {found['values']} {values[row]!r:.60}, wanted a number") from None
    return [*map(str, queries)], [*map(str, documents)], [-x for x in numbers] if found["values"] in RANKS else numbers


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


def ranked_lists(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run in which lists of documents, the best first, have scores."""
    return {
        query: {d: -i for i, d in enumerate(documents, 1)} if isinstance(documents, list | tuple) else documents
        for query, documents in run.items()
    }
