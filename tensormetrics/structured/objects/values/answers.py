"""Answers of users' functions for pairs of values, so that a function is called once for each pair."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from typing import Any


class Answers:
    """Numbers of values, and similarities of pairs of them by function.

    Hashable values that are equal by == and of one type are one value; each unhashable one is another value whenever it
    is numbered. A copy is empty.
    """

    def __init__(self) -> None:
        self._next = count().__next__
        self._numbers: defaultdict[tuple[type, Hashable], int] = defaultdict(self._next)
        self._known: dict[int, tuple[Callable[..., Any], dict[tuple[int, int], float]]] = {}

    def number(self, value: Any) -> int:
        try:
            return self._numbers[type(value), value]
        except TypeError:  # unhashable
            return self._next()

    def of(self, function: Callable[..., Any]) -> dict[tuple[int, int], float]:
        """Return the similarities by a function, of pairs of numbers."""
        return self._known.setdefault(id(function), (function, {}))[1]  # the function is kept, so that its id stays its

    def clear(self) -> None:
        self._numbers.clear()
        self._known.clear()

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return type(self), ()


_shared: ContextVar[Answers | None] = ContextVar("answers", default=None)


@contextmanager
def sharing(answers: Answers) -> Iterator[None]:
    """Keep the answers of all functions that are called inside of it, in those of the outermost such context."""
    token = _shared.set(_shared.get() or answers)
    try:
        yield
    finally:
        _shared.reset(token)


def current_answers() -> Answers:
    """Return the answers that are shared, or else new ones."""
    return _shared.get() or Answers()
