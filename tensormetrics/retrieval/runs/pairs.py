"""Runs and judgements: sparse tables of a query, a document and a number."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ... import _checks
from ..._files import read_bytes
from ..._text_columns import Fields, split_fields

MOST = 2**53  # gains above are no exact float64
MIX = 0x9E3779B97F4A7C15  # an odd number without pattern


class Pairs:
    """Documents of queries and a number for each; what runs and judgements share."""

    def __init__(
        self, queries: list[str], query: np.ndarray, document: np.ndarray, value: np.ndarray, source: str
    ) -> None:
        # queries: Q distinct names  query: (n,) int64  document: (n, W) uint64, names as words  value: (n,)
        self.queries, self.query, self.document, self.value, self.source = queries, query, document, value, source
        self._refuse_repeated()

    def __len__(self) -> int:
        return len(self.value)

    def __repr__(self) -> str:
        return f"<{self.source} of {len(self)} documents for {len(self.queries)} queries>"

    def keys(self) -> np.ndarray:
        # ->  (n,) uint64
        """Equal for pairs of equal names, and hardly ever for others."""
        key = np.array([hash_of(query) for query in self.queries], np.uint64)[self.query]
        for w, word in enumerate(self.document.T):  # words of 0 add nothing: shorter names end in them
            key += (word ^ (word >> np.uint64(32))) * np.uint64(pow(MIX, w + 1, 2**64))
        return key ^ (key >> np.uint64(29))

    def names(self, places: np.ndarray) -> list[bytes]:
        """The names of documents."""
        words = np.ascontiguousarray(self.document[places])
        return words.view(f"S{8 * words.shape[1]}").reshape(-1).tolist()

    def _refuse_repeated(self) -> None:
        self.key = self.keys()
        ordered = np.sort(self.key)
        if (ordered[1:] != ordered[:-1]).all():
            return
        seen = set()
        for place in np.flatnonzero(np.isin(self.key, ordered[1:][ordered[1:] == ordered[:-1]])).tolist():
            pair = self.queries[self.query[place]], self.names(np.array([place]))[0].decode()
            if pair in seen:
                raise ValueError(f"{self.source}: got the document {pair[1]!r} twice for the query {pair[0]!r}")
            seen.add(pair)


def hash_of(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


class Run(Pairs):
    """Ranked documents: for each query scores of documents, the highest first.

    From a TREC file (`query Q0 document rank score tag`, `Run.read`), `{query: {document: score}}`, scores of all
    documents (`Run.from_scores`), or lists of the best (`Run.from_top_k`). Ranks in files are ignored, as trec_eval
    does: documents are ordered by score, rounded to float32, and equal scores by name, the greater first.

    >>> run = Run({"q1": {"d1": 0.9, "d2": 0.3}})
    >>> evaluate_run(run, {"q1": {"d2": 1}}, ["recip_rank"]).summary()
    {'recip_rank': 0.5}
    >>> run = Run.from_scores(torch.tensor([[0.9, 0.3]]), ["q1"], ["d1", "d2"])  # of all documents
    >>> evaluate_run(run, {"q1": {"d2": 1}}, ["recip_rank"]).values["recip_rank"]
    tensor([0.5000], dtype=torch.float64)
    """

    def __init__(self, run: Mapping[str, Mapping[str, float]]) -> None:
        super().__init__(*_from_mapping("run", run, float), "run")

    @classmethod
    def read(cls, path: str | PathLike) -> "Run":
        """Read a TREC run, of fields between blanks and control characters. ValueError names the line."""
        path = Path(path)
        query, document, score = split_fields(read_bytes(path), path, ("query", "-", "document", "-", "score", "-"))
        return cls._of(*_coded(query), document.words(), _numbers(path, "score", score), str(path))

    @classmethod
    def from_scores(
        cls, scores: Tensor, queries: Sequence[str] | None = None, documents: Sequence[str] | None = None
    ) -> "Run":
        # scores: (Q, N)
        """Scores of every document; names are "0", "1", ... by default. -inf leaves a document out."""
        _checks.shape("scores", scores, "Q", "N")
        places = torch.arange(scores.shape[1], device="cpu").expand(scores.shape)
        return cls.from_top_k(scores, places, queries, documents)

    @classmethod
    def from_top_k(
        cls,
        scores: Tensor,
        indices: Tensor,
        queries: Sequence[str] | None = None,
        documents: Sequence[str] | None = None,
    ) -> "Run":
        # scores: (Q, k)  indices: (Q, k) integers, into documents; -1 where there is none
        """What `torch.topk` or a search index answers, similarities as scores."""
        _checks.shape("scores", scores, "Q", "k")
        _checks.shape("indices", indices, *scores.shape)
        _checks.integral("indices", indices)
        values, places = scores.detach().double().cpu().numpy(), indices.cpu().numpy()
        if np.isnan(values).any():
            raise ValueError("scores: got NaN, wanted numbers; -inf leaves a document out")
        query, column = np.nonzero((places >= 0) & (values > -np.inf))
        names = _names("queries", queries, len(values))
        largest = int(places.max(initial=-1)) + 1
        of_document = _names("documents", documents, largest, at_least=True)
        document = _words_of(of_document)[places[query, column]]
        return cls._of(names, query, document, values[query, column], "run")

    @classmethod
    def _of(cls, *parts: Any) -> "Run":
        made = cls.__new__(cls)
        Pairs.__init__(made, *parts)
        return made


class Qrels(Pairs):
    """Relevance judgements: for each query the gains of documents, integers; 0 or less is not relevant.

    From a file (`Qrels.read`) in TREC's four columns (`query 0 document gain`) or BEIR's three with a heading
    (`query-id corpus-id score`), or `{query: {document: gain}}`. What is not judged counts as not relevant.

    >>> qrels = Qrels({"q1": {"d1": 1, "d3": 2}})
    >>> evaluate_run({"q1": {"d3": 0.9, "d1": 0.3}}, qrels, ["ndcg"]).summary()
    {'ndcg': 1.0}
    """

    def __init__(self, qrels: Mapping[str, Mapping[str, int]]) -> None:
        super().__init__(*_from_mapping("qrels", qrels, int), "qrels")

    @classmethod
    def read(cls, path: str | PathLike) -> "Qrels":
        """Judgements of TREC or BEIR. ValueError names the line."""
        path = Path(path)
        data = read_bytes(path)
        first = re.search(rb"\S[^\n]*", data)
        if first and len(first[0].split()) == 3:  # BEIR
            query, document, gain = split_fields(data, path, ("query", "document", "gain"))
            if len(gain.places) and not gain[0].lstrip("-").isdecimal():
                query, document, gain = query.behind(1), document.behind(1), gain.behind(1)
        else:
            query, document, gain = split_fields(data, path, ("query", "-", "document", "gain"))
        made = cls.__new__(cls)
        values = _numbers(path, "gain", gain)
        if (values % 1 != 0).any() or (abs(values) > MOST).any():
            odd = np.flatnonzero((values % 1 != 0) | (abs(values) > MOST))[0]
            raise ValueError(f"{path}: got the gain {gain[odd]!r} for {document[odd]!r}, wanted an integer")
        Pairs.__init__(made, *_coded(query), document.words(), values.astype(np.int64), str(path))
        return made


def _numbers(path: Path, name: str, column: Fields) -> np.ndarray:
    # ->  (n,) float64
    values, wrong = column.numbers()
    wrong = np.concatenate([wrong, np.flatnonzero(np.isnan(values))])
    if len(wrong):
        line = 1 + column.data[: column.places[wrong.min(), 0]].tobytes().count(b"\n")
        raise ValueError(f"{path}, line {line}: got the {name} {column[wrong.min()]!r}, wanted a number")
    return values


def _coded(column: Fields) -> tuple[list[str], np.ndarray]:
    # ->  the distinct names in the order of their first lines, (n,) int64
    words = column.words()
    new = np.ones(len(words), bool)
    new[1:] = (words[1:] != words[:-1]).any(1)
    firsts = np.flatnonzero(new)
    codes: dict[str, int] = {}
    runs = [codes.setdefault(column[place], len(codes)) for place in firsts.tolist()]
    return list(codes), np.repeat(np.array(runs, np.int64), np.diff(np.append(firsts, len(words))))


def _from_mapping(
    name: str, given: Mapping[str, Mapping[str, Any]], kind: type
) -> tuple[list[str], np.ndarray, np.ndarray, np.ndarray]:
    if not isinstance(given, Mapping) or not all(isinstance(each, Mapping) for each in given.values()):
        raise TypeError(f"{name}: got a {type(given).__name__}, wanted a dict of queries of dicts of documents")
    for query, each in given.items():
        for document, value in each.items():
            if not (isinstance(query, str) and isinstance(document, str)):
                raise TypeError(f"{name}: got the names {query!r} and {document!r}, wanted two str")
            if not _is(kind, value):
                hint = "; scores go into the run: write evaluate_run(run=..., qrels=...)" if kind is int else ""
                raise ValueError(f"{name}: got {value!r} for {query!r}, {document!r}, wanted {kind.__name__}{hint}")
    sizes = [len(each) for each in given.values()]
    documents = [document for each in given.values() for document in each]
    values: np.ndarray = np.array([value for each in given.values() for value in each.values()], kind)
    return list(given), np.repeat(np.arange(len(given)), sizes), _words_of(documents), values


def _is(kind: type, value: Any) -> bool:
    try:
        return bool(kind(value) == value and (kind is float or abs(value) <= MOST))
    except (TypeError, ValueError, OverflowError):
        return False


def _words_of(names: Sequence[str]) -> np.ndarray:
    # ->  (n, W) uint64
    """As `Fields.words`."""
    raw = [name.encode() for name in names]
    if bad := [name for name in raw if not name or b"\0" in name]:
        raise ValueError(f"documents: got the name {bad[0]!r}, wanted at least one character and no NUL")
    width = max(1, -(-max(map(len, raw), default=1) // 8))
    return np.array(raw, f"S{8 * width}").view("<u8").reshape(-1, width)


def _names(argument: str, names: Sequence[str] | None, number: int, at_least: bool = False) -> list[str]:
    if names is None:
        return [str(i) for i in range(number)]
    names = list(names)
    if len(names) < number or (len(names) > number and not at_least):
        raise ValueError(f"{argument}: got {len(names)} names, wanted {'at least ' * at_least}{number}")
    if len(set(names)) < len(names):
        raise ValueError(f"{argument}: got names that are not distinct")
    return names
