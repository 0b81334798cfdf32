"""References in a memory-mapped file: results match those in memory, and no process holds a full copy."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from retrieval_oracle import families

from tensormetrics.retrieval import AccuracyCalculator, TorchKNN, positive_ranks
from tensormetrics.retrieval.sources.source import ArrayRows

ROWS, SMALL = 500, {"memory_budget": 100_000}  # a prepared copy needs more memory


@pytest.fixture(params=["outliers", "7 distinct points"])
def rows(request, tmp_path):
    random = np.random.RandomState(0)
    families_by_name = {"7 distinct points": random.standard_normal((7, 32))[np.arange(ROWS) % 7], **families(ROWS, 32)}
    np.save(tmp_path / "rows.npy", np.float32(families_by_name[request.param]))
    return np.load(tmp_path / "rows.npy", mmap_mode="r")


def mapped(rows):
    return torch.from_numpy(rows)


pytestmark = pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")


@pytest.mark.parametrize("distance", ["l2", "cosine"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float64], ids=str)
def test_mapped_references_neighbors_and_ranks_match_in_memory(rows, distance, dtype):
    x, labels = mapped(rows).to(dtype), torch.arange(ROWS) % 60
    small, large = TorchKNN(distance, **SMALL), TorchKNN(distance)
    for k, query in ((5, x), (40, x[:30])):
        for got, expected in zip(small(query, k, x, True), large(query, k, x, True), strict=True):
            assert torch.equal(got, expected)
    inputs = (x[:60], labels[:60], x, labels)
    for options in ({}, {"depth": 40}, {"ignore": (labels[:60] % 7, labels % 7 - 1)}):
        in_memory = positive_ranks(*inputs, distance=distance, **options)
        assert torch.equal(positive_ranks(*inputs, distance=distance, **options, **SMALL).rank, in_memory.rank)


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, ">i4"])
@pytest.mark.parametrize("k", [None, 5])
def test_mapped_integers_scores_match_while_reading_blocks(dtype, k, tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", np.random.RandomState(0).randint(0, 100, (ROWS, 32)).astype(dtype))
    rows, labels, block_sizes = np.load(tmp_path / "x.npy", mmap_mode="r"), np.arange(ROWS) % 60, []

    def record_read(self, start, stop, read_rows=ArrayRows.read):
        block_sizes.append(stop - start)
        return read_rows(self, start, stop)

    monkeypatch.setattr(ArrayRows, "read", record_read)
    names = ("mean_average_precision", "precision_at_1")
    expected = AccuracyCalculator(names, k=k).get_accuracy(
        np.array(rows[:50]), labels[:50], np.array(rows), labels, True
    )
    assert not block_sizes
    for include in (names, (*names, "nearest_centroid_accuracy")):  # the last one requires all rows
        calculator = AccuracyCalculator(include, k=k, memory_budget=60_000)
        scores = calculator.get_accuracy(rows[:50], labels[:50], rows, labels, True)
        assert {name: scores[name] for name in names} == expected
    assert len(block_sizes) > 4 and max(block_sizes) < ROWS // 2


CHILD_OF_FILE = """
import sys, threading, time, warnings
import numpy as np, torch
from pathlib import Path
from tensormetrics.retrieval import AccuracyCalculator, TorchKNN, nearest_centroid
from tensormetrics.retrieval.ranking.ranking import RankingOptions
from tensormetrics.retrieval.ranking.positive_ranks import RankingInputs, rank_tiles

def anonymous():
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) >> 10

def watch():
    while True:
        peak[0] = max(peak[0], anonymous())
        time.sleep(0.002)

warnings.filterwarnings("ignore", "The given NumPy array is not writable")
rows, budget = np.load(sys.argv[1], mmap_mode="r"), {"memory_budget": 2**25}
x, labels = torch.from_numpy(rows), torch.arange(len(rows)) % 2000
TorchKNN()(x[:1000], 5, x[:1000], True)  # memory that libraries allocate once
before = anonymous()
peak = [before]
threading.Thread(target=watch, daemon=True).start()
TorchKNN(**budget)(x[:1000], 10, x, True)
inputs = RankingInputs(x[:300], labels[:300], x, labels, torch.arange(300)).checked()
for _ in rank_tiles(inputs, RankingOptions(**budget)):
    pass
nearest_centroid(x[:1000], labels[:1000], x, labels, **budget)
calculator = AccuracyCalculator(("precision_at_1", "r_precision"), k=10, device="cpu", **budget)
calculator.get_accuracy(rows[:1000], labels[:1000], rows, labels, True)
print(peak[0] - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the memory of a process from /proc")
@pytest.mark.parametrize("dtype, columns_first", [(np.float16, False), (np.float32, False), (np.float32, True)])
def test_process_memory_stays_well_below_file_size(dtype, columns_first, tmp_path):
    shape = (500_000, 2**28 // 500_000 // np.dtype(dtype).itemsize)  # 256 MiB
    header = {"dtype": dtype, "shape": shape, "fortran_order": columns_first}
    file = np.lib.format.open_memmap(tmp_path / "rows.npy", mode="w+", **header)
    random = np.random.default_rng(0)
    for part in np.array_split(file, 50):
        part[:] = random.standard_normal(part.shape, dtype=np.float32)
    file.flush()
    result = subprocess.run(
        [sys.executable, "-c", CHILD_OF_FILE, str(tmp_path / "rows.npy")], capture_output=True, text=True, check=True
    )
    assert int(result.stdout) < 96  # MiB: 32 for temporaries, and a few numbers per row
