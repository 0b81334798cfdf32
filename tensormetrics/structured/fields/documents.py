"""Reading and comparison of answers of a model and references, with counts of each document."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast, get_args

import numpy as np

from ...core.arguments import checks
from ..comparators import Answers
from ..types.class_tree import schema_of
from ..types.tree import Leaf, Schema
from ..types.values import kind_of_value
from .engine.compare import Comparison, Counts
from .engine.encode import ABSENT, MISSING, Encoded, Keys, encode
from .engine.faults import NULL_HINT, first_fault
from .engine.slots import Plan, compile_schema, root_kinds
from .reading import Extract, Reader, Reading
from .schemas.json_schema import read_json_schema

ON_INVALID = ("wrong", "raise", "skip")
EXTRA = (None, "ignore", "invented")
HOWS = ("json", "fence", "prose", "repaired", "object", "unreadable")


@dataclass(frozen=True)
class DocumentOptions:
    """Options of `evaluate`, `FieldScores` and `tensormetrics json`.

    Attributes:
        extract: Locations of JSON in an answer: ``"strict"``: the answer is JSON; ``"fences"``: also code blocks of
            Markdown; ``"lenient"``: also within prose; ``"repair"``: also with last commas, single
            quotes, and None, True or False.
        on_invalid: Treatment of an unreadable answer: ``"wrong"``: all values of the reference are missed, and the
            similarity is 0; ``"raise"``: a ValueError; ``"skip"``: the document is skipped.
        extra: Treatment of keys that the schema does not define: ``"ignore"``, or ``"invented"`` values. Default:
            "ignore", but "invented" if the types are inferred.
        numbers_in_strings: A string such as "12" is a number.
        null_strings: Strings that denote null.
        unlabelled: A key that a reference lacks was not annotated, and is not compared.
        defaults: Missing keys of predictions and references have the default of the class.
        match: Smallest similarity of matched items of a list, in [0, 1].
        fields: Annotations by path, which replace those of the schema.
        validate: Function of a value that raises a ValueError if it is not valid; for the rate of valid documents.
    """

    extract: Extract = "lenient"
    on_invalid: str = "wrong"
    extra: str | None = None
    numbers_in_strings: bool = False
    null_strings: Collection[str] = ()
    unlabelled: bool = False
    defaults: bool = False
    match: float = 0.5
    fields: Mapping[str, Any] | None = None
    validate: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        checks.check_choice("extract", self.extract, get_args(Extract))
        checks.check_choice("on_invalid", self.on_invalid, ON_INVALID)
        checks.check_choice("extra", self.extra, EXTRA)
        checks.check_number("match", self.match, "a number in [0, 1]", lambda value: 0 <= value <= 1)
        for name in ("numbers_in_strings", "unlabelled", "defaults"):
            checks.check_choice(name, getattr(self, name), (False, True))
        if isinstance(self.null_strings, str):
            raise TypeError(
                f"null_strings: got {self.null_strings!r}, wanted a list of strings; write [{self.null_strings!r}]"
            )
        if self.validate is not None and not callable(self.validate):
            raise TypeError(f"validate: got {self.validate!r:.60}, wanted a function of a document")

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> DocumentOptions:
        """Create options from keyword arguments; raise a TypeError with the closest name for an unknown one."""
        names = list(inspect.signature(cls).parameters)
        for name in options:
            if name not in names:
                wanted = f"one of {', '.join(names)}{checks.perhaps(name, names)}"
                raise TypeError(f"got an unknown option {name!r}, wanted {wanted}")
        return cls(**options)


@dataclass(eq=False)
class ScoredDocuments:
    """Results of the comparison of a batch of documents.

    Attributes:
        references: The values of all references.
        counts: The counts of the included documents.
        readings: The result of reading each answer.
        included: Indices of the documents that count; the others are skipped.
        is_readable, is_valid, is_exact: (D,) bool, of the included documents.
        similarity: (D,) float64, 0 for unreadable documents.
        comparison: The comparison of the included documents.
    """

    references: list[Any]
    counts: Counts
    readings: list[Reading]
    included: np.ndarray
    is_readable: np.ndarray
    is_valid: np.ndarray
    is_exact: np.ndarray
    similarity: np.ndarray
    comparison: Comparison


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
        self.plan: Plan = compile_schema(
            schema,
            match=options.match,
            extra=options.extra or "ignore",
            fields=options.fields,
            numbers_in_strings=options.numbers_in_strings,
            null_strings=options.null_strings,
            unlabelled=options.unlabelled,
            defaults=options.defaults,
        )
        kinds = root_kinds(self.plan, options.numbers_in_strings)
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
        readings = [self.read(prediction) for prediction in predictions]
        reference_values = [self.read_reference(reference, first + n) for n, reference in enumerate(references)]
        if self.options.on_invalid == "raise" and not keeps_all:
            for n, reading in enumerate(readings):
                if reading.how == "unreadable":
                    name = first + n if names is None else names[n]
                    raise ValueError(f"predictions[{name!r}]: unreadable, {reading.reason}; write on_invalid='wrong'")
        is_readable = np.array([reading.how != "unreadable" for reading in readings], dtype=bool)
        skips = self.options.on_invalid == "skip" and not keeps_all
        (included,) = np.nonzero(is_readable) if skips else (np.arange(len(readings)),)
        values = [readings[n].value if is_readable[n] else MISSING for n in included]
        tables = [Keys() for _ in self.plan.slots]
        preds = encode(self.plan, values, tables, is_reference=False)
        refs = encode(self.plan, reference_values, tables, is_reference=True)
        self._check_references(refs, reference_values, values, first)
        refs.roots = refs.roots[included]
        comparison = Comparison(self.plan, tables, preds, refs, self.answers)
        counts = comparison.count()
        self.answers.clear()
        readable = is_readable[included]
        return ScoredDocuments(
            references=reference_values,
            counts=counts,
            readings=readings,
            included=included,
            is_readable=readable,
            is_valid=readable & counts.is_conforming & self._validate(values),
            is_exact=readable & (counts.counts[..., 1:].sum((1, 2)) == 0) & (counts.invalid.sum(1) == 0),
            similarity=np.where(readable, counts.document_similarity, 0.0),
            comparison=comparison,
        )

    def read(self, prediction: Any) -> Reading:
        """Read an answer; a value of a kind that the schema does not allow is unreadable."""
        reading = self.reader.read(prediction)
        kind = kind_of_value(reading.value) if reading.how == "object" else "other"
        if kind == "other" or kind in self.reader.kinds:
            return reading
        return Reading(None, "unreadable", f"got {kind}, wanted {' or '.join(sorted(self.reader.kinds))}")

    def read_reference(self, reference: Any, position: int) -> Any:
        """Return the value of a reference: a text is parsed as JSON, unless documents are strings."""
        if not isinstance(reference, str) or "string" in self.reader.kinds:
            return reference
        reading = self.reference_reader.read(reference)
        if reading.how == "unreadable":
            raise ValueError(f"references[{position}]: got {reference!r:.60}, wanted JSON: {reading.reason}")
        return reading.value

    def _check_references(self, refs: Encoded, reference_values: list[Any], values: list[Any], first: int) -> None:
        """Raise a ValueError with the path of the first value of a reference of a wrong type."""
        is_absent = (refs.roots == ABSENT) & (not self.plan.root.nullable)
        if not is_absent.any() and not any(column.invalid[:-3].any() for column in refs.columns):
            if self.plan.unlabelled or not any(column.missing.any() for column in refs.columns):
                return
        for n, value in enumerate(reference_values):
            if fault := first_fault(self.plan, value):
                message = f"references[{first + n}]{fault}"
                read = [value for value in values if value is not MISSING]
                if read and not fault.endswith(NULL_HINT) and not any(first_fault(self.plan, value) for value in read):
                    message += "; the predictions conform to the schema: were the two swapped?"
                raise ValueError(message)

    def _validate(self, values: list[Any]) -> np.ndarray:
        validate = self.options.validate
        if validate is None:
            return np.ones(len(values), dtype=bool)
        return np.array([value is not MISSING and _is_valid(validate, value) for value in values], dtype=bool)


def _is_valid(validate: Callable[[Any], Any], value: Any) -> bool:
    try:
        validate(value)
    except Exception as error:
        # The ValidationError of pydantic is a ValueError; those of msgspec and jsonschema are not.
        if isinstance(error, ValueError) or type(error).__name__ == "ValidationError":
            return False
        raise
    return True


def read_counts(readings: Sequence[Reading]) -> list[int]:
    """Count the answers by the formats `HOWS`."""
    hows = [reading.how for reading in readings]
    return [hows.count(cast(Any, how)) for how in HOWS]
