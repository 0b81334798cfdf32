"""Reading and comparison of answers of a model and references, with counts of each document."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..comparators.base import Answers, code_table
from ..types.class_tree import schema_of
from ..types.tree import Leaf, Schema
from .engine.compare import DocumentComparison
from .engine.encode import ABSENT, MISSING, Encoded, encode
from .engine.faults import NULL_HINT, first_fault
from .engine.slots import CompiledSchema, DocumentOptions, compile_schema, root_kinds
from .reading import Reader, Reading
from .schemas.json_schema import read_json_schema

ANY_JSON = Reader(("object", "array", "number", "string", "boolean", "null"), "strict")


@dataclass(eq=False)
class ScoredDocuments:
    """Results of the comparison of a batch of documents.

    Attributes:
        references: The values of all references.
        readings: The result of reading each answer.
        included: Indices of the documents that count; the others are skipped.
        is_readable, is_valid, is_exact: (D,) bool, of the included documents.
        similarity: (D,) float64, 0 for unreadable documents.
        comparison: The comparison of the included documents, with their counts.
    """

    references: list[Any]
    readings: list[Reading]
    included: np.ndarray
    is_readable: np.ndarray
    is_valid: np.ndarray
    is_exact: np.ndarray
    similarity: np.ndarray
    comparison: DocumentComparison


def read_schema(schema: Any) -> Schema:
    """Return the schema tree of a record class or another type, or of a JSON Schema."""
    if isinstance(schema, Schema):
        return schema
    if isinstance(schema, Mapping):
        return read_json_schema(schema)
    if isinstance(schema, str | bytes):
        raise TypeError(f"schema: got a text, {schema!r:.60}; wanted a class or a JSON Schema, write json.loads(text)")
    return schema_of(schema)


class DocumentScorer:
    """Reader and comparator of documents by a schema without unspecified types.

    Args:
        schema: The types.
        options: Options of reading and comparison.
    """

    def __init__(self, schema: Schema, options: DocumentOptions) -> None:
        self.schema, self.options = schema, options
        self.plan: CompiledSchema = compile_schema(schema, options)
        kinds = root_kinds(self.plan)
        decimals = any(isinstance(p.node, Leaf) and p.node.kind == "decimal" for p in self.plan.slots)
        self.reader = Reader(kinds, options.extract, decimals)
        self.reference_reader = Reader(kinds, "strict", decimals)
        self.answers = Answers()

    def __reduce__(self) -> Any:  # compiled readers are functions, which cannot be pickled
        return DocumentScorer, (self.schema, self.options)

    def __deepcopy__(self, memo: Any) -> DocumentScorer:
        scorer = copy.copy(self)
        scorer.answers = Answers()
        return scorer

    def score(
        self,
        predictions: Sequence[Any],
        references: Sequence[Any],
        names: Sequence[Any] | None = None,
        first: int = 0,
        keeps_all: bool = False,
    ) -> ScoredDocuments:
        """Compare answers with references.

        Args:
            predictions: Texts, values or None.
            references: Values, or texts of JSON.
            names: Ids of the documents, for messages.
            first: Position of the first document, for messages.
            keeps_all: Count unreadable answers as wrong, regardless of the option.

        Raises:
            ValueError: If a reference is no value of the schema, or an answer is unreadable with on_invalid="raise".
        """
        readings = list(map(self.reader.read, predictions))
        is_json = "string" not in self.reader.kinds  # else a text is a document
        reference_values = [
            read_json(reference, first + n, self.reference_reader) if is_json else reference
            for n, reference in enumerate(references)
        ]
        if self.options.on_invalid == "raise" and not keeps_all:
            for n, reading in enumerate(readings):
                if reading.how == "unreadable":
                    name = first + n if names is None else names[n]
                    raise ValueError(f"predictions[{name!r}]: unreadable, {reading.reason}; write on_invalid='wrong'")
        is_readable = np.array([reading.how != "unreadable" for reading in readings], dtype=bool)
        skips = self.options.on_invalid == "skip" and not keeps_all
        (included,) = np.nonzero(is_readable) if skips else (np.arange(len(readings)),)
        values = [readings[n].value if is_readable[n] else MISSING for n in included]
        tables = [code_table() for _ in self.plan.slots]
        preds = encode(self.plan, values, tables, is_reference=False)
        refs = encode(self.plan, reference_values, tables, is_reference=True)
        self._check_references(refs, reference_values, values, first)
        refs.roots = refs.roots[included]
        comparison = DocumentComparison(self.plan, tables, preds, refs, self.answers)
        self.answers.clear()
        readable, validate = is_readable[included], self.options.validate
        is_valid = [validate is None or (value is not MISSING and _is_valid(validate, value)) for value in values]
        return ScoredDocuments(
            references=reference_values,
            readings=readings,
            included=included,
            is_readable=readable,
            is_valid=readable & comparison.is_conforming & np.array(is_valid, dtype=bool),
            is_exact=readable & (comparison.counts[..., 1:].sum((1, 2)) == 0) & (comparison.invalid.sum(1) == 0),
            similarity=np.where(readable, comparison.document_similarity, 0.0),
            comparison=comparison,
        )

    def _check_references(self, refs: Encoded, reference_values: list[Any], values: list[Any], first: int) -> None:
        """Raise a ValueError with the path of the first value of a reference of a wrong type."""
        is_absent = (refs.roots == ABSENT) & (not self.plan.root.nullable)
        if not is_absent.any() and not any(column.invalid[:-3].any() for column in refs.columns):
            if self.options.unlabelled or not any(column.missing.any() for column in refs.columns):
                return
        for n, value in enumerate(reference_values):
            if fault := first_fault(self.plan, value):
                message = f"references[{first + n}]{fault}"
                read = [value for value in values if value is not MISSING]
                if read and not fault.endswith(NULL_HINT) and not any(first_fault(self.plan, value) for value in read):
                    message += "; the predictions conform to the schema: were the two swapped?"
                raise ValueError(message)


def read_json(reference: Any, position: int, reader: Reader = ANY_JSON) -> Any:
    """Return the value of a reference: a text is parsed as JSON.

    Raises:
        ValueError: If a text is no JSON; the message has the position.
    """
    if not isinstance(reference, str):
        return reference
    reading = reader.read(reference)
    if reading.how == "unreadable":
        raise ValueError(f"references[{position}]: got {reference!r:.60}, wanted JSON: {reading.reason}")
    return reading.value


def _is_valid(validate: Callable[[Any], Any], value: Any) -> bool:
    try:
        validate(value)
    except Exception as error:
        # The ValidationError of pydantic is a ValueError; those of msgspec and jsonschema are not.
        if isinstance(error, ValueError) or type(error).__name__ == "ValidationError":
            return False
        raise
    return True
