import itertools
import math
import re

import numpy as np
import pytest
import torch
from retrieval_oracle import cases

from tensormetrics.retrieval import EmbeddingClusterAccuracy, TorchKMeans, cluster_accuracy, contingency


def best_over_permutations(labels, clusters):
    classes, groups = sorted(set(labels)), sorted(set(clusters))
    groups += [None] * (len(classes) - len(groups))
    return max(
        np.mean([cluster_of.get(label, object()) == cluster for label, cluster in zip(labels, clusters, strict=True)])
        for cluster_of in (
            dict(zip(classes, permutation, strict=False)) for permutation in itertools.permutations(groups)
        )
    )


@pytest.mark.parametrize("case", cases("clustering").values(), ids=cases("clustering").keys())
def test_cluster_accuracy_golden_cases_match_expected_values(case, device):
    value = cluster_accuracy(*(torch.tensor(case[key], device=device) for key in ("labels", "clusters")))
    assert value.dtype == torch.float64
    assert float(value) == pytest.approx(case["expected"]["cluster_accuracy"], abs=1e-9)


@pytest.mark.parametrize(("classes", "groups"), [(3, 3), (2, 5), (5, 2), (1, 4)])
def test_cluster_accuracy_equals_best_permutation(classes, groups, device):
    random = np.random.RandomState(classes)
    labels, clusters = (random.randint(-1, top - 1, (2, 3, 17)) for top in (classes, groups))
    values = cluster_accuracy(torch.tensor(labels, device=device), torch.tensor(clusters, device=device))
    assert values.shape == (2, 3)
    for i in np.ndindex(2, 3):
        assert float(values[i]) == pytest.approx(best_over_permutations(labels[i], clusters[i]), abs=1e-15)


def test_cluster_accuracy_small_example_has_known_value(device):
    labels = torch.tensor([0, 0, 0, 1, 1, 2], dtype=torch.uint8, device=device)
    clusters = torch.tensor([5, 5, 9, 9, 9, 5], device=device)
    assert float(cluster_accuracy(labels, clusters)) == 4 / 6
    assert float(cluster_accuracy(contingency(labels, clusters))) == 4 / 6
    assert float(cluster_accuracy(labels / 7, clusters.float())) == 4 / 6
    assert math.isnan(cluster_accuracy(labels[:0], clusters[:0]))


def make_unconnected_blocks(random, blocks):
    """Yield labels and clusters that fall into unconnected blocks of different sizes."""
    for block in range(blocks):
        classes, groups, n = random.randint(1, 7), random.randint(1, 7), random.randint(1, 60)
        yield 10 * block + random.randint(0, classes, n), 10 * block + random.randint(0, groups, n)


@pytest.mark.parametrize("seed", range(3))
def test_cluster_accuracy_unconnected_blocks_fit_small_budget(seed, device):
    labels, clusters = map(np.concatenate, zip(*make_unconnected_blocks(np.random.RandomState(seed), 40), strict=True))
    order = np.random.RandomState(seed).permutation(len(labels))
    inputs = [torch.tensor(column[order], device=device) for column in (labels, clusters)]
    dense = cluster_accuracy(*inputs)
    for memory_budget in (4 * 6 * 6, 1000):  # budgets of one block at a time and of several
        assert torch.equal(cluster_accuracy(*inputs, memory_budget=memory_budget), dense)
    batch = [torch.stack([column, column.flip(0) // 10 * 10, torch.zeros_like(column)]) for column in inputs]
    assert torch.equal(cluster_accuracy(*batch, memory_budget=1500), cluster_accuracy(*batch))


def test_cluster_accuracy_connected_block_above_budget_raises(device):
    labels = torch.arange(200, device=device) // 2
    clusters = (torch.arange(200, device=device) + 1) // 2
    message = (
        "memory_budget: 100 classes and 101 clusters are linked by shared items and need a table of 40400 bytes, "
        "got 40399; pass a larger memory_budget"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        cluster_accuracy(labels, clusters, memory_budget=40_399)
    assert float(cluster_accuracy(labels, clusters, memory_budget=40_400)) == 0.5


def test_cluster_accuracy_invalid_input_raises(device):
    x = torch.zeros(4, dtype=torch.int64, device=device)
    for inputs, message in (
        ((x, x[:3]), "clusters: got shape (3,), wanted (4,)"),
        ((x[0], x), "labels: got shape (), wanted (..., N)"),
        ((x, x.to("meta")), f"devices differ: labels on {x.device}, clusters on meta; move them with .to(device)"),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            cluster_accuracy(*inputs)


def test_embedding_cluster_accuracy_clusters_all_updates(device):
    labels = torch.arange(60, device=device) % 3
    x = torch.eye(3, device=device)[labels] * 100 + torch.randn(60, 3, device=device)
    metric = EmbeddingClusterAccuracy(kmeans_func=TorchKMeans(init="k-means++"))
    for batch in zip(x.split(25), labels.split(25), strict=True):
        metric.update(*batch)
    assert metric.compute().shape == () and float(metric.compute()) == 1
    six_clusters = EmbeddingClusterAccuracy(n_clusters=6, kmeans_func=lambda x, n: np.arange(len(x)) % n)
    six_clusters.update(x, labels)
    assert float(six_clusters.compute()) == 0.5
    float_labels = EmbeddingClusterAccuracy(kmeans_func=lambda x, n: torch.arange(len(x)) % n)
    float_labels.update(x, labels / 2)
    assert float(float_labels.compute()) == 1


def test_embedding_cluster_accuracy_invalid_options_raise(device):
    with pytest.raises(ValueError, match=r"^n_clusters: got 0, wanted an integer >= 1$"):
        EmbeddingClusterAccuracy(0)
    with pytest.raises(ValueError, match=r"^memory_budget: got 0, wanted an integer >= 1$"):
        EmbeddingClusterAccuracy(memory_budget=0)
    x, labels = torch.zeros(3, 2, device=device), torch.zeros(3, device=device).long()
    for metric, message in (
        (EmbeddingClusterAccuracy(4), "n_clusters: got 4, wanted at most the number of rows of x, 3"),
        (
            EmbeddingClusterAccuracy(kmeans_func=lambda x, n: torch.zeros(2).long()),
            "clusters: got shape (2,), wanted (3,)",
        ),
    ):
        metric.update(x, labels)
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            metric.compute()
