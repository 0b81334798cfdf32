import itertools
import math
import re

import numpy as np
import pytest
import torch
from retrieval_oracle import cases

from tensormetrics.retrieval import (
    EmbeddingClusterAccuracy,
    NormalizedMutualInfo,
    TorchKMeans,
    cluster_accuracy,
    contingency,
)


def test_contingency_small_example_has_expected_counts(device):
    labels, clusters = torch.tensor([[7, 7, -2, 7, 0], [1.5, 9.0, 1.5, 1.5, -0.0]], device=device)
    table = contingency(labels.long(), clusters)
    assert [part.tolist() for part in table[:-1]] == [[0, 1, 2, 2], [1, 0, 1, 2], [1, 1, 2, 1], [1, 1, 3], [1, 3, 1]]
    assert table.total == 5 and all(part.dtype == torch.int64 for part in table[:-1])


def test_contingency_equals_dense_counts(device):
    random = np.random.RandomState(0)
    labels, clusters = random.randint(-3, 4, 90), random.randint(0, 9, 90)
    table = contingency(torch.tensor(labels, device=device), torch.tensor(clusters, device=device))
    dense = np.zeros((len(table.row_size), len(table.col_size)), int)
    dense[table.row.cpu(), table.col.cpu()] = table.count.cpu()
    names = np.unique(labels), np.unique(clusters)
    expected = [[np.sum((labels == a) & (clusters == b)) for b in names[1]] for a in names[0]]
    np.testing.assert_array_equal(dense, expected)
    np.testing.assert_array_equal(table.row_size.cpu(), np.sum(expected, 1))
    np.testing.assert_array_equal(table.col_size.cpu(), np.sum(expected, 0))
    assert (table.count > 0).all()


def test_contingency_batch_pads_shorter_tables(device):
    labels = torch.tensor([[3, 3, 3, 3], [0, 1, 2, 3]], device=device)
    table = contingency(labels, labels.flip(1))
    assert table.count.tolist() == [[4, 0, 0, 0], [1, 1, 1, 1]]
    assert table.row_size.tolist() == table.col_size.tolist() == table.count.tolist()


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int16, torch.uint32, torch.float16, torch.float64])
def test_contingency_accepts_any_label_dtype(dtype, device):
    labels = torch.tensor([1, 0, 1, 1], device=device)
    assert contingency(labels.to(dtype), labels).row_size.tolist() == [1, 3]


def test_contingency_large_labels_stay_distinct(device):
    labels = torch.tensor([2**62, 2**62 + 1, -(2**63)], device=device)
    assert contingency(labels, labels).row_size.tolist() == [1, 1, 1]


def test_contingency_without_items_is_empty(device):
    table = contingency(*torch.zeros(2, 0, device=device))
    assert table.total == 0 and [part.shape for part in table[:-1]] == [(0,)] * 5


def test_metric_update_accepts_inputs_of_function(device):
    metric = NormalizedMutualInfo().to(device)
    metric.update([0, 0, 1], np.array([[4.5], [4.5], [2.0]]))
    metric.update(torch.tensor([1], device=device), torch.tensor([2.0], device=device))
    assert float(metric.compute()) == 1
    with pytest.raises(ValueError, match=r"^clusters: got rows of shape \(\) and torch.int64 after"):
        metric.update([1], [2])
    assert len(metric.labels) == len(metric.clusters) == 4


@pytest.mark.parametrize("offset", [0, -7, 2**62])
@pytest.mark.parametrize("classes, groups", [(3, 4), (30, 2), (1, 1), (200, 90)])
def test_contingency_counted_table_equals_sorted_table(classes, groups, offset, device):
    """Cover labels that all occur and labels that do not; the largest shape is sorted in both cases."""
    generator = torch.Generator().manual_seed(classes)
    labels = torch.randint(0, classes, (60,), generator=generator).to(device) + offset
    clusters = torch.randint(0, groups, (60,), generator=generator).to(device) * 2 - offset
    table = contingency(labels, clusters)
    expected = contingency(labels[None].double() if offset < 2**62 else labels[None], clusters[None])
    for part, expected_part in zip(table[:5], expected[:5], strict=True):
        assert torch.equal(part, expected_part[0])
    assert table.total == expected.total == 60


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
