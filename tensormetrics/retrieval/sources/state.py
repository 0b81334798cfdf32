"""Partial results in a file, so that a computation that was stopped goes on."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ..._files import load_tensors, open_atomic

SECONDS = 120.0  # between two writes


class State:
    """What a computation knows so far, in a file that is written whole or not at all every few minutes.

    fingerprint: options, rows and labels, in words by name; a file of others is refused with a ValueError that names
    what differs.
    """

    def __init__(self, path: str | os.PathLike, fingerprint: dict[str, str], seconds: float = SECONDS) -> None:
        self.path, self.fingerprint, self.seconds = Path(path), fingerprint, seconds
        self.last = time.monotonic()

    def load(self) -> dict[str, Any]:
        """What was kept, nothing at first."""
        if not self.path.exists():
            folder = self.path.absolute().parent
            if not os.access(folder, os.W_OK):
                raise ValueError(
                    f"state: {self.path} cannot be written: there is no folder {folder} that may be written to"
                )
            return {}
        try:
            kept = load_tensors(self.path)
            theirs, found = kept["fingerprint"], kept["found"]
        except Exception as error:
            raise ValueError(f"state: {self.path} holds no state of such a computation; name another file") from error
        for name in theirs | self.fingerprint:
            before, now = theirs.get(name), self.fingerprint.get(name)
            if before != now:
                raise ValueError(
                    f"state: {self.path} was written with {name} = {before}, got {now}; delete it to begin anew, or "
                    "name another file"
                )
        return found

    def keep(self, found: Callable[[], dict[str, Any]], now: bool = False) -> None:
        """Writes tensors and plain values if it is time, or `now`."""
        if not now and time.monotonic() - self.last < self.seconds:
            return
        with open_atomic(self.path) as file:
            torch.save({"fingerprint": self.fingerprint, "found": found()}, file)
        self.last = time.monotonic()
