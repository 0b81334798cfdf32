"""Base classes of annotations and comparators of fields."""

import math
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import count, starmap
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ...core.arguments import checks


@dataclass(frozen=True)
class Annotation:
    """Base of the annotations of a field."""


class Answers:
    """Results of users' functions, so that a function is called once for each pair of values. A copy is empty.

    Results are kept after a failed call until `clear` is called. Hashable values that are equal by == and of the same
    type share an id; an unhashable value gets a new id at each call.

    Attributes:
        num_calls: Number of pairs for which comparators called functions.
    """

    def __init__(self) -> None:
        self.num_calls = 0
        self._next = count().__next__
        self._ids: defaultdict[tuple[type, Hashable], int] = defaultdict(self._next)
        self._results: dict[int, tuple[Callable[..., Any], dict[Any, float]]] = {}

    def id_of(self, value: Any) -> int:
        try:
            return self._ids[type(value), value]
        except TypeError:  # unhashable
            return self._next()

    def of(self, function: Callable[..., Any]) -> dict[Any, float]:
        """Return the results of a function by pair."""
        # A reference to the function keeps its id valid.
        return self._results.setdefault(id(function), (function, {}))[1]

    def clear(self) -> None:
        """Forget the results; the number of calls remains."""
        self._ids.clear()
        self._results.clear()

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return type(self), ()


_shared: ContextVar[Answers | None] = ContextVar("answers", default=None)


@contextmanager
def reuse_answers(answers: Answers) -> Iterator[None]:
    """Share the answers of all functions within the outermost context, for metrics of the same values."""
    token = _shared.set(_shared.get() or answers)
    try:
        yield
    finally:
        _shared.reset(token)


def current_answers() -> Answers:
    """Return the shared answers, or new ones outside of `reuse_answers`."""
    return _shared.get() or Answers()


@dataclass(frozen=True)
class Comparator(Annotation):
    """Base of the comparators: similarities in [0, 1] of two values of a leaf.

    Attributes:
        name: Name of the class.
        threshold: A pair is correct if its similarity is at least this.
        is_equality: Values are similar, with similarity 1, if and only if their keys are equal.
    """

    threshold = 1.0  # without a type annotation, because some comparators define it as a parameter
    name = "comparator"  # set by each class
    is_equality: ClassVar[bool] = True

    def supports(self, value: Any) -> bool:
        """Return whether the comparator supports a value; others have similarity 1 if they are equal, else 0."""
        return True

    def key(self, value: Any) -> Hashable:
        """Return the key of a value; values with equal keys have similarity 1."""
        return nfc(value)

    def __init_subclass__(cls) -> None:
        cls.name = cls.__name__

    def similarities(self, predicted: Sequence[Any], reference: Sequence[Any]) -> Tensor:
        # P values each  ->  (P,) float64 on the CPU
        """Compute the similarities of pairs of values; equal pairs are computed once."""
        table = code_table()
        preds, refs = (
            np.array([table[typed(self.key(value))] for value in values], dtype=np.int64)
            for values in (predicted, reference)
        )
        return torch.from_numpy(self.pair_similarities(table, preds, refs, answers=Answers()))

    def pair_similarities(
        self,
        table: Iterable[Any],
        pred_codes: np.ndarray,
        ref_codes: np.ndarray,
        cutoff: float = 0.0,
        answers: Answers | None = None,
    ) -> np.ndarray:
        # table: K distinct `typed` keys  pred_codes, ref_codes: (P,) integers in [0, K)  ->  (P,) float64
        """Compute the similarities of pairs of keys; those below ``cutoff`` may be 0."""
        result = (pred_codes == ref_codes).astype(np.float64)
        if self.is_equality:
            return result
        keys = [key for _, key in table]
        fitting = np.fromiter(map(self.supports, keys), bool, len(keys))
        (rows,) = np.nonzero((result == 0) & fitting[pred_codes] & fitting[ref_codes])
        if len(rows):
            result[rows] = self._compare(keys, pred_codes[rows], ref_codes[rows], cutoff, answers)
        return result

    def _compare(self, keys: Sequence[Any], i: np.ndarray, j: np.ndarray, *args: Any) -> Any:
        # i, j: (P,)  ->  (P,), of unequal keys that fit
        raise NotImplementedError

    def similarity(self, pred: Any, ref: Any) -> float:
        """Compute the similarity of two values."""
        return self.similarities([pred], [ref]).item()


def code_table() -> defaultdict[Any, int]:
    """Return a table that assigns 0, 1, ... to keys in the order of their first use."""
    return defaultdict(count().__next__)


def call(
    function: Callable[..., Any],
    pairs: Mapping[Any, tuple[Any, Any]],
    known: dict[Any, float],
    batched: bool,
    read: Callable[[Any], float],
) -> tuple[Any, Any] | None:
    """Add the results for new pairs to the known ones, called by lists if batched; an error keeps those before it.

    Returns:
        The first result that `read` does not read as a number below infinity, with the key of its pair.
    """
    wrong, results = None, starmap(function, pairs.values())  # type: Any, Any
    if batched:
        answer = function(*map(list, zip(*pairs.values(), strict=True)))
        results = answer.tolist() if hasattr(answer, "tolist") else list(answer)  # of a tensor or an array
        if len(results) != len(pairs):
            raise ValueError(f"from_func: got {len(results)} values for {len(pairs)} pairs, wanted one for each")
    for key, result in zip(pairs, results, strict=True):
        number = read(result)
        if number < math.inf:  # False for NaN
            known[key] = number
        elif wrong is None:
            wrong = result, key
            if not batched:
                break
    return wrong


def to_float(value: Any) -> float:
    """Convert a value to a float, NaN for text and other values that are no number."""
    try:
        return value.__float__()
    except (AttributeError, TypeError, ValueError, RuntimeError):
        return math.nan


def nfc(value: Any) -> Any:
    return unicodedata.normalize("NFC", value) if isinstance(value, str) else value


def distinct_pairs(i: np.ndarray, j: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    # i, j: (P,) in [0, count)  ->  (D,), (D,), (P,)
    """Return the distinct pairs, and the index of each pair among them."""
    pairs, inverse = np.unique(i * count + j, return_inverse=True)
    return pairs // count, pairs % count, inverse.reshape(-1)


def typed(key: Any) -> Hashable:
    """Return a key that distinguishes True from 1, and compares numbers by value."""
    return isinstance(key, bool), key


def check_fraction(name: str, value: Any) -> None:
    """Raise a ValueError unless a value is in [0, 1]."""
    checks.check_number(name, value, "a number in [0, 1]", lambda x: 0 <= x <= 1)


def check_not_negative(name: str, value: Any) -> None:
    """Raise a ValueError unless a value is finite and at least 0."""
    checks.check_number(name, value, "a finite number >= 0", lambda x: 0 <= x < math.inf)
