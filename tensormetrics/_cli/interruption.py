"""Ctrl-C while something is imported. Nothing is imported here that Python has not imported at its start."""

import os
import signal

INTERRUPTED = 130


class leaving_at_once:
    """Inside, Ctrl-C ends the process with one line: an import that is broken off may turn it into any error."""

    def __enter__(self) -> None:
        self.before = signal.getsignal(signal.SIGINT)
        try:
            if self.before is signal.default_int_handler:
                signal.signal(signal.SIGINT, _leave)
        except ValueError:  # in another thread, which no signal interrupts
            self.before = None

    def __exit__(self, *_: object) -> None:
        if self.before is signal.default_int_handler:
            signal.signal(signal.SIGINT, self.before)


def _leave(*_: object) -> None:
    os.write(2, b"tensormetrics: interrupted\n")
    os._exit(INTERRUPTED)
