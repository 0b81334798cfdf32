"""Groups of cells with one small prior: all implementations sample equally which of them have a mass, and their
proportions have the Dirichlet distribution."""

import numpy as np
import pytest
import scipy.stats
import torch
from emulated_operators import lanes
from test_posterior_kernels import keys

from tensormetrics.posterior import (
    dirichlet_prior,
    get_metric,
    sample_confusion_matrices,
    sample_dirichlet,
    sample_metrics,
    sample_sums,
    sums_from_matrices,
)
from tensormetrics.posterior.metrics.classification import SCORES
from tensormetrics.posterior.sampling import operators, reference
from tensormetrics.posterior.sampling.stick_breaking import in_groups

START = 2**32 - 20  # the high word of the sample's number changes


def extreme_counts(C):
    """Build two tables whose rows have counts, no counts, one certain class, fractions or large counts."""
    generator = torch.Generator().manual_seed(C)
    counts = torch.zeros(2, C, C, dtype=torch.float64)
    counts[0, :, :3] = torch.randint(0, 9, (C, 3), generator=generator).double()
    counts[0, 5] = 0
    counts[0, 7, 2] = 0.3
    counts[1, 3, 3] = 50
    counts[1, 4] = torch.rand(C, generator=generator, dtype=torch.float64)
    counts[1, 8, 2] = 1e6
    counts[1, 9:, 7] = 5  # a model that answers 7
    return counts


def kernels(device):
    emulated = [lanes(f"dirichlet_sums_{team}") for team in ("warp", "block")] if device.type == "cpu" else []
    return [operators.dirichlet_sums, *emulated]


def run_operator(operator, cells, dtype, device, samples=40, forms=True, start=START):
    E, C, _ = cells.shape
    weights = torch.rand(2, C, C, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(device)
    out = torch.full((E, 4 * C + 2 * forms, samples), torch.nan, dtype=dtype, device=device)
    operator(out, cells.sum(-1), cells, weights if forms else None, keys(E, 3, device=device), start)
    return out


@pytest.mark.parametrize("prior", ["balanced", 2**-8])
def test_grouped_kernels_equal_reference(prior, device):
    cells = (extreme_counts(70) + dirichlet_prior(prior, (70, 70))).to(device)
    groups = in_groups(reference.without_diagonal(cells))
    assert groups is not None and groups.any(-1).sum() > 60
    expected = run_operator(reference.dirichlet_sums, cells, torch.float64, device, samples=3)
    for kernel in kernels(device):
        sums = run_operator(kernel, cells, torch.float64, device, samples=3)
        torch.testing.assert_close(sums, expected, rtol=1e-9, atol=1e-24)
        single = run_operator(kernel, cells, torch.float32, device, samples=3)
        assert torch.isclose(single.double(), expected, rtol=1e-5, atol=1e-37).double().mean() > 0.98


def test_grouped_kernels_tiny_false_positives_equal_reference(device):
    """False positives are compared however small they are, in all rows that may contain them."""
    cells = (extreme_counts(70) + dirichlet_prior("balanced", (70, 70))).to(device)
    cells[0, 20:40] += 2**-12  # their groups have a different concentration
    expected = run_operator(reference.dirichlet_sums, cells, torch.float64, device, samples=6)[:, 140:210]
    assert 0.2 < (expected[0, 8:] < 1e-20).double().mean() < 0.99 and (expected > 0).double().mean() > 0.9
    for kernel in kernels(device):
        actual = run_operator(kernel, cells, torch.float64, device, samples=6)[:, 140:210]
        torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-300)


def test_grouped_sample_does_not_depend_on_others(device):
    cells = (extreme_counts(70) + dirichlet_prior("balanced", (70, 70))).to(device)
    for dtype in torch.float32, torch.float64:
        full = run_operator(operators.dirichlet_sums, cells, dtype, device, samples=150)
        for first, n in (0, 1), (1, 63), (64, 64), (100, 50):
            part = run_operator(
                operators.dirichlet_sums, cells, dtype, device, samples=n, forms=False, start=START + first
            )
            assert torch.equal(part, full[:, :280, first : first + n])
        single = run_operator(operators.dirichlet_sums, cells[:1], dtype, device, samples=150)
        assert torch.equal(single, full[:1])
    counts = extreme_counts(70).to(device)
    matrices = sample_confusion_matrices(counts, 30, start=START, dtype=torch.float64)
    for first, n in (0, 1), (5, 12), (17, 13):
        part = sample_confusion_matrices(counts, n, start=START + first, dtype=torch.float64)
        assert torch.equal(part, matrices[first : first + n])


def test_grouped_sums_equal_sums_of_matrices(device):
    counts = extreme_counts(70).to(device)
    matrices = sample_confusion_matrices(counts, 30, dtype=torch.float64)
    assert 0 < (matrices == 0).double().mean() < 1
    for actual, expected in zip(
        sample_sums(counts, 30, dtype=torch.float64)[:4], sums_from_matrices(matrices)[:4], strict=True
    ):
        torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-24)


def test_true_negatives_of_dominant_class_are_accurate(device):
    """The other classes are smaller by powers of 2 that a sum with the dominant class would lose."""
    counts = torch.zeros(70, 70, device=device)
    counts[0, 0], counts[0, 3] = 50, 3
    priors = {"prevalence_prior": 1e-4, "confusion_prior": 2**-10}
    sums = sample_sums(counts, 300, dtype=torch.float64, **priors)
    negatives = (sums.tp + sums.fn)[:, 0, 1:].sum(-1)
    assert (negatives < 2**-120).double().mean() > 0.2
    torch.testing.assert_close((sums.fp + sums.tn)[:, 0, 0], negatives, rtol=1e-9, atol=0)


def test_cells_outside_group_keep_their_ratio(device):
    """The ratio of two observed cells is that of a table where all others are impossible."""
    counts = torch.zeros(70, 70, dtype=torch.float64, device=device)
    counts[0, 3], counts[0, 66] = 4, 2.5
    options = {"prevalence_prior": torch.eye(70)[0], "dtype": torch.float64}
    prior = torch.where((counts == 0) & (torch.arange(70, device=device)[:, None] == 0), 0.001, 0)
    with_group = sample_sums(counts, 200, confusion_prior=prior, **options).fp[:, 0]
    without = sample_sums(counts, 200, confusion_prior=0, **options).fp[:, 0]
    assert (with_group[:, 10] > 0).any()
    torch.testing.assert_close(with_group[:, 3] / with_group[:, 66], without[:, 3] / without[:, 66], rtol=1e-12, atol=0)


def wrong_proportions(C, mass, S, device):
    """Sample (S, C - 1) proportions of wrong answers: three classes have a count of 2, others share a prior `mass`."""
    counts, prior = torch.zeros(2, C, C, dtype=torch.float64, device=device)
    counts[0, 1:4] = 2
    prior[0, 1:] = mass / (C - 4)
    sums = sample_sums(counts, S, prevalence_prior=0, confusion_prior=prior, dtype=torch.float64)
    alpha = (counts + prior)[0, 1:]
    return (sums.fp[:, 0, 1:] / sums.fn[:, 0, :1]).cpu(), alpha.cpu()


@pytest.mark.parametrize("mass", [0.05, 1.0, 3.5])
@pytest.mark.parametrize("C", [10, 100, 1000])
def test_grouped_proportions_have_dirichlet_law(C, mass, device):
    """C = 10, and 3.5 for 100 classes, are sampled cell by cell: both methods have the distribution."""
    S = 2000
    x, alpha = wrong_proportions(C, mass, S, device)
    assert (in_groups(alpha[None]) is not None) == (C == 1000 or (C == 100 and mass / 96 <= 2**-8))
    total = float(alpha.sum())
    torch.testing.assert_close(x.sum(-1), torch.ones(S, dtype=torch.float64), rtol=1e-12, atol=0)
    mean = alpha / total
    error = (mean * (1 - mean) / (total + 1) / S).sqrt()
    assert ((x.mean(0) - mean)[:3].abs() <= 5 * error[:3]).all()
    group = x[:, 3:]
    a, n = mass / (C - 4), C - 4
    for y, expected in (
        ((group**2).sum(-1), n * a * (a + 1) / total / (total + 1)),  # the variances,
        (group.sum(-1) ** 2 - (group**2).sum(-1), n * (n - 1) * a * a / total / (total + 1)),  # covariances of pairs
        (group.sum(-1) * x[:, 0], n * a * float(alpha[0]) / total / (total + 1)),  # and with what was seen
    ):
        assert abs(y.mean() - expected) <= 5 * y.std() / S**0.5
    half = n // 2
    for part, shape in (group, n * a), (group[:, :half], half * a), (x[:, :1], float(alpha[0])):
        law = scipy.stats.beta(shape, total - shape)
        uniform = law.cdf(part.sum(-1).clamp(min=1e-15).numpy())  # below it has the mass of an exact 0
        below = law.cdf(1e-15)
        jittered = np.where(uniform <= below, below * np.random.default_rng(0).random(S), uniform)
        assert scipy.stats.kstest(jittered, "uniform").pvalue > 1e-3
    ungrouped = sample_dirichlet(alpha, S, seed=9)[:, 3:].double()  # every cell by itself
    for statistic in lambda y: y.amax(-1), lambda y: y.topk(2).values[:, 1]:
        pair = (statistic(y).clamp(min=1e-12).numpy() for y in (group, ungrouped))
        assert scipy.stats.ks_2samp(*pair).pvalue > 1e-3
    first = group.argmax(-1)[group.amax(-1) > 0]
    hits, sizes = (torch.bincount(column * 5 // n, minlength=5).double() for column in (first, torch.arange(n)))
    assert scipy.stats.chisquare(hits, sizes / n * len(first)).pvalue > 1e-3


def test_single_group_sums_to_one(device):
    """The group is the only part of its row, however small the concentrations are."""
    prior = torch.full((100, 100), 1e-9, dtype=torch.float64, device=device)
    sums = sample_sums(torch.zeros(100, 100, device=device), 300, prevalence_prior=1, confusion_prior=prior)
    torch.testing.assert_close(sum(sums[:4]), torch.ones_like(sums.tp))
    matrices = sample_confusion_matrices(torch.zeros(100, 100), 20, prevalence_prior=1, confusion_prior=prior.cpu())
    assert ((matrices > 0).sum(-1) >= 1).all()


def test_grouped_operator_infinite_shape_gives_nan(device):
    cells = (extreme_counts(70) + dirichlet_prior("balanced", (70, 70))).to(device)
    cells[0, 6, 1] = torch.inf
    for operator in operators.dirichlet_sums, reference.dirichlet_sums:
        out = torch.zeros(2, 280, 70, dtype=torch.float64, device=device)
        operator(out, extreme_counts(70).sum(-1).to(device) + 1, cells, None, keys(2, 3, device=device), 0)
        assert out[0, [6, 76]].isnan().all() and out[1].isfinite().all() and out[0, :6].isfinite().all()


@pytest.mark.parametrize("score", SCORES, ids=lambda score: score.aliases[0])
def test_metrics_of_samples_with_zeros_equal_metrics_of_matrices(score, device):
    """Metrics of sampled sums equal those of the matrix; only 0 / 0 is nan, x / 0 is infinite."""
    alias, counts = score.aliases[0], extreme_counts(70)[1].to(device)
    prior = torch.full((70, 70), 2**-9, dtype=torch.float64).fill_diagonal_(1)
    options = {"prevalence_prior": 1, "confusion_prior": prior, "dtype": torch.float64}
    (samples,) = sample_metrics(counts, alias, 30, **options)
    matrices = sample_confusion_matrices(counts, 30, **options)
    expected = get_metric(alias)(matrices)
    torch.testing.assert_close(samples, expected.double(), rtol=1e-7, atol=1e-20, equal_nan=True)
    low, high = get_metric(alias).bounds_of(70)
    finite = samples[samples.isfinite()]
    assert len(finite) and finite.min() >= low - 1e-9 and finite.max() <= high + 1e-9
