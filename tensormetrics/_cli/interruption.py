"""Ctrl-C while something is imported."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

INTERRUPTED = 130


@contextmanager
def leaving_at_once() -> Iterator[None]:
    """Inside, Ctrl-C ends the process with one line: an import that is broken off may turn it into any error."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler or (
        threading.current_thread() is not threading.main_thread()
    ):
        yield
        return
    signal.signal(signal.SIGINT, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(*_: Any) -> NoReturn:
    os.write(2, b"tensormetrics: interrupted\n")
    os._exit(INTERRUPTED)
