"""Thousands of rows: what they may take, in memory and, where all rows are equal, in time."""

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
def test_a_process_that_ranks_10_000_rows_takes_400_mb():
    result = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True)
    assert int(result.stdout) <= 400


def test_a_budget_of_8_mib_changes_nothing(device):
    x, labels = torch.randn(2500, 16, device=device), torch.arange(2500, device=device) % 40
    small = {"memory_budget": 2**23}
    for distance in ("l2", "cosine"):
        assert torch.equal(
            TorchKNN(distance, **small).indices(x, 70, x, True), TorchKNN(distance).indices(x, 70, x, True)
        )
        for depth in (None, 70):
            tiled = positive_ranks(x, labels, distance=distance, depth=depth, **small)
            assert torch.equal(tiled.rank, positive_ranks(x, labels, distance=distance, depth=depth).rank)


def collapsed(points, rows, device):
    return torch.randn(points, 32, device=device)[torch.arange(rows, device=device) * 7919 % points]


@pytest.mark.parametrize("points", [1, 7])
@pytest.mark.parametrize("k", [10, 99])
def test_equal_rows_never_need_every_distance(k, points, device, monkeypatch):
    monkeypatch.setattr(ExhaustiveStage, "search", None)
    x = collapsed(points, 3000, device)
    # The same point first, by index; itself left out.
    same = torch.arange(3000, device=device) % points
    indices = TorchKNN().indices(x, k, x, True)
    for query in (0, 1, 2999):
        others = [j for j in range(3000) if (j - query) % points == 0 and j != query]
        assert indices[query].tolist() == others[:k] and same[indices[query]].unique().numel() == 1


@pytest.mark.slow
@pytest.mark.parametrize("points", [1, 7])
def test_collapsed_rows_take_about_the_time_of_others(points, device):
    def seconds(x):
        start = time.process_time()
        TorchKNN().indices(x, 99, x, True)
        for _ in rank_tiles(RankingInputs(x, torch.arange(len(x), device=device) % 100).checked(), Ranking()):
            pass
        return time.process_time() - start

    spread, equal = torch.randn(20_000, 32, device=device), collapsed(points, 20_000, device)
    assert seconds(equal) < 5 * seconds(spread)
