"""Rows of which many cells share one small prior: the few cells that have a mass are drawn, by every implementation
alike, and have the Dirichlet law."""

import numpy as np
import pytest
import scipy.stats
import torch
from emulated_operators import lanes

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
from tensormetrics.uncertainty.engine.philox import philox_key

START = 2**32 - 20  # the high word of the sample's number changes


def hostile(C):
    """Two tables with rows of every kind: with counts, without, certain, with fractions, with many counts."""
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


def drawn(operator, cells, dtype, device, samples=40, forms=True, start=START):
    E, C, _ = cells.shape
    weights = torch.rand(2, C, C, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(device)
    out = torch.full((E, 4 * C + 2 * forms, samples), torch.nan, dtype=dtype, device=device)
    keys = [philox_key(3, str(k), "posterior", "x") for k in range(3 * E)]
    keys = torch.tensor(keys, device=device).view(E, 3, 2)
    operator(out, cells.sum(-1), cells, weights if forms else None, keys, start)
    return out


@pytest.mark.parametrize("prior", ["balanced", 2**-8])
def test_kernels_equal_the_reference(prior, device):
    cells = (hostile(70) + dirichlet_prior(prior, (70, 70))).to(device)
    groups = in_groups(reference.without_diagonal(cells))
    assert groups is not None and groups.any(-1).sum() > 60
    expected = drawn(reference.dirichlet_sums, cells, torch.float64, device, samples=6)
    emulated = [lanes(f"dirichlet_sums_{team}") for team in ("warp", "block")] if device.type == "cpu" else []
    for kernel in [operators.dirichlet_sums, *emulated]:
        found = drawn(kernel, cells, torch.float64, device, samples=6)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-24)
        single = drawn(kernel, cells, torch.float32, device, samples=6)
        assert torch.isclose(single.double(), expected, rtol=1e-5, atol=1e-37).double().mean() > 0.98


def test_false_positives_of_unpredicted_classes_equal_the_reference(device):
    """However small they are, by each row that they may lie in."""
    cells = (hostile(70) + dirichlet_prior("balanced", (70, 70))).to(device)
    cells[0, 20:40] += 2**-12  # their groups have another shape
    expected = drawn(reference.dirichlet_sums, cells, torch.float64, device, samples=20)[:, 140:210]
    assert 0.2 < (expected[0, 8:] < 1e-20).double().mean() < 0.99 and (expected > 0).double().mean() > 0.9
    emulated = [lanes(f"dirichlet_sums_{team}") for team in ("warp", "block")] if device.type == "cpu" else []
    for kernel in [operators.dirichlet_sums, *emulated]:
        actual = drawn(kernel, cells, torch.float64, device, samples=20)[:, 140:210]
        torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-300)


def test_a_sample_is_the_same_in_any_company(device):
    cells = (hostile(70) + dirichlet_prior("balanced", (70, 70))).to(device)
    for dtype in torch.float32, torch.float64:
        whole = drawn(operators.dirichlet_sums, cells, dtype, device, samples=150)
        for first, n in (0, 1), (1, 63), (64, 64), (100, 50):
            part = drawn(operators.dirichlet_sums, cells, dtype, device, samples=n, forms=False, start=START + first)
            assert torch.equal(part, whole[:, :280, first : first + n])
        alone = drawn(operators.dirichlet_sums, cells[:1], dtype, device, samples=150)
        assert torch.equal(alone, whole[:1])
    counts = hostile(70).to(device)
    matrices = sample_confusion_matrices(counts, 30, start=START, dtype=torch.float64)
    for first, n in (0, 1), (5, 12), (17, 13):
        part = sample_confusion_matrices(counts, n, start=START + first, dtype=torch.float64)
        assert torch.equal(part, matrices[first : first + n])


def test_sums_are_those_of_the_matrices(device):
    counts = hostile(70).to(device)
    matrices = sample_confusion_matrices(counts, 30, dtype=torch.float64)
    assert 0 < (matrices == 0).double().mean() < 1
    for found, expected in zip(
        sample_sums(counts, 30, dtype=torch.float64)[:4], sums_from_matrices(matrices)[:4], strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-24)


def test_true_negatives_of_the_class_that_has_nearly_all_items(device):
    """What is beside it is smaller by powers that no sum of both could hold."""
    counts = torch.zeros(70, 70, device=device)
    counts[0, 0], counts[0, 3] = 50, 3
    priors = {"prevalence_prior": 1e-4, "confusion_prior": 2**-10}
    sums = sample_sums(counts, 300, dtype=torch.float64, **priors)
    negatives = (sums.tp + sums.fn)[:, 0, 1:].sum(-1)
    assert (negatives < 2**-120).double().mean() > 0.2
    torch.testing.assert_close((sums.fp + sums.tn)[:, 0, 0], negatives, rtol=1e-9, atol=0)


def test_cells_beside_a_group_keep_their_draws(device):
    """The ratio of two observed cells is that of a table where all others are impossible."""
    given = torch.zeros(70, 70, dtype=torch.float64, device=device)
    given[0, 3], given[0, 66] = 4, 2.5
    options = {"prevalence_prior": torch.eye(70)[0], "dtype": torch.float64}
    prior = torch.where((given == 0) & (torch.arange(70, device=device)[:, None] == 0), 0.001, 0)
    with_group = sample_sums(given, 200, confusion_prior=prior, **options).fp[:, 0]
    without = sample_sums(given, 200, confusion_prior=0, **options).fp[:, 0]
    assert (with_group[:, 10] > 0).any()
    torch.testing.assert_close(with_group[:, 3] / with_group[:, 66], without[:, 3] / without[:, 66], rtol=1e-12, atol=0)


def shares_of_a_row(C, mass, S, device):
    """Wrong answers of class 0, of which three were seen twice and all others share `mass`: (S, C - 1) and alphas."""
    counts, prior = torch.zeros(2, C, C, dtype=torch.float64, device=device)
    counts[0, 1:4] = 2
    prior[0, 1:] = mass / (C - 4)
    sums = sample_sums(counts, S, prevalence_prior=0, confusion_prior=prior, dtype=torch.float64)
    alpha = (counts + prior)[0, 1:]
    return (sums.fp[:, 0, 1:] / sums.fn[:, 0, :1]).cpu(), alpha.cpu()


@pytest.mark.parametrize("mass", [0.05, 1.0, 3.5])
@pytest.mark.parametrize("C", [10, 100, 1000])
def test_shares_have_the_dirichlet_law(C, mass, device):
    """C = 10, and 3.5 for 100 classes, are drawn cell by cell: both ways have the law."""
    S = 4000
    x, alpha = shares_of_a_row(C, mass, S, device)
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
    plain = sample_dirichlet(alpha, S, seed=9)[:, 3:].double()  # every cell by itself
    for of_shares in lambda y: y.amax(-1), lambda y: y.topk(2).values[:, 1]:
        pair = (of_shares(y).clamp(min=1e-12).numpy() for y in (group, plain))
        assert scipy.stats.ks_2samp(*pair).pvalue > 1e-3
    first = group.argmax(-1)[group.amax(-1) > 0]
    hits, sizes = (torch.bincount(column * 5 // n, minlength=5).double() for column in (first, torch.arange(n)))
    assert scipy.stats.chisquare(hits, sizes / n * len(first)).pvalue > 1e-3


def test_a_single_group_fills_its_row(device):
    """Without other cells, however small their shape is."""
    prior = torch.full((100, 100), 1e-9, dtype=torch.float64, device=device)
    sums = sample_sums(torch.zeros(100, 100, device=device), 300, prevalence_prior=1, confusion_prior=prior)
    torch.testing.assert_close(sum(sums[:4]), torch.ones_like(sums.tp))
    matrices = sample_confusion_matrices(torch.zeros(100, 100), 20, prevalence_prior=1, confusion_prior=prior.cpu())
    assert ((matrices > 0).sum(-1) >= 1).all()


def test_what_is_no_shape_is_nan(device):
    cells = (hostile(70) + dirichlet_prior("balanced", (70, 70))).to(device)
    cells[0, 6, 1] = torch.inf
    for operator in operators.dirichlet_sums, reference.dirichlet_sums:
        out = torch.zeros(2, 280, 70, dtype=torch.float64, device=device)
        keys = torch.tensor([philox_key(3, str(k), "posterior", "x") for k in range(6)], device=device).view(2, 3, 2)
        operator(out, hostile(70).sum(-1).to(device) + 1, cells, None, keys, 0)
        assert out[0, [6, 76]].isnan().all() and out[1].isfinite().all() and out[0, :6].isfinite().all()


@pytest.mark.parametrize("score", SCORES, ids=lambda score: score.aliases[0])
def test_metrics_of_exact_zeros(score, device):
    """What a metric says of drawn sums is what it says of the matrix; 0 / 0 alone is nan, x / 0 infinite."""
    alias, counts = score.aliases[0], hostile(70)[1].to(device)
    prior = torch.full((70, 70), 2**-9, dtype=torch.float64).fill_diagonal_(1)
    options = {"prevalence_prior": 1, "confusion_prior": prior, "dtype": torch.float64}
    (found,) = sample_metrics(counts, alias, 30, **options)
    matrices = sample_confusion_matrices(counts, 30, **options)
    expected = get_metric(alias)(matrices)
    torch.testing.assert_close(found, expected.double(), rtol=1e-7, atol=1e-20, equal_nan=True)
    low, high = get_metric(alias).bounds
    inside = found[found.isfinite()]
    assert len(inside) and inside.min() >= low - 1e-9 and inside.max() <= high + 1e-9
