"""Columns of Python values: checks, integer encoding, and scalar types by the rules of `types.values`."""

import math
import typing
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
import typing_extensions
from torch import Tensor

from ..comparators.base import code_table
from ..types.class_tree import scalar_type
from ..types.records import class_of, is_tuple
from ..types.values import INVALID, KINDS, leaf_reader, type_description

RowPath = Callable[[int], str]  # returns the path of a row, for messages
MAX_TUPLES = 1000  # more tuples than that slow down Python's garbage collector
EQUAL_THEMSELVES = frozenset({str, int, bool, bytes, type(None)})
MAY_DIFFER = float, complex, np.inexact, Decimal, Tensor  # types with values that are unequal to themselves
COLLECTIONS = frozenset({list, tuple, set, frozenset})


def rows_of_both(split: int) -> RowPath:
    """Return the path function of predictions, `split` of them, and references."""
    return lambda row: f"preds[{row}]" if row < split else f"refs[{row - split}]"


class WrongTypeError(TypeError, ValueError):
    """Error of a value of a wrong type; also a ValueError, like the errors of other invalid values of a document."""


class Keys:
    """Column of values, or of tuples of values, that are compared by ==: 1 == 1.0 == True.

    The ids are computed at first access, because most keys are only parts of other keys.
    """

    def __init__(
        self, values: Sequence[Any], where: RowPath, device: torch.device, parts: Sequence["Keys"] = ()
    ) -> None:
        self.values, self.where, self.device, self.parts = values, where, device, parts

    @property
    def ids(self) -> Tensor:
        """Ids of the values, (n,) int64 from 0; equal values have equal ids."""
        return self._ids_and_size[0]

    @property
    def size(self) -> int:
        """Upper bound of the ids, exclusive."""
        return self._ids_and_size[1]

    _ids_and_size = cached_property(lambda self: self._compute_ids())

    def _compute_ids(self) -> tuple[Tensor, int]:
        table = code_table()
        try:
            ids = np.fromiter(map(table.__getitem__, self.values), np.int64, len(self.values))
        except TypeError:
            self.check_hashable()
            raise
        return torch.from_numpy(ids).to(self.device), len(table)

    def check_hashable(self) -> None:
        """Raise a TypeError with the path of the first unhashable value."""
        for part in self.parts:
            part.check_hashable()
        for row, value in enumerate(() if self.parts else self.values):
            try:
                hash(value)
            except TypeError:
                raise TypeError(
                    f"{self.where(row)}: got an unhashable {type(value).__name__}, wanted a hashable value; give its "
                    "field a similarity function by Annotated[..., dsl.from_func(f)]"
                ) from None


class TupleKeys(Keys):
    """Column of the tuples of two or more columns."""

    def __init__(self, parts: Sequence[Keys], length: int, where: RowPath, device: torch.device) -> None:
        self.parts, self.length, self.where, self.device = parts, length, where, device

    @cached_property
    def values(self) -> Sequence[Any]:  # type: ignore[override]  # computed at first access
        return [*zip(*(part.values for part in self.parts), strict=True)]

    def _compute_ids(self) -> tuple[Tensor, int]:
        if self.length <= MAX_TUPLES:
            return super()._compute_ids()
        ids, size = self.parts[0].ids, self.parts[0].size
        for part in self.parts[1:]:
            ids, size = ids * part.size + part.ids, size * part.size
            if size > 2**31:  # replaced by ranks, so that every product fits in 64 bits
                ids, size = ids.unique(return_inverse=True)[1], self.length
        return ids, size


def combine_keys(parts: Sequence[Keys], length: int, where: RowPath, device: torch.device) -> Keys:
    """Return the column of the tuples of several columns."""
    if not parts:
        return Keys([()] * length, where, device)
    return parts[0] if len(parts) == 1 else TupleKeys(parts, length, where, device)


def check_no_nan(values: Sequence[Any], where: RowPath) -> None:
    """Raise a ValueError with the path of the first value that is unequal to itself, a TypeError for a tensor.

    Tensors are hashed by identity, so that equal ones would have different ids.
    """
    kinds = set(map(type, values)) - EQUAL_THEMSELVES
    if not any(issubclass(kind, MAY_DIFFER) for kind in kinds):
        return
    for row, value in enumerate(values):
        if isinstance(value, Tensor):
            raise TypeError(f"{where(row)}: got a tensor, wanted a number or a text; write .item(), or .tolist()")
        if isinstance(value, MAY_DIFFER) and value != value:
            raise ValueError(f"{where(row)}: got nan, which is unequal to itself; wanted a number or None")


def check(values: Sequence[Any], where: RowPath, is_valid: Callable[[Any], bool], expected: str) -> None:
    """Raise a TypeError with the path of the first value that is not valid."""
    for row, value in enumerate(values):
        if not is_valid(value):
            raise WrongTypeError(f"{where(row)}: got {value!r:.60} of type {type(value).__name__}, wanted {expected}")


def check_type(expected: type, values: Sequence[Any], where: RowPath) -> None:
    if not set(map(type, values)) <= {expected}:
        check(values, where, lambda value: isinstance(value, expected), expected.__name__)


def check_tuple(length: int, values: Sequence[Any], where: RowPath) -> None:
    """Raise a TypeError with the path of the first value that is no tuple or list of this length."""
    if not set(map(type, values)) <= {tuple, list}:
        check(values, where, lambda value: isinstance(value, tuple | list), "tuple")
    for row, value in enumerate(values):
        if len(value) != length:
            raise WrongTypeError(f"{where(row)}: got a {type(value).__name__} of {len(value)}, wanted one of {length}")


def check_collection(values: Sequence[Any], where: RowPath) -> None:
    """Raise a TypeError with the path of the first value that is no sized collection, or is text."""
    check(
        values,
        where,
        lambda value: hasattr(value, "__len__") and hasattr(value, "__iter__") and not isinstance(value, str | bytes),
        "a collection such as a list",
    )


def check_mapping(values: Sequence[Any], where: RowPath, is_expected: bool = True) -> None:
    """Raise a TypeError with the path of the first value that is no mapping, or that is one if not `is_expected`."""
    expected = "a mapping such as a dict" if is_expected else "a list; write list(value) if its keys are the items"
    check(values, where, lambda value: isinstance(value, Mapping) is is_expected, expected)


def as_list(value: Iterable[Any]) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else list(value)


def elements_of(counter: Mapping[Any, int]) -> list[Any]:
    return [item for item, count in counter.items() for _ in range(count)]


def pairs_of(mapping: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    return list(mapping.items())


def record_check(tp: Any) -> Callable[[Sequence[Any], RowPath], None]:
    """Return the function that raises an error for values that are no such record."""
    cls = class_of(tp)
    if is_tuple(tp):
        return partial(check_tuple, len(typing.get_args(tp)))
    return partial(_check_keys, cls) if typing_extensions.is_typeddict(cls) else partial(check_type, cls)


def _check_keys(cls: Any, values: Sequence[Any], where: RowPath) -> None:
    check_type(dict, values, where)
    for row, value in enumerate(values):
        if missing := [key for key in cls.__annotations__ if key in cls.__required_keys__ and key not in value]:
            raise WrongTypeError(
                f"{where(row)}: got a dict without the key {missing[0]!r}, which {cls.__name__} requires"
            )


class LeafType:
    """Scalar type with its values: 12.0 is an int, True is not.

    Args:
        tp: int, str, an Enum, a Literal, or a class whose values are compared by ==.
    """

    def __init__(self, tp: Any) -> None:
        leaf = scalar_type(tp)
        self.allows_none = leaf.nullable
        self.name = type_description(leaf)
        self._read = leaf_reader(leaf)
        self.exact = KINDS[leaf.kind].exact if leaf.kind in KINDS else frozenset()
        members = typing.get_args(tp) if typing.get_origin(tp) is typing.Literal else ()
        self.members: frozenset[Hashable] = frozenset(zip(map(type, members), members, strict=True))
        self.is_number = leaf.kind == "number"

    def read(self, value: Any) -> Any:
        """Return the value that is compared, or INVALID."""
        return None if value is None and self.allows_none else self._read(value)

    def read_column(self, values: Sequence[Any], where: RowPath) -> Sequence[Any]:
        """Return the values that are compared; raise a WrongTypeError with the path of the first of a wrong type."""
        if self._are_exact(values):
            return values
        result = [self.read(value) for value in values]
        for row, value in enumerate(result):
            if value is INVALID:
                hint = "; write .item(), or .tolist()" if isinstance(values[row], Tensor) else ""
                raise WrongTypeError(f"{where(row)}: got {values[row]!r:.60}, wanted {self.name}{hint}")
        return result

    def _are_exact(self, values: Sequence[Any]) -> bool:
        kinds = set(map(type, values))
        if kinds <= self.exact:
            return True
        if self.is_number and kinds == {float}:
            return all(map(math.isfinite, values))
        try:
            return bool(self.members) and set(zip(map(type, values), values, strict=True)) <= self.members
        except TypeError:  # unhashable
            return False
