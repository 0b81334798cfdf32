import numpy as np
import pytest
import torch
from fake_device import DEVICE, Device
from retrieval_oracle import CASES, TINY

from tensormetrics.core.numbers.exact_sums import unit_of
from tensormetrics.retrieval import AccuracyCalculator, TorchKMeans, TorchKNN
from tensormetrics.retrieval.clusters.assignment import CentroidAssignment
from tensormetrics.retrieval.deterministic import argsort_by_content, largest_of_columns
from tensormetrics.retrieval.functional import nearest_centroid
from tensormetrics.retrieval.search.references import QueryCache


def lloyd(x, centroids, niter):
    """Run k-means with explicit loops; return clusters, centroids, inertia and the number of updates."""

    def assign():
        distances = ((x[:, None] - centroids[None]) ** 2).sum(-1)
        return distances.argmin(1), distances.min(1)

    centroids = centroids.copy()
    clusters, distances = assign()
    for num_updates in range(1, niter + 1):  # noqa: B007
        previous, members = clusters, clusters.copy()
        for cluster in range(len(centroids)):
            if cluster not in clusters:
                sizes = np.bincount(members, minlength=len(centroids))
                movable = [i for i in range(len(x)) if sizes[members[i]] > 1 and members[i] == clusters[i]]
                members[max(movable, key=lambda i: (distances[i], -i))] = cluster
        for cluster in range(len(centroids)):
            centroids[cluster] = x[members == cluster].mean(0)
        clusters, distances = assign()
        if (clusters == previous).all():
            break
    return clusters, centroids, distances.sum(), num_updates


def assert_agrees(kmeans, clusters, expected):
    np.testing.assert_array_equal(clusters.cpu(), expected[0])
    np.testing.assert_allclose(kmeans.centroids.cpu(), expected[1], rtol=1e-12, atol=1e-12)
    assert float(kmeans.inertia) == pytest.approx(expected[2], rel=1e-12)
    assert kmeans.n_iter == expected[3]


def test_kmeans_golden_case_matches_expected_clusters(device):
    case = CASES["kmeans/tiny_one_step"]
    kmeans = TorchKMeans(case["niter"], init=torch.tensor(case["init"], device=device))
    assert kmeans(torch.tensor(TINY, device=device), 4).tolist() == case["labels"]
    np.testing.assert_allclose(kmeans.centroids.cpu(), case["centroids"], rtol=1e-6)
    assert float(kmeans.inertia) == pytest.approx(case["inertia"], rel=1e-6) and kmeans.n_iter == 1


@pytest.mark.parametrize("niter", [1, 2, 50])
def test_kmeans_equals_explicit_loops(niter, device):
    x = np.random.RandomState(2).standard_normal((80, 3)).astype(np.float32)
    initial = np.float64(x[:6])
    kmeans = TorchKMeans(niter, init=torch.tensor(initial, device=device))
    clusters = kmeans(torch.tensor(x, device=device), 6)
    assert clusters.dtype == torch.int64 and kmeans.centroids.dtype == kmeans.inertia.dtype == torch.float64
    assert_agrees(kmeans, clusters, lloyd(np.float64(x), initial, niter))


def test_kmeans_empty_clusters_take_farthest_rows(device):
    x = np.array([[0.0], [1.0], [2.0], [10.0], [10.0], [-8.0]])
    initial = np.array([[0.0], [500.0], [600.0], [700.0]])
    for niter in (1, 2, 9):
        kmeans = TorchKMeans(niter, init=torch.tensor(initial, device=device))
        clusters = kmeans(torch.tensor(x, device=device), 4)
        assert_agrees(kmeans, clusters, lloyd(x, initial, niter))
    # Worked out by hand: the rows at 10 (lower index first), then the row at -8, leave the cluster at 0.
    kmeans = TorchKMeans(1, init=torch.tensor(initial, device=device))
    kmeans(torch.tensor(x, device=device), 4)
    assert kmeans.centroids.tolist() == [[1.0], [10.0], [10.0], [-8.0]]
    # The two rows of the cluster at 50 are the farthest, but one row has to stay.
    kmeans = TorchKMeans(1, init=torch.tensor([[0.0], [50.0], [500.0], [600.0]], device=device))
    kmeans(torch.tensor([[0.0], [0.5], [1.5], [60.0], [41.0]], device=device), 4)
    assert kmeans.centroids[:, 0].tolist() == [0.25, 41.0, 60.0, 1.5]


def test_kmeans_clusters_equal_to_rows_with_duplicates_have_no_inertia(device):
    x = torch.tensor([[0.0], [0.0], [7.0], [7.0]], device=device)
    for init in ("random", "k-means++", torch.zeros(4, 1, device=device)):
        kmeans = TorchKMeans(init=init)
        assert kmeans(x, 4).unique().numel() == 2 and float(kmeans.inertia) == 0
    assert TorchKMeans()(x, 1).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("init", ["random", "k-means++"])
def test_kmeans_seed_makes_initial_draws_reproducible(init, device):
    labels = torch.arange(90) % 3
    x = (torch.eye(3)[labels] * 100 + torch.randn(90, 3)).to(device)
    kmeans = TorchKMeans(init=init, seed=3)
    clusters = kmeans(x, 3)
    assert torch.equal(clusters, TorchKMeans(init=init, seed=3)(x, 3))
    assert torch.equal(clusters.cpu(), TorchKMeans(init=init, seed=3)(x.cpu(), 3))
    initial = TorchKMeans(1, init=init)._first_centroids(
        x, torch.arange(90, device=device), 3, torch.Generator().manual_seed(3)
    )
    assert all((x == row).all(1).any() for row in initial)
    if init == "k-means++":  # the groups are far apart, so each gets one centroid
        assert len({tuple(pair) for pair in torch.stack([clusters.cpu(), labels], 1).tolist()}) == 3


def test_kmeans_plus_plus_equals_explicit_loop(device):
    # Squares and sums of integers are exact in any order.
    x = np.random.RandomState(4).randint(-9, 10, (150, 5)).astype(np.float32)
    order = np.random.RandomState(5).permutation(150)
    draws = torch.rand(12, generator=torch.Generator().manual_seed(6), dtype=torch.float64).numpy()
    weight, expected = np.ones(150), []
    for draw in draws:
        mass = weight.cumsum()
        expected.append(x[order[min(np.searchsorted(mass, draw * mass[-1], side="right"), 149)]])
        squared = ((x[order] - expected[-1]) ** 2).sum(1)
        weight = squared if len(expected) == 1 else np.minimum(weight, squared)
    inputs = torch.tensor(x, device=device), torch.tensor(order, device=device)
    generator = torch.Generator().manual_seed(6)
    centroids = TorchKMeans(init="k-means++")._first_centroids(*inputs, 12, generator)
    np.testing.assert_array_equal(centroids.cpu(), np.stack(expected))


def test_kmeans_plus_plus_draws_never_wait_for_device():
    measured = []
    for draws in (2, 12):
        with Device() as fake_cuda:
            x, order = torch.randn(300, 8).to(DEVICE), torch.arange(300).to(DEVICE)
            fake_cuda.waits.clear()
            fake_cuda.operators = 0
            TorchKMeans(init="k-means++")._first_centroids(x, order, draws, torch.Generator())
            measured.append((fake_cuda.operators, len(fake_cuda.waits)))
    (operators_of_2, waits), (operators_of_12, later_waits) = measured
    # 18 operators of a draw sum the masses of 300 rows in a fixed order; the only wait copies the draws from the CPU.
    assert operators_of_12 - operators_of_2 <= 10 * 42 and waits == later_waits == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("memory", [2**28, 2**10])
def test_query_cache_with_distant_or_nonfinite_references_equals_search_without(memory, dtype, device):
    x = torch.randn(90, 7, device=device).to(dtype)
    query_cache = QueryCache(x, memory)
    close_references = torch.randn(40, 7, device=device, dtype=torch.float64) / 4
    distant_references = close_references.clone()
    distant_references[5], distant_references[6], distant_references[7] = 40.0, float("nan"), float("inf")
    for references in (close_references, distant_references, distant_references[:3]):
        expected, actual = (
            TorchKNN("sqeuclidean").search(x, 2, references, query_cache=cache)[1] for cache in (None, query_cache)
        )
        assert torch.equal(actual, expected)


def test_kmeans_n_init_returns_run_of_smallest_inertia(device):
    x = torch.randn(60, 2, device=device)
    kmeans = TorchKMeans(3, n_init=5, seed=2)
    clusters, generator = kmeans(x, 8), torch.Generator().manual_seed(2)
    order, units = argsort_by_content(x, 60), unit_of(largest_of_columns(x))
    starts = [kmeans._first_centroids(x, order, 8, generator) for _ in range(5)]
    runs = [TorchKMeans(3)._run(CentroidAssignment(x), order, units, start) for start in starts]
    inertias = [float(run[2]) for run in runs]
    best = runs[int(np.argmin(inertias))]
    assert len(set(inertias)) > 1 and kmeans.inertia == min(inertias)
    assert torch.equal(clusters, best[0]) and torch.equal(kmeans.centroids, best[1]) and kmeans.n_iter == best[3]


def test_kmeans_tol_stops_at_small_change(device):
    x = torch.randn(300, 2, device=device)
    inertias = []
    for niter in range(1, 12):
        kmeans = TorchKMeans(niter)
        kmeans(x, 10)
        inertias.append(float(kmeans.inertia))
    changes = [abs(b - a) / a for a, b in zip(inertias[:-1], inertias[1:], strict=True)]
    kmeans = TorchKMeans(12, tol=0.02)
    kmeans(x, 10)
    assert kmeans.n_iter == 2 + next(i for i, change in enumerate(changes) if change < 0.02) < 11
    assert float(kmeans.inertia) == inertias[kmeans.n_iter - 1]


def test_kmeans_max_points_per_centroid_samples_rows(device):
    labels = torch.arange(3000, device=device) % 3
    x = torch.eye(3, device=device)[labels] * 100 + torch.randn(3000, 3, device=device)
    kmeans = TorchKMeans(init="k-means++", max_points_per_centroid=20)
    clusters = kmeans(x, 3)
    assert torch.equal(clusters, torch.cdist(x.double(), kmeans.centroids).argmin(1))
    assert float(kmeans.inertia) == pytest.approx(float((x - kmeans.centroids[clusters]).square().sum()), rel=1e-12)
    # The centroids are means of 60 rows in total.
    full, sample = (
        TorchKMeans(init="k-means++"),
        kmeans._sample(x, argsort_by_content(x, 100), 3, torch.Generator().manual_seed(1234)),
    )
    assert len(sample) == len(sample.unique(dim=0)) == 60
    assert all((x == row).all(1).any() for row in sample)
    full(x, 3)
    assert 0.1 < (kmeans.centroids.sort(0).values - full.centroids.sort(0).values).abs().max() < 2
    assert torch.equal(TorchKMeans(max_points_per_centroid=1000)(x, 3), TorchKMeans()(x, 3))  # no row is left out


def test_kmeans_spherical_equals_cosine_loop(device):
    x = torch.randn(200, 4, device=device) * torch.rand(200, 1, device=device)
    x[7] = 0
    initial = torch.randn(5, 4, device=device)
    kmeans = TorchKMeans(4, init=initial, spherical=True)
    clusters = kmeans(x, 5)
    np.testing.assert_allclose(kmeans.centroids.norm(dim=1).cpu(), 1, rtol=1e-12)
    rows, centroids = x / x.norm(dim=1, keepdim=True).clamp(min=1e-30), initial / initial.norm(dim=1, keepdim=True)
    for _ in range(4):
        assigned = (rows @ centroids.T).argmax(1)
        centroids = torch.stack([rows[assigned == c].sum(0) for c in range(5)])
        centroids = centroids / centroids.norm(dim=1, keepdim=True)
    is_nonzero = torch.arange(200, device=device) != 7  # the zero row is equally near to all centroids
    assert torch.equal(clusters[is_nonzero], (rows @ centroids.T).argmax(1)[is_nonzero])
    assert torch.equal(clusters, TorchKMeans(4, init=3 * initial, spherical=True)(2 * x, 5))
    cosine = (rows @ centroids.T).amax(1)[is_nonzero]
    assert float(kmeans.inertia) == pytest.approx(float((2 - 2 * cosine).sum()) + 1, rel=1e-5)


def make_overlapping(items=201):
    generator = torch.Generator().manual_seed(6)
    labels = torch.arange(items) % 7
    x = torch.randn(7, 6, generator=generator)[labels] + torch.randn(items, 6, generator=generator)
    x[30:40] = x[50:60]  # equal rows with other labels
    return x, labels


OPTIONS = {
    "random": {},
    "k-means++": {"init": "k-means++"},
    "sampled": {"max_points_per_centroid": 5},
    "spherical": {"spherical": True},
    "several": {"n_init": 3, "tol": 0.01},
    "few updates": {"niter": 1},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_kmeans_permuted_rows_give_identical_bits(options, device):
    x = make_overlapping()[0].to(device)
    x[:, 2] *= 1e9  # rounding of these sums would depend on the order
    for clusters in (9, 195):  # 195 clusters include some that are empty at first
        kmeans = TorchKMeans(**options)
        expected = kmeans(x, clusters)
        attributes = kmeans.centroids, kmeans.inertia, kmeans.n_iter
        for _ in range(6 if clusters == 9 else 2):
            order = torch.randperm(len(x)).to(device)
            assert torch.equal(kmeans(x[order], clusters), expected[order])
            assert torch.equal(kmeans.centroids, attributes[0]) and (kmeans.inertia, kmeans.n_iter) == attributes[1:]


def test_nearest_centroid_permuted_rows_give_identical_bits(device):
    x, labels = (tensor.to(device) for tensor in make_overlapping())
    x *= torch.logspace(-9, 9, len(x), device=device)[:, None]
    expected = nearest_centroid(x, labels)
    for _ in range(20):
        order = torch.randperm(len(x)).to(device)
        assert torch.equal(nearest_centroid(x[order], labels[order]), expected[order])


def test_argsort_by_content_equal_keys_compare_columns(device, monkeypatch):
    monkeypatch.setattr("tensormetrics.retrieval.deterministic.halving_sum", lambda terms: terms.new_zeros(len(terms)))
    x = torch.tensor([[2.0, 1.0], [1.0, 3.0], [2.0, 1.0], [1.0, 2.0]], device=device)
    ordered = x[argsort_by_content(x, 3)]
    assert all(
        torch.equal(x[order][argsort_by_content(x[order], 3)], ordered) for order in ([3, 2, 1, 0], [1, 3, 0, 2])
    )


CLUSTERED = ("AMI", "NMI", "ARI", "cluster_accuracy", "nearest_centroid_accuracy")


def results_of(rank, pair):
    """Compute values on two and three ranks whose rows are interleaved as by a DistributedSampler."""
    x, labels = make_overlapping()
    results = {}
    for ranks, group in (((1, 2), pair), ((0, 1, 2), None)):
        if rank in ranks:
            local_rows = slice(ranks.index(rank), None, len(ranks))
            calculator = AccuracyCalculator(CLUSTERED, process_group=group)
            calculator.update(x[local_rows], labels[local_rows])
            results[len(ranks)] = calculator.compute()
    return results


def test_clusters_on_several_ranks_equal_single_process(ranks):
    calculator = AccuracyCalculator(CLUSTERED)
    calculator.update(*make_overlapping())
    expected = calculator.compute()
    assert all(values == expected for results in ranks for values in results.values())


def test_first_centroids_may_be_an_array():
    x, first = torch.tensor([[0.0], [0.1], [5.0], [5.1]]), np.array([[6.0], [1.0]])
    assert TorchKMeans(init=first)(x, 2).tolist() == [1, 1, 0, 0]
