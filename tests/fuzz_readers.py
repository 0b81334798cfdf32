"""Damage valid files, read them in processes of limited memory and time, and print the faults of the readers.

    python -m tests.fuzz_readers [NUMBER OF MUTATIONS] [READER]

The files of each reader are read in a separate process, forked from this one after it has read the valid file.
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

MEMORY = 2**30  # bytes that a child may allocate beyond its size at the start
SECONDS = 20  # limit of one file
HUGE = (2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1)
NESTS = b"[", b"(", b"{", b'{"a":', b"- "
Mutation = Callable[[bytes, random.Random], bytes]


def random_offset(content: bytes, draw: random.Random) -> int:
    return draw.randrange(len(content) + 1)


def insert(content: bytes, draw: random.Random, chunk: bytes) -> bytes:
    offset = random_offset(content, draw)
    return content[:offset] + chunk + content[offset:]


def flip(content: bytes, draw: random.Random) -> bytes:
    damaged = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 8))):
        damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
    return bytes(damaged)


def repeat(content: bytes, draw: random.Random) -> bytes:
    """Repeat a random range, so that lines, keys or members occur twice."""
    start, end = sorted((random_offset(content, draw), random_offset(content, draw)))
    return content[:end] + content[start:end] + content[end:]


def repeat_line(content: bytes, draw: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    line_index = draw.randrange(len(lines))
    return b"".join([*lines[:line_index], lines[line_index], *lines[line_index:]])


def remove_range(content: bytes, draw: random.Random) -> bytes:
    start, end = sorted((random_offset(content, draw), random_offset(content, draw)))
    return content[:start] + content[end:]


def declare_huge_size(content: bytes, draw: random.Random) -> bytes:
    """Write a huge number where one may be declared: in binary, or instead of digits."""
    value = draw.choice(HUGE)
    digits = [*re.finditer(rb"\d+", content)]
    if digits and draw.random() < 0.5:
        match = draw.choice(digits)
        return content[: match.start()] + str(value).encode() + content[match.end() :]
    size = draw.choice("<i <q >i >q".split())
    packed = struct.pack(size, min(value, 2**31 - 1 if size[1] == "i" else 2**63 - 1))
    offset = draw.randrange(max(len(content) - len(packed), 1))
    return content[:offset] + packed + content[offset + len(packed) :]


def replace_number(content: bytes, draw: random.Random) -> bytes:
    """Replace a number by text that is no number, or by an unusual number."""
    odd = [b"", b"\xd9\xa3", *b"nan inf -inf 1e999 -0 1_0 0x10 1,5 1e-400 NaN null".split()]
    digits = [*re.finditer(rb"[\d.]+", content)]
    if not digits:
        return insert(content, draw, draw.choice(odd))
    match = draw.choice(digits)
    return content[: match.start()] + draw.choice(odd) + content[match.end() :]


MUTATIONS: tuple[Mutation, ...] = (
    lambda content, draw: content[: random_offset(content, draw)],
    lambda content, draw: content[: max(len(content) - draw.randrange(1, 9), 0)],
    flip,
    flip,
    repeat,
    repeat_line,
    remove_range,
    declare_huge_size,
    declare_huge_size,
    replace_number,
    lambda content, draw: insert(content, draw, b"\0" * draw.choice((1, 4, 4096))),
    lambda content, draw: content.replace(b"\n", draw.choice((b"\r\n", b"\r", b"\n\n"))),
    lambda content, draw: content.replace(b".", b","),
    lambda content, draw: insert(content, draw, draw.choice(NESTS) * draw.choice((15, 100_000))),
    lambda content, draw: insert(content, draw, draw.choice((b"a", b"1", b",", b" ", b'"')) * 3_000_000),
    lambda content, draw: insert(content, draw, bytes(draw.randrange(256) for _ in range(draw.choice((1, 4, 64))))),
)


def mutations_of(content: bytes, num_mutations: int) -> Iterator[bytes]:
    for index in range(num_mutations):
        draw = random.Random(f"{index}, {zlib.crc32(content)}")
        yield MUTATIONS[index % len(MUTATIONS)](content, draw)


def fault_of(reader: Reader, content: bytes, path: Path) -> str | None:
    """Return how a reader fails on a file: by an unclear error, or by wrong data; None if it does not."""
    path.write_bytes(content)
    signal.alarm(SECONDS)
    try:
        result = reader.read(path)
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
    return None if result == expected else f"read {str(result)[:200]}, where another reader reads {str(expected)[:200]}"


def faults_of(name: str, num_mutations: int) -> list[tuple[int, str]]:
    """Return the faults of a reader with the indices of their mutations, found in a separate process."""
    reader = READERS[name]
    with tempfile.TemporaryDirectory() as folder:
        path, report = Path(folder) / f"file{reader.suffix}", Path(folder) / "report"
        content = reader.content()
        fault = fault_of(reader, content, path)
        if fault:
            return [(-1, f"the valid file: {fault}")]
        child = os.fork()
        if not child:
            os._exit(_child(reader, content, num_mutations, path, report))
        _, status = os.waitpid(child, 0)
        faults = pickle.loads(report.read_bytes()) if report.exists() else []
        if status:
            last_index = faults.pop()[0] if faults else -1
            faults.append((last_index + 1, f"the process ended by {status}"))
        return [fault for fault in faults if fault[1]]


def _child(reader: Reader, content: bytes, num_mutations: int, path: Path, report: Path) -> int:
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    signal.signal(signal.SIGALRM, functools.partial(raise_timeout))
    faults: list[tuple[int, str]] = []
    for index, damaged in enumerate(mutations_of(content, num_mutations)):
        fault = fault_of(reader, damaged, path)
        if fault:
            faults.append((index, fault))
        report.write_bytes(pickle.dumps([*faults, (index, "")]))
    report.write_bytes(pickle.dumps(faults))
    return 0


def raise_timeout(*_: Any) -> None:
    raise TimeoutError(f"more than {SECONDS} s")


def main(num_mutations: int = 36, only: str = "") -> int:
    warnings.simplefilter("ignore")
    import logging

    logging.disable()
    num_faults = 0
    for name, reader in READERS.items():
        if only not in name or (reader.needs and not importlib.util.find_spec(reader.needs)):
            continue
        for index, fault in faults_of(name, num_mutations):
            num_faults += 1
            print(f"{name}, mutation {index}: {fault}", flush=True)
    print(f"{num_faults} faults")
    return int(num_faults > 0)


if __name__ == "__main__":
    sys.exit(main(*(int(argument) if argument.isdigit() else argument for argument in sys.argv[1:])))
