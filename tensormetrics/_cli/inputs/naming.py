"""Errors and warnings of the library in the words of the command line."""

import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ..option_types import BadInput


@contextmanager
def naming(hints: Mapping[str, str] | None = None, /, **names: str | None) -> Iterator[None]:
    """Errors and warnings of the library name its arguments; the user knows files and options: `naming(query=path)`.
    Its hints are of Python; those of the command take their place."""

    def named(message: str) -> str:
        for hint, own in (hints or {}).items():
            message = message.replace(hint, own)
        for argument, name in names.items():
            _, found, rest = message.partition(f"{argument}: ")
            if name and found:
                return f"{name}: {rest}"
            if name and re.match(rf"{argument}\b", message):
                return name + message.removeprefix(argument)
        return message

    try:
        with warnings.catch_warnings(record=True) as told, _logged() as logged:
            yield
    except (ValueError, TypeError, RuntimeError, ImportError, MemoryError, NotImplementedError) as error:
        raise BadInput(named(first_line(error))) from error
    for warning in told:
        warnings.warn(named(str(warning.message)), warning.category, stacklevel=2)
    for message in logged:
        warnings.warn(named(message), stacklevel=2)


@contextmanager
def _logged() -> Iterator[list[str]]:
    """The warnings that the domains log, which are told as other warnings are."""
    log, messages = logging.getLogger("tensormetrics"), []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    handler, passed_on = Handler(logging.WARNING), log.propagate
    log.addHandler(handler)
    log.propagate = False
    try:
        yield messages
    finally:
        log.removeHandler(handler)
        log.propagate = passed_on


def first_line(error: Exception) -> str:
    """What happened; torch goes on for pages about where."""
    if isinstance(error, MemoryError) or "allocate memory" in str(error):
        wanted = re.search(r"allocate (\d+ bytes|[\d.]+ \w+)", str(error))
        return f"there is not enough memory{f' for {wanted[1]}' if wanted else ''}; ask for less"
    line = next(iter(str(error).splitlines()), type(error).__name__)
    return re.sub(
        r"^Error in .*? at /\S*?faiss/\S+: (Error: .* failed: )?", "faiss: ", line
    )  # functions and lines of C++
