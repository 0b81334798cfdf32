"""Files of word vectors: word2vec text and binary, GloVe, plain or gzipped."""

import codecs
import itertools
import warnings
from collections.abc import Collection, Iterator
from os import PathLike
from pathlib import Path
from typing import IO, NamedTuple, TypedDict

import numpy as np
import torch

from ....core.arguments import checks
from ....core.text.files import open_stream
from ....core.text.tables import is_number
from ....core.text.text_columns import parse_word_vectors

CHUNK = 2**20  # bytes read at a time; the limit of a header or a word
TEXT_CHUNK = 2**22  # bytes of text parsed at a time
PROBE = 4096  # bytes inspected to distinguish binary rows from text with an error in its first row
MAX_DIMENSIONS = 2**20
# Unit of positions ("line" or "row"), position of the first row, words, and values of each row
Rows = tuple[str, int, list[bytes], np.ndarray]


class Word2VecOptions(TypedDict, total=False):
    """Options of `read_word2vec`."""

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
    """Read the words and vectors of a file; the first row of a repeated word counts. Errors name path and row.

    Text: a line `V D`, then a word and D numbers per line (the word may contain spaces). `no_header` is for GloVe's
    files without that line; None detects them by a first line of more than two fields. Binary: the same line, then per
    row the word, a space and D little-endian float32; None detects it by a first row that is not a word and D numbers.
    A .gz file is decompressed; of a .zip file, `member` is read, which is optional for a single member. `limit` keeps
    the first rows, `only` keeps these words; other rows are not held in memory.
    """
    path = Path(path)
    if limit is not None:
        limit = checks.check_int("limit", limit, 1)
    if isinstance(only, str):
        raise TypeError(f"only: got the str {only!r}, wanted a collection of words")
    if binary and no_header:
        raise ValueError("no_header: got True for a binary file, where only the header tells the number of dimensions")
    table = _Table(path, only, encoding, errors)
    with open_stream(path, member) as file:
        layout = _FileLayout.of(_without_mark(file.read(CHUNK), path), path, binary, no_header)
        expected = min((n for n in (layout.num_rows, limit) if n is not None), default=None)
        num_read = 0
        try:
            for unit, first_row, raw, values in layout.rows(file, path):
                num_rows = len(raw) if expected is None else min(len(raw), expected - num_read)
                table.add(unit, first_row, raw[:num_rows], values[:num_rows])
                num_read += num_rows
                if num_read == expected:
                    break
        except ValueError as error:
            if num_read or not layout.is_guess:
                raise
            advice = "binary=False for a text file" if layout.binary else "binary=True for a binary file"
            raise ValueError(f"{error}; write {advice}") from None
    if num_read < (expected or 1):
        raise ValueError(f"{path}: got {num_read} rows, wanted {expected or 'at least 1'}")
    return table.finish(layout.dim)


def _without_mark(head: bytes, path: Path) -> bytes:
    """Return the beginning of a file without a byte order mark."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ValueError(f"{path}: got a text in UTF-16, wanted one in UTF-8; write it anew")
    return head.removeprefix(codecs.BOM_UTF8)


class _FileLayout(NamedTuple):
    """Layout of a file: the numbers of rows and of dimensions, None without a header."""

    num_rows: int | None
    dim: int | None
    binary: bool
    is_guess: bool  # `binary` was guessed from the first row
    rest: bytes  # the rows read so far

    @staticmethod
    def of(head: bytes, path: Path, binary: bool | None, no_header: bool | None) -> "_FileLayout":
        first, _, rest = head.partition(b"\n")
        if no_header is None:
            no_header = not binary and len(first.split()) > 2
        if no_header:
            return _FileLayout(None, None, False, False, head)
        num_rows, dim = _header(first, path)
        is_guess = binary is None and not _is_text(rest, dim, is_prefix=len(head) >= CHUNK - len(codecs.BOM_UTF8))
        return _FileLayout(num_rows, dim, _looks_binary(rest) if is_guess else bool(binary), is_guess, rest)

    def rows(self, file: IO[bytes], path: Path) -> Iterator[Rows]:
        if self.binary and self.dim is not None:
            return _binary_rows(file, self.rest, path, self.dim)
        return _text_rows(file, self.rest, path, self.dim)


class _Table:
    """Words and rows that grow in place, because the number of rows to keep may be unknown."""

    def __init__(self, path: Path, only: Collection[str] | None, encoding: str, errors: str) -> None:
        self.path, self.only = path, only
        self.encoding = encoding, errors
        self.words: dict[str, None] = {}
        self.repeated: list[str] = []
        self.rows: np.ndarray | None = None

    def add(self, unit: str, first: int, raw: list[bytes], values: np.ndarray) -> None:
        start, selected = len(self.words), []
        for i, word in enumerate(self._decoded(unit, first, raw)):
            if self.only is not None and word not in self.only:
                continue
            if word in self.words:
                self.repeated.append(word)
            else:
                self.words[word] = None
                selected.append(i)
        if not selected:
            return
        if len(selected) < len(raw):
            values = values[selected]
        if self.rows is None:
            self.rows = np.empty(values.shape, np.float32)
        elif len(self.words) > len(self.rows):
            size = max(len(self.words), 5 * len(self.rows) // 4)
            self.rows.resize((size, values.shape[1]), refcheck=False)
        self.rows[start : len(self.words)] = values

    def _decoded(self, unit: str, first: int, raw: list[bytes]) -> Iterator[str]:
        for row, word in enumerate(raw, first):
            try:
                yield word.decode(*self.encoding)
            except UnicodeDecodeError as error:
                location = f"{self.path}, {unit} {row}"
                raise ValueError(f"{location}: got the word {word!r}, wanted {self.encoding[0]} ({error})") from None

    def finish(self, dim: int | None) -> tuple[list[str], np.ndarray]:
        if self.repeated:
            examples = ", ".join(map(repr, self.repeated[:5]))
            warnings.warn(
                f"{self.path}: {len(self.repeated)} rows repeat a word and are left out: {examples}", stacklevel=3
            )
        if self.rows is None:
            return [], np.empty((0, dim or 0), np.float32)
        self.rows.resize((len(self.words), self.rows.shape[1]), refcheck=False)
        return list(self.words), self.rows


def _header(line: bytes, path: Path) -> tuple[int, int]:
    fields = line.split()
    count, dim = map(int, fields if len(fields) == 2 and all(map(bytes.isdigit, fields)) else "00")  # int() takes "1_0"
    if dim > MAX_DIMENSIONS:
        raise ValueError(f"{path}, line 1: got {dim} dimensions, wanted at most {MAX_DIMENSIONS}")
    if count < 1 or dim < 1:
        shown = line[:40].decode("latin-1").strip()
        raise ValueError(
            f"{path}, line 1: got {shown!r}, wanted the numbers of words and dimensions; "
            "write no_header=True for a file without that line"
        )
    return count, dim


def _is_text(rest: bytes, dim: int, is_prefix: bool) -> bool:
    # rest: the bytes after the header; is_prefix: `rest` is only their beginning
    """Return whether the first row is a word and `dim` numbers in text; binary numbers never look like that."""
    line, newline, _ = rest.partition(b"\n")
    fields = line.rsplit(None, dim)[1:]
    if is_prefix and not newline:  # a long row, so the last number may be incomplete
        fields, dim = line.split()[-100:-1], min(dim, 99)
    try:
        return len(list(map(float, fields))) == dim
    except ValueError:
        return False


def _looks_binary(rest: bytes) -> bool:
    try:
        text = rest[:PROBE].decode()
    except UnicodeDecodeError as error:
        return error.start < PROBE - 4  # the last character may be incomplete
    return any(character < " " and character not in "\t\n\r" for character in text)


def _chunks_of_lines(file: IO[bytes], rest: bytes, max_line: int) -> Iterator[bytes]:
    """Yield `rest` and the following bytes in complete lines, or in more than `max_line` bytes of one line."""
    while more := file.read(TEXT_CHUNK):
        lines, newline, rest = (rest + more).rpartition(b"\n")
        if newline:
            yield lines + newline
        elif len(rest) > max_line:
            break
    if rest:
        yield rest


def _text_rows(file: IO[bytes], head: bytes, path: Path, dim: int | None) -> Iterator[Rows]:
    max_line = CHUNK + 32 * (dim or MAX_DIMENSIONS)  # a small compressed file may hold an endless line
    line = 1 if dim is None else 2
    for chunk in _chunks_of_lines(file, head, max_line):
        if dim is None:
            dim = _dimensions(chunk, path)
        spans, vectors, is_irregular = parse_word_vectors(
            torch.frombuffer(bytearray(chunk), dtype=torch.uint8), max(dim, 1)
        )
        if is_irregular:  # an invalid line, or a number format that only Python parses
            yield from _rows_of_lines(chunk, line, path, dim, max_line)
            line += chunk.count(b"\n")
        else:
            yield "line", line, [chunk[start:end] for start, end in spans.tolist()], vectors.numpy()
            line += len(spans)


def _dimensions(chunk: bytes, path: Path) -> int:
    """Return the count of numbers in the first line; raise a ValueError if the next lines have more."""
    lines = [line.split() for line in chunk.split(b"\n", 20)[:20] if line.strip()]
    first, *below = (len(line) - 1 for line in lines or [[b""]])
    if (
        below
        and first < (minimum := min(below))
        and all(is_number(field.decode("latin-1")) for field in lines[1][-minimum:])
    ):
        raise ValueError(f"{path}, line 1: got {first} numbers, wanted {minimum} as in the lines below")
    return first


def _rows_of_lines(chunk: bytes, first: int, path: Path, dim: int, max_line: int) -> Iterator[Rows]:
    for line_number, line in enumerate(chunk.removesuffix(b"\n").split(b"\n"), first):
        location = f"{path}, line {line_number}"
        if len(line) > max_line:
            raise ValueError(f"{location}: got more than {max_line} bytes, wanted a word and {dim or 'its'} numbers")
        word, *numbers = line.rsplit(None, dim) if line.strip() else [b""]
        if len(numbers) == dim - 1 and line[:1].isspace():
            word, numbers = b" ", [word, *numbers]  # a word that is a space
        if len(numbers) != dim or not dim:
            raise ValueError(f"{location}: got {len(line.split())} fields, wanted a word and {dim or 'its'} numbers")
        try:
            if b"_" in b"".join(numbers):  # Python would read 1_0 as 10
                raise ValueError(f"got {next(n for n in numbers if b'_' in n)!r}")
            yield "line", line_number, [word], np.array([numbers], np.float32)
        except ValueError as error:
            raise ValueError(f"{location}: wanted {dim} numbers after the word ({error})") from None


def _binary_rows(file: IO[bytes], buffer: bytes, path: Path, dim: int) -> Iterator[Rows]:
    size, start = 4 * dim, 0
    for row in itertools.count(1):
        while (space := buffer.find(b" ", start)) < 0 or len(buffer) <= space + size:
            if space < 0 and len(buffer) - start > CHUNK:
                raise ValueError(f"{path}, row {row}: got a word of more than {CHUNK} bytes, wanted a word and a space")
            chunk = file.read(max(CHUNK, size + 1))  # at least one row, so that the buffer is copied once
            if not chunk:
                rest = buffer[start:].lstrip(b"\n")
                if rest:
                    raise ValueError(
                        f"{path}, row {row}: got {len(rest)} bytes and the end, wanted a word, a space and {size} bytes"
                    )
                return
            buffer, start = buffer[start:] + chunk, 0
        vector = np.frombuffer(buffer, "<f4", dim, space + 1)[None]
        yield "row", row, [buffer[start:space].lstrip(b"\n")], vector
        start = space + 1 + size
