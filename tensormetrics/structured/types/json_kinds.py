"""Kinds of decoded JSON values, and whether two of them are equal."""

from decimal import Decimal
from typing import Any


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
