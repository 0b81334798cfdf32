"""Annotations of fields, for `evaluate` and `FieldScores`: how values are compared and lists matched."""

from ..comparators.annotations import by, ignore, match, ordered, weight
from ..comparators.leaves import casefold, exact, from_func, near, normalized, parsed, similar, within

__all__ = ["by", "casefold", "exact", "from_func", "ignore", "match", "near", "normalized", "ordered", "parsed"]
__all__ += ["similar", "weight", "within"]
