"""Files: the only module that opens paths of callers, to read them, or to replace them atomically."""

import codecs
import contextlib
import errno
import gzip
import io
import json
import math
import os
import secrets
import shutil
import stat
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple

import numpy as np

GZIP = b"\x1f\x8b"  # how such a file begins
PICKLED = "pickle", "Object arrays", "Python objects", "weights_only"  # of messages of numpy and torch
OF_THE_SYSTEM = {  # numbers of errors that say nothing of what is in a file
    *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EACCES, errno.EPERM),
    *(errno.EIO, errno.EMFILE, errno.ENFILE, errno.ESTALE, errno.ETIMEDOUT),
}
MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


@contextlib.contextmanager
def parsing(path: str | os.PathLike, kind: str, error: type[Exception] = ValueError) -> Iterator[None]:
    """Raise whatever a parser says of a file as an error that names the file: "PATH: wanted `kind`; ...".

    Only calls of parsers belong inside. An error of our own arithmetic is a defect, and must not look like one of the
    file.
    """
    try:
        yield
    except ImportError:
        raise
    except Exception as fault:
        if isinstance(fault, OSError) and fault.errno in OF_THE_SYSTEM:
            raise
        is_named = str(fault).startswith(f"{path}")
        if is_named and isinstance(fault, error):
            raise
        raise error(str(fault) if is_named else f"{path}: wanted {kind}; {_reason(fault)}") from fault


def _reason(fault: Exception) -> str:
    if any(marker in str(fault) for marker in PICKLED):
        return "got Python objects, which are not unpickled"
    if isinstance(fault, RecursionError):
        return "it is nested too deeply"
    if isinstance(fault, MemoryError):
        return "it is damaged, or declares more than memory holds"
    if isinstance(fault, json.JSONDecodeError):
        return f"{fault.msg} at {f'line {fault.lineno}, ' * (fault.lineno > 1)}character {fault.colno}"
    lines = str(fault).strip().splitlines()
    if isinstance(fault, LookupError) or not lines:  # of the parser's own tables
        return "it is damaged"
    return lines[0]


def file_suffix(path: str | os.PathLike) -> str:
    """Return the suffix of a file, of a packed one that below ".gz"."""
    path = Path(path)
    return Path(path.stem).suffix if path.suffix == ".gz" else path.suffix


def check_regular(path: str | os.PathLike, kind: str) -> int:
    """Raise a ValueError for what cannot be read in any order: pipes, devices and packed files. Return the size."""
    status = os.stat(path)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if not stat.S_ISREG(status.st_mode):
        got = "a pipe" if stat.S_ISFIFO(status.st_mode) else "a device"
        raise ValueError(f"{path}: got {got}, wanted a file: {kind} is not read from its beginning to its end")
    if Path(path).suffix == ".gz":
        raise ValueError(f"{path}: got a packed file, wanted {kind} as it is; write gunzip {path}")
    return status.st_size


@contextlib.contextmanager
def open_stream(path: str | os.PathLike, member: str | None = None) -> Iterator[io.BufferedReader]:
    """Open a file, a pipe, a gzip file (recognized by its first bytes), or the `member` of a ".zip"."""
    path = Path(path)
    if member is not None and path.suffix != ".zip":
        raise ValueError(f"member: got {member!r} for {path}, which is no .zip")
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(open(path, "rb"))
        if stat.S_ISCHR(os.fstat(file.fileno()).st_mode) and not file.isatty():  # such as /dev/zero, which has no end
            raise ValueError(f"{path}: got a device, wanted a file or a pipe")
        if path.suffix == ".zip":
            unpacked: Any = stack.enter_context(_open_member(path, file, member))
        elif path.suffix == ".gz" or file.peek(len(GZIP)).startswith(GZIP):
            unpacked = gzip.GzipFile(fileobj=file)
        else:
            yield file
            return
        yield io.BufferedReader(_Unpacked(path, unpacked), 2**20)


def _open_member(path: Path, file: IO[bytes], member: str | None) -> IO[bytes]:
    with parsing(path, "a whole .zip file"):
        archive = zipfile.ZipFile(file)
        names = [entry.filename for entry in archive.infolist() if not entry.is_dir()]
    if member not in names and not (member is None and len(names) == 1):
        got = "no name" if member is None else repr(member)
        raise ValueError(f"member: got {got}, wanted one of those in {path}: {', '.join(names) or 'none'}")
    with parsing(path, "a whole .zip file"):
        return archive.open(member or names[0])


class _Unpacked(io.RawIOBase):
    """A stream that is unpacked; what is wrong in it becomes a ValueError that names the file."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self.path, self.file = path, file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with parsing(self.path, "a whole .zip file" if self.path.suffix == ".zip" else "a whole gzip file"):
            data = self.file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def is_empty(path: str | os.PathLike) -> bool:
    """Return whether a file holds nothing; its size may be 0 because it is made when it is read."""
    status = os.stat(path)
    return stat.S_ISREG(status.st_mode) and not status.st_size and not read_bytes(path, 1)


def read_bytes(path: str | os.PathLike, max_bytes: int | None = None) -> bytearray:
    """Read a file, a pipe or a gzip file; of more than `max_bytes` bytes at least one more."""
    with open_stream(path) as file:
        data = bytearray() if isinstance(file.raw, _Unpacked) else bytearray(os.fstat(file.fileno()).st_size)
        del data[file.readinto(data) :]
        # The size may be that of a pipe, so read on.
        while (max_bytes is None or len(data) <= max_bytes) and (chunk := file.read(2**20)):
            data += chunk
    return data


def read_array(path: str | os.PathLike) -> np.ndarray:
    """Read a file, a pipe or a gzip file as bytes, (n,) uint8."""
    with open_stream(path) as file:
        size = 0 if isinstance(file.raw, _Unpacked) else os.fstat(file.fileno()).st_size
        data = np.empty(size, np.uint8)  # a bytearray would be filled with zeros first
        data = data[: file.readinto(data.data)]
        rest = np.frombuffer(file.read(), np.uint8)
    return np.concatenate([data, rest]) if len(rest) else data


def read_text(path: str | os.PathLike) -> str:
    """Read text as `text_of` does."""
    return text_of(read_bytes(path), path)


def map_array(path: str | os.PathLike) -> np.memmap:
    """Map a .npy file of numbers."""
    check_regular(path, "a .npy file")
    with parsing(path, "a .npy file"):
        return np.lib.format.open_memmap(os.fspath(path), mode="r")


def map_numbers(path: str | os.PathLike, dtype: str, start: int, shape: tuple[int, ...]) -> np.memmap:
    """Map the numbers of a file that begin at a byte; a ValueError if it ends before them."""
    size = start + math.prod(shape) * np.dtype(dtype).itemsize
    if min(shape) < 0 or check_regular(path, "a mapped file") < size:
        raise ValueError(f"{path}: the file ends within its matrix of {' x '.join(map(str, shape))}")
    return np.memmap(path, dtype, "r", start, shape)


def read_numbers(path: str | os.PathLike, dtype: np.dtype, count: int, start: int) -> np.ndarray:
    """Read numbers that begin at a byte, fewer if the file ends before."""
    return np.fromfile(path, dtype, count, offset=start)


class Npz(Mapping[str, np.ndarray]):
    """The arrays of a .npz file, each of which is read when it is taken."""

    def __init__(self, path: str | os.PathLike) -> None:
        check_regular(path, "a .npz file")
        self.path, self.headers = path, {}
        with parsing(path, "a .npz file"), zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                with archive.open(entry) as file:
                    version = np.lib.format.read_magic(file)
                    read_header = getattr(np.lib.format, f"read_array_header_{version[0]}_0")
                    shape, _, dtype = read_header(file)
                    if entry.file_size < file.tell() + math.prod(shape) * dtype.itemsize:
                        raise ValueError(f"{entry.filename} ends within its array of {shape}")
                self.headers[entry.filename.removesuffix(".npy")] = ArrayHeader(shape, dtype)

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.headers:
            raise KeyError(name)
        with parsing(self.path, "a .npz file"), np.load(self.path, allow_pickle=False) as file:
            return file[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.headers)

    def __len__(self) -> int:
        return len(self.headers)


class ArrayHeader(NamedTuple):
    shape: tuple[int, ...]
    dtype: np.dtype


def load_tensors(path: str | os.PathLike, location: Any = "cpu", is_mapped: bool = False) -> Any:
    """Load what torch.save wrote, tensors and plain values alone."""
    import torch

    check_regular(path, "what torch.save wrote")
    with parsing(path, "a file of torch.save"):
        is_mapped = is_mapped and zipfile.is_zipfile(path)
        return torch.load(path, map_location=location, weights_only=True, mmap=is_mapped)


def open_safetensors(path: str | os.PathLike) -> Any:
    """Open a .safetensors file, whose tensors are read when they are taken."""
    try:
        from safetensors import safe_open
    except ImportError as fault:
        raise ImportError(f"{path}: {fault}; install it with: pip install safetensors") from fault
    check_regular(path, "a .safetensors file")
    with parsing(path, "a .safetensors file"):
        return safe_open(os.fspath(path), "pt")


def map_arrow(path: str) -> Any:
    """Map an Arrow file."""
    import pyarrow as pa

    return pa.memory_map(path)


def text_of(data: bytes | bytearray, path: str | os.PathLike, encoding: str | None = None) -> str:
    """Decode UTF-8, or UTF-16 with a byte order mark, as spreadsheets write them, or another encoding.

    ValueError names the line, and an encoding that it may have."""
    named = encoding or next((name for mark, name in MARKS if data.startswith(mark)), "utf-8")
    try:
        text = data.decode(named)
    except LookupError:
        raise ValueError(f"encoding: got {encoding!r}, wanted None or an encoding of Python, as 'cp1252'") from None
    except UnicodeDecodeError as error:
        if named == "utf-16":
            raise ValueError(f"{path}: got a file marked as UTF-16 that is not whole, or is none") from None
        line, offset = data.count(b"\n", 0, error.start) + 1, error.start
        got = f"{path}, line {line}: got the byte {data[offset]:#04x}"
        if encoding:
            raise ValueError(f"{got}, which is no {encoding}; name the encoding of the file") from None
        raise ValueError(f"{got}, wanted text in UTF-8{_as_windows_writes(data, offset, path)}") from None
    if "\0" in text[:1000]:
        raise ValueError(f"{path}: got bytes of 0, wanted text in UTF-8; write iconv -f utf-16le -t utf-8 {path} > NEW")
    return text


def _as_windows_writes(data: bytes | bytearray, offset: int, path: str | os.PathLike) -> str:
    """Return advice for text files in which cp1252 makes a letter of this byte; "" for others."""
    letter = data[offset : offset + 1].decode("cp1252", "ignore")
    if b"\0" in data[:1000] or not letter.isalpha():
        return ""
    return f"; in cp1252, as Windows writes it, this is {letter!r}: write iconv -f cp1252 -t utf-8 {path} > NEW"


@contextlib.contextmanager
def open_atomic(path: str | os.PathLike) -> Iterator[BinaryIO]:
    """Open a file that replaces `path` once all is written; a failure leaves the former file.

    Links are followed and the mode is kept. Pipes, terminals and other files that are not regular, and the standard
    output, wherever it leads, are written directly.
    """
    try:
        status = os.stat(path)
    except FileNotFoundError:
        status = None
    if status and (stream := _standard_stream(status)) is not None:
        with open(stream, "wb", closefd=False) as file:
            yield file
        return
    if status and not stat.S_ISREG(status.st_mode):
        with open(path, "wb") as file:
            yield file
        return
    if status:
        open(path, "r+b").close()  # a file that may not be written to may not be replaced either
    target = os.path.realpath(path)
    temporary = os.path.join(os.path.dirname(target), f".{secrets.token_hex(8)}.tmp")
    new = None
    try:
        new = open(temporary, "xb")
    except OSError as error:
        if not (status and isinstance(error, PermissionError)):
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
        if status:
            os.chmod(temporary, stat.S_IMODE(status.st_mode))
        _move(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _standard_stream(status: os.stat_result) -> int | None:
    """Return the descriptor of the standard output or error if it is this file."""
    for descriptor, stream in ((1, sys.stdout), (2, sys.stderr)):
        with contextlib.suppress(OSError):
            if os.path.samestat(status, os.fstat(descriptor)):
                if stream:
                    stream.flush()
                return descriptor
    return None


def _move(temporary: str, target: str) -> None:
    try:
        os.replace(temporary, target)
    except OSError as error:
        if error.errno != errno.EBUSY:  # a single file that is mounted into a container
            raise
        shutil.copyfile(temporary, target)
        os.unlink(temporary)
