"""Values of a type: the same rules for texts of a model, parsed JSON and objects of Python."""

import base64
import binascii
import enum
import math
import numbers
import re
import uuid
from collections import deque
from collections.abc import Callable, Collection, Mapping, Set
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np

from ..comparators.base import nfc, typed
from ..comparators.iso import read_date, read_datetime, read_time
from .records import record_values
from .tree import Leaf, LeafKind, Record, Type

NUMBER = re.compile(r"[ \t\n\r]*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[ \t\n\r]*", re.ASCII)
UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.IGNORECASE | re.ASCII)


class Conflict:
    """Marker of the value of a duplicate key with different values."""

    def __repr__(self) -> str:
        return "several values of one key"


def json_kind(value: Any) -> str:
    """Return the JSON kind of a decoded value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float | Decimal):
        return "number"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, dict) else "array" if isinstance(value, list) else "other"


def same_json(a: Any, b: Any) -> bool:
    """Return whether two decoded values are equal: numbers by value, but True is not 1."""
    pending = [(a, b)]
    while pending:
        a, b = pending.pop()
        kind = json_kind(a)
        if kind != json_kind(b) or isinstance(a, Conflict):
            return False
        if kind == "object":
            if a.keys() != b.keys():
                return False
            pending += [(a[key], b[key]) for key in a]
        elif kind == "array":
            if len(a) != len(b):
                return False
            pending += zip(a, b, strict=True)
        elif a != b:
            return False
    return True


class Invalid:
    """Marker of a value of a wrong type."""

    def __repr__(self) -> str:
        return "INVALID"


INVALID = Invalid()
LeafReader = Callable[[Any], Any]  # value of JSON or Python -> value that is compared, or INVALID


def leaf_reader(leaf: Leaf, numbers_in_strings: bool = False) -> LeafReader:
    """Return the function that reads values of a leaf."""
    if leaf.kind == "enum":
        return _member_reader(leaf.values)
    if leaf.kind == "instance":
        classes = leaf.classes
        return lambda value: value if isinstance(value, classes) else INVALID
    if leaf.kind == "bytes" and leaf.base64:
        return _base64
    read = KINDS[leaf.kind].read
    if numbers_in_strings and leaf.kind in ("integer", "number"):
        return lambda value: read(_number_of_text(value) if isinstance(value, str) else value)
    return read


def type_description(leaf: Leaf) -> str:
    """Return the name of the type of a leaf, for messages."""
    if leaf.kind == "enum":
        return "one of " + ", ".join(map(repr, leaf.values))
    if leaf.kind == "instance":
        return " or ".join(getattr(cls, "__name__", str(cls)) for cls in leaf.classes)
    return KINDS[leaf.kind].name


def array_of(value: Any) -> list[Any] | None:
    """Return the items of an array, or None for other values."""
    if type(value) is list:
        return value
    if isinstance(value, list | tuple | deque | Set) and not hasattr(value, "_fields"):
        return list(value)
    if isinstance(value, np.ndarray) and value.ndim:
        return list(value)
    return None


def object_of(value: Any) -> Mapping[Any, Any] | None:
    """Return the values of an object by their keys, or None for other values."""
    if not isinstance(value, Mapping):
        return record_values(value)
    return value if all(type(key) is str for key in value) else {str(key): part for key, part in value.items()}


def members_of(node: Type, value: Any) -> Mapping[Any, Any] | None:
    """Return the values of an object by their keys, those of a tuple by their positions, or None for other values."""
    if not isinstance(node, Record) or not node.is_tuple:
        return object_of(value)
    items = array_of(value)
    return None if items is None or len(items) != len(node.fields) else dict(enumerate(items))


def has_content(value: Any, null_strings: Collection[str] = ()) -> bool:
    """Return whether a value of any kind holds more than null, empty arrays and objects of such values."""
    pending = [value]
    while pending:
        value = pending.pop()
        if (parts := object_of(value)) is not None:
            pending += parts.values()
        elif array_of(value) != [] and value is not None and not (isinstance(value, str) and value in null_strings):
            return True
    return False


def _boolean(value: Any) -> Any:
    return bool(value) if isinstance(value, bool | np.bool_) else INVALID


def _integer(value: Any) -> Any:
    if type(value) is int:
        return value
    if isinstance(value, bool) or not isinstance(value, numbers.Real | Decimal):
        return INVALID
    if isinstance(value, numbers.Integral):
        return int(value)
    return integer if math.isfinite(value) and (integer := math.trunc(value)) == value else INVALID


def _number(value: Any) -> Any:
    if type(value) is not float and (isinstance(value, bool) or not isinstance(value, numbers.Real | Decimal)):
        return INVALID
    try:
        real = float(value)
    except OverflowError:
        return INVALID
    if not math.isfinite(real):
        return INVALID
    return value if type(value) is int else real


def _decimal(value: Any) -> Any:
    if isinstance(value, str):
        value = _number_of_text(value)
    if isinstance(value, float):
        value = Decimal(repr(float(value)))
    elif isinstance(value, numbers.Integral) and not isinstance(value, bool):
        value = Decimal(int(value))
    return value if isinstance(value, Decimal) and value.is_finite() else INVALID


def _number_of_text(text: str) -> Any:
    match = NUMBER.fullmatch(text)
    return Decimal(match[1]) if match else INVALID


def _string(value: Any) -> Any:
    return value if isinstance(value, str) else INVALID


def _date(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.date() if value.tzinfo is None and value.time() == time() else INVALID
    return value if isinstance(value, date) else _of_text(read_date, value)


def _datetime(value: Any) -> Any:
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime.combine(value, time())
    return _of_text(read_datetime, value)


def _time(value: Any) -> Any:
    return value if isinstance(value, time) else _of_text(read_time, value)


def _of_text(read: Callable[[str], Any], value: Any) -> Any:
    try:
        return read(value) if isinstance(value, str) else INVALID
    except ValueError:
        return INVALID


def _uuid(value: Any) -> Any:
    if isinstance(value, str) and UUID.fullmatch(value):
        return uuid.UUID(value)
    return value if isinstance(value, uuid.UUID) else INVALID


def _bytes(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else INVALID


def _base64(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    try:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else INVALID
    except (binascii.Error, ValueError):
        return INVALID


def _null(value: Any) -> Any:
    return INVALID  # null itself counts as absent


def _anything(value: Any) -> Any:
    is_number = json_kind(value) == "number"
    return INVALID if isinstance(value, Conflict) or is_number and not math.isfinite(value) else value


def _member_reader(values: tuple[Any, ...]) -> LeafReader:
    scalars = {typed(nfc(value)) for value in values if not isinstance(value, list | dict)}
    containers = [value for value in values if isinstance(value, list | dict)]

    def read(value: Any) -> Any:
        if isinstance(value, enum.Enum):
            value = value.value
        if isinstance(value, list | dict):
            return next((("member", n) for n, member in enumerate(containers) if same_json(value, member)), INVALID)
        if isinstance(value, Decimal):
            value = float(value)
        try:
            return value if typed(nfc(value)) in scalars else INVALID
        except TypeError:  # unhashable
            return INVALID

    return read


class ScalarKind(NamedTuple):
    """Name of a kind of scalars in messages, its reader, classes whose values are read unchanged, and kinds in JSON."""

    name: str
    read: LeafReader
    exact: frozenset[type] = frozenset()
    json_kinds: frozenset[str] = frozenset({"string"})


KINDS: dict[LeafKind, ScalarKind] = {
    "boolean": ScalarKind("bool", _boolean, frozenset({bool}), frozenset({"boolean"})),
    "integer": ScalarKind("int", _integer, frozenset({int}), frozenset({"number"})),
    "number": ScalarKind("float", _number, frozenset({int}), frozenset({"number"})),
    "string": ScalarKind("str", _string, frozenset({str})),
    "decimal": ScalarKind("Decimal", _decimal, json_kinds=frozenset({"number", "string"})),
    "date": ScalarKind("date", _date),
    "datetime": ScalarKind("datetime", _datetime),
    "time": ScalarKind("time", _time),
    "uuid": ScalarKind("UUID", _uuid),
    "bytes": ScalarKind("bytes", _bytes, frozenset({bytes})),
    "null": ScalarKind("null", _null, frozenset({type(None)}), frozenset()),
    # A text of a document is JSON.
    "anything": ScalarKind("any value", _anything, json_kinds=frozenset({"boolean", "number", "object", "array"})),
}


def kind_of_value(value: Any) -> str:
    """Return the JSON kind of a parsed value, "other" for a scalar of Python."""
    if (kind := json_kind(value)) != "other":
        return kind
    return "object" if object_of(value) is not None else "array" if array_of(value) is not None else "other"
