"""Four and five ranks, some without rows, find and count what one process does, and little travels for it."""

import warnings
from pathlib import Path

import pytest
import torch
from torch import distributed as dist

from tensormetrics.retrieval import (
    AccuracyCalculator,
    EmbeddingClusterAccuracy,
    NearestCentroidAccuracy,
    ShardedKNN,
    TorchKMeans,
    TorchKNN,
)
from tensormetrics.retrieval.clusters import communicator
from tensormetrics.retrieval.ranking import sharded
from tensormetrics.retrieval.scores import embedding_metric
from tensormetrics.retrieval.search.ring import int16_pairs, ring_pass

N, DIM, WORLD = 90, 16, 5
SPLITS = [(40, 7, 30, 13), (20, 0, 40, 30), (0, 33, 1, 40, 16)]  # the first of the ranks take part
NAMES = ("mean_average_precision", "precision_at_1")


def families():
    generator = torch.Generator().manual_seed(6)
    x = torch.randn(N, DIM, generator=generator)
    return {
        "gaussian": x,
        "float64": x.double() * 1e30,
        "lattice": torch.randint(0, 2, (N, DIM), generator=generator),
        "collapsed": torch.ones(N, DIM, dtype=torch.float16),
        "far away": x.index_fill(0, torch.arange(3), 1e15),
        "not finite": x.index_fill(0, torch.arange(20, 25), torch.nan),
        "half": x.half(),
        "bytes": (x * 20).to(torch.int8),
        "products of words": torch.randn(N, 50, generator=generator),
        "products of words, equal rows": torch.randn(N, 50, generator=generator)[torch.arange(N) * 7 % 20],
        "products of words, not finite": torch.randn(N, 50, generator=generator).index_fill(
            0, torch.arange(20, 25), torch.nan
        ),
    }


def labels(sorted_=False):
    """Where they are sorted, most classes are on one rank alone."""
    drawn = torch.randint(0, 9, (N,), generator=torch.Generator().manual_seed(7))
    return drawn.sort().values if sorted_ else drawn


OPTIONS = [(None, False), (None, True), (3, False), (3, True)]


def ids():
    return torch.randperm(N, generator=torch.Generator().manual_seed(8))


CLUSTERED = ("AMI", "NMI", "r_precision", "nearest_centroid_accuracy")
CLUSTERS = {
    "plain": dict,
    "spherical": lambda: {"kmeans_func": TorchKMeans(4, spherical=True, n_init=2)},
    "tolerant": lambda: {"kmeans_func": TorchKMeans(tol=0.1)},
    "k-means++": lambda: {"kmeans_func": TorchKMeans(init="k-means++", niter=2)},
}


def of_sums(group=None):
    """Name -> a metric whose rows stay, for it adds up sums of them."""
    return {
        "class means": NearestCentroidAccuracy(average="class", process_group=group),
        "directions": NearestCentroidAccuracy(distance="cosine", process_group=group),
        "accuracy": EmbeddingClusterAccuracy(n_clusters=5, process_group=group),
    }


def run_rank(rank: int, folder: str) -> None:
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "memory_budget: got")  # many blocks of few rows are the point
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=WORLD)
    ring_pass.FEWEST = 5  # so that a small budget sends rows in many blocks
    int16_pairs.FEWEST = int16_pairs.MIN_CAPACITY = 1  # so that so few rows are multiplied as words
    groups = {4: dist.new_group(range(4)), 5: None}
    results = {}
    for sizes in SPLITS:
        if rank >= len(sizes):
            continue
        for family, rows in families().items():
            own, group = rows.split(sizes)[rank], groups[len(sizes)]
            for memory in (None, 4_000):
                knn = ShardedKNN(group, TorchKNN(memory_budget=memory))
                results[sizes, family, memory] = knn(own, 2, own, True)
            if rows.isfinite().all():
                for k, sorted_ in OPTIONS:
                    metric = AccuracyCalculator(NAMES, k=k, process_group=group, memory_budget=20_000)
                    if len(own):
                        metric.update(own, labels(sorted_).split(sizes)[rank])
                    results[sizes, family, k, sorted_] = metric.compute()
                for name, options in CLUSTERS.items() if family in ("gaussian", "lattice") else ():
                    metric = AccuracyCalculator(CLUSTERED, process_group=group, memory_budget=100_000, **options())
                    metric.update(own, labels().split(sizes)[rank], ids=ids().split(sizes)[rank])
                    spread = metric.rows_may_stay()
                    results[sizes, family, name] = metric.compute(), metric.last.cluster_labels, spread
                for name, metric in of_sums(group).items():
                    if len(own):
                        metric.update(own, labels(True).split(sizes)[rank])
                    assert metric.rows_may_stay()
                    results[sizes, family, name] = metric.compute()
    ring_pass.FEWEST = 64
    results["floor"] = of_a_small_budget(rank)
    torch.save(results, Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()


def counted(function, calls: list[object]):
    def call(*args):
        calls.append(args)
        return function(*args)

    return call


def of_a_small_budget(rank: int):
    """The values, the exchanges and the warnings of a budget with which rows would travel one by one."""
    outcomes = {}
    for k in (None, 3):  # counted, and from neighbors
        metric = AccuracyCalculator(NAMES, k=k, memory_budget=4_000)
        metric.update(families()["gaussian"].split(18)[rank], labels().split(18)[rank])
        exchanges: list[object] = []
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for module in (sharded, ring_pass):
                patch.setattr(module, "all_gather_status", counted(module.all_gather_status, exchanges))
            values = metric.compute()
        outcomes[k] = values, len(exchanges), [str(warning.message) for warning in caught]
    return outcomes


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("many")
    torch.multiprocessing.spawn(run_rank, args=(str(folder),), nprocs=WORLD)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(WORLD)]


@pytest.mark.parametrize("sizes", SPLITS, ids=str)
@pytest.mark.parametrize("family", families())
def test_neighbours_are_those_of_one(ranks, sizes, family):
    rows = families()[family]
    alone = TorchKNN()(rows, 2, rows, True)
    for memory in (None, 4_000):
        shards = zip(*(rank[sizes, family, memory] for rank in ranks[: len(sizes)]), strict=True)
        for together, wanted in zip(map(torch.cat, shards), alone, strict=True):
            assert torch.equal(together, wanted)


@pytest.mark.parametrize("sizes", SPLITS, ids=str)
@pytest.mark.parametrize("family", [name for name, rows in families().items() if rows.isfinite().all()])
@pytest.mark.parametrize(("k", "sorted_"), OPTIONS)
def test_values_are_those_of_one(ranks, sizes, family, k, sorted_):
    alone = AccuracyCalculator(NAMES, k=k)
    alone.update(families()[family], labels(sorted_))
    wanted = alone.compute()
    for rank in ranks[: len(sizes)]:
        assert rank[sizes, family, k, sorted_] == wanted


@pytest.mark.parametrize("sizes", SPLITS, ids=str)
@pytest.mark.parametrize("family", ["gaussian", "lattice"])
@pytest.mark.parametrize("name", CLUSTERS)
def test_clusters_are_those_of_one(ranks, sizes, family, name):
    alone = AccuracyCalculator(CLUSTERED, **CLUSTERS[name]())
    alone.update(families()[family], labels(), ids=ids())
    wanted = alone.compute()
    for rank in ranks[: len(sizes)]:
        values, clusters, spread = rank[sizes, family, name]
        assert values == wanted and torch.equal(clusters, alone.last.cluster_labels)
        assert spread == (name != "k-means++")


@pytest.mark.parametrize("sizes", SPLITS, ids=str)
@pytest.mark.parametrize("family", [name for name, rows in families().items() if rows.isfinite().all()])
def test_sums_are_those_of_one(ranks, sizes, family):
    for name, alone in of_sums().items():
        alone.update(families()[family], labels(True))
        wanted = alone.compute()
        for rank in ranks[: len(sizes)]:
            assert torch.equal(rank[sizes, family, name], wanted), name


@pytest.mark.parametrize(("k", "bytes_per_row"), [(None, 128 * DIM + 512 * 13 + 128), (3, 8 * 4 * DIM)])
def test_budget_for_single_rows_is_raised_with_one_warning(ranks, k, bytes_per_row):
    assert labels().bincount().max() == 13  # relevant references of a query
    alone = AccuracyCalculator(NAMES, k=k)
    alone.update(families()["gaussian"], labels())
    message = "memory_budget: got 4000 bytes, for which rows travel between ranks few at a time; "
    for number, rank in enumerate(ranks):
        values, exchanges, warned = rank["floor"][k]
        assert values == alone.compute()
        assert exchanges <= 4 * WORLD  # two rounds of a block a rank; row by row it would be one for each of 90 rows
        assert warned == ([f"{message}{18 * bytes_per_row} are used, for 18 rows at once"] if number == 0 else [])


def test_different_rows_have_different_digests():
    rows = torch.cat([torch.randint(0, 3, (2000, 3)).float(), -torch.zeros(1, 3)])
    distinct, place = rows.unique(dim=0, return_inverse=True)
    digests = communicator._digests(rows)
    assert len(digests.unique()) == len(distinct) == 27
    assert torch.equal(digests, communicator._digests(distinct)[place])
    signs = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * 10)  # differ in one bit a column, the highest
    assert len((communicator._digests(signs) % 2**32).unique()) == len(signs) == 2**10


def test_who_brings_all_rows_is_told(monkeypatch):
    metric = AccuracyCalculator(("nearest_centroid_accuracy",))
    metric.update(torch.zeros(10, 4), torch.zeros(10, dtype=torch.int64))
    monkeypatch.setattr(embedding_metric, "all_gather_status", lambda held, group: [held] * 3)
    monkeypatch.setattr(embedding_metric, "WARN_BYTES", 479)
    with pytest.warns(UserWarning, match="^AccuracyCalculator gathers all rows, 0.0 GB, on every process"):
        metric._warn_about_gathering()
    monkeypatch.setattr(embedding_metric, "WARN_BYTES", 480)
    metric._warn_about_gathering()
