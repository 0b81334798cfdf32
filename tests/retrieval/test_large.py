"""Limits of memory for thousands of rows, and of time for equal rows."""

import gc
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import distributed as dist

from tensormetrics.retrieval import AccuracyCalculator, TorchKNN, positive_ranks
from tensormetrics.retrieval.ranking.positive_ranks import RankingInputs, rank_tiles
from tensormetrics.retrieval.ranking.ranking import RankingOptions
from tensormetrics.retrieval.search.stages import ExhaustiveStage

CHILD = """
import torch
from pathlib import Path
from tensormetrics.retrieval import AccuracyCalculator

names = ("mean_average_precision", "mean_reciprocal_rank", "precision_at_1", "r_precision")
labels = torch.arange(10_000) % 100
x = torch.nn.functional.normalize(torch.randn(100, 128)[labels] + 2.5 * torch.randn(10_000, 128))
assert all(0 < value < 1 for value in AccuracyCalculator(names).get_accuracy(x, labels).values())
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(int(peak.split()[1]) // 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak of a process from /proc")
def test_get_accuracy_of_10_000_rows_stays_below_400_mb():
    result = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True)
    assert int(result.stdout) <= 400


def test_memory_budget_of_8_mib_gives_same_result(device):
    x, labels = torch.randn(2500, 16, device=device), torch.arange(2500, device=device) % 40
    options = {"memory_budget": 2**23}
    for distance in ("l2", "cosine"):
        assert torch.equal(
            TorchKNN(distance, **options).indices(x, 70, x, True), TorchKNN(distance).indices(x, 70, x, True)
        )
        for depth in (None, 70):
            tiled = positive_ranks(x, labels, distance=distance, depth=depth, **options)
            assert torch.equal(tiled.rank, positive_ranks(x, labels, distance=distance, depth=depth).rank)


def make_collapsed(points, rows, device):
    return torch.randn(points, 32, device=device)[torch.arange(rows, device=device) * 7919 % points]


@pytest.mark.parametrize("points", [1, 7])
@pytest.mark.parametrize("k", [10, 99])
def test_knn_equal_rows_avoid_exhaustive_stage(k, points, device, monkeypatch):
    monkeypatch.setattr(ExhaustiveStage, "search", None)
    x = make_collapsed(points, 3000, device)
    # References at the point of the query come first, in index order, without the query itself.
    point_of_row = torch.arange(3000, device=device) % points
    indices = TorchKNN().indices(x, k, x, True)
    for query in (0, 1, 2999):
        expected = [j for j in range(3000) if (j - query) % points == 0 and j != query]
        assert indices[query].tolist() == expected[:k] and point_of_row[indices[query]].unique().numel() == 1


@pytest.mark.slow
@pytest.mark.parametrize("points", [1, 7])
def test_collapsed_rows_take_similar_time_to_distinct_rows(points, device):
    def seconds(x):
        start = time.process_time()
        TorchKNN().indices(x, 99, x, True)
        for _ in rank_tiles(RankingInputs(x, torch.arange(len(x), device=device) % 100).checked(), RankingOptions()):
            pass
        return time.process_time() - start

    distinct, equal = torch.randn(20_000, 32, device=device), make_collapsed(points, 20_000, device)
    assert seconds(equal) < 5 * seconds(distinct)


WORLD, ROWS, D, BUDGET = 4, 8_000, 2_048, 2**24
TOTAL_BYTES = 4 * ROWS * D


def memory_bytes(field):
    """Return the current (VmRSS) or peak (VmHWM) memory of this process in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) << 10


def run_rank(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=WORLD)
    peaks = {}
    for name, k in (("mean_average_precision", None), ("precision_at_1", 10)):
        for count in (200, ROWS):  # the first run loads libraries that the second one uses
            generator = torch.Generator().manual_seed(rank)
            metric = AccuracyCalculator((name,), k=k, memory_budget=BUDGET)
            gc.collect()
            dist.barrier()
            before = memory_bytes("VmRSS")
            local_rows = torch.randn(count // WORLD, D, generator=generator)
            metric.update(local_rows, torch.arange(len(local_rows)) * WORLD % (count // 20) + rank)
            del local_rows
            Path("/proc/self/clear_refs").write_text("5")  # reset VmHWM
            metric.compute()
            peaks[name] = memory_bytes("VmHWM") - before
            metric.reset()
    torch.save(peaks, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="reads the memory of a process from /proc")
def test_rank_memory_stays_below_two_shards_and_budget(tmp_path):
    torch.multiprocessing.spawn(run_rank, args=(str(tmp_path),), nprocs=WORLD)
    for rank in range(WORLD):
        for name, peak in torch.load(tmp_path / f"{rank}.pt").items():
            assert peak < 1.05 * (2 / WORLD * TOTAL_BYTES + BUDGET), (name, peak)
