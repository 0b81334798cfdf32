"""Results on four and five ranks, some without rows, equal those of one process and need few messages."""

import warnings

import pytest
import torch

from tensormetrics.retrieval import (
    AccuracyCalculator,
    TorchKMeans,
)
from tensormetrics.retrieval.clusters import communicator
from tensormetrics.retrieval.ranking import sharded
from tensormetrics.retrieval.search import ring_pass

N, DIM, WORLD = 90, 16, 5
SPLITS = [(40, 7, 30, 13), (20, 0, 40, 30), (0, 33, 1, 40, 16)]  # rows of each rank; other ranks idle
NAMES = ("mean_average_precision", "precision_at_1")


def make_families():
    generator = torch.Generator().manual_seed(6)
    x = torch.randn(N, DIM, generator=generator)
    return {
        "gaussian": x,
        "float64": x.double() * 1e30,
        "lattice": torch.randint(0, 2, (N, DIM), generator=generator),
    }


def make_labels():
    return torch.randint(0, 9, (N,), generator=torch.Generator().manual_seed(7))


def make_ids():
    return torch.randperm(N, generator=torch.Generator().manual_seed(8))


CLUSTERED = ("AMI", "NMI", "r_precision", "nearest_centroid_accuracy")
CLUSTERS = {
    "plain": dict,
    "spherical": lambda: {"kmeans_func": TorchKMeans(4, spherical=True, n_init=2)},
    "tolerant": lambda: {"kmeans_func": TorchKMeans(tol=0.1)},
    "k-means++": lambda: {"kmeans_func": TorchKMeans(init="k-means++", niter=2)},
}


def results_of(rank, group_of_4):
    ring_pass.FEWEST = 5  # so that a small budget sends rows in many blocks
    groups, results = {4: group_of_4, 5: None}, {}
    for sizes in SPLITS:
        if rank >= len(sizes):
            continue
        for family, rows in make_families().items():
            local_rows, group = rows.split(sizes)[rank], groups[len(sizes)]
            for name, options in CLUSTERS.items():
                metric = AccuracyCalculator(CLUSTERED, process_group=group, memory_budget=100_000, **options())
                metric.update(local_rows, make_labels().split(sizes)[rank], ids=make_ids().split(sizes)[rank])
                keeps_rows_local = metric.rows_may_stay()
                results[sizes, family, name] = metric.compute(), metric.last.cluster_labels, keeps_rows_local
    ring_pass.FEWEST = 64
    results["floor"] = compute_with_small_budget(rank)
    return results


def count_calls(function, calls: list[object]):
    def call(*args):
        calls.append(args)
        return function(*args)

    return call


def compute_with_small_budget(rank: int):
    """Return values, number of exchanges and warnings for a budget with which rows would be sent one by one."""
    results = {}
    for k in (None, 3):  # ranks by counting and by neighbors
        metric = AccuracyCalculator(NAMES, k=k, memory_budget=4_000)
        metric.update(make_families()["gaussian"].split(18)[rank], make_labels().split(18)[rank])
        exchanges: list[object] = []
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for module in (sharded, ring_pass):
                patch.setattr(module, "all_gather_status", count_calls(module.all_gather_status, exchanges))
            values = metric.compute()
        results[k] = values, len(exchanges), [str(warning.message) for warning in caught]
    return results


@pytest.mark.parametrize("sizes", SPLITS, ids=str)
@pytest.mark.parametrize("family", make_families())
@pytest.mark.parametrize("name", CLUSTERS)
def test_accuracy_calculator_clusters_equal_single_process(ranks, sizes, family, name):
    single_process = AccuracyCalculator(CLUSTERED, **CLUSTERS[name]())
    single_process.update(make_families()[family], make_labels(), ids=make_ids())
    expected = single_process.compute()
    for rank in ranks[: len(sizes)]:
        values, clusters, keeps_rows_local = rank[sizes, family, name]
        assert values == expected and torch.equal(clusters, single_process.last.cluster_labels)
        assert keeps_rows_local == (name != "k-means++")


@pytest.mark.parametrize(("k", "bytes_per_row"), [(None, 128 * DIM + 512 * 13 + 128), (3, 8 * 4 * DIM)])
def test_memory_budget_of_single_rows_is_raised_with_one_warning(ranks, k, bytes_per_row):
    assert make_labels().bincount().max() == 13  # number of relevant references of a query
    single_process = AccuracyCalculator(NAMES, k=k)
    single_process.update(make_families()["gaussian"], make_labels())
    message = "memory_budget: got 4000 bytes, for which rows travel between ranks few at a time; "
    for rank_index, rank in enumerate(ranks):
        values, exchanges, messages = rank["floor"][k]
        assert values == single_process.compute()
        assert exchanges <= 4 * WORLD  # two rounds of one block per rank; sending single rows would need 90 exchanges
        assert messages == ([f"{message}{18 * bytes_per_row} are used, for 18 rows at once"] if rank_index == 0 else [])


def test_digests_of_different_rows_are_distinct():
    rows = torch.cat([torch.randint(0, 3, (2000, 3)).float(), -torch.zeros(1, 3)])
    distinct, inverse = rows.unique(dim=0, return_inverse=True)
    digests = communicator._digests(rows)
    assert len(digests.unique()) == len(distinct) == 27
    assert torch.equal(digests, communicator._digests(distinct)[inverse])
    signs = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * 10)  # rows differ only in the sign bit of each column
    assert len((communicator._digests(signs) % 2**32).unique()) == len(signs) == 2**10
