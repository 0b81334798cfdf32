"""Annotations of fields, for `evaluate` and `FieldScores`: how values are compared and lists matched."""

from ..comparators import by as by
from ..comparators import casefold as casefold
from ..comparators import exact as exact
from ..comparators import from_func as from_func
from ..comparators import ignore as ignore
from ..comparators import match as match
from ..comparators import near as near
from ..comparators import normalized as normalized
from ..comparators import ordered as ordered
from ..comparators import parsed as parsed
from ..comparators import similar as similar
from ..comparators import weight as weight
from ..comparators import within as within
