"""Scalar types and their values, by the rules of `fields.reading.values`."""

import math
import typing
from collections.abc import Hashable, Sequence
from typing import Any

from torch import Tensor

from ...types.class_tree import scalar_type
from ...types.values import INVALID, KINDS, leaf_reader, type_description
from .columns import RowPath, WrongTypeError


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
        self.members: frozenset[Hashable] = frozenset()
        if typing.get_origin(tp) is typing.Literal:
            self.members = frozenset((type(member), member) for member in typing.get_args(tp))
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
