"""Files and options in place of arguments in the library's errors and warnings."""

import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from ..option_types import BadInput


@contextmanager
def naming(**names: str | None) -> Iterator[None]:
    """Replace arguments of the library in its errors and warnings by files and options: `naming(query=path)`."""

    def translate(message: str) -> str:
        for argument, name in names.items():
            _, separator, rest = message.partition(f"{argument}: ")
            if name and separator:
                return f"{name}: {rest}"
            if name and re.match(rf"{re.escape(argument)}(?!\w)", message):
                return name + message.removeprefix(argument)
        return message

    try:
        with warnings.catch_warnings(record=True) as caught, _logged() as logged:
            yield
    except (ValueError, TypeError, RuntimeError, ImportError, MemoryError, NotImplementedError) as error:
        raise BadInput(translate(first_line(error))) from error
    for warning in caught:
        warnings.warn(translate(str(warning.message)), warning.category, stacklevel=2)
    for message in logged:
        warnings.warn(translate(message), stacklevel=2)


@contextmanager
def _logged() -> Iterator[list[str]]:
    """Collect warnings that the domains log, so that they are shown like other warnings."""
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
    """Return the first line of an error without C++ locations; torch appends pages of them."""
    if isinstance(error, MemoryError) or "allocate memory" in str(error):
        size = re.search(r"allocate (\d+ bytes|[\d.]+ \w+)", str(error))
        return f"there is not enough memory{f' for {size[1]}' if size else ''}; ask for less"
    line = next(iter(str(error).splitlines()), type(error).__name__)
    return re.sub(
        r"^Error in .*? at /\S*?faiss/\S+: (Error: .* failed: )?", "faiss: ", line
    )  # functions and lines of C++
