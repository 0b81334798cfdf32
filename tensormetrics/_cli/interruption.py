"""Handling of Ctrl-C during imports. This module imports only modules that Python loads at its start."""

import os
import signal

INTERRUPTED = 130


class leaving_at_once:
    """Context in which Ctrl-C ends the process with one line: an interrupted import may raise any other error."""

    def __enter__(self) -> None:
        self.before = signal.getsignal(signal.SIGINT)
        try:
            if self.before is signal.default_int_handler:
                signal.signal(signal.SIGINT, _leave)
        except ValueError:  # not in the main thread, which alone receives signals
            self.before = None

    def __exit__(self, *_: object) -> None:
        if self.before is signal.default_int_handler:
            signal.signal(signal.SIGINT, self.before)


def _leave(*_: object) -> None:
    os.write(2, b"tensormetrics: interrupted\n")
    os._exit(INTERRUPTED)
