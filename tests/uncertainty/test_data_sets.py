"""Comparisons over data sets and by a named test, against scipy, against published numbers and against plain draws."""

import numpy as np
import pytest
import scipy.stats
import torch

from tensormetrics.uncertainty import compare_data_sets, five_by_two_p_value
from tensormetrics.uncertainty.statistics.student import log_t_pdf, t_cdf, t_quantiles


@pytest.mark.parametrize("df", [1, 2, 3, 4, 5, 9, 16, 64])
def test_students_law(df):
    t = torch.tensor([-50.0, -3, -0.2, 0, 0.7, 2, 8], dtype=torch.float64)
    np.testing.assert_allclose(t_cdf(t, df), scipy.stats.t.cdf(t, df), atol=1e-14)
    np.testing.assert_allclose(log_t_pdf(t, df), scipy.stats.t.logpdf(t, df), rtol=1e-12)
    shares = torch.tensor([0.001, 0.3, 0.5, 0.99], dtype=torch.float64)
    np.testing.assert_allclose(t_quantiles(shares, df), scipy.stats.t.ppf(shares, df), rtol=1e-9, atol=1e-12)


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
    tail, inside = weight[center < 0].sum(), weight[abs(center) <= rope].sum()
    return (weight * likeliest).sum(1), (weight * shares).sum(1), quantiles, tail, inside


def data_sets(generator, sets=8, n=10, shift=0.01, spread=0.01):
    own = shift + spread * torch.randn(sets, 1, generator=generator, dtype=torch.float64)
    return own + 0.02 * torch.randn(sets, n, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("shift", [0.0, pytest.param(0.02, marks=pytest.mark.slow)])
def test_the_hierarchical_posterior_is_that_of_plain_draws(shift, generator):
    values = data_sets(generator, shift=shift)
    likeliest, following, quantiles, tail, inside = by_draws(values.numpy(), 0.1, 0.01, 12_000, 1)
    zeros = torch.zeros_like(values)
    comparison = compare_data_sets(values, zeros, 0.1, rope=0.01)
    mirrored = compare_data_sets(values, zeros, 0.1, rope=0.01, higher_is_better=False)
    ends = [float(x) for x in (comparison.low, comparison.difference, comparison.high)]
    assert ends == pytest.approx(quantiles, abs=0.15 * (quantiles[2] - quantiles[0]))
    assert float(comparison.p_better) == pytest.approx(1 - tail, abs=0.03)
    assert float(comparison.p_value) == pytest.approx(2 * min(tail, 1 - tail), abs=0.06)
    assert float(comparison.p_rope) == pytest.approx(inside, abs=0.03)
    for result, order in (comparison, (0, 1, 2)), (mirrored, (2, 1, 0)):
        p_next = [float(result.details[f"p_next_{name}"]) for name in ("worse", "rope", "better")]
        assert p_next == pytest.approx([following[i] for i in order], abs=0.03) and sum(p_next) == pytest.approx(1)
        assert float(result.details["p_likeliest_better"]) == pytest.approx(likeliest[order[2]], abs=0.03)
    assert float(mirrored.p_better) == pytest.approx(1 - float(comparison.p_better))


def test_interval_of_data_sets_excludes_zero_exactly_where_p_value_is_small(generator):
    values = data_sets(generator, shift=0.03)
    p_value = float(compare_data_sets(values, 0 * values).p_value)
    wide, narrow = (compare_data_sets(values, 0 * values, confidence=1 - p_value * x) for x in (0.999, 1.001))
    assert wide.low < 0 < narrow.low and compare_data_sets(values, 0 * values).p_rope.isnan()


def test_data_sets_are_drawn_together_and_sides_mirror(generator):
    values = data_sets(generator, sets=4, shift=0.03, spread=0.005)
    pairs = (values, 0 * values), (0 * values, values)
    comparison, mirrored = (compare_data_sets(x, y, 0.1, rope=0.01) for x, y in pairs)
    assert comparison.difference == pytest.approx(-float(mirrored.difference), abs=1e-4)
    assert comparison.details["p_likeliest_better"] > 0.9 and mirrored.details["p_likeliest_better"] < 0.05
    p_next = comparison.details["p_next_better"], mirrored.details["p_next_worse"]
    assert float(p_next[0]) == pytest.approx(float(p_next[1]), abs=1e-6)
    means = values.mean(1)
    assert (comparison.details["differences"] - means.mean()).abs().sum() < (means - means.mean()).abs().sum()
    scaled = compare_data_sets(100 * values, 0 * values, 0.1, rope=1.0)
    assert float(scaled.p_rope) == pytest.approx(float(comparison.p_rope), abs=1e-6)


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
    plain, scaled = (compare_data_sets(x * values, 0 * values, 0.1, rope=x * 0.01) for x in (1.0, size))
    for name in ("p_value", "p_better", "p_rope"):
        torch.testing.assert_close(getattr(scaled, name), getattr(plain, name))
    torch.testing.assert_close(torch.stack([*scaled]) / size, torch.stack([*plain]))
    differences = scaled.details.pop("differences"), plain.details.pop("differences")
    torch.testing.assert_close(differences[0] / size, differences[1])
    torch.testing.assert_close(scaled.details, plain.details)
