"""Annotations of fields, for `evaluate` and `FieldScores`: how values are compared and lists matched."""

from ..comparators import (
    by,
    casefold,
    exact,
    from_func,
    ignore,
    match,
    near,
    normalized,
    ordered,
    parsed,
    similar,
    weight,
    within,
)

__all__ = [
    "by",
    "casefold",
    "exact",
    "from_func",
    "ignore",
    "match",
    "near",
    "normalized",
    "ordered",
    "parsed",
    "similar",
    "weight",
    "within",
]
