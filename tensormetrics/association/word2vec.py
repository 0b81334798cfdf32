"""Files of word vectors: word2vec text and binary, GloVe, plain or gzipped."""

import gzip
import itertools
import warnings
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import IO, TypedDict

import numpy as np

from .. import _checks

CHUNK = 2**20  # bytes read at a time, and at first; no header and no word is longer
PROBE = 4096  # bytes by which text with a mistake in its first row is told from binary
MOST_DIMENSIONS = 2**20
Row = tuple[str, bytes, list[bytes] | np.ndarray]  # where it stands, its word and its numbers


class Options(TypedDict, total=False):
    """See `read_word2vec`."""

    limit: int | None
    only: Collection[str] | None
    no_header: bool | None
    encoding: str
    errors: str
    member: str | None


def read_word2vec(
    path: str | PathLike,
    binary: bool | None = None,
    *,
    limit: int | None = None,
    only: Collection[str] | None = None,
    no_header: bool | None = None,
    encoding: str = "utf-8",
    errors: str = "strict",
    member: str | None = None,
) -> tuple[list[str], np.ndarray]:
    # -> V words, (V, D) float32
    """The words and vectors of a file; of a word that stands there twice, the first. ValueError names path and row.

    Text: a line `V D`, then a word and D numbers per line (the word may contain spaces); `no_header` is GloVe's form
    without that line, None: if the first line has more than two fields. Binary: the same line, then per row the word,
    a space and D little-endian float32; None: if the first row is not a word and D numbers. A name in .gz is read
    through gzip; of a .zip, `member` is read, which may be left out if there is only one. `limit` keeps the first rows,
    `only` these words, without holding the others.
    """
    path = Path(path)
    if limit is not None:
        limit = _checks.integer_at_least("limit", limit, 1)
    if isinstance(only, str):
        raise TypeError(f"only: got the str {only!r}, wanted a collection of words")
    if binary and no_header:
        raise ValueError("no_header: got True for a binary file, where only the header tells the number of dimensions")
    table = _Table(path)
    try:
        with _opened(path, member) as file:
            head = file.read(CHUNK)
            first, _, rest = head.partition(b"\n")
            if no_header is None:
                no_header = not binary and len(first.split()) > 2
            count = dim = None
            if not no_header:
                count, dim = _header(first, path)
            else:
                rest = head
            guessed = binary is None and dim is not None and not _is_text(rest, dim, cut=len(head) == CHUNK)
            if guessed:
                binary = _looks_binary(rest)
            rows: Iterator[Row] = _text_rows(file, rest, path, dim)
            if binary and dim is not None:
                rows = _binary_rows(file, rest, path, dim)
            wanted = min((n for n in (count, limit) if n is not None), default=None)
            read = 0
            try:
                for row, raw, numbers in itertools.islice(rows, wanted):
                    word = _decoded(raw, encoding, errors, f"{path}, {row}")
                    if only is None or word in only:
                        table.add(row, word, numbers)
                    read += 1
            except ValueError as error:
                if read or not guessed:
                    raise
                other = "binary=False for a text file" if binary else "binary=True for a binary file"
                raise ValueError(f"{error}; write {other}") from None
    except (gzip.BadGzipFile, zipfile.BadZipFile, EOFError, zlib.error) as error:
        kind = "zip" if path.suffix == ".zip" else "gzip"
        raise ValueError(f"{path}: wanted a whole {kind} file, as the name ends in {path.suffix} ({error})") from None
    if read < (wanted or 1):
        raise ValueError(f"{path}: got {read} rows, wanted {wanted or 'at least 1'}")
    return table.finish(dim)


@contextmanager
def _opened(path: Path, member: str | None) -> Iterator[IO[bytes] | gzip.GzipFile]:
    if path.suffix != ".zip":
        if member is not None:
            raise ValueError(f"member: got {member!r} for {path}, which is no .zip")
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            yield file
        return
    with zipfile.ZipFile(path) as archive:
        names = [entry.filename for entry in archive.infolist() if not entry.is_dir()]
        if member not in names and not (member is None and len(names) == 1):
            got = "no name" if member is None else repr(member)
            raise ValueError(f"member: got {got}, wanted one of those in {path}: {', '.join(names) or 'none'}")
        with archive.open(member or names[0]) as file:
            yield file


def _decoded(raw: bytes, encoding: str, errors: str, place: str) -> str:
    try:
        return raw.decode(encoding, errors)
    except UnicodeDecodeError as error:
        raise ValueError(f"{place}: got the word {raw!r}, wanted {encoding} ({error})") from None


class _Table:
    """Words and rows that grow in place, because the file may not tell how many are kept."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.words: dict[str, None] = {}
        self.repeated: list[str] = []
        self.rows: np.ndarray | None = None

    def add(self, row: str, word: str, numbers: list[bytes] | np.ndarray) -> None:
        if word in self.words:
            self.repeated.append(word)
            return
        try:
            if isinstance(numbers, list) and b"_" in b"".join(numbers):  # Python would read 1_0 as 10
                raise ValueError(f"got {next(n for n in numbers if b'_' in n)!r}")
            vector = np.array(numbers, np.float32)
        except ValueError as error:
            raise ValueError(f"{self.path}, {row}: wanted {len(numbers)} numbers after the word ({error})") from None
        if self.rows is None:
            self.rows = np.empty((64, len(vector)), np.float32)
        elif len(self.words) == len(self.rows):
            self.rows.resize((2 * len(self.rows), len(vector)), refcheck=False)
        self.rows[len(self.words)] = vector
        self.words[word] = None

    def finish(self, dim: int | None) -> tuple[list[str], np.ndarray]:
        if self.repeated:
            some = ", ".join(map(repr, self.repeated[:5]))
            warnings.warn(
                f"{self.path}: {len(self.repeated)} rows repeat a word and are left out: {some}", stacklevel=3
            )
        if self.rows is None:
            return [], np.empty((0, dim or 0), np.float32)
        self.rows.resize((len(self.words), self.rows.shape[1]), refcheck=False)
        return list(self.words), self.rows


def _header(line: bytes, path: Path) -> tuple[int, int]:
    try:
        count, dim = map(_integer, line.split())
    except ValueError:
        count = dim = 0
    if dim > MOST_DIMENSIONS:
        raise ValueError(f"{path}, line 1: got {dim} dimensions, wanted at most {MOST_DIMENSIONS}")
    if count < 1 or dim < 1:
        shown = line[:40].decode("latin-1").strip()
        raise ValueError(
            f"{path}, line 1: got {shown!r}, wanted the numbers of words and dimensions; "
            "write no_header=True for a file without that line"
        )
    return count, dim


def _integer(field: bytes) -> int:
    if not field.isdigit():  # int() would take "1_0" too
        raise ValueError
    return int(field)


def _is_text(rest: bytes, dim: int, cut: bool) -> bool:
    # rest: what follows the header; cut: or the beginning of that
    """Does the first row hold a word and `dim` numbers, which binary numbers never look like?"""
    line, newline, _ = rest.partition(b"\n")
    fields = line.rsplit(None, dim)[1:]
    if cut and not newline:  # a long row, whose last number may be cut off
        fields, dim = line.split()[-100:-1], min(dim, 99)
    try:
        return len(list(map(float, fields))) == dim
    except ValueError:
        return False


def _looks_binary(rest: bytes) -> bool:
    try:
        text = rest[:PROBE].decode()
    except UnicodeDecodeError as error:
        return error.start < PROBE - 4  # there, a character may be cut off
    return any(character < " " and character not in "\t\n\r" for character in text)


def _lines(file: IO[bytes] | gzip.GzipFile, head: bytes, longest: int) -> Iterator[bytes]:
    """The lines of what was read and of the rest, each cut off behind `longest` bytes."""
    *whole, cut = head.split(b"\n")
    yield from whole
    if cut := cut + file.readline(longest + 1):
        yield cut
    yield from iter(lambda: file.readline(longest + 1), b"")


def _text_rows(file: IO[bytes] | gzip.GzipFile, head: bytes, path: Path, dim: int | None) -> Iterator[Row]:
    longest = CHUNK + 32 * (dim or MOST_DIMENSIONS)  # a file of a few packed bytes may hold a line without end
    for line_number, line in enumerate(_lines(file, head, longest), 1 if dim is None else 2):
        if len(line) > longest:
            raise ValueError(
                f"{path}, line {line_number}: got more than {longest} bytes, wanted a word and {dim or 'its'} numbers"
            )
        fields = line.split() if dim is None else line.rsplit(None, dim)
        if dim is None:
            dim = len(fields) - 1
        if len(fields) != dim + 1 or not dim:
            raise ValueError(
                f"{path}, line {line_number}: got {len(fields)} fields, wanted a word and {dim or 'its'} numbers"
            )
        yield f"line {line_number}", fields[0], fields[1:]


def _binary_rows(file: IO[bytes] | gzip.GzipFile, buffer: bytes, path: Path, dim: int) -> Iterator[Row]:
    size, start = 4 * dim, 0
    for row in itertools.count(1):
        while (space := buffer.find(b" ", start)) < 0 or len(buffer) <= space + size:
            if space < 0 and len(buffer) - start > CHUNK:
                raise ValueError(f"{path}, row {row}: got a word of more than {CHUNK} bytes, wanted a word and a space")
            more = file.read(max(CHUNK, size + 1))  # at least a row: what is there is copied once
            if not more:
                rest = buffer[start:].lstrip(b"\n")
                if rest:
                    raise ValueError(
                        f"{path}, row {row}: got {len(rest)} bytes and the end, wanted a word, a space and {size} bytes"
                    )
                return
            buffer, start = buffer[start:] + more, 0
        yield f"row {row}", buffer[start:space].lstrip(b"\n"), np.frombuffer(buffer, "<f4", dim, space + 1)
        start = space + 1 + size
