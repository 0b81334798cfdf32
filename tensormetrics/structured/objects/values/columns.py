"""Columns of Python values: how they are checked, read once, and become numbers."""

import typing
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import Decimal
from functools import cached_property, partial
from itertools import count
from typing import Any, TypeVar

import numpy as np
import torch
import typing_extensions
from torch import Tensor

from ...fields.schemas.records import class_of, is_tuple
from .errors import WrongTypeError
from .tolerance import InvalidValue

Where = Callable[[int], str]  # the path of a row, for messages
CPU = torch.device("cpu")
FEW = 1000  # rows; more tuples than that keep Python's garbage collector busy
EQUAL_THEMSELVES = frozenset({str, int, bool, bytes, type(None)})
MAY_DIFFER = float, complex, np.inexact, Decimal, Tensor  # from themselves
COLLECTIONS = frozenset({list, tuple, set, frozenset})
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


def numbers() -> defaultdict[Any, int]:
    """Gives every key that it is asked for a number, from 0 on."""
    return defaultdict(count().__next__)


class Keys:
    """A column of values, or of tuples of them, that are compared by ==: 1 == 1.0 == True.

    They are numbered when that is first asked for, since a key is most often but a part of another one, its tuples.
    """

    def __init__(self, values: Sequence[Any], where: Where, device: torch.device, parts: Sequence["Keys"] = ()) -> None:
        self.values, self.where, self.device, self.parts = values, where, device, parts

    @property
    def ids(self) -> Tensor:
        """(n,) int64 from 0 on, equal where the values are."""
        return self._numbered[0]

    @property
    def size(self) -> int:
        """What all `ids` are below."""
        return self._numbered[1]

    @cached_property
    def _numbered(self) -> tuple[Tensor, int]:
        return self._number()

    def _number(self) -> tuple[Tensor, int]:
        table = numbers()
        try:
            ids = np.fromiter(map(table.__getitem__, self.values), np.int64, len(self.values))
        except TypeError:
            self.check_hashable()
            raise
        return torch.from_numpy(ids).to(self.device), len(table)

    def check_hashable(self) -> None:
        """TypeError with the path of the first value that cannot be looked up."""
        for part in self.parts:
            part.check_hashable()
        for row, value in enumerate(() if self.parts else self.values):
            try:
                hash(value)
            except TypeError:
                raise TypeError(
                    f"{self.where(row)}: got an unhashable {type(value).__name__}, wanted a hashable value; give its "
                    "field a similarity of your own by Annotated[..., dsl.from_func(f)]"
                ) from None


class Rows(Keys):
    """The tuples of two or more columns."""

    def __init__(self, parts: Sequence[Keys], length: int, where: Where, device: torch.device) -> None:
        self.parts, self.length, self.where, self.device = parts, length, where, device

    @cached_property
    def values(self) -> Sequence[Any]:  # type: ignore[override]  # and not given
        return [*zip(*(part.values for part in self.parts), strict=True)]

    def _number(self) -> tuple[Tensor, int]:
        if self.length <= FEW:
            return super()._number()
        ids, size = self.parts[0].ids, self.parts[0].size
        for part in self.parts[1:]:
            ids, size = ids * part.size + part.ids, size * part.size
            if size > 2**31:  # ranks of fewer rows than that keep every product within 64 bits
                ids, size = ids.unique(return_inverse=True)[1], self.length
        return ids, size


def combined(parts: Sequence[Keys], length: int, where: Where, device: torch.device) -> Keys:
    """The column of the rows of some others."""
    if not parts:
        return Keys([()] * length, where, device)
    return parts[0] if len(parts) == 1 else Rows(parts, length, where, device)


def check_no_nan(values: Sequence[Any], where: Where) -> None:
    """ValueError with the path of the first value that does not equal itself; TypeError for a tensor, which equals no
    other one where values are looked up."""
    kinds = set(map(type, values)) - EQUAL_THEMSELVES
    if not any(issubclass(kind, MAY_DIFFER) for kind in kinds):
        return
    for row, value in enumerate(values):
        if isinstance(value, Tensor):
            raise TypeError(f"{where(row)}: got a tensor, wanted a number or a text; write .item(), or .tolist()")
        if isinstance(value, MAY_DIFFER) and value != value:
            raise ValueError(f"{where(row)}: got nan, which equals nothing; wanted a number or None")


def check_type(wanted: type, values: Sequence[Any], where: Where) -> None:
    """TypeError with the path of the first value that is no `wanted`."""
    if set(map(type, values)) <= {wanted}:
        return
    for row, value in enumerate(values):
        if not isinstance(value, wanted):
            raise WrongTypeError(
                f"{where(row)}: got {value!r:.60} of type {type(value).__name__}, wanted {wanted.__name__}"
            )


def check_tuple(length: int, values: Sequence[Any], where: Where) -> None:
    """TypeError with the path of the first value that is no tuple, or list as JSON has it, of this length."""
    if not set(map(type, values)) <= {tuple, list}:
        check_type(tuple, [tuple(value) if isinstance(value, list) else value for value in values], where)
    for row, value in enumerate(values):
        if len(value) != length:
            raise WrongTypeError(f"{where(row)}: got a {type(value).__name__} of {len(value)}, wanted one of {length}")


def check_collection(values: Sequence[Any], where: Where) -> None:
    """TypeError with the path of the first value that is no sized collection, or is text."""
    for row, value in enumerate(values):
        if isinstance(value, str | bytes) or not (hasattr(value, "__len__") and hasattr(value, "__iter__")):
            raise WrongTypeError(
                f"{where(row)}: got {value!r:.60} of type {type(value).__name__}, wanted a collection such as a list"
            )


def check_mapping(values: Sequence[Any], where: Where, is_wanted: bool = True) -> None:
    """TypeError with the path of the first value that is no mapping, or that is one where none is wanted."""
    for row, value in enumerate(values):
        if isinstance(value, Mapping) is not is_wanted and not isinstance(value, InvalidValue):
            wanted = "a mapping such as a dict" if is_wanted else "a list; write list(value) if its keys are the items"
            raise WrongTypeError(f"{where(row)}: got {value!r:.60} of type {type(value).__name__}, wanted {wanted}")


def as_list(value: Iterable[Any]) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else list(value)


def elements_of(counter: Mapping[Any, int]) -> list[Any]:
    check_mapping([counter], str)
    return [item for item, count in counter.items() for _ in range(count)]


def pairs_of(mapping: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    if not isinstance(mapping, InvalidValue):
        check_mapping([mapping], str)
    return list(mapping.items())


def record_check(tp: Any) -> Callable[[Sequence[Any], Where], None]:
    """What raises for values that are no such record."""
    cls = class_of(tp)
    if is_tuple(tp):
        return partial(check_tuple, len(typing.get_args(tp)))
    return partial(_check_keys, cls) if typing_extensions.is_typeddict(cls) else partial(check_type, cls)


def _check_keys(cls: Any, values: Sequence[Any], where: Where) -> None:
    check_type(dict, values, where)
    for row, value in enumerate(values):
        if lacking := [key for key in cls.__annotations__ if key in cls.__required_keys__ and key not in value]:
            raise WrongTypeError(
                f"{where(row)}: got a dict without the key {lacking[0]!r}, which {cls.__name__} requires"
            )
