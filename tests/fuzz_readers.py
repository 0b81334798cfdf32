"""Damage valid files, read them in processes of limited memory and time, and print what was wrong.

    python -m tests.fuzz_readers [NUMBER OF MUTATIONS] [READER]

Each reader's files are read in a process of its own, forked from this one, which has read the valid file before.
"""

import functools
import importlib.util
import os
import pickle
import random
import re
import resource
import signal
import struct
import sys
import tempfile
import traceback
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from tests.cases.readers import READERS, Reader  # noqa: E402

MEMORY = 2**30  # bytes more than this process has
SECONDS = 20  # of one file
HUGE = (2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1)
NESTS = b"[", b"(", b"{", b'{"a":', b"- "
Mutation = Callable[[bytes, random.Random], bytes]


def place(content: bytes, draw: random.Random) -> int:
    return draw.randrange(len(content) + 1)


def insert(content: bytes, draw: random.Random, piece: bytes) -> bytes:
    at = place(content, draw)
    return content[:at] + piece + content[at:]


def flip(content: bytes, draw: random.Random) -> bytes:
    damaged = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 8))):
        damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
    return bytes(damaged)


def repeat(content: bytes, draw: random.Random) -> bytes:
    """Repeat a piece: lines, keys, and members occur twice."""
    start, end = sorted((place(content, draw), place(content, draw)))
    return content[:end] + content[start:end] + content[end:]


def line_twice(content: bytes, draw: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    at = draw.randrange(len(lines))
    return b"".join([*lines[:at], lines[at], *lines[at:]])


def leave_out(content: bytes, draw: random.Random) -> bytes:
    start, end = sorted((place(content, draw), place(content, draw)))
    return content[:start] + content[end:]


def declare(content: bytes, draw: random.Random) -> bytes:
    """Write a huge number where one may be declared: in binary, or instead of digits."""
    number = draw.choice(HUGE)
    digits = [*re.finditer(rb"\d+", content)]
    if digits and draw.random() < 0.5:
        at = draw.choice(digits)
        return content[: at.start()] + str(number).encode() + content[at.end() :]
    size = draw.choice("<i <q >i >q".split())
    packed = struct.pack(size, min(number, 2**31 - 1 if size[1] == "i" else 2**63 - 1))
    at = draw.randrange(max(len(content) - len(packed), 1))
    return content[:at] + packed + content[at + len(packed) :]


def word(content: bytes, draw: random.Random) -> bytes:
    """Write what is no number, or an odd one, for one."""
    odd = (
        b"nan",
        b"inf",
        b"-inf",
        b"1e999",
        b"-0",
        b"1_0",
        b"0x10",
        b"1,5",
        b"\xd9\xa3",
        b"",
        b"1e-400",
        b"NaN",
        b"null",
    )
    digits = [*re.finditer(rb"[\d.]+", content)]
    if not digits:
        return insert(content, draw, draw.choice(odd))
    at = draw.choice(digits)
    return content[: at.start()] + draw.choice(odd) + content[at.end() :]


def as_utf16(content: bytes, draw: random.Random) -> bytes:
    return content.decode("latin-1").encode(draw.choice(("utf-16", "utf-16-le", "utf-16-be")))


MUTATIONS: tuple[Mutation, ...] = (
    lambda content, draw: content[: place(content, draw)],
    lambda content, draw: content[: max(len(content) - draw.randrange(1, 9), 0)],
    flip,
    flip,
    repeat,
    line_twice,
    leave_out,
    declare,
    declare,
    word,
    as_utf16,
    lambda content, draw: insert(content, draw, b"\0" * draw.choice((1, 4, 4096))),
    lambda content, draw: b"\xef\xbb\xbf" + content,
    lambda content, draw: content.replace(b"\n", draw.choice((b"\r\n", b"\r", b"\n\n"))),
    lambda content, draw: content.replace(b".", b","),
    lambda content, draw: insert(
        content, draw, draw.choice((b"[", b"(", b"{", b'{"a":', b"- ")) * draw.choice((15, 100_000))
    ),
    lambda content, draw: insert(content, draw, draw.choice((b"a", b"1", b",", b" ", b'"')) * 3_000_000),
    lambda content, draw: insert(content, draw, bytes(draw.randrange(256) for _ in range(draw.choice((1, 4, 64))))),
)


def mutated(content: bytes, number: int) -> Iterator[bytes]:
    for n in range(number):
        draw = random.Random(f"{n}, {zlib.crc32(content)}")
        yield MUTATIONS[n % len(MUTATIONS)](content, draw)


def fault_of(reader: Reader, content: bytes, path: Path) -> str | None:
    """Return what is wrong with how a reader takes a file: anwrong error, or other data than are there."""
    path.write_bytes(content)
    signal.alarm(SECONDS)
    try:
        found = reader.read(path)
    except reader.errors as error:
        message = str(error) if not hasattr(error, "format_message") else error.format_message()
        is_named = any(name in message for name in (path.name, *reader.error_names))
        is_clear = is_named and "\n" not in message
        return None if is_clear else f"an error of several lines, or without a name: {message[:200]}"
    except BaseException:
        return traceback.format_exc(limit=-4)
    finally:
        signal.alarm(0)
    if reader.reference_read is None:
        return None
    try:
        expected = reader.reference_read(content)
    except Exception as error:
        return f"read, where another reader says {type(error).__name__}: {error}"[:300]
    return None if found == expected else f"read {str(found)[:200]}, where another reader reads {str(expected)[:200]}"


def faults_of(name: str, number: int) -> list[tuple[int, str]]:
    """Return the faults of a reader with the numbers of their mutations, from a process of its own."""
    reader = READERS[name]
    with tempfile.TemporaryDirectory() as folder:
        path, report = Path(folder) / f"file{reader.suffix}", Path(folder) / "report"
        content = reader.content()
        fault = fault_of(reader, content, path)
        if fault:
            return [(-1, f"the valid file: {fault}")]
        child = os.fork()
        if not child:
            os._exit(_child(reader, content, number, path, report))
        _, status = os.waitpid(child, 0)
        faults = pickle.loads(report.read_bytes()) if report.exists() else []
        if status:
            number_done = faults.pop()[0] if faults else -1
            faults.append((number_done + 1, f"the process ended by {status}"))
        return [fault for fault in faults if fault[1]]


def _child(reader: Reader, content: bytes, number: int, path: Path, report: Path) -> int:
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    signal.signal(signal.SIGALRM, functools.partial(_late))
    faults: list[tuple[int, str]] = []
    for n, damaged in enumerate(mutated(content, number)):
        fault = fault_of(reader, damaged, path)
        if fault:
            faults.append((n, fault))
        report.write_bytes(pickle.dumps([*faults, (n, "")]))
    report.write_bytes(pickle.dumps(faults))
    return 0


def _late(*_: Any) -> None:
    raise TimeoutError(f"more than {SECONDS} s")


def main(number: int = 36, only: str = "") -> int:
    warnings.simplefilter("ignore")
    import logging

    logging.disable()
    wrong = 0
    for name, reader in READERS.items():
        if only not in name or (reader.needs and not importlib.util.find_spec(reader.needs)):
            continue
        for n, fault in faults_of(name, number):
            wrong += 1
            print(f"{name}, mutation {n}: {fault}", flush=True)
    print(f"{wrong} faults")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(*(int(argument) if argument.isdigit() else argument for argument in sys.argv[1:])))
