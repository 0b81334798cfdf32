"""Claim: text files of word vectors are read in less time than by pandas' C parser, words with spaces included, which
pandas cannot read. The aim is half of its time.

Words and float32 values are asserted to be equal before anything is timed. Rivals read the file in every turn, in one
process; times are medians. "Share of the limit" is the fraction of our time in which this machine copies the bytes of
the file and of the vectors.
"""

import csv
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from _common import Table, arguments
from _machine import Machine, measured

from tensormetrics.association.embeddings.formats.word2vec import read_word2vec

NEEDS = ("pandas",)
ROUNDS = 7
WIDTH = 300


def write(path: Path, words: list[str], fmt: str, header: bool) -> None:
    draw = np.random.default_rng(0)
    with path.open("w") as file:
        if header:
            file.write(f"{len(words)} {WIDTH}\n")
        for word in words:
            file.write(f"{word} {' '.join(fmt % number for number in draw.normal(0, 0.3, WIDTH).tolist())}\n")


def theirs(path: Path, header: bool) -> tuple[list[str], np.ndarray]:
    types = {0: str} | dict.fromkeys(range(1, WIDTH + 1), np.float64)  # rounded to float32 as in `read_word2vec`
    options = {"sep": " ", "header": None, "skiprows": int(header), "quoting": csv.QUOTE_NONE, "na_filter": False}
    table = pd.read_csv(path, engine="c", dtype=types, **options)
    return table[0].tolist(), table.iloc[:, 1:].to_numpy(np.float32)


def by_lines(path: Path, header: bool) -> tuple[list[str], np.ndarray]:
    """Read a file that pandas cannot read by a loop over lines."""
    with path.open() as file:
        rows = [line.rsplit(" ", WIDTH) for line in file.read().splitlines()[int(header) :]]
    return [row[0] for row in rows], np.array([row[1:] for row in rows], np.float64).astype(np.float32)


def row(machine: Machine, name: str, words: list[str], fmt: str, header: bool, rival, target: str) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vectors.txt"
        write(path, words, fmt, header)
        calls = (lambda: read_word2vec(path)), (lambda: rival(path, header))
        (tokens, vectors), (expected, reference) = (call() for call in calls)
        assert tokens == expected
        np.testing.assert_allclose(vectors, reference, rtol=2**-22)  # pandas' parser has errors of the last bit
        moved = path.stat().st_size + vectors.nbytes
        seconds: list[list[float]] = [[], []]
        for _ in range(ROUNDS):
            for call, timings in zip(calls, seconds, strict=True):
                start = time.perf_counter()
                call()
                timings.append(time.perf_counter() - start)
    ours, other = map(statistics.median, seconds)
    called = "pandas" if rival is theirs else "Python, numpy"
    limit = f"{machine.fraction(ours, copied=moved):.0%}"
    return [name, called, f"{1000 * ours:.0f}", f"{1000 * other:.0f}", f"{other / ours:.1f}", target, limit]


def main() -> None:
    options = arguments(__doc__, ("cpu",))
    columns = "file", "rival", "ours ms", "theirs ms", "theirs / ours", "wanted", "share of the limit"
    machine = measured()
    table = Table(options, "Text files of word vectors", columns, machine.description(), ("numpy", "pandas"))
    count = 500 if options.quick else 15_000
    words = [f"word{n}" for n in range(count)]
    spaced = ["two words " * (1 + n % 3) + str(n) for n in range(count)]
    table.add([row(machine, f"word2vec, {count:,} x {WIDTH}, 6 digits", words, "%.6g", True, theirs, "2")])
    table.add([row(machine, "GloVe, no header, 5 decimals", words, "%.5f", False, theirs, "2")])
    table.add([row(machine, "17 digits, as Python writes them", words, "%.17g", True, theirs, "")])
    table.add([row(machine, "words of several words", spaced, "%.6g", True, by_lines, "")])
    table.finish()


if __name__ == "__main__":
    main()
