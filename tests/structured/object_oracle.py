"""Random nested objects, and their similarity by plain recursion over the types."""

import collections
import dataclasses
import types
import typing
from functools import cache
from typing import Any, Literal, NamedTuple, Optional

import numpy as np

from tensormetrics.structured import metametric


@dataclasses.dataclass
class Span:
    left: int
    right: int


class Pair(NamedTuple):
    name: str
    spans: list[Span]


@metametric(normalizer="jaccard", constraint="->")
@dataclasses.dataclass
class Scored:
    tags: list[str]


@dataclasses.dataclass
class Argument:
    role: Literal["a", "b"]
    fillers: list[Span]
    note: str = dataclasses.field(default="", compare=False)


@dataclasses.dataclass
class Event:
    kind: bool
    arguments: list[Argument]
    certainty: Optional[int]  # noqa: UP045 - this spelling must work too


TYPES = [
    Event,
    list[int],
    list[Span],
    set[str],
    tuple[int, ...],
    list[tuple[int, str]],
    list[list[int]],
    list[list[list[bool]]],
    list[Pair],
    list[Scored],
    list[Event],
    list[Event | Span | None],
    list[int | str],
    list[list[bool] | None],
    dict[str, int],
    dict[str, list[bool]],
    collections.Counter[str],
    list[collections.Counter[str]],
    tuple[bool, list[Span], list[Argument] | None],
]


def random_value(tp: Any, draw: np.random.Generator) -> Any:
    """Draw a value of a type, small enough for values to be equal often."""
    origin, arguments = typing.get_origin(tp), typing.get_args(tp)
    if tp is bool:
        return bool(draw.integers(2))
    if tp is int:
        return int(draw.integers(3))
    if tp is str:
        return "xyz"[draw.integers(3)]
    if tp is type(None):
        return None
    if origin is Literal:
        return arguments[draw.integers(len(arguments))]
    if origin in (typing.Union, types.UnionType):
        return random_value(arguments[draw.integers(len(arguments))], draw)
    if dataclasses.is_dataclass(tp) or hasattr(tp, "_fields"):
        return tp(*(random_value(hint, draw) for hint in typing.get_type_hints(tp).values()))
    if origin is tuple and Ellipsis not in arguments:
        return tuple(random_value(part, draw) for part in arguments)
    size = range(draw.integers(5))
    if origin is dict:
        return {random_value(arguments[0], draw): random_value(arguments[1], draw) for _ in size}
    return origin(random_value(arguments[0], draw) for _ in size)


@dataclasses.dataclass(frozen=True)
class Oracle:
    constraint: str
    empty: str = "zero"
    zero_division: float | str = 0.0
    duplicates: str = "multiset"

    def overlap(self, tp: Any, pred: Any, ref: Any) -> tuple[float, float, float]:
        return self.similarity(tp, pred, ref), self.similarity(tp, pred, pred), self.similarity(tp, ref, ref)

    def similarity(self, tp: Any, x: Any, y: Any, decorated: bool = True) -> float:
        origin, arguments = typing.get_origin(tp), typing.get_args(tp)
        if tp is Scored and decorated:
            oracle = dataclasses.replace(self, constraint="->")
            s, p, r = (oracle.similarity(tp, *pair, decorated=False) for pair in ((x, y), (x, x), (y, y)))
            if p + r - s:
                return s / (p + r - s)
            return float(p == r == 0) if self.zero_division == "agree" else self.zero_division
        if dataclasses.is_dataclass(tp) or hasattr(tp, "_fields"):
            hints = typing.get_type_hints(tp)
            if dataclasses.is_dataclass(tp):
                hints = {field.name: hints[field.name] for field in dataclasses.fields(tp) if field.compare}
            return product(self.similarity(hint, getattr(x, n), getattr(y, n)) for n, hint in hints.items())
        if origin is tuple and Ellipsis not in arguments:
            return product(map(self.similarity, arguments, x, y))
        if origin in (typing.Union, types.UnionType):
            one, other = (next(case for case in arguments if is_a(value, case)) for value in (x, y))
            return self.similarity(one, x, y) if one == other else 0.0
        if origin is Literal or origin is None:
            return float(x == y)
        if not x and not y and self.empty == "one":
            return 1.0
        if origin is dict:
            return self.matched(tuple[arguments], list(x.items()), list(y.items()))
        if origin is collections.Counter:
            return self.matched(arguments[0], list(x.elements()), list(y.elements()))
        return self.matched(arguments[0], list(x), list(y))

    def matched(self, tp: Any, x: list, y: list) -> float:
        if self.duplicates == "set" and is_equality(tp):
            x, y = ([v for n, v in enumerate(s) if not any(self.similarity(tp, v, u) for u in s[:n])] for s in (x, y))
        table = np.array([[self.similarity(tp, a, b) for b in y] for a in x]).reshape(len(x), len(y))
        return heaviest_relation(table, self.constraint)


def product(factors: Any) -> float:
    return float(np.prod(list(factors)))


def is_a(value: Any, case: Any) -> bool:
    return type(value) is (typing.get_origin(case) or case)


def is_equality(tp: Any) -> bool:
    """Return whether a type has no collection and no normalizer."""
    arguments = typing.get_args(tp)
    if tp is Scored or typing.get_origin(tp) in (list, dict, set, collections.Counter) or Ellipsis in arguments:
        return False
    if dataclasses.is_dataclass(tp) or hasattr(tp, "_fields"):
        arguments = typing.get_type_hints(tp).values()
    return typing.get_origin(tp) is Literal or all(map(is_equality, arguments))


def heaviest_relation(table: np.ndarray, constraint: str) -> float:
    # table: (N, M)
    gain = np.maximum(table, 0)
    if 0 in gain.shape:
        return 0.0
    if constraint == "~":
        return gain.sum()
    if constraint != "<->":
        return gain.max(1 if constraint == "->" else 0).sum()

    @cache
    def best(row: int, used: int) -> float:
        if row == len(gain):
            return 0.0
        free = (j for j in range(gain.shape[1]) if not used >> j & 1)
        return max(best(row + 1, used), *(gain[row, j] + best(row + 1, used | 1 << j) for j in free), 0.0)

    return best(0, 0)


def heaviest_chain(table: np.ndarray, constraint: str) -> float:
    # table: (N, M)
    """Compute the heaviest chain of pairs along which no index decreases; the constraint says which ones increase."""
    n, m = table.shape
    pairs = [(i, j) for i in range(n) for j in range(m) if table[i, j] > 0]
    strict = constraint in ("<->", "->"), constraint in ("<->", "<-")

    @cache
    def best(a: int, b: int) -> float:
        after = [
            (i, j)
            for i, j in pairs
            if (i, j) != (a, b) and (i > a if strict[0] else i >= a) and (j > b if strict[1] else j >= b)
        ]
        return table[a, b] + max((best(*pair) for pair in after), default=0.0)

    return max((best(*pair) for pair in pairs), default=0.0)
