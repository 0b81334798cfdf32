import re

import numpy as np
import pytest
import torch
from fake_device import DEVICE, Device
from retrieval_oracle import CASES, TINY

from tensormetrics._exact_sums import unit_of
from tensormetrics.retrieval import AccuracyCalculator, TorchKMeans, TorchKNN, nearest_centroid
from tensormetrics.retrieval.deterministic import argsort_by_content
from tensormetrics.retrieval.inputs import largest_of_columns
from tensormetrics.retrieval.search.product_filter import Filter
from tensormetrics.retrieval.search.references import QueryCache


def lloyd(x, centroids, niter):
    """k-means with explicit loops; returns clusters, centroids, inertia and the number of updates."""

    def assign():
        d = ((x[:, None] - centroids[None]) ** 2).sum(-1)
        return d.argmin(1), d.min(1)

    centroids = centroids.copy()
    clusters, d = assign()
    for n in range(1, niter + 1):  # noqa: B007
        previous, members = clusters, clusters.copy()
        for c in range(len(centroids)):
            if c not in clusters:
                sizes = np.bincount(members, minlength=len(centroids))
                free = [i for i in range(len(x)) if sizes[members[i]] > 1 and members[i] == clusters[i]]
                members[max(free, key=lambda i: (d[i], -i))] = c
        for c in range(len(centroids)):
            centroids[c] = x[members == c].mean(0)
        clusters, d = assign()
        if (clusters == previous).all():
            break
    return clusters, centroids, d.sum(), n


def agrees(kmeans, clusters, expected):
    np.testing.assert_array_equal(clusters.cpu(), expected[0])
    np.testing.assert_allclose(kmeans.centroids.cpu(), expected[1], rtol=1e-12, atol=1e-12)
    assert float(kmeans.inertia) == pytest.approx(expected[2], rel=1e-12)
    assert kmeans.n_iter == expected[3]


def test_golden(device):
    case = CASES["kmeans/tiny_one_step"]
    kmeans = TorchKMeans(case["niter"], init=torch.tensor(case["init"], device=device))
    assert kmeans(torch.tensor(TINY, device=device), 4).tolist() == case["labels"]
    np.testing.assert_allclose(kmeans.centroids.cpu(), case["centroids"], rtol=1e-6)
    assert float(kmeans.inertia) == pytest.approx(case["inertia"], rel=1e-6) and kmeans.n_iter == 1


@pytest.mark.parametrize("niter", [1, 2, 50])
def test_loops(niter, device):
    x = np.random.RandomState(2).standard_normal((80, 3)).astype(np.float32)
    first = np.float64(x[:6])
    kmeans = TorchKMeans(niter, init=torch.tensor(first, device=device))
    clusters = kmeans(torch.tensor(x, device=device), 6)
    assert clusters.dtype == torch.int64 and kmeans.centroids.dtype == kmeans.inertia.dtype == torch.float64
    agrees(kmeans, clusters, lloyd(np.float64(x), first, niter))


def test_empty_clusters_take_the_farthest_rows(device):
    x = np.array([[0.0], [1.0], [2.0], [10.0], [10.0], [-8.0]])
    first = np.array([[0.0], [500.0], [600.0], [700.0]])
    for niter in (1, 2, 9):
        kmeans = TorchKMeans(niter, init=torch.tensor(first, device=device))
        clusters = kmeans(torch.tensor(x, device=device), 4)
        agrees(kmeans, clusters, lloyd(x, first, niter))
    # By hand: the two rows at 10 (lower index first) and then the one at -8 leave the cluster at 0.
    kmeans = TorchKMeans(1, init=torch.tensor(first, device=device))
    kmeans(torch.tensor(x, device=device), 4)
    assert kmeans.centroids.tolist() == [[1.0], [10.0], [10.0], [-8.0]]
    # Both rows of the cluster at 50 are the farthest, but one of them stays.
    kmeans = TorchKMeans(1, init=torch.tensor([[0.0], [50.0], [500.0], [600.0]], device=device))
    kmeans(torch.tensor([[0.0], [0.5], [1.5], [60.0], [41.0]], device=device), 4)
    assert kmeans.centroids[:, 0].tolist() == [0.25, 41.0, 60.0, 1.5]


def test_as_many_clusters_as_rows_and_equal_rows(device):
    x = torch.tensor([[0.0], [0.0], [7.0], [7.0]], device=device)
    for init in ("random", "k-means++", torch.zeros(4, 1, device=device)):
        kmeans = TorchKMeans(init=init)
        assert kmeans(x, 4).unique().numel() == 2 and float(kmeans.inertia) == 0
    assert TorchKMeans()(x, 1).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("init", ["random", "k-means++"])
def test_draws(init, device):
    labels = torch.arange(90) % 3
    x = (torch.eye(3)[labels] * 100 + torch.randn(90, 3)).to(device)
    kmeans = TorchKMeans(init=init, seed=3)
    clusters = kmeans(x, 3)
    assert torch.equal(clusters, TorchKMeans(init=init, seed=3)(x, 3))
    assert torch.equal(clusters.cpu(), TorchKMeans(init=init, seed=3)(x.cpu(), 3))
    first = TorchKMeans(1, init=init)._first_centroids(
        x, torch.arange(90, device=device), 3, torch.Generator().manual_seed(3)
    )
    assert all((x == row).all(1).any() for row in first)
    if init == "k-means++":  # far apart: one centroid in each group
        assert len({tuple(pair) for pair in torch.stack([clusters.cpu(), labels], 1).tolist()}) == 3


def test_kmeans_plus_plus_weights(device):
    # The second centroid is row 1 or 2 with odds 1 : 9 when the first is row 0, and never row 0 again.
    x = torch.tensor([[0.0], [1.0], [3.0]], device=device)
    generator, kmeans = torch.Generator().manual_seed(0), TorchKMeans(init="k-means++")
    pairs = [
        tuple(kmeans._first_centroids(x, torch.arange(3, device=device), 2, generator)[:, 0].tolist())
        for _ in range(400)
    ]
    after_zero = [second for first, second in pairs if first == 0]
    assert len(after_zero) > 100 and {first for first, _ in pairs} == {0, 1, 3}
    assert 0.03 < np.mean([second == 1 for second in after_zero]) < 0.19 and 0 not in after_zero


def test_kmeans_plus_plus_draws_what_a_loop_draws(device):
    # Integers, whose squares and sums are exact in any order.
    x = np.random.RandomState(4).randint(-9, 10, (150, 5)).astype(np.float32)
    order = np.random.RandomState(5).permutation(150)
    draws = torch.rand(12, generator=torch.Generator().manual_seed(6), dtype=torch.float64).numpy()
    weight, expected = np.ones(150), []
    for draw in draws:
        mass = weight.cumsum()
        expected.append(x[order[min(np.searchsorted(mass, draw * mass[-1], side="right"), 149)]])
        squared = ((x[order] - expected[-1]) ** 2).sum(1)
        weight = squared if len(expected) == 1 else np.minimum(weight, squared)
    sides = torch.tensor(x, device=device), torch.tensor(order, device=device)
    generator = torch.Generator().manual_seed(6)
    found = TorchKMeans(init="k-means++")._first_centroids(*sides, 12, generator)
    np.testing.assert_array_equal(found.cpu(), np.stack(expected))


def test_a_draw_of_kmeans_plus_plus_waits_for_nothing():
    asked = []
    for draws in (2, 12):
        with Device() as pretended:
            x, order = torch.randn(300, 8).to(DEVICE), torch.arange(300).to(DEVICE)
            pretended.waits.clear()
            pretended.operators = 0
            TorchKMeans(init="k-means++")._first_centroids(x, order, draws, torch.Generator())
            asked.append((pretended.operators, len(pretended.waits)))
    (few, waits), (many, later) = asked
    # 18 of a draw add up the masses of 300 rows in one order; the wait is that of the draws, which are made on the CPU.
    assert many - few <= 10 * 42 and waits == later == 1


def test_rows_are_prepared_once_for_all_updates(device, monkeypatch):
    x, prepared, scaled = torch.randn(500, 6, device=device), [], Filter.scaled

    def counted(filter_, rows, found):
        prepared.append(len(rows))
        return scaled(filter_, rows, found)

    monkeypatch.setattr(Filter, "scaled", counted)
    kmeans = TorchKMeans(8)
    clusters = kmeans(x, 9)
    assert kmeans.n_iter == 8 and sum(prepared) == 500
    assert torch.equal(clusters, torch.cdist(x.double(), kmeans.centroids).argmin(1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("memory", [2**28, 2**10])
def test_known_queries_find_references_wherever_they_are(memory, dtype, device):
    x = torch.randn(90, 7, device=device).to(dtype)
    known = QueryCache(x, memory)
    near = torch.randn(40, 7, device=device, dtype=torch.float64) / 4
    far = near.clone()
    far[5], far[6], far[7] = 40.0, float("nan"), float("inf")
    for references in (near, far, far[:3]):
        plain, found = (TorchKNN("sqeuclidean").search(x, 2, references, query_cache=k)[1] for k in (None, known))
        assert torch.equal(found, plain)


def test_the_best_of_several_runs_is_kept(device):
    x = torch.randn(60, 2, device=device)
    kmeans = TorchKMeans(3, n_init=5, seed=2)
    clusters, generator = kmeans(x, 8), torch.Generator().manual_seed(2)
    order, units = argsort_by_content(x, 60), unit_of(largest_of_columns(x))
    starts = [kmeans._first_centroids(x, order, 8, generator) for _ in range(5)]
    known = QueryCache(x, 2**28)
    runs = [TorchKMeans(3)._run(x, known, order, units, start) for start in starts]
    inertias = [float(run[2]) for run in runs]
    best = runs[int(np.argmin(inertias))]
    assert len(set(inertias)) > 1 and kmeans.inertia == min(inertias)
    assert torch.equal(clusters, best[0]) and torch.equal(kmeans.centroids, best[1]) and kmeans.n_iter == best[3]


def test_tolerance(device):
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


def test_centroids_from_a_sample(device):
    labels = torch.arange(3000, device=device) % 3
    x = torch.eye(3, device=device)[labels] * 100 + torch.randn(3000, 3, device=device)
    kmeans = TorchKMeans(init="k-means++", max_points_per_centroid=20)
    clusters = kmeans(x, 3)
    assert torch.equal(clusters, torch.cdist(x.double(), kmeans.centroids).argmin(1))
    assert float(kmeans.inertia) == pytest.approx(float((x - kmeans.centroids[clusters]).square().sum()), rel=1e-12)
    # The centroids are means of 60 rows in all.
    whole, sample = (
        TorchKMeans(init="k-means++"),
        kmeans._sample(x, argsort_by_content(x, 100), 3, torch.Generator().manual_seed(1234)),
    )
    assert len(sample) == len(sample.unique(dim=0)) == 60
    assert all((x == row).all(1).any() for row in sample)
    whole(x, 3)
    assert 0.1 < (kmeans.centroids.sort(0).values - whole.centroids.sort(0).values).abs().max() < 2
    assert torch.equal(TorchKMeans(max_points_per_centroid=1000)(x, 3), TorchKMeans()(x, 3))  # nothing to leave out


def test_spherical(device):
    x = torch.randn(200, 4, device=device) * torch.rand(200, 1, device=device)
    x[7] = 0
    first = torch.randn(5, 4, device=device)
    kmeans = TorchKMeans(4, init=first, spherical=True)
    clusters = kmeans(x, 5)
    np.testing.assert_allclose(kmeans.centroids.norm(dim=1).cpu(), 1, rtol=1e-12)
    rows, centroids = x / x.norm(dim=1, keepdim=True).clamp(min=1e-30), first / first.norm(dim=1, keepdim=True)
    for _ in range(4):
        assigned = (rows @ centroids.T).argmax(1)
        centroids = torch.stack([rows[assigned == c].sum(0) for c in range(5)])
        centroids = centroids / centroids.norm(dim=1, keepdim=True)
    kept = torch.arange(200, device=device) != 7  # the zero row is equally near to all centroids
    assert torch.equal(clusters[kept], (rows @ centroids.T).argmax(1)[kept])
    assert torch.equal(clusters, TorchKMeans(4, init=3 * first, spherical=True)(2 * x, 5))
    cosine = (rows @ centroids.T).amax(1)[kept]
    assert float(kmeans.inertia) == pytest.approx(float((2 - 2 * cosine).sum()) + 1, rel=1e-5)


def test_bad_input(device):
    x = torch.zeros(3, 2, device=device)
    for call, message in (
        (lambda: TorchKMeans(0), "niter: got 0, wanted an integer >= 1"),
        (lambda: TorchKMeans(init="best"), "init: got 'best', wanted one of 'random', 'k-means++'"),
        (lambda: TorchKMeans(seed=-1), "seed: got -1, wanted an integer >= 0"),
        (lambda: TorchKMeans(n_init=0), "n_init: got 0, wanted an integer >= 1"),
        (lambda: TorchKMeans(tol=-0.1), "tol: got -0.1, wanted a number >= 0"),
        (lambda: TorchKMeans(tol=float("nan")), "tol: got nan, wanted a number >= 0"),
        (
            lambda: TorchKMeans(max_points_per_centroid=0),
            "max_points_per_centroid: got 0, wanted an integer >= 1",
        ),
        (lambda: TorchKMeans()(x, 0), "n_clusters: got 0, wanted an integer >= 1"),
        (lambda: TorchKMeans()(x, 4), "n_clusters: got 4, wanted at most the number of rows of x, 3"),
        (lambda: TorchKMeans()(x[0], 1), "x: got shape (2,), wanted (N, D)"),
        (lambda: TorchKMeans(init=x)(x, 2), "init: got shape (3, 2), wanted (2, 2)"),
        (
            lambda: TorchKMeans(init=x.to("meta"))(x, 3),
            f"devices differ: x on {device}, init on meta; move them with .to(device)",
        ),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
            call()


def overlapping(items=201):
    generator = torch.Generator().manual_seed(6)
    labels = torch.arange(items) % 7
    x = torch.randn(7, 6, generator=generator)[labels] + torch.randn(items, 6, generator=generator)
    x[30:40] = x[50:60]  # equal rows of other labels
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
def test_twenty_permutations_give_the_same_bits(options, device):
    x = overlapping()[0].to(device)
    x[:, 2] *= 1e9  # sums that would be rounded otherwise in another order
    for clusters in (9, 195):  # of so many some are empty at first
        kmeans = TorchKMeans(**options)
        expected = kmeans(x, clusters)
        found = kmeans.centroids, kmeans.inertia, kmeans.n_iter
        for _ in range(20 if clusters == 9 else 3):
            order = torch.randperm(len(x)).to(device)
            assert torch.equal(kmeans(x[order], clusters), expected[order])
            assert torch.equal(kmeans.centroids, found[0]) and (kmeans.inertia, kmeans.n_iter) == found[1:]


def test_means_of_classes_have_the_same_bits_in_any_order(device):
    x, labels = (side.to(device) for side in overlapping())
    x *= torch.logspace(-9, 9, len(x), device=device)[:, None]
    expected = nearest_centroid(x, labels)
    for _ in range(20):
        order = torch.randperm(len(x)).to(device)
        assert torch.equal(nearest_centroid(x[order], labels[order]), expected[order])


@pytest.mark.parametrize("columns", [1, 4])
def test_an_order_by_content(columns, device):
    x = torch.randint(0, 2, (90, columns), device=device).float()
    x[::3] = torch.randn(30, columns, device=device)
    ordered = x[argsort_by_content(x, 8)]
    for _ in range(5):
        permuted = x[torch.randperm(90).to(device)]
        assert torch.equal(permuted[argsort_by_content(permuted, 8)], ordered)


def test_rows_of_equal_keys_are_ordered_by_their_columns(device, monkeypatch):
    monkeypatch.setattr("tensormetrics.retrieval.deterministic.halving_sum", lambda terms: terms.new_zeros(len(terms)))
    x = torch.tensor([[2.0, 1.0], [1.0, 3.0], [2.0, 1.0], [1.0, 2.0]], device=device)
    ordered = x[argsort_by_content(x, 3)]
    assert all(
        torch.equal(x[order][argsort_by_content(x[order], 3)], ordered) for order in ([3, 2, 1, 0], [1, 3, 0, 2])
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_rows_that_are_not_finite(value, device):
    message = "x: 1 of 3 rows hold NaN or infinity, the first is row 1; wanted finite values"
    with pytest.raises(ValueError, match=f"^{message}$"):
        TorchKMeans()(torch.tensor([[0.0], [value], [1.0]], device=device), 2)


CLUSTERED = ("AMI", "NMI", "ARI", "cluster_accuracy", "nearest_centroid_accuracy")


def results_of(rank, pair):
    """What two and three ranks answer whose rows are interleaved, as a DistributedSampler does."""
    x, labels = overlapping()
    results = {}
    for ranks, group in (((1, 2), pair), ((0, 1, 2), None)):
        if rank in ranks:
            own = slice(ranks.index(rank), None, len(ranks))
            calculator = AccuracyCalculator(CLUSTERED, process_group=group)
            calculator.update(x[own], labels[own])
            results[len(ranks)] = calculator.compute()
    return results


def test_ranks_answer_what_one_answers(rank_results):
    calculator = AccuracyCalculator(CLUSTERED)
    calculator.update(*overlapping())
    expected = calculator.compute()
    for results in rank_results:
        for found in results["test_kmeans"].values():
            assert found == expected
