"""Partial results in a file, so that an interrupted computation can be resumed."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ...core.text.files import load_tensors, open_atomic

SECONDS = 120.0  # between two writes


class State:
    """File of the partial results of a computation, written atomically every few minutes.

    fingerprint: descriptions of options, rows and labels by name; a file with another fingerprint is a ValueError that
    names the difference.
    """

    def __init__(self, path: str | os.PathLike, fingerprint: dict[str, str], seconds: float = SECONDS) -> None:
        self.path, self.fingerprint, self.seconds = Path(path), fingerprint, seconds
        self.last = time.monotonic()

    def load(self) -> dict[str, Any]:
        """Read the partial results; empty if there is no file yet."""
        if not self.path.exists():
            folder = self.path.absolute().parent
            if not os.access(folder, os.W_OK):
                raise ValueError(
                    f"checkpoint: {self.path} cannot be written: there is no folder {folder} that may be written to"
                )
            return {}
        try:
            content = load_tensors(self.path)
            stored, results = content["fingerprint"], content["found"]
        except Exception as error:
            raise ValueError(
                f"checkpoint: {self.path} is no checkpoint of such a computation; name another file"
            ) from error
        for name in stored | self.fingerprint:
            before, now = stored.get(name), self.fingerprint.get(name)
            if before != now:
                raise ValueError(
                    f"checkpoint: {self.path} was written with {name} = {before}, got {now}; delete it to start again, "
                    "or name another file"
                )
        return results

    def keep(self, results: Callable[[], dict[str, Any]], now: bool = False) -> None:
        """Write tensors and Python values if `seconds` have passed since the last write, or `now` is true."""
        if not now and time.monotonic() - self.last < self.seconds:
            return
        with open_atomic(self.path) as file:
            torch.save({"fingerprint": self.fingerprint, "found": results()}, file)
        self.last = time.monotonic()
