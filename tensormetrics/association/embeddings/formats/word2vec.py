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

from .... import _checks
from ...._files import open_stream
from ...._text_columns import rows_of_words

CHUNK = 2**20  # bytes read at a time, and at first; no header and no word is longer
PIECE = 2**22  # bytes of text whose numbers are read together
PROBE = 4096  # bytes by which text with a mistake in its first row is told from binary
MOST_DIMENSIONS = 2**20
# What a row is called, the number of the first, their words, and the numbers of each
Rows = tuple[str, int, list[bytes], np.ndarray | list[list[bytes]]]


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
        limit = _checks.check_int("limit", limit, 1)
    if isinstance(only, str):
        raise TypeError(f"only: got the str {only!r}, wanted a collection of words")
    if binary and no_header:
        raise ValueError("no_header: got True for a binary file, where only the header tells the number of dimensions")
    table = _Table(path, only, encoding, errors)
    with open_stream(path, member) as file:
        form = _Form.of(_without_mark(file.read(CHUNK), path), path, binary, no_header)
        wanted = min((n for n in (form.num_rows, limit) if n is not None), default=None)
        read = 0
        try:
            for called, first_row, raw, numbers in form.rows(file, path):
                more = len(raw) if wanted is None else min(len(raw), wanted - read)
                table.add(called, first_row, raw[:more], numbers[:more])
                read += more
                if read == wanted:
                    break
        except ValueError as error:
            if read or not form.is_guess:
                raise
            other = "binary=False for a text file" if form.binary else "binary=True for a binary file"
            raise ValueError(f"{error}; write {other}") from None
    if read < (wanted or 1):
        raise ValueError(f"{path}: got {read} rows, wanted {wanted or 'at least 1'}")
    return table.finish(form.dim)


def _without_mark(head: bytes, path: Path) -> bytes:
    """Return the beginning of a file without a byte order mark."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ValueError(f"{path}: got a text in UTF-16, wanted one in UTF-8; write it anew")
    return head.removeprefix(codecs.BOM_UTF8)


class _Form(NamedTuple):
    """How a file is written: the numbers of rows and of dimensions, None where no header says so."""

    num_rows: int | None
    dim: int | None
    binary: bool
    is_guess: bool  # `binary` is, by the first row
    rest: bytes  # what was read of the rows

    @staticmethod
    def of(head: bytes, path: Path, binary: bool | None, no_header: bool | None) -> "_Form":
        first, _, rest = head.partition(b"\n")
        if no_header is None:
            no_header = not binary and len(first.split()) > 2
        if no_header:
            return _Form(None, None, False, False, head)
        num_rows, dim = _header(first, path)
        is_guess = binary is None and not _is_text(rest, dim, cut=len(head) >= CHUNK - len(codecs.BOM_UTF8))
        return _Form(num_rows, dim, _looks_binary(rest) if is_guess else bool(binary), is_guess, rest)

    def rows(self, file: IO[bytes], path: Path) -> Iterator[Rows]:
        if self.binary and self.dim is not None:
            return _binary_rows(file, self.rest, path, self.dim)
        return _text_rows(file, self.rest, path, self.dim)


class _Table:
    """Words and rows that grow in place, because the file may not tell how many are kept."""

    def __init__(self, path: Path, only: Collection[str] | None, encoding: str, errors: str) -> None:
        self.path, self.only = path, only
        self.encoding = encoding, errors
        self.words: dict[str, None] = {}
        self.repeated: list[str] = []
        self.rows: np.ndarray | None = None

    def add(self, called: str, first: int, raw: list[bytes], numbers: np.ndarray | list[list[bytes]]) -> None:
        before, kept = len(self.words), []
        for i, word in enumerate(self._decoded(called, first, raw)):
            if self.only is not None and word not in self.only:
                continue
            if word in self.words:
                self.repeated.append(word)
            else:
                self.words[word] = None
                kept.append(i)
        if not kept:
            return
        if isinstance(numbers, list):
            numbers = np.stack([self._parsed(f"{called} {first + i}", numbers[i]) for i in kept])
        elif len(kept) < len(raw):
            numbers = numbers[kept]
        if self.rows is None:
            self.rows = np.empty(numbers.shape, np.float32)
        elif len(self.words) > len(self.rows):
            size = max(len(self.words), 5 * len(self.rows) // 4)
            self.rows.resize((size, numbers.shape[1]), refcheck=False)
        self.rows[before : len(self.words)] = numbers

    def _decoded(self, called: str, first: int, raw: list[bytes]) -> Iterator[str]:
        for row, word in enumerate(raw, first):
            try:
                yield word.decode(*self.encoding)
            except UnicodeDecodeError as error:
                place = f"{self.path}, {called} {row}"
                raise ValueError(f"{place}: got the word {word!r}, wanted {self.encoding[0]} ({error})") from None

    def _parsed(self, row: str, numbers: list[bytes]) -> np.ndarray:
        try:
            if b"_" in b"".join(numbers):  # Python would read 1_0 as 10
                raise ValueError(f"got {next(n for n in numbers if b'_' in n)!r}")
            return np.array(numbers, np.float32)
        except ValueError as error:
            raise ValueError(f"{self.path}, {row}: wanted {len(numbers)} numbers after the word ({error})") from None

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


def _pieces(file: IO[bytes], rest: bytes, longest: int) -> Iterator[bytes]:
    """What was read and what follows, in whole lines, or in more than `longest` bytes of one."""
    while more := file.read(PIECE):
        whole, newline, rest = (rest + more).rpartition(b"\n")
        if newline:
            yield whole + newline
        elif len(rest) > longest:
            break
    if rest:
        yield rest


def _text_rows(file: IO[bytes], head: bytes, path: Path, dim: int | None) -> Iterator[Rows]:
    longest = CHUNK + 32 * (dim or MOST_DIMENSIONS)  # a file of a few packed bytes may hold a line without end
    line = 1 if dim is None else 2
    for piece in _pieces(file, head, longest):
        if dim is None:
            dim = _dimensions(piece, path)
        places, vectors, other = rows_of_words(torch.frombuffer(bytearray(piece), dtype=torch.uint8), max(dim, 1))
        if other:  # a line that is no row, or a way to write numbers that Python alone knows
            yield from _rows_of_lines(piece, line, path, dim, longest)
            line += piece.count(b"\n")
        else:
            yield "line", line, [piece[begin:end] for begin, end in places.tolist()], vectors.numpy()
            line += len(places)


def _dimensions(piece: bytes, path: Path) -> int:
    """Return the numbers of the first line; a ValueError if those below have more, as words may have blanks in them."""
    lines = [line.split() for line in piece.split(b"\n", 20)[:20] if line.strip()]
    first, *below = (len(line) - 1 for line in lines or [[b""]])
    if below and first < (least := min(below)) and all(map(_is_number, lines[1][-least:])):
        raise ValueError(f"{path}, line 1: got {first} numbers, wanted {least} as in the lines below")
    return first


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _rows_of_lines(piece: bytes, first: int, path: Path, dim: int, longest: int) -> Iterator[Rows]:
    for line_number, line in enumerate(piece.removesuffix(b"\n").split(b"\n"), first):
        place = f"{path}, line {line_number}"
        if len(line) > longest:
            raise ValueError(f"{place}: got more than {longest} bytes, wanted a word and {dim or 'its'} numbers")
        fields = line.rsplit(None, dim)
        if len(fields) != dim + 1 or not dim:
            raise ValueError(f"{place}: got {len(fields)} fields, wanted a word and {dim or 'its'} numbers")
        yield "line", line_number, [fields[0]], [fields[1:]]


def _binary_rows(file: IO[bytes], buffer: bytes, path: Path, dim: int) -> Iterator[Rows]:
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
        vector = np.frombuffer(buffer, "<f4", dim, space + 1)[None]
        yield "row", row, [buffer[start:space].lstrip(b"\n")], vector
        start = space + 1 + size
