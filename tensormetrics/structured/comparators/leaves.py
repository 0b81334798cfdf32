"""Comparators of scalars. The fields of their dataclasses are their parameters in every notation."""

import math
import unicodedata
from abc import abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np

from ...core.arguments import checks
from .base import Answers, Comparator, call, check_fraction, check_not_negative, distinct_pairs, nfc, to_float, typed
from .iso import read_datetime

RELATIVE_TOLERANCE = 1e-9  # of the bound of `near`, so that 0.3 is within 0.1 of 0.2
CUTOFF_MARGIN = 1e-4  # rapidfuzz returns 0 for similarities that are less than 1e-5 above its cutoff
MAX_DENSE_RATIO = 4  # maximum ratio of all pairs to the requested ones for a dense comparison
DAY = 24 * 60 * 60 * 10**6  # microseconds


@dataclass(frozen=True)
class exact(Comparator):
    """Equality: of numbers by value, of strings after Unicode NFC."""


@dataclass(frozen=True)
class _TextComparator(Comparator):
    def supports(self, value: Any) -> bool:
        return isinstance(value, str)

    def key(self, value: Any) -> Hashable:
        return self._text_key(value) if isinstance(value, str) else value

    @abstractmethod
    def _text_key(self, text: str) -> Hashable: ...


@dataclass(frozen=True)
class casefold(_TextComparator):
    """Equality of strings after `str.casefold`.

    Example:
        >>> casefold().similarity("ACME", "Acme")
        1.0
    """

    def _text_key(self, text: str) -> Hashable:
        return nfc(nfc(text).casefold())


@dataclass(frozen=True)
class normalized(_TextComparator):
    """Equality of strings after NFKC and `str.casefold`, with punctuation and separators as one space.

    Tabs and line feeds are no separators of Unicode and are compared.

    Example:
        >>> normalized().similarity("A.C.M.E., Ltd.", "a c m e ltd")
        1.0
    """

    def _text_key(self, text: str) -> Hashable:
        folded = unicodedata.normalize("NFKC", text).casefold()
        spaced = "".join(" " if unicodedata.category(letter)[0] in "PZ" else letter for letter in folded)
        return " ".join(filter(None, spaced.split(" ")))


@dataclass(frozen=True)
class similar(_TextComparator):
    """Levenshtein similarity of strings: 1 - distance / length of the longer, in code points after NFC.

    Requires rapidfuzz, which the extra `json` installs.

    Args:
        threshold: Smallest similarity of a correct value, in [0, 1].
        method: "levenshtein", or "tokens": sort the tokens of both strings first.

    Raises:
        ImportError: At the first comparison, without rapidfuzz.

    Example:
        >>> round(similar(0.8).similarity("collar", "colour"), 3)
        0.667
    """

    threshold: float = 0.8
    method: str = "levenshtein"
    is_equality: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_fraction("similar: threshold", self.threshold)
        checks.check_choice("similar: method", self.method, ("levenshtein", "tokens"))

    def _text_key(self, text: str) -> Hashable:
        text = nfc(text)
        return text if self.method == "levenshtein" else " ".join(sorted(text.split()))

    def _compare(self, keys: Sequence[str], i: np.ndarray, j: np.ndarray, cutoff: float, *_: Any) -> np.ndarray:
        try:
            from rapidfuzz import process
            from rapidfuzz.distance import Levenshtein
        except ImportError as error:
            raise ImportError("similar() needs rapidfuzz; write pip install 'tensormetrics[json]'") from error
        options: dict[str, Any] = {
            "scorer": Levenshtein.normalized_similarity,
            "score_cutoff": max(cutoff - CUTOFF_MARGIN, 0.0),
            "dtype": np.float64,
        }
        pred, ref, index = distinct_pairs(i, j, len(keys))
        (rows, row), (columns, column) = (np.unique(codes, return_inverse=True) for codes in (pred, ref))
        if len(rows) * len(columns) <= MAX_DENSE_RATIO * len(pred):
            table = process.cdist([keys[n] for n in rows], [keys[n] for n in columns], **options)
            return table[row, column][index]
        return process.cpdist([keys[n] for n in pred], [keys[n] for n in ref], **options)[index]


@dataclass(frozen=True)
class near(Comparator):
    """Numbers that differ by at most max(rel * abs(reference), abs), computed in float64.

    Args:
        rel: Relative tolerance, at least 0.
        abs: Absolute tolerance, at least 0.

    Example:
        >>> near(abs=0.1).similarity(0.3, 0.2)
        1.0
    """

    rel: float = 0.0
    abs: float = 0.0
    is_equality: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_not_negative("near: rel", self.rel)
        check_not_negative("near: abs", self.abs)

    def supports(self, value: Any) -> bool:
        return isinstance(value, int | float | Decimal) and not isinstance(value, bool)

    def _compare(self, keys: Sequence[Any], i: np.ndarray, j: np.ndarray, *_: Any) -> np.ndarray:
        pred, ref = _numbers(_float, keys, i, j)
        with np.errstate(invalid="ignore", over="ignore"):  # infinite: integers beyond float64, equal to no other
            bound = np.maximum(self.rel * np.abs(ref), self.abs)
            return (np.isfinite(pred) & np.isfinite(ref)) & (np.abs(pred - ref) <= bound * (1 + RELATIVE_TOLERANCE))


@dataclass(frozen=True)
class within(Comparator):
    """Dates that differ by at most some days, or date-times that differ by at most some seconds.

    A date-time with a time zone is never within a distance of one without.

    Args:
        days: Tolerance in days, at least 0.
        seconds: Tolerance in seconds, at least 0; added to the days.

    Example:
        >>> from datetime import date
        >>> within(days=1).similarity(date(2024, 3, 1), date(2024, 2, 29))
        1.0
    """

    days: float = 0.0
    seconds: float = 0.0
    is_equality: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_not_negative("within: days", self.days)
        check_not_negative("within: seconds", self.seconds)

    def supports(self, value: Any) -> bool:
        return isinstance(value, date)  # includes datetime

    def _compare(self, keys: Sequence[Any], i: np.ndarray, j: np.ndarray, *_: Any) -> np.ndarray:
        pred, ref = _numbers(_microseconds, keys, i, j)
        bound = self.days * DAY + self.seconds * 10**6
        return (pred[:, 0] == ref[:, 0]) & (np.abs(pred[:, 1] - ref[:, 1]) <= bound)


@dataclass(frozen=True)
class parsed(_TextComparator):
    """Equality of the dates that strings denote, by the first format that fits, else ISO 8601.

    Strings that no format fits are compared as they are.

    Args:
        formats: Formats of `datetime.strptime`.

    Example:
        >>> parsed(["%d/%m/%Y"]).similarity("01/03/2024", "2024-03-01")
        1.0
    """

    formats: Sequence[str] = ()

    def __post_init__(self) -> None:
        formats = tuple(checks.as_list("parsed: formats", self.formats))
        if wrong := [text for text in formats if not isinstance(text, str) or "%" not in text]:
            raise ValueError(f"parsed: formats: got {wrong[0]!r}, wanted a format such as '%d/%m/%Y'")
        object.__setattr__(self, "formats", formats)

    def _text_key(self, text: str) -> Hashable:
        for date_format in (*self.formats, None):
            try:
                moment = datetime.strptime(text.strip(), date_format) if date_format else read_datetime(text.strip())
            except ValueError:
                continue
            return moment if moment.tzinfo is None else moment.astimezone(timezone.utc)
        return nfc(text)


@dataclass(frozen=True)
class from_func(Comparator):
    """Similarity of two values by a Python function, clamped to [0, 1].

    The function is called at most once for each distinct ordered pair of values in a batch, and never for equal values,
    which have similarity 1. If a call fails, the results before it are kept for the next attempt. This is a comparator
    of fields; `dsl.from_func` makes a metric of objects.

    Args:
        function: f(prediction, reference) -> number; if batched, f(predictions, references) -> one number per pair.
        threshold: Smallest similarity of a correct value, in [0, 1].
        batched: The function takes two lists.
        symmetric: f(a, b) equals f(b, a), so that only one of them is computed.
        batch_size: Maximum number of pairs of a batched call.

    Raises:
        ValueError: If a similarity is NaN or no number; the message has the pair.

    Example:
        >>> from_func(lambda pred, ref: 1 - abs(len(pred) - len(ref)) / 10).similarity("abc", "a")
        0.8
    """

    function: Callable[..., Any]
    threshold: float = 0.5
    batched: bool = False
    symmetric: bool = False
    batch_size: int = 1024
    is_equality: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(f"from_func: got {self.function!r:.60}, wanted a function of a prediction and a reference")
        check_fraction("from_func: threshold", self.threshold)
        checks.check_int("from_func: batch_size", self.batch_size, 1)

    def _compare(
        self, keys: Sequence[Any], i: np.ndarray, j: np.ndarray, cutoff: float, answers: Answers | None
    ) -> np.ndarray:
        answers = Answers() if answers is None else answers
        results = answers.of(self.function)
        preds, refs, index = distinct_pairs(i, j, len(keys))
        pairs = [(keys[a], keys[b]) for a, b in zip(preds, refs, strict=True)]
        names = [(typed(pred), typed(ref)) for pred, ref in pairs]
        unknown: dict[tuple[Hashable, Hashable], tuple[Any, Any]] = {}
        for name, pair in zip(names, pairs, strict=True):
            if name not in results and not (self.symmetric and name[::-1] in unknown):
                unknown.setdefault(name, pair)

        def read(result: Any) -> float:
            return min(max(to_float(result), 0.0), 1.0)  # of NaN: NaN

        size, todo = self.batch_size if self.batched else 1, list(unknown.items())
        for start in range(0, len(todo), size):
            part = dict(todo[start : start + size])
            answers.num_calls += len(part)
            wrong = call(self.function, part, results, self.batched, read)
            if self.symmetric:
                results |= {name[::-1]: results[name] for name in part if name in results}
            if wrong is not None:
                result, (pred, ref) = wrong[0], unknown[wrong[1]]
                raise ValueError(f"from_func: got {result!r:.60} for {pred!r:.60} and {ref!r:.60}, wanted a number")
        return np.array([results[name] for name in names])[index]


def _numbers(read: Callable[[Any], Any], keys: Sequence[Any], i: np.ndarray, j: np.ndarray) -> np.ndarray:
    # i, j: (P,)  ->  (2, P, ...) the numbers of both keys, read once for each key
    codes, index = np.unique(np.stack([i, j]), return_inverse=True)
    return np.array([read(keys[n]) for n in codes])[index.reshape(2, -1)]


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _microseconds(value: date) -> tuple[int, int]:
    """Return the kind, 0 for a date, 1 for a naive and 2 for an aware date-time, and the microseconds."""
    if not isinstance(value, datetime):
        return 0, value.toordinal() * DAY
    kind, zero = (1, datetime.min) if value.tzinfo is None else (2, datetime.min.replace(tzinfo=timezone.utc))
    return kind, (value - zero) // timedelta(microseconds=1)
