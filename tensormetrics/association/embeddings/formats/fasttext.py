"""Models of fastText (.bin): the vectors of words from those of their parts, read from the file when asked for.

Bojanowski et al. 2017, Enriching Word Vectors with Subword Information, doi:10.1162/tacl_a_00051.
"""

import struct
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ...._files import check_regular, map_numbers, open_stream

MAGIC = 793712314
VERSIONS = 11, 12
SUPERVISED = 3  # the kind of model that classifies texts
LONGEST = 2**20  # bytes of a word
OFFSET, PRIME = 2166136261, 16777619  # of the hash FNV-1a


def is_fasttext(path: str | PathLike) -> bool:
    if Path(path).suffix == ".zip":
        return False
    with open_stream(path) as file:
        return file.peek(4).startswith(struct.pack("<i", MAGIC))


class FastText:
    """Words and rows of such a file. The matrix stays on the disk; only the rows that words need are read."""

    def __init__(self, path: str | PathLike) -> None:
        self.path = Path(path)
        size = check_regular(path, "a model of fastText")
        with open_stream(path) as file:
            magic, version = struct.unpack("<2i", file.read(8).ljust(8, b"\0"))
            if magic != MAGIC or version not in VERSIONS:
                raise ValueError(f"{path}: wanted a model of fastText in one of the versions {VERSIONS} (.bin)")
            dim, _, _, _, _, _, _, kind, buckets, least, most, _, _ = self._read(file, "12id")
            # In version 11, models that classify had no parts of words, whatever stands there.
            self.buckets, self.least, self.most = buckets, least, 0 if (version, kind) == (11, SUPERVISED) else most
            _, words, labels, _, pruned = self._read(file, "3i2q")
            self.words = self._dictionary(file, words, labels)
            if 8 * pruned > size:
                raise ValueError(f"{path}: the file ends within its {pruned} parts of words")
            kept = [self._read(file, "2i") for _ in range(max(pruned, 0))]
            self.kept = dict(kept) if pruned >= 0 else None  # of the buckets, where some were left out
            if self._read(file, "?")[0]:
                raise ValueError(f"{path}: got a quantised model (.ftz), wanted the .bin it was made from")
            rows, columns = self._read(file, "2q")
            needed = len(self.words) + self._rows_of_buckets()
            if columns != dim or rows < needed:
                raise ValueError(f"{path}: got a matrix of {rows} x {columns}, wanted at least {needed} x {dim}")
            start = file.tell()
        self.matrix = map_numbers(path, "<f4", start, (rows, columns))

    def _rows_of_buckets(self) -> int:
        """Return how many rows the parts of words have; a ValueError if the header contradicts itself."""
        if self.most < max(self.least, 1):
            return 0
        if self.buckets < 1:
            raise ValueError(f"{self.path}: got {self.buckets} buckets for parts of words, wanted at least 1")
        if self.kept is None:
            return self.buckets
        if min(self.kept.values(), default=0) < 0:
            raise ValueError(f"{self.path}: got the row {min(self.kept.values())} for a part of a word")
        return max(self.kept.values(), default=-1) + 1

    def _read(self, file: BinaryIO, layout: str) -> tuple:
        data = file.read(struct.calcsize("<" + layout))
        try:
            return struct.unpack("<" + layout, data)
        except struct.error:
            raise ValueError(f"{self.path}: wanted a model of fastText, got {len(data)} bytes and the end") from None

    def _dictionary(self, file: BinaryIO, words: int, labels: int) -> dict[bytes, int]:
        """Word -> its row. Labels stand behind the words and have none."""
        found = {}
        data, place = file.read(LONGEST), 0
        begin = file.tell() - len(data)
        for row in range(words + labels):
            while len(data) < (end := data.find(b"\0", place)) + 10 or end < 0:
                if len(data) - place > LONGEST + 10:
                    raise ValueError(f"{self.path}: got a word of more than {LONGEST} bytes, number {row + 1}")
                more = file.read(LONGEST)
                if not more:
                    raise ValueError(f"{self.path}: wanted {words + labels} words, got the end after {row}")
                begin, data, place = begin + place, data[place:] + more, 0
            if row < words:
                found[data[place:end]] = row
            place = end + 10  # behind a word stand its count, 8 bytes, and its kind
        file.seek(begin + place)
        return found

    def rows(self, word: str) -> list[int]:
        """The rows whose mean is the vector of a word: its own, if it has one, and those of its parts."""
        raw = word.encode()
        own = [self.words[raw]] if raw in self.words else []
        return own if word == "</s>" else [*own, *self._rows_of_parts(f"<{word}>")]

    def _rows_of_parts(self, word: str) -> Iterator[int]:
        for start in range(len(word)):
            for length in range(max(self.least, 1), min(self.most, len(word) - start) + 1):
                if length == 1 and start in (0, len(word) - 1):
                    continue  # the marks of beginning and end alone
                bucket = _hash(word[start : start + length].encode()) % self.buckets
                if self.kept is None:
                    yield len(self.words) + bucket
                elif bucket in self.kept:
                    yield len(self.words) + self.kept[bucket]

    def __contains__(self, word: str) -> bool:
        try:
            return bool(self.rows(word))
        except UnicodeEncodeError:  # a lone surrogate, which no text has
            return False

    def encode(self, words: list[str]) -> np.ndarray:
        # -> (len(words), D) float32
        return np.stack([self.matrix[self.rows(word)].mean(0, dtype=np.float64) for word in words]).astype(np.float32)


def _hash(part: bytes) -> int:
    value = OFFSET
    for byte in part:
        value ^= byte | (0xFFFFFF00 if byte > 127 else 0)  # bytes are signed there
        value = value * PRIME & 0xFFFFFFFF
    return value
