"""Runs and judgements: sparse tables of query, document and value."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Self

from ...core.arguments import checks
from ...core.text.files import read_array
from ...core.text.tables import is_frame
from ...core.text.text_columns import Fields, split_fields
from .tables import columns_of, ranked_lists, ranks_as_scores, read_table

MAX_GAIN = 2**53  # larger integers are not exact in float64
MIX = 0x9E3779B97F4A7C15  # odd multiplier of the hash, 2^64 divided by the golden ratio


class QueryDocuments:
    """Base class of runs and judgements: documents of queries with a value for each."""

    def __init__(
        self, queries: list[str], query: np.ndarray, document: np.ndarray, value: np.ndarray, source: str
    ) -> None:
        # queries: Q distinct names  query: (n,) int64  document: (n, W) uint64, bytes of the names  value: (n,)
        self.queries, self.query, self.document, self.value, self.source = queries, query, document, value, source
        self._refuse_repeated()

    @classmethod
    def _of(cls, *parts: Any) -> Self:
        pairs = cls.__new__(cls)
        QueryDocuments.__init__(pairs, *parts)
        return pairs

    def __len__(self) -> int:
        return len(self.value)

    def __repr__(self) -> str:
        return f"<{self.source} of {len(self)} documents for {len(self.queries)} queries>"

    def _refuse_repeated(self) -> None:
        # The key of a pair is a hash of its names, whose first digits depend on all bytes.
        self.key = np.array([hash_of(query) for query in self.queries], np.uint64)[self.query]
        for i, part in enumerate(self.document.T):  # the zeros at the end of shorter names add nothing
            self.key += part * np.uint64(pow(MIX, i + 1, 2**64))
        ordered = np.sort(self.key)
        if (ordered[1:] != ordered[:-1]).all():
            return
        seen = set()
        for index in np.flatnonzero(np.isin(self.key, ordered[1:][ordered[1:] == ordered[:-1]])).tolist():
            pair = self.queries[self.query[index]], self.document[index].tobytes().rstrip(b"\0").decode()
            if pair in seen:
                raise ValueError(f"{self.source}: got the document {pair[1]!r} twice for the query {pair[0]!r}")
            seen.add(pair)


def hash_of(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


class Run(QueryDocuments):
    """Ranked documents: scores of documents for each query, higher is better.

    Also from a file (`Run.read`), scores of all documents (`Run.from_scores`), or lists of the best (`Run.from_top_k`).
    Ranks in files are ignored, as by trec_eval: documents are ordered by score, rounded to float32, and at equal scores
    by name, the greater first.

    Args:
        run: `{query: {document: score}}`, `{query: [documents]}`, best first, or a DataFrame.

    Raises:
        TypeError: If it is none of these.
        ValueError: If a score is NaN, or a query has a document twice.

    >>> run = Run({"q1": {"d1": 0.9, "d2": 0.3}})
    >>> evaluate_run(run, {"q1": {"d2": 1}}, ["recip_rank"]).summary()
    {'recip_rank': 0.5}
    >>> run = Run.from_scores(torch.tensor([[0.9, 0.3]]), ["q1"], ["d1", "d2"])  # of all documents
    >>> evaluate_run(run, {"q1": {"d2": 1}}, ["recip_rank"]).values["recip_rank"]
    tensor([0.5000], dtype=torch.float64)
    """

    def __init__(self, run: Any) -> None:
        super().__init__(*_from_table("run", run, float))

    @classmethod
    def read(cls, path: str | PathLike) -> "Run":
        """Read a run: TREC's, with fields separated by whitespace; or JSON, a table with a heading, or ranks.

        JSON is ``{query: {document: score}}``, or rows of a table in a list or in lines; the heading of a table, of
        commas, semicolons or tabs, names a column of queries, of documents, and of scores or ranks ("qid", "docno",
        "score" ...); three columns without a heading are query, document, and a score or the rank, as in MS MARCO.
        Errors name the line.
        """
        path = Path(path)
        data = read_array(path)
        columns = _num_columns(data)
        if columns != 6 and (table := read_table(data.tobytes(), path, is_run=True)) is not None:
            return cls._of(*_from_table(str(path), table, float))
        if columns == 3:
            query, document, score = split_fields(data, path, ("query", "document", "score"))
            queries, codes = _factorize(query)
            values = ranks_as_scores(codes, _parse_values(path, "score", score))
            if values is not None:
                return cls._of(queries, codes, document.codes(), values, str(path))
        if columns in (3, 4):
            raise ValueError(f"{path}: got judgements (query 0 document gain), wanted a run; were the two swapped?")
        query, document, score = split_fields(data, path, ("query", "-", "document", "-", "score", "-"))
        return cls._of(*_factorize(query), document.codes(), _parse_values(path, "score", score), str(path))

    @classmethod
    def from_scores(
        cls, scores: Tensor, queries: Sequence[str] | None = None, documents: Sequence[str] | None = None
    ) -> "Run":
        # scores: (Q, N)
        """Create a run from the scores of every document; names are "0", "1", ... by default.

        A score of -inf leaves a document out.
        """
        checks.shape("scores", scores, "Q", "N")
        indices = torch.arange(scores.shape[1], device="cpu").expand(scores.shape)
        return cls.from_top_k(scores, indices, queries, documents)

    @classmethod
    def from_top_k(
        cls,
        scores: Tensor,
        indices: Tensor,
        queries: Sequence[str] | None = None,
        documents: Sequence[str] | None = None,
    ) -> "Run":
        # scores: (Q, k)  indices: (Q, k) integers, into documents; -1 as padding
        """Create a run from the result of `torch.topk` or a search index, with similarities as scores."""
        checks.shape("scores", scores, "Q", "k")
        checks.shape("indices", indices, *scores.shape)
        checks.integral("indices", indices)
        values, columns = scores.detach().double().cpu().numpy(), indices.cpu().numpy()
        if np.isnan(values).any():
            raise ValueError("scores: got NaN, wanted numbers; -inf leaves a document out")
        query, column = np.nonzero((columns >= 0) & (values > -np.inf))
        names = _names("queries", queries, len(values))
        largest = int(columns.max(initial=-1)) + 1
        document_names = _names("documents", documents, largest, at_least=True)
        document = _encode_names(document_names)[columns[query, column]]
        return cls._of(names, query, document, values[query, column], "run")


class Qrels(QueryDocuments):
    """Relevance judgements: integer gains of documents for each query; 0 or less is not relevant.

    Files are read by `Qrels.read`, in the four columns of TREC (`query 0 document gain`) or the three of BEIR with a
    heading (`query-id corpus-id score`). Documents without a judgement count as not relevant.

    Args:
        qrels: `{query: {document: gain}}` or a DataFrame.

    Raises:
        TypeError: If it is neither.
        ValueError: If a gain is no integer, or a document is judged twice.

    >>> qrels = Qrels({"q1": {"d1": 1, "d3": 2}})
    >>> evaluate_run({"q1": {"d3": 0.9, "d1": 0.3}}, qrels, ["ndcg"]).summary()
    {'ndcg': 1.0}
    """

    def __init__(self, qrels: Any) -> None:
        super().__init__(*_from_table("qrels", qrels, int))

    @classmethod
    def read(cls, path: str | PathLike) -> "Qrels":
        """Read judgements of TREC or BEIR, JSON ``{query: {document: gain}}``, or a table with a heading.

        Errors name the line.
        """
        path = Path(path)
        data = read_array(path)
        columns = _num_columns(data)
        if columns not in (3, 6) and (table := read_table(data.tobytes(), path, is_run=False)) is not None:
            return cls._of(*_from_table(str(path), table, int))
        if columns == 6:
            raise ValueError(
                f"{path}: got a run (query Q0 document rank score tag), wanted judgements; were the two swapped?"
            )
        if columns == 3:  # BEIR
            query, document, gain = split_fields(data, path, ("query", "document", "gain"))
            if len(gain.spans) and not gain[0].lstrip("-").isdecimal():
                query, document, gain = (replace(x, spans=x.spans[1:]) for x in (query, document, gain))
        else:
            query, document, gain = split_fields(data, path, ("query", "-", "document", "gain"))
        values = _parse_values(path, "gain", gain)
        for row in np.flatnonzero((values % 1 != 0) | (abs(values) > MAX_GAIN)).tolist()[:1]:
            raise ValueError(f"{path}: got the gain {gain[row]!r} for {document[row]!r}, wanted an integer")
        return cls._of(*_factorize(query), document.codes(), values.astype(np.int64), str(path))


def _num_columns(data: np.ndarray) -> int:
    first = re.search(rb"[^\s\0\xef\xbb\xbf\xfe\xff][^\n]*", data.data)  # after a byte order mark
    return 0 if first is None or first[0][:1] in b"{[" else len(first[0].split())


def _parse_values(path: Path, name: str, column: Fields) -> np.ndarray:
    # ->  (n,) float64
    values, invalid = column.parse_numbers()
    invalid = np.concatenate([invalid, np.flatnonzero(np.isnan(values))])
    if len(invalid):
        line = 1 + column.data[: column.spans[invalid.min(), 0]].tobytes().count(b"\n")
        raise ValueError(f"{path}, line {line}: got the {name} {column[invalid.min()]!r}, wanted a number")
    return values


def _factorize(column: Fields) -> tuple[list[str], np.ndarray]:
    # ->  distinct names in the order of their first lines, (n,) int64
    encoded = column.codes()
    new = np.ones(len(encoded), bool)
    new[1:] = (encoded[1:] != encoded[:-1]).any(1)
    firsts = np.flatnonzero(new)
    codes: dict[str, int] = {}
    runs = [codes.setdefault(column[row], len(codes)) for row in firsts.tolist()]
    return list(codes), np.repeat(np.array(runs, np.int64), np.diff(np.append(firsts, len(encoded))))


def _from_table(name: str, table: Any, kind: type) -> tuple[list[str], np.ndarray, np.ndarray, np.ndarray, str]:
    # table: a mapping, a data frame or columns
    if is_frame(table):
        table = columns_of(name, table, is_run=kind is float)
    if isinstance(table, tuple):
        queries, documents, numbers = table
        if invalid := [number for number in numbers if not _is(kind, number)]:
            raise ValueError(f"{name}: got the value {invalid[0]!r}, wanted {kind.__name__}; were the two swapped?")
        codes: dict[str, int] = {}
        query = np.array([codes.setdefault(query, len(codes)) for query in queries], np.int64)
        return [*codes], query, _encode_names(documents), np.array(numbers, kind), name
    mapping = ranked_lists(table) if kind is float and isinstance(table, Mapping) else table
    if not isinstance(mapping, Mapping) or not all(isinstance(documents, Mapping) for documents in mapping.values()):
        raise TypeError(
            f"{name}: got a {type(mapping).__name__}, wanted a dict of queries of dicts of documents, or a table"
        )
    for query, documents in mapping.items():
        for document, value in documents.items():
            if not (isinstance(query, str) and isinstance(document, str)):
                raise TypeError(f"{name}: got the names {query!r} and {document!r}, wanted two str")
            if not _is(kind, value):
                hint = "; scores go into the run: write evaluate_run(run=..., qrels=...)" if kind is int else ""
                raise ValueError(f"{name}: got {value!r} for {query!r}, {document!r}, wanted {kind.__name__}{hint}")
    sizes = [len(documents) for documents in mapping.values()]
    names = [document for documents in mapping.values() for document in documents]
    values: np.ndarray = np.array([value for documents in mapping.values() for value in documents.values()], kind)
    return list(mapping), np.repeat(np.arange(len(mapping)), sizes), _encode_names(names), values, name


def _is(kind: type, value: Any) -> bool:
    try:
        return bool(kind(value) == value and (kind is float or abs(value) <= MAX_GAIN))
    except (TypeError, ValueError, OverflowError):
        return False


def _encode_names(names: Sequence[str]) -> np.ndarray:
    # ->  (n, W) uint64
    """Encode names as integers, like `Fields.codes`."""
    raw = [name.encode() for name in names]
    if bad := [name for name in raw if not name or b"\0" in name]:
        raise ValueError(f"documents: got the name {bad[0]!r}, wanted at least one character and no NUL")
    width = max(1, -(-max(map(len, raw), default=1) // 8))
    return np.array(raw, f"S{8 * width}").view("<u8").reshape(-1, width)


def _names(argument: str, names: Sequence[str] | None, count: int, at_least: bool = False) -> list[str]:
    if names is None:
        return [str(i) for i in range(count)]
    names = list(names)
    if len(names) < count or (len(names) > count and not at_least):
        raise ValueError(f"{argument}: got {len(names)} names, wanted {'at least ' * at_least}{count}")
    if len(set(names)) < len(names):
        raise ValueError(f"{argument}: got names that are not distinct")
    return names
