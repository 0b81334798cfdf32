"""Small calls launch few kernels on a GPU and wait for it once, whatever the values of the rows."""

import itertools
import sys
from functools import partial

import pytest
import torch
from fake_device import DEVICE, Device
from kernels import INTERPRETED

from tensormetrics.retrieval import (
    NDCG,
    AccuracyCalculator,
    AveragePrecision,
    PrecisionAtK,
    RecallAtK,
    ReciprocalRank,
    RunMetric,
    TorchKMeans,
    TorchKNN,
)
from tensormetrics.retrieval.functional import (
    adjusted_mutual_info,
    average_precision,
    average_precision_at_r,
    normalized_mutual_info,
    r_precision,
)
from tensormetrics.retrieval.inputs import RetrievalInputs
from tensormetrics.retrieval.ranking.ranking import RankingOptions
from tensormetrics.retrieval.ranking.sharded import tiles_of
from tensormetrics.retrieval.scores.query_metric import query_scores
from tensormetrics.retrieval.search import direct_search

SIZES, SHAPES = ((20, 36), [(40, 8)]) if INTERPRETED else ((260, 1024), [(600, 8), (512, 64)])


def rows(size: int, kind: str = "random") -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(size)
    x = torch.randn(size, 8 if INTERPRETED else 128, generator=generator)
    if kind == "duplicates":
        x = x[torch.arange(size) % 3]
    return x, torch.arange(size) % (size // 10)


def metric(make, *options):
    def call(x: torch.Tensor, labels: torch.Tensor):
        scored = make(*options, compute_with_cache=False)
        scored.update(x, labels)
        return scored.compute

    return call


def run_metric(x: torch.Tensor, labels: torch.Tensor):
    number, column = (torch.arange(n, device=x.device) for n in x.shape)
    batch = x, (labels[:, None] + column) % 4, number[:, None].expand(x.shape).clone()
    empty = [RunMetric().to(x.device) for _ in range(2)]

    def call() -> dict[str, torch.Tensor]:
        empty[-1].update(*batch)
        return empty.pop().compute()

    return call


def clustering(score):
    def call(x: torch.Tensor, labels: torch.Tensor):
        clusters = labels % 7 + (x[:, 0] > 1)
        return lambda: score(labels, clusters)

    return call


NAMES = "precision_at_1", "r_precision", "mean_average_precision_at_r"
CALLS = {  # call after the update, launches, waits
    "PrecisionAtK(10) of each class": (metric(partial(PrecisionAtK, average="class"), 10), 25, 3),
    "RecallAtK((1, 10)) over classes": (metric(partial(RecallAtK, average="macro"), (1, 10)), 40, 3),
    "PrecisionAtK(10)": (metric(PrecisionAtK, 10), 16, 1),
    "RecallAtK((1, 100))": (metric(RecallAtK, (1, 100)), 25, 1),
    "ReciprocalRank(10)": (metric(ReciprocalRank, 10), 16, 1),
    "NDCG(10)": (metric(NDCG, 10), 16, 1),
    "NDCG(100)": (metric(NDCG, 100), 16, 1),
    "AveragePrecision(10)": (metric(AveragePrecision, 10), 16, 1),
    "RunMetric": (run_metric, 40, 1),
    "AccuracyCalculator(k=10)": (metric(AccuracyCalculator, NAMES, (), False, False, 10), 45, 1),
    "NMI": (clustering(normalized_mutual_info), 25, 1),
    "AMI": (clustering(adjusted_mutual_info), 60, 1),
    "TorchKNN": (lambda x, labels: lambda: TorchKNN()(x, 10, x, True), 6, 0),
    "TorchKNN of others": (lambda x, labels: lambda: TorchKNN("cosine")(x[:20], 100, x), 6, 0),
}


@pytest.mark.full
@pytest.mark.parametrize("name", CALLS)
def test_launches_of_small_call_reach_goal_at_any_size_and_values(name):
    if INTERPRETED and "100" in name:
        pytest.skip("needs 100 references")
    make, launches, waits = CALLS[name]
    counts = []
    for size, kind in ((SIZES[0], "random"), (SIZES[1], "random"), (SIZES[0], "duplicates")):
        x, labels = rows(size, kind)
        expected = make(x, labels)()
        with Device(kernels=True) as device:
            call = make(x.to(DEVICE), labels.to(DEVICE))
            call()  # makes tables of constants
            device.operators = 0
            device.waits.clear(), device.copied.clear()
            results = call()
            counts.append((device.operators, len(device.waits), sum(device.copied)))
            results = torch.utils._pytree.tree_map_only(torch.Tensor, lambda x: x.cpu(), results)
        torch.testing.assert_close(results, expected, rtol=1e-12 if name in ("NMI", "AMI") else 1e-15, atol=0)
    assert len({*counts}) == 1 and counts[0][0] <= launches and counts[0][1] == waits and counts[0][2] <= 64


KINDS = {  # of rows
    "random": lambda x: x,
    "duplicates": lambda x: x[torch.arange(len(x)) % 9],
    "equal": torch.ones_like,
    "scales": lambda x: x * torch.logspace(-3, 3, len(x))[:, None],
}
RANKED = {  # score, classes, a depth of all relevant references, launches and waits of their ranks
    "MAP@R of 10 classes": (average_precision_at_r, 10, True, 60, 1),
    "MAP@R of one class": (average_precision_at_r, 1, True, 60, 1),
    "R-precision of 2 classes": (r_precision, 2, True, 60, 1),
    "AP of 20 classes": (average_precision, 20, False, 60, 4),
    "AP of 3 classes": (average_precision, 3, False, 60, 4),
}


@pytest.mark.full
@pytest.mark.parametrize("name", RANKED)
def test_launches_of_ranks_reach_goal_in_one_tile(name, monkeypatch):
    monkeypatch.setattr(direct_search, "MAX_WORK", 0)
    score, classes, is_limited, launches, waits = RANKED[name]
    for (size, dim), kind in itertools.product(SHAPES, KINDS):
        x, labels = KINDS[kind](torch.randn(size, dim)), torch.arange(size) % classes
        ranking = RankingOptions(depth=(size - 1) // classes if is_limited else None)
        inputs = RetrievalInputs(x, labels, x, labels, size)
        expected = query_scores([score], tiles_of(inputs, ranking), inputs)[0][0]
        with Device(kernels=True) as device:
            here = x.to(DEVICE), labels.repeat_interleave(2).to(DEVICE)[::2]
            device.operators = 0
            device.waits.clear()
            inputs = RetrievalInputs(*here, *here, size)
            tiles = [*tiles_of(inputs, ranking)]
            if not INTERPRETED:  # where lists of equal rows are too short, and searched again
                assert device.operators <= launches and len(device.waits) <= waits and len(tiles) == 1
            assert torch.equal(query_scores([score], tiles, inputs)[0][0].cpu(), expected)


@pytest.mark.full
@pytest.mark.parametrize("k", [1, 5, 19] if INTERPRETED else [2, 50, 259])
def test_launches_of_large_search_reach_goal_for_any_k_and_size(k, monkeypatch):
    monkeypatch.setattr(direct_search, "MAX_WORK", 0)
    counts = set()
    for size, kind in ((SIZES[0], "random"), (2 * SIZES[0], "random"), (SIZES[0], "duplicates")):
        x, _ = rows(size, kind)
        with Device(kernels=True) as device:
            here = x.to(DEVICE)
            device.operators = 0
            device.waits.clear()
            found = TorchKNN()(here, k, here, True)[1]
            counts.add((device.operators, len(device.waits)))
            found = found.cpu()
        assert torch.equal(found, TorchKNN()(x, k, x, True)[1])
    ((launches, waits),) = counts
    assert launches <= 40 and waits == 1


@pytest.mark.full
@pytest.mark.parametrize("max_work", [direct_search.MAX_WORK, 0])
@pytest.mark.parametrize("kind", KINDS)
def test_iterations_of_k_means_reach_goal_and_equal_the_cpu(kind, max_work, monkeypatch):
    monkeypatch.setattr(direct_search, "MAX_WORK", max_work)
    added = set()
    for size in SIZES[: 1 if INTERPRETED else 2]:
        x, counts = KINDS[kind](rows(size)[0]), []
        first = torch.cat([x[:3], x[:4] + 1e3])  # of which the last are empty at first
        runs = {"niter": 2}, {"niter": 3}, {"niter": 4, "init": first}
        for options in runs[2:] if INTERPRETED else runs:
            kmeans, expected = TorchKMeans(**options), TorchKMeans(**options)
            clusters = expected(x, 7)
            with Device(kernels=True) as device:
                kmeans.init = kmeans.init.to(DEVICE) if "init" in options else kmeans.init
                here = x.to(DEVICE)
                if not INTERPRETED:
                    kmeans(here, 7)  # makes tables of constants
                device.operators = 0
                device.waits.clear()
                found = kmeans(here, 7)
                counts.append((device.operators, len(device.waits), kmeans.n_iter))
                results = [result.cpu() for result in (found, kmeans.centroids, kmeans.inertia)]
            assert kmeans.n_iter == expected.n_iter
            assert all(map(torch.equal, results, (clusters, expected.centroids, expected.inertia)))
        if [n_iter for *_, n_iter in counts[:2]] == [2, 3]:
            added.add(tuple(after - before for before, after in zip(*counts[:2], strict=True))[:2])
    assert added <= {(10, 1)} and (added or INTERPRETED or kind != "random")


@pytest.mark.full
@pytest.mark.skipif(INTERPRETED, reason="takes hours in the interpreter")
def test_search_of_5000_rows_reaches_goal():
    with Device(kernels=True) as device:
        x = torch.randn(5000, 64, generator=torch.Generator().manual_seed(0)).to(DEVICE)
        device.operators = 0
        device.waits.clear()
        TorchKNN()(x, 10, x, True)
        assert device.operators <= 6 and not device.waits


@pytest.mark.skipif(INTERPRETED, reason="counts calls of the library")
def test_update_makes_few_python_calls():
    scored, batch, calls = RecallAtK(1), rows(SIZES[1]), []
    scored.update(*batch)
    sys.setprofile(lambda frame, event, _: calls.append(event) if event.endswith("call") else None)
    scored.update(*batch)
    sys.setprofile(None)
    assert len(calls) <= 240
