"""Files of published word sets and vectors, from a local folder or from where their authors keep them."""

import hashlib
import logging
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

from ... import _checks

MOST_BYTES = 2**24
HOST = "https://raw.githubusercontent.com/"


def read_file(
    folder: str, name: str, path: str | PathLike | None, n_retries: int, timeout: float, sha256: str | None = None
) -> bytes:
    """`name` in the local folder `path`, or without one in `folder` of the host; only the latter is held to a hash."""
    if path is not None:
        return (Path(path) / name).read_bytes()
    n_retries = _checks.integer_at_least("n_retries", n_retries, 0)
    url = f"{HOST}{folder}{name}"
    try:
        content = _retry_request(_get, url, timeout=timeout, n_retries=n_retries)
    except Exception as error:
        raise ConnectionError(f"{url}: {error}; download the files and give their folder as path=") from error
    if sha256 and (got := hashlib.sha256(content).hexdigest()) != sha256:
        raise ValueError(f"{url}: got a file with the SHA-256 {got}, wanted {sha256}; give a local copy as path=")
    return content


def _get(url: str, timeout: float) -> bytes:
    """The content of a file of at most MOST_BYTES, all of it within about `timeout` seconds."""
    end, content = time.monotonic() + timeout, bytearray()
    with urllib.request.urlopen(url, timeout=timeout) as answer:
        while piece := answer.read1(2**16):
            content += piece
            if len(content) > MOST_BYTES:
                raise ValueError(f"got more than {MOST_BYTES} bytes, which is none of the published files")
            if time.monotonic() > end:
                raise TimeoutError(f"got {len(content)} bytes in {timeout:g} s")
    if (length := answer.headers.get("Content-Length")) is not None and int(length) != len(content):
        raise ConnectionError(f"got {len(content)} of {length} bytes")
    return bytes(content)


def _retry_request(func: Callable, *args: Any, n_retries: int = 3, **kwargs: Any) -> Any:
    """`func(*args, **kwargs)`, again after 1, 2, 4, ... seconds where the network or the server was busy.

    Other answers of the server raise at once; errors of another kind are tried again after 1 second.
    """
    for attempt in range(n_retries + 1):
        try:
            return func(*args, **kwargs)
        except Exception as error:
            answered = isinstance(error, urllib.error.URLError)  # also HTTPError
            busy = getattr(error, "code", None) in (429, 503)
            if attempt == n_retries or (answered and not busy):
                raise
            wait = 2**attempt if isinstance(error, OSError) else 1
            logging.warning("%s; trying again in %d s (%d of %d)", error, wait, attempt + 1, n_retries)
            time.sleep(wait)
