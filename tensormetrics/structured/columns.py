"""Columns of Python values as columns of integers or numbers."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import torch
from torch import Tensor

Where = Callable[[int], str]  # the path of a row, for messages
Read = TypeVar("Read")

_columns: ContextVar[dict[Hashable, tuple[Any, Any]] | None] = ContextVar("columns", default=None)


@contextmanager
def shared_columns() -> Iterator[None]:
    """What metrics read inside of it from the same objects is read once."""
    known = _columns.get()
    token = _columns.set({} if known is None else known)
    try:
        yield
    finally:
        _columns.reset(token)


def read_once(read: Callable[[], Read], what: Hashable, *values: Any) -> Read:
    """What `read` makes of `values`, known by their identity, and `what`."""
    columns = _columns.get()
    if columns is None:
        return read()
    key = (what, *map(id, values))
    if key not in columns:
        columns[key] = values, read()  # values are kept, so that their ids stay theirs
    return columns[key][1]


def ids_of(values: Sequence[Any], where: Where) -> Tensor:  # ->  (n,) int64
    """Equal values, and no others, get equal numbers: equality is Python's, so that 1 == 1.0 == True."""
    if set(map(type, values)) <= {int}:
        try:
            return torch.tensor(values, dtype=torch.int64)
        except (OverflowError, RuntimeError, ValueError):  # beyond 64 bits
            pass
    table: dict[Any, int] = {}
    try:
        ids = [table.setdefault(value, len(table)) for value in values]
    except TypeError:
        row, value = next((row, value) for row, value in enumerate(values) if not _is_hashable(value))
        raise TypeError(
            f"{where(row)}: got an unhashable {type(value).__name__}, wanted a hashable value; give its field a "
            "similarity of your own by Annotated[..., dsl.from_func(f)]"
        ) from None
    if any(value != value for value in table if isinstance(value, float)):
        row = next(row for row, value in enumerate(values) if value != value)
        raise ValueError(f"{where(row)}: got nan, which equals nothing; wanted a number or None")
    return torch.tensor(ids, dtype=torch.int64)


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def check_type(wanted: type, values: Sequence[Any], where: Where) -> None:
    """TypeError with the path of the first value that is no `wanted`."""
    if set(map(type, values)) <= {wanted}:
        return
    for row, value in enumerate(values):
        if not isinstance(value, wanted):
            raise TypeError(f"{where(row)}: got {value!r:.60} of type {type(value).__name__}, wanted {wanted.__name__}")


def check_tuple(length: int, values: Sequence[Any], where: Where) -> None:
    """TypeError with the path of the first value that is no tuple of this length."""
    check_type(tuple, values, where)
    for row, value in enumerate(values):
        if len(value) != length:
            raise TypeError(f"{where(row)}: got a tuple of {len(value)}, wanted one of {length}")


def check_collection(values: Sequence[Any], where: Where) -> None:
    """TypeError with the path of the first value that is no sized collection, or is text."""
    for row, value in enumerate(values):
        if isinstance(value, str | bytes) or not (hasattr(value, "__len__") and hasattr(value, "__iter__")):
            raise TypeError(
                f"{where(row)}: got {value!r:.60} of type {type(value).__name__}, wanted a collection such as a list"
            )
