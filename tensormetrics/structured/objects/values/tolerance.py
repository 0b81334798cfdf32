"""Predictions with fields that are no values of their types: such a field has nothing in common with any other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any


class InvalidValue:
    """What stands for a value that is none of its type: it equals no other, and its parts are invalid values too."""

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
    """What stands for the value of a missing key: None as a scalar, without items as a collection."""

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0


class PartialDict(dict):
    """A dictionary whose missing keys have a `MissingValue`."""

    def __missing__(self, key: Any) -> MissingValue:
        return MissingValue()

    def __contains__(self, key: object) -> bool:
        return True


@dataclass(eq=False)
class Tolerance:
    """Whether invalid fields are tolerated, and how many there were.

    Attributes:
        documents: The documents that are read; these themselves are no fields.
        num_invalid: Invalid fields of predictions that were read.
    """

    documents: Any = None
    num_invalid: int = 0


_tolerance: ContextVar[Tolerance | None] = ContextVar("tolerance", default=None)


@contextmanager
def tolerating() -> Iterator[Tolerance]:
    """Replace invalid fields of predictions by `InvalidValue` while objects are read inside of it."""
    tolerance = Tolerance()
    token = _tolerance.set(tolerance)
    try:
        yield tolerance
    finally:
        _tolerance.reset(token)


def reading(documents: Sequence[Any]) -> None:
    """Say which documents are read next."""
    if tolerance := _tolerance.get():
        tolerance.documents = documents


def checked(
    check: Callable[[Sequence[Any], Callable[[int], str]], Any],
    values: Sequence[Any],
    split: int,
    where: Callable[[int], str],
) -> Sequence[Any]:
    """Return values that `check` accepts; an invalid field is replaced by what stands for it, where it is tolerated.

    Args:
        check: Raises a TypeError or a ValueError for a value of another type.
        values: Of predictions, then of references.
        split: Number of values of predictions.
        where: Path of a value.
    """
    tolerance = _tolerance.get()
    try:
        check(values, where)
        return values
    except (TypeError, ValueError):
        if tolerance is None:
            raise
    is_document = values is tolerance.documents
    return [_tolerated(check, value, row, split, where, tolerance, is_document) for row, value in enumerate(values)]


def _tolerated(
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


def stand_in(value: Any, row: int, split: int) -> Any:
    """Return what stands for an invalid scalar, or None where it is an error.

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
