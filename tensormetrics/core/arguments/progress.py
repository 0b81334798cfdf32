"""Progress of long computations on stderr."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

DELAY = 2  # seconds
SECONDS_BETWEEN_LINES = 5.0


@contextmanager
def progress_bar(total: int, unit: str, *, description: str = "", transient: bool = False) -> Iterator["Progress"]:
    """Show how many of `total` units are done: `progress.advance(n)`, and `progress.describe(text)` before the bar.

    A transient bar appears on terminals only, after two seconds, and is removed at the end; it needs tqdm. Others are
    written to stderr in any case; without tqdm, as a line every few seconds.
    """
    if transient and not sys.stderr.isatty():
        yield Progress(_write_nothing, _write_nothing)
        return
    try:
        from tqdm import tqdm
    except ModuleNotFoundError:
        yield Progress(_write_nothing if transient else _line_writer(total, unit), _write_nothing)
        return
    options = {"delay": DELAY, "leave": False} if transient else {}
    with tqdm(total=total, unit=unit, desc=description or None, **options) as bar:
        yield Progress(bar.update, bar.set_description)


class Progress:
    """Handle of a progress bar."""

    def __init__(self, advance: Callable[[int], object], describe: Callable[[str], object]) -> None:
        self.advance, self.describe = advance, describe


def _write_nothing(_: object) -> None:
    pass


def _line_writer(total: int, unit: str) -> Callable[[int], None]:
    done, last_line = 0, time.monotonic()

    def advance(count: int) -> None:
        nonlocal done, last_line
        done += count
        if time.monotonic() - last_line >= SECONDS_BETWEEN_LINES:
            print(f"{unit}: {done} of {total}", file=sys.stderr)
            last_line = time.monotonic()

    return advance
