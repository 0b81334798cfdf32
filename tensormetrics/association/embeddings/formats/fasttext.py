"""fastText models (.bin): vectors of words from the vectors of their subwords, read from the file on demand.

Bojanowski et al. 2017, Enriching Word Vectors with Subword Information, doi:10.1162/tacl_a_00051.
"""

import struct
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ....core.text.files import check_regular, map_numbers, open_stream

MAGIC = 793712314
VERSIONS = 11, 12
SUPERVISED = 3  # kind of models that classify texts
LONGEST = 2**20  # largest number of bytes of a word
OFFSET, PRIME = 2166136261, 16777619  # constants of the hash FNV-1a


def is_fasttext(path: str | PathLike) -> bool:
    if Path(path).suffix == ".zip":
        return False
    with open_stream(path) as file:
        return file.peek(4).startswith(struct.pack("<i", MAGIC))


class FastText:
    """Words and rows of a fastText file. The matrix stays on disk; only requested rows are read."""

    def __init__(self, path: str | PathLike) -> None:
        self.path = Path(path)
        size = check_regular(path, "a model of fastText")
        with open_stream(path) as file:
            magic, version = struct.unpack("<2i", file.read(8).ljust(8, b"\0"))
            if magic != MAGIC or version not in VERSIONS:
                raise ValueError(f"{path}: wanted a model of fastText in one of the versions {VERSIONS} (.bin)")
            dim, _, _, _, _, _, _, kind, buckets, min_length, max_length, _, _ = self._read(file, "12id")
            # In version 11, models that classify have no subwords, whatever the header says.
            self.buckets, self.min_length, self.max_length = (
                buckets,
                min_length,
                0 if (version, kind) == (11, SUPERVISED) else max_length,
            )
            _, words, labels, _, pruned = self._read(file, "3i2q")
            self.words = self._dictionary(file, words, labels)
            if 8 * pruned > size:
                raise ValueError(f"{path}: the file ends within its {pruned} parts of words")
            entries = [self._read(file, "2i") for _ in range(max(pruned, 0))]
            self.bucket_rows = dict(entries) if pruned >= 0 else None  # rows of the buckets if the model was pruned
            if self._read(file, "?")[0]:
                raise ValueError(f"{path}: got a quantised model (.ftz), wanted the .bin it was made from")
            rows, columns = self._read(file, "2q")
            needed = len(self.words) + self._rows_of_buckets()
            if columns != dim or rows < needed:
                raise ValueError(f"{path}: got a matrix of {rows} x {columns}, wanted at least {needed} x {dim}")
            start = file.tell()
        self.matrix = map_numbers(path, "<f4", start, (rows, columns))

    def _rows_of_buckets(self) -> int:
        """Return the number of rows of subwords; raise a ValueError if the header is inconsistent."""
        if self.max_length < max(self.min_length, 1):
            return 0
        if self.buckets < 1:
            raise ValueError(f"{self.path}: got {self.buckets} buckets for parts of words, wanted at least 1")
        if self.bucket_rows is None:
            return self.buckets
        if min(self.bucket_rows.values(), default=0) < 0:
            raise ValueError(f"{self.path}: got the row {min(self.bucket_rows.values())} for a part of a word")
        return max(self.bucket_rows.values(), default=-1) + 1

    def _read(self, file: BinaryIO, layout: str) -> tuple:
        data = file.read(struct.calcsize("<" + layout))
        try:
            return struct.unpack("<" + layout, data)
        except struct.error:
            raise ValueError(f"{self.path}: wanted a model of fastText, got {len(data)} bytes and the end") from None

    def _dictionary(self, file: BinaryIO, words: int, labels: int) -> dict[bytes, int]:
        """Read word -> row. Labels follow the words and have no rows."""
        rows = {}
        data, position = file.read(LONGEST), 0
        start = file.tell() - len(data)
        for row in range(words + labels):
            while len(data) < (end := data.find(b"\0", position)) + 10 or end < 0:
                if len(data) - position > LONGEST + 10:
                    raise ValueError(f"{self.path}: got a word of more than {LONGEST} bytes, number {row + 1}")
                more = file.read(LONGEST)
                if not more:
                    raise ValueError(f"{self.path}: wanted {words + labels} words, got the end after {row}")
                start, data, position = start + position, data[position:] + more, 0
            if row < words:
                rows[data[position:end]] = row
            position = end + 10  # a word is followed by its count, 8 bytes, and its kind
        file.seek(start + position)
        return rows

    def rows(self, word: str) -> list[int]:
        """Return the rows to average for a word: its own, if it has one, and the rows of its subwords."""
        raw = word.encode()
        word_rows = [self.words[raw]] if raw in self.words else []
        return word_rows if word == "</s>" else [*word_rows, *self._rows_of_parts(f"<{word}>")]

    def _rows_of_parts(self, word: str) -> Iterator[int]:
        for start in range(len(word)):
            for length in range(max(self.min_length, 1), min(self.max_length, len(word) - start) + 1):
                if length == 1 and start in (0, len(word) - 1):
                    continue  # only the mark of beginning or end
                bucket = _hash(word[start : start + length].encode()) % self.buckets
                if self.bucket_rows is None:
                    yield len(self.words) + bucket
                elif bucket in self.bucket_rows:
                    yield len(self.words) + self.bucket_rows[bucket]

    def __contains__(self, word: str) -> bool:
        try:
            return bool(self.rows(word))
        except UnicodeEncodeError:  # a lone surrogate is not in any file
            return False

    def encode(self, words: list[str]) -> np.ndarray:
        # -> (len(words), D) float32
        return np.stack([self.matrix[self.rows(word)].mean(0, dtype=np.float64) for word in words]).astype(np.float32)


def _hash(part: bytes) -> int:
    value = OFFSET
    for byte in part:
        value ^= byte | (0xFFFFFF00 if byte > 127 else 0)  # fastText hashes signed bytes
        value = value * PRIME & 0xFFFFFFFF
    return value
