import importlib
import itertools
import math
import re
from fractions import Fraction

import numpy as np
import pytest
import scipy.optimize
import sklearn.metrics
import torch
from retrieval_oracle import cases
from sklearn.metrics.cluster import contingency_matrix, expected_mutual_information

from tensormetrics.retrieval import ClusterAccuracy, EmbeddingClusterAccuracy, NormalizedMutualInfo
from tensormetrics.retrieval.clusters.mutual_info import AVERAGES
from tensormetrics.retrieval.functional import (
    adjusted_mutual_info,
    adjusted_rand,
    cluster_accuracy,
    completeness,
    contingency,
    expected_mutual_info,
    fowlkes_mallows,
    homogeneity,
    mutual_info,
    normalized_mutual_info,
    v_measure,
)
from tensormetrics.uncertainty import compare

pytestmark = pytest.mark.filterwarnings("ignore:The number of unique classes")  # of older scikit-learns


def best_matching(labels, clusters):
    table = contingency_matrix(labels, clusters)
    return table[scipy.optimize.linear_sum_assignment(table, maximize=True)].sum() / len(labels)


SCORES = {
    "NMI": (normalized_mutual_info, sklearn.metrics.normalized_mutual_info_score),
    "AMI": (adjusted_mutual_info, sklearn.metrics.adjusted_mutual_info_score),
    "ARI": (adjusted_rand, sklearn.metrics.adjusted_rand_score),
    "homogeneity": (homogeneity, sklearn.metrics.homogeneity_score),
    "completeness": (completeness, sklearn.metrics.completeness_score),
    "v_measure": (v_measure, sklearn.metrics.v_measure_score),
    "FMI": (fowlkes_mallows, sklearn.metrics.fowlkes_mallows_score),
    "mutual_information": (mutual_info, sklearn.metrics.mutual_info_score),
    "cluster_accuracy": (cluster_accuracy, best_matching),
}


def random_labelings():
    """Yield 48 pairs of labelings that cover all relations between two partitions and all kinds of sizes."""
    random = np.random.RandomState(0)
    for i in range(8):
        n, classes, clusters = random.randint(2, 200), random.randint(1, 20), random.randint(1, 20)
        labels = random.randint(0, classes, n)
        yield labels, random.randint(0, clusters, n)  # independent
        yield labels, np.where(random.rand(n) < 0.8, labels, random.randint(0, clusters, n))  # dependent
        yield labels, random.permutation(20)[labels]  # equal
        yield labels, labels * 20 + random.randint(0, clusters, n)  # a refinement
        yield labels * 20 + random.randint(0, clusters, n), labels  # a coarsening
        one = (np.zeros(n, int), np.arange(n))[i % 2]
        yield (one, labels) if i % 4 < 2 else (labels, one)


EDGES = {
    "none": ([], []),
    "one item": ([3], [8]),
    "two apart": ([0, 1], [5, 4]),
    "two together": ([1, 1], [4, 4]),
    "one class": ([0, 0, 0, 0], [0, 1, 1, 2]),
    "one cluster": ([0, 1, 1, 2], [0, 0, 0, 0]),
    "one class, singletons": ([0] * 6, list(range(6))),
    "both one": ([4] * 5, [1] * 5),
    "both singletons": (list(range(50)), list(range(50, 0, -1))),
    "singletons but two": (list(range(5)), [0, 0, 1, 2, 3]),
    "independent": ([0, 0, 1, 1], [0, 1, 0, 1]),
    "below chance": ([0, 0, 1, 1, 2, 2], [0, 1, 1, 2, 2, 0]),
}


def tensor_pair(labels, clusters, device):
    return torch.tensor(labels, device=device), torch.tensor(clusters, device=device)


@pytest.mark.parametrize("case", cases("clustering").values(), ids=cases("clustering").keys())
def test_golden_cases_scores_match_golden_file(case, device):
    table = contingency(*tensor_pair(case["labels"], case["clusters"], device))
    functions = {name: ours for name, (ours, _) in SCORES.items()}
    functions["expected_mutual_information"] = expected_mutual_info
    for name, expected in case["expected"].items():
        assert float(functions[name](table)) == pytest.approx(expected, abs=1e-9), name


@pytest.mark.parametrize("name", SCORES)
def test_random_labelings_scores_match_sklearn(name, device):
    ours, theirs = SCORES[name]
    pairs = list(random_labelings())
    assert len(pairs) == 48
    for labels, clusters in pairs:
        value = ours(*tensor_pair(labels, clusters, device))
        assert float(value) == pytest.approx(theirs(labels, clusters), abs=1e-10), (labels, clusters)
        assert value.dtype == torch.float64 and value.shape == ()


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("name", SCORES)
def test_edge_cases_scores_match_sklearn(name, edge, device):
    labels, clusters = EDGES[edge]
    ours, theirs = SCORES[name]
    without_items = {"mutual_information": 0.0, "cluster_accuracy": math.nan}  # where the others have a value
    expected = without_items[name] if name in without_items and not labels else theirs(labels, clusters)
    assert float(ours(*tensor_pair(labels, clusters, device))) == pytest.approx(expected, abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("average", AVERAGES)
def test_entropy_averages_scores_match_sklearn(average, device):
    scikit = sklearn.metrics
    for labels, clusters in itertools.chain(itertools.islice(random_labelings(), 18), EDGES.values()):
        pair = tensor_pair(labels, clusters, device)
        for ours, theirs in (
            (normalized_mutual_info, scikit.normalized_mutual_info_score),
            (adjusted_mutual_info, scikit.adjusted_mutual_info_score),
        ):
            value = float(ours(*pair, average=average))
            # Against singletons the smaller entropy leads to 0 / 0, where scikit-learn returns rounding errors.
            certain = math.isclose(float(mutual_info(*pair)), float(expected_mutual_info(*pair)), rel_tol=1e-12)
            if not (certain and average == "min"):
                expected = theirs(labels, clusters, average_method=average)
                assert value == pytest.approx(expected, abs=1e-9), (labels, clusters)


@pytest.mark.parametrize("beta", [0.0, 0.5, 3.0])
def test_v_measure_with_beta_matches_sklearn(beta, device):
    for labels, clusters in itertools.islice(random_labelings(), 30):
        if len(set(labels)) == 1 or len(set(clusters)) == 1:
            continue  # scikit-learn divides by zero for beta = 0
        expected = sklearn.metrics.v_measure_score(labels, clusters, beta=beta)
        value = v_measure(*tensor_pair(labels, clusters, device), beta=beta)
        assert float(value) == pytest.approx(expected, abs=1e-12)


def exact_expected_mutual_info(row_sizes, col_sizes, n):
    """Compute the expectation from exact rational probabilities; only the logarithms are rounded."""
    total = 0.0
    for a, b in itertools.product(row_sizes, col_sizes):
        for k in range(max(1, a + b - n), min(a, b) + 1):
            weight = Fraction(k * math.comb(b, k) * math.comb(n - b, a - k), n * math.comb(n, a))
            total += float(weight) * math.log(Fraction(n * k, a * b))
    return total


def test_expected_mutual_info_matches_exact_rationals(device):
    random = np.random.RandomState(1)
    for n in (1, 2, 3, 7, 20, 45, 60):
        for classes, clusters in ((1, n), (2, 3), (n, n), (5, n // 2 + 1), (2, 2)):
            pair = random.randint(0, classes, n), random.randint(0, clusters, n)
            sizes = [np.unique(labels, return_counts=True)[1].tolist() for labels in pair]
            value = float(expected_mutual_info(*tensor_pair(*pair, device)))
            assert value == pytest.approx(exact_expected_mutual_info(*sizes, n), rel=1e-12, abs=1e-13)


@pytest.mark.parametrize("kind", ["balanced", "random", "zipf", "halves"])
def test_expected_mutual_info_of_large_tables_matches_sklearn(kind, device):
    random = np.random.RandomState(2)
    n = 20_000  # so large that negligible terms are skipped
    labels, clusters = {
        "balanced": lambda: (np.arange(n) % 40, np.arange(n) // 50),
        "random": lambda: (random.randint(0, 50, n), random.randint(0, 60, n)),
        "zipf": lambda: (random.zipf(1.5, n), random.zipf(2.0, n)),
        "halves": lambda: (np.arange(n) % 2, random.randint(0, 2, n)),
    }[kind]()
    expected = expected_mutual_information(contingency_matrix(labels, clusters, sparse=True), n)
    value = expected_mutual_info(*tensor_pair(labels, clusters, device))
    assert float(value) == pytest.approx(expected, rel=2e-9)


def test_expected_mutual_info_memory_budget_changes_nothing(monkeypatch, device):
    pair = torch.randint(0, 30, (2, 3000), device=device)
    expected = expected_mutual_info(*pair)
    module = importlib.import_module("tensormetrics.retrieval.clusters.mutual_info")
    monkeypatch.setattr(module, "budget", lambda *_: 2**17)  # 128 terms at a time
    assert torch.equal(expected_mutual_info(*pair), expected)


def test_equal_partitions_and_refinements_score_exactly_one(device):
    for n in (3, 11, 1000):
        labels = torch.randint(0, n, (n,), device=device)
        fine = labels * 5 + torch.randint(0, 5, (n,), device=device)
        for average in AVERAGES:
            assert float(normalized_mutual_info(labels, -labels, average=average)) == 1
            assert float(adjusted_mutual_info(labels, -labels, average=average)) == 1
        assert float(homogeneity(labels, fine)) == float(completeness(fine, labels)) == 1


def test_compare_different_cluster_counts_matches_score_difference(generator):
    """The contingency tables have different shapes, so no cell of one corresponds to a cell of the other."""
    labels = torch.randint(5, (80,), generator=generator)
    fine, coarse = NormalizedMutualInfo(), NormalizedMutualInfo()
    fine.update(labels, labels + 5 * (torch.rand(80, generator=generator) < 0.3))
    coarse.update(labels, labels // 3)
    result = compare(fine, coarse)
    assert float(result.difference) == pytest.approx(float(fine.compute() - coarse.compute()))
    assert result.low <= result.difference <= result.high and result.discordant is None


@pytest.mark.full
@pytest.mark.parametrize(("items", "classes"), [(300, 5), (1000, 10)])
@pytest.mark.parametrize(("agreement", "refused"), [(0.0, (0.85, 1.0)), (0.3, (0.0, 0.02))])
def test_interval_of_cluster_accuracy_holds_truth_or_is_refused_near_chance(items, classes, agreement, refused):
    sets, misses, refusals = 200, 0, []
    for seed in range(sets):
        generator = torch.Generator().manual_seed(seed)
        labels, clusters = torch.randint(classes, (2, items), generator=generator)
        metric = ClusterAccuracy()
        metric.update(labels, torch.where(torch.rand(items, generator=generator) < agreement, labels, clusters))
        try:
            _, low, high = metric.interval(replicates=200)
            misses += not low <= agreement + (1 - agreement) / classes <= high
        except NotImplementedError as error:
            refusals.append(str(error))
    assert refused[0] <= len(refusals) / sets <= refused[1] and misses / sets <= 0.12
    assert all("agreement is hardly told from chance" in message for message in refusals)


def test_pair_scores_do_not_overflow_int64_products(device):
    # 200,000 items, half of them moved to the next of 8 clusters, so that all cells are known in closed form.
    labels = torch.arange(200_000, device=device) % 8
    clusters = torch.where(torch.arange(200_000, device=device) % 16 < 8, labels, (labels + 1) % 8)
    n, size, cell = 200_000, 25_000, 12_500
    tp, same = 16 * cell * (cell - 1), 8 * size * (size - 1)
    fp = fn = same - tp
    tn = n * (n - 1) - tp - fp - fn
    rand = 2 * (tp * tn - fp * fn) / ((tp + fp) * (fp + tn) + (tp + fn) * (fn + tn))
    assert float(adjusted_rand(labels, clusters)) == pytest.approx(rand, rel=1e-14)
    assert float(fowlkes_mallows(labels, clusters)) == pytest.approx(tp / same, rel=1e-14)


def test_contingency_small_example_has_expected_counts(device):
    labels, clusters = torch.tensor([[7, 7, -2, 7, 0], [1.5, 9.0, 1.5, 1.5, -0.0]], device=device)
    table = contingency(labels.long(), clusters)
    assert [part.tolist() for part in table[:-1]] == [[0, 1, 2, 2], [1, 0, 1, 2], [1, 1, 2, 1], [1, 1, 3], [1, 3, 1]]
    assert table.total == 5 and all(part.dtype == torch.int64 for part in table[:-1])


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int16, torch.uint32, torch.float16, torch.float64])
def test_contingency_accepts_any_label_dtype(dtype, device):
    labels = torch.tensor([1, 0, 1, 1], device=device)
    assert contingency(labels.to(dtype), labels).row_size.tolist() == [1, 3]


def test_contingency_large_labels_stay_distinct(device):
    labels = torch.tensor([2**62, 2**62 + 1, -(2**63)], device=device)
    assert contingency(labels, labels).row_size.tolist() == [1, 1, 1]


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


@pytest.mark.parametrize(("n_clusters", "accuracy"), [(None, 1), (6, 0.5)])
def test_embedding_cluster_accuracy_clusters_all_updates(n_clusters, accuracy, device):
    labels = torch.arange(60, device=device) % 3
    metric = EmbeddingClusterAccuracy(n_clusters, kmeans_func=lambda x, n: np.arange(len(x)) % n)
    for batch in zip(torch.zeros(60, 3, device=device).split(25), (labels / 2).split(25), strict=True):
        metric.update(*batch)
    assert float(metric.compute()) == accuracy
