"""Limits of memory for thousands of rows, and of time for equal rows."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tensormetrics.retrieval import TorchKNN, positive_ranks
from tensormetrics.retrieval.ranking.positive_ranks import RankingInputs, rank_tiles
from tensormetrics.retrieval.ranking.ranking import Ranking
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
        for _ in rank_tiles(RankingInputs(x, torch.arange(len(x), device=device) % 100).checked(), Ranking()):
            pass
        return time.process_time() - start

    distinct, equal = torch.randn(20_000, 32, device=device), make_collapsed(points, 20_000, device)
    assert seconds(equal) < 5 * seconds(distinct)
