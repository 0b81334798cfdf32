"""Files that are written whole or not at all."""

import contextlib
import errno
import os
import secrets
import shutil
import stat
import sys
from collections.abc import Iterator
from typing import BinaryIO


@contextlib.contextmanager
def written(path: str | os.PathLike) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of `path` when all is written; a failure leaves what was there.

    Links are followed and the mode is kept. What is no regular file, such as a pipe or a terminal, and the standard
    output, wherever it leads, are written straight.
    """
    try:
        there = os.stat(path)
    except FileNotFoundError:
        there = None
    if there and (stream := _standard_stream(there)) is not None:
        with open(stream, "wb", closefd=False) as file:
            yield file
        return
    if there and not stat.S_ISREG(there.st_mode):
        with open(path, "wb") as file:
            yield file
        return
    if there:
        open(path, "r+b").close()  # a file that may not be written to may not be replaced either
    target = os.path.realpath(path)
    beside = os.path.join(os.path.dirname(target), f".{secrets.token_hex(8)}.tmp")
    new = None
    try:
        new = open(beside, "xb")
    except OSError as error:
        if not (there and isinstance(error, PermissionError)):
            error.filename = os.fspath(path)
            raise
    if new is None:  # a file may be written to where its folder may not
        with open(target, "wb") as file:
            yield file
        return
    try:
        with new as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if there:
            os.chmod(beside, stat.S_IMODE(there.st_mode))
        _move(beside, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise


def _standard_stream(there: os.stat_result) -> int | None:
    """The descriptor of the standard output or error, if this is the file behind it."""
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        with contextlib.suppress(OSError):
            if os.path.samestat(there, os.fstat(number)):
                if stream:
                    stream.flush()
                return number
    return None


def _move(beside: str, target: str) -> None:
    try:
        os.replace(beside, target)
    except OSError as error:
        if error.errno != errno.EBUSY:  # a single file that is mounted into a container
            raise
        shutil.copyfile(beside, target)
        os.unlink(beside)
