"""Recursion without the call stack of Python, for deeply nested documents."""

from collections.abc import Generator
from typing import Any, TypeVar

Result = TypeVar("Result")
Steps = Generator[Any, Any, Result]  # yields the generators of recursive calls, and receives their results


def run(steps: Steps[Result]) -> Result:
    """Run a recursive generator and return its result."""
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
