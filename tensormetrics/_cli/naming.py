"""Files and options in place of arguments in the library's errors and warnings."""

import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from .option_types import BadInput


@contextmanager
def naming(before: str = r"(?:.*?[:;] )?", /, **names: str | None) -> Iterator[None]:
    """Replace arguments of the library in its errors and warnings by files and options: `naming(query=path)`.

    Text that matches `before` in front of an argument and its colon is left out.
    """

    def translate(message: str) -> str:
        for argument, name in names.items():
            pattern = f"{before}{re.escape(argument)}(?=: )|{re.escape(argument)}(?==|\\[| \\d)"
            if name and (match := re.match(pattern, message)):
                return name + message[match.end() :]
        return message

    try:
        with warnings.catch_warnings(record=True) as caught:
            yield
    except BadInput as error:
        raise BadInput(translate(error.message)) from error
    except (ValueError, TypeError, RuntimeError, ImportError, MemoryError, NotImplementedError) as error:
        raise BadInput(translate(first_line(error))) from error
    for warning in caught:
        warnings.warn(translate(str(warning.message)), warning.category, stacklevel=2)


class Logged(UserWarning):
    """Warning of the library's log."""


class Warned(logging.Handler):
    """Context in which warnings that the domains log are shown like other warnings."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.log = logging.getLogger("tensormetrics")

    def emit(self, record: logging.LogRecord) -> None:
        warnings.warn(record.getMessage(), Logged, stacklevel=2)

    def __enter__(self) -> None:
        self.passed_on, self.log.propagate = self.log.propagate, False
        self.log.addHandler(self)

    def __exit__(self, *_: object) -> None:
        self.log.removeHandler(self)
        self.log.propagate = self.passed_on


def first_line(error: Exception) -> str:
    """Return the first line of an error without C++ locations; torch appends pages of them."""
    if isinstance(error, MemoryError) or "allocate memory" in str(error):
        size = re.search(r"allocate (\d+ bytes|[\d.]+ \w+)", str(error))
        return f"there is not enough memory{f' for {size[1]}' if size else ''}; ask for less"
    line = next(iter(str(error).splitlines()), type(error).__name__)
    in_faiss = r"^Error in .*? at /\S*?faiss/\S+: (Error: .* failed: )?"  # functions and lines of C++
    return re.sub(in_faiss, "faiss: ", line)
