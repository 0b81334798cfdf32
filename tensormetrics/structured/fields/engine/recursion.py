"""Recursion without the stack of Python, for documents of hundreds of levels."""

from collections.abc import Generator
from typing import Any, TypeVar

Result = TypeVar("Result")
Steps = Generator[Any, Any, Result]  # yields the generators of calls, and is sent what they return


def run(steps: Steps[Result]) -> Result:
    """Return what a recursive generator returns."""
    stack: list[Steps[Any]] = [steps]
    value: Any = None
    while True:
        try:
            call = stack[-1].send(value)
        except StopIteration as stop:
            stack.pop()
            value = stop.value
            if not stack:
                return value
        else:
            stack.append(call)
            value = None
