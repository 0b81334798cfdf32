"""Results of users' functions that are shared by metrics of the same values."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from ...comparators import Answers

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
