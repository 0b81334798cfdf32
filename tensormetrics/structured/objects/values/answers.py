"""Cache of users' functions of pairs of values, so that a function is called once for each pair."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from typing import Any


class Answers:
    """Ids of values, and similarities of pairs of ids by function.

    Hashable values that are equal by == and of the same type share an id; an unhashable value gets a new id at each
    call. A copy is empty.
    """

    def __init__(self) -> None:
        self._next = count().__next__
        self._ids: defaultdict[tuple[type, Hashable], int] = defaultdict(self._next)
        self._similarities: dict[int, tuple[Callable[..., Any], dict[tuple[int, int], float]]] = {}

    def id_of(self, value: Any) -> int:
        try:
            return self._ids[type(value), value]
        except TypeError:  # unhashable
            return self._next()

    def of(self, function: Callable[..., Any]) -> dict[tuple[int, int], float]:
        """Return the similarities of pairs of ids by a function."""
        return self._similarities.setdefault(id(function), (function, {}))[
            1
        ]  # a reference keeps the id of the function valid

    def clear(self) -> None:
        self._ids.clear()
        self._similarities.clear()

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return type(self), ()


_shared: ContextVar[Answers | None] = ContextVar("answers", default=None)


@contextmanager
def reuse_answers(answers: Answers) -> Iterator[None]:
    """Share the answers of all functions within the outermost context."""
    token = _shared.set(_shared.get() or answers)
    try:
        yield
    finally:
        _shared.reset(token)


def current_answers() -> Answers:
    """Return the shared answers, or new ones outside of `reuse_answers`."""
    return _shared.get() or Answers()
