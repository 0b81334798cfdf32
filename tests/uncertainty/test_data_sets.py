"""Comparisons over data sets and by named tests, against scipy, against published numbers and against plain draws."""

import numpy as np
import pytest
import scipy.stats
import torch

from tensormetrics.posterior import mcnemar_p_value
from tensormetrics.uncertainty import compare_data_sets, five_by_two_p_value
from tensormetrics.uncertainty.statistics.student import log_t_pdf, t_cdf, t_quantiles


@pytest.mark.parametrize("df", [1, 2, 3, 4, 5, 9, 16, 64])
def test_students_law(df):
    t = torch.tensor([-50.0, -3, -0.2, 0, 0.7, 2, 8], dtype=torch.float64)
    np.testing.assert_allclose(t_cdf(t, df), scipy.stats.t.cdf(t, df), atol=1e-14)
    np.testing.assert_allclose(log_t_pdf(t, df), scipy.stats.t.logpdf(t, df), rtol=1e-12)
    shares = torch.tensor([0.001, 0.3, 0.5, 0.99], dtype=torch.float64)
    np.testing.assert_allclose(t_quantiles(shares, df), scipy.stats.t.ppf(shares, df), rtol=1e-9, atol=1e-12)


def test_mcnemar_is_a_binomial_test(generator, device):
    for only_a, only_b, both in ((0, 0, 3), (5, 5, 0), (1, 9, 4), (0, 12, 1), (121, 59, 40), (600, 700, 10)):
        a = torch.tensor([1] * only_a + [0] * only_b + [1] * both, device=device)
        b = torch.tensor([0] * only_a + [1] * only_b + [1] * both, device=device).bool()
        order = torch.randperm(len(a), generator=generator)
        expected = scipy.stats.binomtest(only_a, only_a + only_b).pvalue if only_a + only_b else 1.0
        assert float(mcnemar_p_value(a[order], b[order])) == pytest.approx(expected, rel=1e-10)
    a, b = torch.randint(2, (2, 3, 50), generator=generator)
    alone = [float(mcnemar_p_value(x, y)) for x, y in zip(a, b, strict=True)]
    assert mcnemar_p_value(a, b).tolist() == pytest.approx(alone)
    with pytest.raises(ValueError, match="^a_right: got torch.float32, wanted an integer dtype"):
        mcnemar_p_value(a.float(), b)


def test_five_by_two_by_hand():
    differences = np.array([[0.02, 0.04], [0.01, -0.01], [0.03, 0.03], [0.0, 0.05], [0.02, 0.01]])
    variances = [np.var(row, ddof=0) * 2 for row in differences]  # (p1 - mean)^2 + (p2 - mean)^2
    t = differences[0, 0] / np.sqrt(np.mean(variances))
    found = five_by_two_p_value(torch.from_numpy(differences))
    assert float(found) == pytest.approx(2 * scipy.stats.t.sf(abs(t), 5), rel=1e-10)
    assert five_by_two_p_value(torch.full((5, 2), 0.1)).item() == 0 and five_by_two_p_value(torch.zeros(5, 2)).isnan()
    with pytest.raises(ValueError, match=r"^differences: got shape \(2, 5\), wanted \(\.\.\., 5, 2\)$"):
        five_by_two_p_value(torch.zeros(2, 5))


def by_draws(values, rho, rope, number, seed):
    """Importance sampling in numpy: parameters from wide laws, weighted by the likelihood of all data sets."""
    rng, n = np.random.default_rng(seed), values.shape[1]
    means, size = values.mean(1), values.mean(1).std(ddof=1)
    scales = np.sqrt(values.var(1, ddof=1) * (n - 1) / (n - 2) * (1 / n + rho / (1 - rho)))
    center = rng.normal(means.mean(), 3 * size, number)
    spread = abs(size * rng.standard_cauchy(number)) + 1e-12
    df = rng.choice([1, 2, 4, 8, 16, 32, 64], number)
    log = -scipy.stats.norm.logpdf(center, means.mean(), 3 * size) - scipy.stats.cauchy.logpdf(spread / size)
    log += 2 * np.log(df) - df / 10
    inner = 200  # draws of each data set's difference from its own posterior
    for mean, scale in zip(means, scales, strict=True):
        own = mean + scale * scipy.stats.t.ppf((np.arange(inner) + 0.5) / inner, n - 2)
        density = scipy.stats.t.pdf((own[None] - center[:, None]) / spread[:, None], df[:, None]) / spread[:, None]
        log += np.log(density.mean(1) + 1e-300)
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    below, upto = (scipy.stats.t.cdf((edge - center) / spread, df) for edge in (-rope, rope))
    shares = np.stack([below, upto - below, 1 - upto])
    likeliest = np.eye(3)[shares.argmax(0)].T
    order = center.argsort()
    quantiles = np.interp([0.025, 0.5, 0.975], weight[order].cumsum(), center[order])
    return (weight * likeliest).sum(1), (weight * shares).sum(1), quantiles


def data_sets(generator, sets=8, n=10, shift=0.01, spread=0.01):
    own = shift + spread * torch.randn(sets, 1, generator=generator, dtype=torch.float64)
    return own + 0.02 * torch.randn(sets, n, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("shift", [0.0, pytest.param(0.02, marks=pytest.mark.slow)])
def test_the_hierarchical_posterior_is_that_of_plain_draws(shift, generator):
    values = data_sets(generator, shift=shift)
    found = compare_data_sets(values, torch.zeros_like(values), 0.1, 0.01)
    likeliest, following, quantiles = by_draws(values.numpy(), 0.1, 0.01, 12_000, 1)
    assert [float(x) for x in (found.p_left, found.p_rope, found.p_right)] == pytest.approx(likeliest, abs=0.03)
    assert [float(x) for x in (found.next_left, found.next_rope, found.next_right)] == pytest.approx(
        following, abs=0.03
    )
    ends = [float(x) for x in (found.low, found.difference, found.high)]
    assert ends == pytest.approx(quantiles, abs=0.15 * (quantiles[2] - quantiles[0]))
    assert float(found.p_left + found.p_rope + found.p_right) == pytest.approx(1)
    assert float(found.next_left + found.next_rope + found.next_right) == pytest.approx(1)


def test_data_sets_are_drawn_together_and_sides_mirror(generator):
    values = data_sets(generator, sets=4, shift=0.03, spread=0.005)
    found, mirrored = (compare_data_sets(x, y, 0.1, 0.01) for x, y in ((values, 0 * values), (0 * values, values)))
    assert found.p_right > 0.9 and found.difference == pytest.approx(-float(mirrored.difference), abs=1e-4)
    assert float(found.p_right) == pytest.approx(float(mirrored.p_left), abs=1e-6)
    means = values.mean(1)
    assert (found.differences - means.mean()).abs().sum() < (means - means.mean()).abs().sum()
    scaled = compare_data_sets(100 * values, 0 * values, 0.1, 1.0)
    assert float(scaled.p_rope) == pytest.approx(float(found.p_rope), abs=1e-6)


def test_what_cannot_be_compared(generator):
    values = data_sets(generator)
    for a, message in (
        (values[:2], "a, b: got shape (2, 10), wanted at least 3 data sets of 4 results each"),
        (values[:, :3], "a, b: got shape (8, 3), wanted at least 3 data sets of 4 results each"),
        (torch.ones(3, 5), "a, b: got a data set whose differences are all equal or not finite, wanted some spread"),
    ):
        with pytest.raises(ValueError) as error:
            compare_data_sets(a, torch.zeros_like(a))
        assert str(error.value) == message


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_the_unit_of_the_scores_does_not_matter(size, generator):
    values = data_sets(generator, sets=4)
    here, there = (compare_data_sets(x * values, 0 * values, 0.1, x * 0.01) for x in (1.0, size))
    torch.testing.assert_close(torch.stack(there[3:9]), torch.stack(here[3:9]))
    torch.testing.assert_close(torch.stack(there[:3]) / size, torch.stack(here[:3]))
    torch.testing.assert_close(there.differences / size, here.differences)
