"""Predictions with fields of wrong types: such a field has similarity 0 with every other value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any


class InvalidValue:
    """Placeholder of a value of a wrong type: it equals no other value, and its parts are invalid values too."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(self)()

    def __getitem__(self, key: Any) -> Any:
        return type(self)()

    def __call__(self, *args: Any) -> Any:  # of a method such as `items`
        return type(self)()

    def __iter__(self) -> Iterator[Any]:
        return iter([type(self)()])

    def __len__(self) -> int:
        return 1


class MissingValue(InvalidValue):
    """Placeholder of the value of a missing key: None as a scalar, empty as a collection."""

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0


class PartialDict(dict):
    """Dictionary with a `MissingValue` for each missing key."""

    def __missing__(self, key: Any) -> MissingValue:
        return MissingValue()

    def __contains__(self, key: object) -> bool:
        return True


@dataclass(eq=False)
class Tolerance:
    """Counter of tolerated invalid fields.

    Attributes:
        documents: The documents that are read; they are not fields themselves.
        num_invalid: Number of invalid fields of predictions.
    """

    documents: Any = None
    num_invalid: int = 0


_tolerance: ContextVar[Tolerance | None] = ContextVar("tolerance", default=None)


@contextmanager
def tolerate_invalid() -> Iterator[Tolerance]:
    """Replace invalid fields of predictions by `InvalidValue` within the context."""
    tolerance = Tolerance()
    token = _tolerance.set(tolerance)
    try:
        yield tolerance
    finally:
        _tolerance.reset(token)


def set_documents(documents: Sequence[Any]) -> None:
    """Set the documents that are read next."""
    if tolerance := _tolerance.get():
        tolerance.documents = documents


def check_or_replace(
    check: Callable[[Sequence[Any], Callable[[int], str]], Any],
    values: Sequence[Any],
    split: int,
    where: Callable[[int], str],
) -> Sequence[Any]:
    """Return values that `check` accepts; a tolerated invalid field is replaced by a placeholder.

    Args:
        check: Function that raises a TypeError or a ValueError for a value of another type.
        values: Values of predictions, then of references.
        split: Number of values of predictions.
        where: Function that returns the path of a value.
    """
    tolerance = _tolerance.get()
    try:
        check(values, where)
        return values
    except (TypeError, ValueError):
        if tolerance is None:
            raise
    is_document = values is tolerance.documents
    return [_check_value(check, value, row, split, where, tolerance, is_document) for row, value in enumerate(values)]


def _check_value(
    check: Callable[..., Any],
    value: Any,
    row: int,
    split: int,
    where: Callable[[int], str],
    tolerance: Tolerance,
    is_document: bool,
) -> Any:
    if isinstance(value, InvalidValue):
        return value
    is_prediction, errors = row < split, []
    for candidate in (value, PartialDict(value)) if is_prediction and type(value) is dict else (value,):
        try:
            check([candidate], lambda _: where(row))
            return candidate
        except (TypeError, ValueError) as error:
            errors.append(error)
    if is_document or not is_prediction:
        raise errors[0]
    tolerance.num_invalid += 1
    return InvalidValue()


def placeholder(value: Any, row: int, split: int) -> Any:
    """Return the placeholder of an invalid scalar, or None if it is not tolerated.

    Args:
        value: The scalar.
        row: Its row.
        split: Number of rows of predictions.
    """
    tolerance = _tolerance.get()
    if isinstance(value, MissingValue | InvalidValue):
        return value
    if tolerance is None or row >= split:
        return None
    tolerance.num_invalid += 1
    return InvalidValue()
