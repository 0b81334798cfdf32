"""Limits of memory for thousands of rows, and of time for equal rows."""

import time

import pytest
import torch

from tensormetrics.retrieval import TorchKNN
from tensormetrics.retrieval.functional import positive_ranks
from tensormetrics.retrieval.ranking.positive_ranks import RankingInputs, rank_tiles
from tensormetrics.retrieval.ranking.ranking import RankingOptions
from tensormetrics.retrieval.search.stages import ExhaustiveStage


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
