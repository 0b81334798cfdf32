"""Report of an evaluation: a row for each field, the totals, and the documents of lowest similarity."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from ...core.arguments import checks
from ...core.resampling.intervals import interval as intervals
from ...core.resampling.intervals import with_values
from ...core.results.estimates import Comparison, Estimate, check_confidence
from ...core.results.score_table import ScoreTable
from ...core.results.table import Table
from ...uncertainty.comparison import compare
from .engine.compare import COUNTS
from .explain import Explanation, explain
from .page import report_page
from .reading import HOWS
from .schemas.json_writer import write_json_schema

DOCUMENT_COLUMNS = ("documents", "readable", "valid", "exact", "similarity")  # after the rows in the sums
FIELD_SCORES = ("precision", "recall", "f1", "similarity")
MIN_DOCUMENTS = 10
MICRO = "micro (leaves)"
NUM_NAMED = 3  # documents of lowest similarity below a table
BATCH = 1000  # documents that are compared at a time


@dataclass(frozen=True)
class FieldScore:
    """Counts and scores of one field.

    Attributes:
        support: Number of values, or items, of the references.
        documents: Number of documents with the field in the reference.
        correct, wrong, missed, invented: Numbers of values; items of a list are never wrong.
        invalid: Number of values of predictions of a wrong type.
        precision, recall, f1: In [0, 1]; NaN for 0 / 0. An `Estimate`, or a number without replicates.
        similarity: Mean similarity of values that prediction and reference both have.
    """

    path: str
    support: int
    documents: int
    correct: int
    wrong: int
    missed: int
    invented: int
    invalid: int
    precision: Estimate | float
    recall: Estimate | float
    f1: Estimate | float
    similarity: Estimate | float


class DocumentScore(NamedTuple):
    """Scores of one document; `read` is the format of its answer, `reason` the error of an unreadable one."""

    id: Any
    similarity: float
    is_exact: bool
    is_valid: bool
    num_errors: int
    read: str
    reason: str


class Confusion(NamedTuple):
    """Pair of a wrong value and the correct one, with its frequency."""

    prediction: Any
    reference: Any
    times: int


class FieldReport:
    """Result of `evaluate`: `print` shows a table with a row for each field.

    ``report["lines[].price"].f1`` is the F1 of a field with its interval; the other attributes are ``support``,
    ``documents``, ``correct``, ``wrong``, ``missed``, ``invented``, ``invalid``, ``precision``, ``recall`` and
    ``similarity``. `compare` of two reports compares two models by field.

    Args:
        metric: A `FieldScores`.
        confidence: Mass of the intervals, in (0, 1).
        predictions, references: The documents of `evaluate`, for `explain` and `confusions`.
        documents: Scores of each document that counts.
        positions: Position of each scored document in the predictions.
        is_inferred: Whether the types were inferred from the references.

    Attributes:
        paths: Paths of the rows.
        invalid: Numbers of values of predictions of a wrong type, by path; the root is "@".
        totals: Scores over all fields, and the rates of documents.

    Raises:
        ValueError: If `confidence` is out of range.

    Example:
        >>> from tensormetrics.structured import evaluate
        >>> report = evaluate(['{"a": 1, "b": "x"}', "no idea"], [{"a": 1, "b": "y"}, {"a": 2}], replicates=0)
        >>> print(report.table().select("support", "correct", "wrong", "missed"))
        path            support  correct  wrong  missed
        a                     2        1      0       1
        b                     1        0      1       0
        micro (leaves)        3        1      1       1
        documents 2: readable 0.50 (json 1, unreadable 1), valid 0.50, exact 0.00, similarity 0.25
        few documents: a, b
        types inferred from the references
        lowest: 1 0.00 (unreadable: Expecting value at 0), 0 0.50
    """

    def __init__(
        self,
        metric: Any,
        confidence: float = 0.95,
        predictions: Sequence[Any] = (),
        references: Sequence[Any] = (),
        documents: Sequence[DocumentScore] = (),
        positions: Sequence[int] = (),
        is_inferred: bool = False,
    ) -> None:
        self.metric, self.confidence = metric, check_confidence(confidence)
        self.predictions, self.references = predictions, references
        self.documents, self.positions, self.is_inferred = list(documents), list(positions), is_inferred
        self.paths, self._is_leaf = metric.paths, metric.scorer.plan.is_leaf
        with metric._whole_state("report"):
            sums = metric.sums.cpu()
            self._counts = metric.counts_by_row(sums)  # (R, 5)
            self._support = metric.support.tolist()
            by_path = zip(metric.scorer.plan.paths, metric.invalid.tolist(), strict=True)
            self.invalid = {path: int(count) for path, count in by_path if count}
            self._read = dict(zip(HOWS, map(int, metric.read.tolist()), strict=True))
            self._num_documents = int(sums[-len(DOCUMENT_COLUMNS)])
            self._num_extra, self._num_skipped = int(metric.num_extra), int(metric.num_skipped)
            self._fields: dict[str, Any] = metric.read_fields(sums)
            self.totals: dict[str, Any] = metric.read_totals(sums)
            if metric._keeps_items:
                resampled = metric._resampled_state(None, None)
                self._fields = with_values(
                    intervals(metric.resampled_fields(resampled, metric.read_fields), self.confidence), self._fields
                )
                self.totals = with_values(intervals(metric.resampled_totals(resampled), self.confidence), self.totals)

    def __getitem__(self, path: str) -> FieldScore:
        row = self._row(path)
        scores: dict[str, Any] = {name: _single(self._fields[name], row) for name in FIELD_SCORES}
        counts = dict(zip(COUNTS, map(int, self._counts[row].tolist()), strict=False))
        return FieldScore(
            path=self.paths[row],
            support=sum(counts[name] for name in COUNTS[:3]),
            documents=int(self._support[row]),
            invalid=self.invalid.get(self.paths[row], 0),
            **counts,
            **scores,
        )

    def _row(self, path: str) -> int:
        path = path.replace("[*]", "[]")
        if path not in self.paths:
            raise KeyError(f"path: got {path!r}, wanted one of the report{checks.perhaps(path, self.paths)}")
        return self.paths.index(path)

    def __iter__(self) -> Iterator[str]:
        return iter(self.paths)

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def schema(self) -> dict[str, Any]:
        """Types as a JSON Schema, to be edited and passed to the next evaluation.

        Raises:
            TypeError, ValueError: If JSON cannot express a type or a comparator of a class.
        """
        return write_json_schema(self.metric.scorer.schema)

    def table(self, *, all: bool = False) -> Table:
        """Return the report as a table with a row for each field, and one for all scalar fields together.

        Args:
            all: Also show fields without values.
        """
        columns = {**dict.fromkeys(("support", "docs", *COUNTS)), **dict.fromkeys(FIELD_SCORES, True)}
        rows: dict[str, dict[str, Any]] = {}
        for n, (path, is_leaf) in enumerate(zip(self.paths, self._is_leaf, strict=True)):
            field = self[path]
            if not all and not self._counts[n, : len(COUNTS)].any():
                continue
            cells = {name: getattr(field, name) for name in ("support", *COUNTS, *FIELD_SCORES)}
            rows[path] = cells | {"docs": field.documents}
            if not is_leaf:
                rows[path] |= {"wrong": None, "similarity": None}
        micro = self._counts[self._is_leaf, : len(COUNTS)].sum(0)
        scores = {name: _single(self.totals[f"micro-{name}"]) for name in ("precision", "recall", "f1")}
        rows[MICRO] = {
            "support": int(micro[:3].sum()),
            "docs": self._num_documents,
            **dict(zip(COUNTS, map(int, micro.tolist()), strict=True)),
            **scores,
            "similarity": None,
        }
        return Table(list(rows), columns, list(rows.values()), caption="\n".join(self._remarks()), index="path")

    def _remarks(self) -> list[str]:
        read = ", ".join(f"{how} {count}" for how, count in self._read.items() if count)
        rates = [f"readable {_text(self.totals['readable'])} ({read})"] if read else []
        rates += [f"{name} {_text(self.totals[name])}" for name in ("valid", "exact", "similarity")]
        lines = [f"documents {self._num_documents}: {', '.join(rates)}"]
        if rare := [path for path in self.paths if 0 < self[path].documents < MIN_DOCUMENTS]:
            lines.append(f"few documents: {', '.join(rare)}")
        if self.invalid:
            counts = ", ".join(f"{path} {count}" for path, count in self.invalid.items())
            lines.append(f"invalid values: {counts}")
        if self._num_extra:
            lines.append(f"extra keys: {self._num_extra}")
        if self._num_skipped:
            lines.append(f"skipped: {self._num_skipped} unreadable documents")
        if self.metric.scorer.answers.num_calls:
            lines.append(f"calls of functions: {self.metric.scorer.answers.num_calls}")
        if self.is_inferred:
            lines.append("types inferred from the references")
        if worst := [document for document in self.worst(NUM_NAMED) if document.similarity < 1]:
            reasons = [f" ({document.read}: {document.reason})" if document.reason else "" for document in worst]
            pairs = zip(worst, reasons, strict=True)
            lines.append("lowest: " + ", ".join(f"{row.id} {row.similarity:.2f}{reason}" for row, reason in pairs))
        return lines

    def __str__(self) -> str:
        return self.table().to_text(precision=2)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()

    def to_frame(self) -> Any:
        """Return the table as a pandas DataFrame."""
        return self.table(all=True).to_frame()

    def to_json(self, path: Any = None) -> str:
        """Return the table as JSON, and write it to a file if a path is given."""
        return self.table(all=True).to_json(path)

    def to_html(self, path: Any = None, *, worst: int = 10, other: FieldReport | None = None) -> str:
        """Return a self-contained HTML page: the table, and explanations of the documents of lowest similarity.

        Args:
            path: File to write.
            worst: Maximum number of documents.
            other: Report of another model to compare with.
        """
        text = report_page(self, worst if self.documents else 0, other)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def to_latex(self, **options: Any) -> str:
        """Return the table as LaTeX; see `Table.to_latex`."""
        return self.table().to_latex(**options)

    def plot(self, ax: Any = None) -> Any:
        """Draw F1 of each field with its interval."""
        return self.table().select("f1").plot(ax)

    def worst(self, k: int = 10) -> list[DocumentScore]:
        """Return the documents of lowest similarity, then of most errors, then in their order."""
        k = checks.check_int("k", k, 0)
        return sorted(self.documents, key=lambda document: (document.similarity, -document.num_errors))[:k]

    def interval(
        self, *, confidence: float = 0.95, replicates: int | None = None, seed: int | None = None
    ) -> ScoreTable[Estimate]:
        """Return all scores with intervals; see `Metric.interval`."""
        return self.metric.interval(confidence=confidence, replicates=replicates, seed=seed)

    def compare(self, other: FieldReport, **options: Any) -> Table:
        """Compare two models by field: this report minus the other.

        Args:
            other: The report of another model for the same references.
            **options: Options of `tensormetrics.compare`.

        Returns:
            A table of F1 of both models, the difference with its interval, and the p-values; the most significant field
            first.
        """
        comparisons = compare(self, other, **options)
        rows = {}
        for name, comparison in comparisons.items():
            is_equal = float(comparison.difference) == 0 or bool(comparison.difference.isnan())
            if is_equal and name.startswith("f1["):
                continue
            rows[name.removeprefix("f1[").removesuffix("]") if name.startswith("f1[") else name] = {
                "a": comparison.a,
                "b": comparison.b,
                "difference": comparison,
                "p": float(comparison.p_value),
                "corrected p": None if comparison.p_corrected is None else float(comparison.p_corrected),
            }
        total_names = [name for name in rows if name in self.totals]
        p_values = {name: row["p"] if row["corrected p"] is None else row["corrected p"] for name, row in rows.items()}
        field_names = sorted((name for name in rows if name not in self.totals), key=p_values.__getitem__)
        order = [*field_names, *total_names]
        columns: dict[str, bool | None] = {"a": True, "b": True, "difference": None, "p": None, "corrected p": None}
        return Table(order, columns, [rows[name] for name in order], index="path")

    def confusions(self, path: str, k: int = 10) -> list[Confusion]:
        """Return the most frequent pairs of a wrong value and the correct one.

        Args:
            path: A row of scalars.
            k: Maximum number of pairs.

        Raises:
            KeyError: If the report has no such row.
            ValueError: If the report has no documents, as from `FieldScores.report`.
        """
        row = self._row(path)
        self._check_documents("confusions")
        counts: Counter[tuple[str, str]] = Counter()
        values: dict[tuple[str, str], tuple[Any, Any]] = {}
        for start in range(0, len(self.references), BATCH):
            part = slice(start, start + BATCH)
            scored = self.metric.scorer.score(self.predictions[part], self.references[part], first=start)
            for pair in scored.comparison.wrong_values(row):
                name = (repr(pair[0]), repr(pair[1]))
                counts[name] += 1
                values[name] = pair
        return [Confusion(*values[name], count) for name, count in counts.most_common(k)]

    def explain(self, id: Any) -> Explanation:
        """Align the prediction and the reference of a document.

        Args:
            id: Id of the document, or its position if the documents have no ids.

        Raises:
            KeyError: If no document has the id.
            ValueError: If the report has no documents, as from `FieldScores.report`.
        """
        self._check_documents("explain")
        pairs = zip(self.positions, self.documents, strict=True)
        if (n := next((n for n, document in pairs if document.id == id), None)) is None:
            raise KeyError(f"id: got {id!r}, wanted the id of a document")
        return explain(self.metric.scorer, self.predictions[n], self.references[n], id)

    def _check_documents(self, name: str) -> None:
        if not self.documents:
            raise ValueError(f"{name}: this report has no documents; write evaluate(predictions, references, ...)")

    # The interface of metrics that `compare` uses.
    def _resampled(self, *args: Any) -> Any:
        return self.metric._resampled(*args)

    def _estimates(self, *args: Any) -> Any:
        return self.metric._estimates(*args)

    def _direction(self, name: str) -> bool | None:
        return self.metric._direction(name)

    def scoring_options(self) -> dict[str, Any]:
        """Return the options that two reports must share to be compared."""
        return self.metric.scoring_options()

    def corrected(self, other: FieldReport, comparisons: dict[str, Comparison], correction: str) -> Any:
        """Correct p-values as `FieldScores` does."""
        return self.metric.corrected(other.metric, comparisons, correction)


def _single(value: Estimate | Tensor, row: int | None = None) -> Estimate | float:
    one = value if row is None else value[row]
    return one if isinstance(one, Estimate) else float(one)


def _text(value: Estimate | Tensor) -> str:
    return format(value if isinstance(value, Estimate) else float(value), ".2f")
