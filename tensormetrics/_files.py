"""Files that are written whole or not at all, and the text of those that are read."""

import codecs
import contextlib
import csv
import errno
import os
import secrets
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator
from typing import BinaryIO

MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


def text_of(data: bytes, path: str | os.PathLike) -> str:
    """UTF-8, or UTF-16 where a mark says so, as spreadsheets write them. ValueError names the line, and the encoding it
    may be."""
    encoding = next((name for mark, name in MARKS if data.startswith(mark)), "utf-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        if encoding == "utf-16":
            raise ValueError(f"{path}: got a file marked as UTF-16 that is not whole, or is none") from None
        line, at = data.count(b"\n", 0, error.start) + 1, error.start
        got = f"{path}, line {line}: got the byte {data[at]:#04x}, wanted text in UTF-8"
        raise ValueError(f"{got}{_as_windows_writes(data, at, path)}") from None
    if "\0" in text[:1000]:
        raise ValueError(f"{path}: got bytes of 0, wanted text in UTF-8; write iconv -f utf-16le -t utf-8 {path} > NEW")
    return text


def delimiter_of(lines: Iterable[str]) -> str:
    """What separates the cells of the first line that is not blank: tabs, semicolons or commas."""
    first = next((line for line in lines if line.strip()), "")
    return next((mark for mark in "\t;," if len(next(csv.reader([first], delimiter=mark), ())) > 1), ",")


def _as_windows_writes(data: bytes, at: int, path: str | os.PathLike) -> str:
    """What to do where cp1252 makes a letter of this byte, and the file is text."""
    letter = data[at : at + 1].decode("cp1252", "ignore")
    if b"\0" in data[:1000] or not letter.isalpha():
        return ""
    return f"; in cp1252, as Windows writes it, this is {letter!r}: write iconv -f cp1252 -t utf-8 {path} > NEW"


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
