"""Comparisons over data sets and the 5x2 test, against scipy and numerical quadrature."""

import numpy as np
import pytest
import scipy.stats
import torch
from known_statistics import close

from tensormetrics.core.numbers.student import log_t_pdf, t_cdf, t_quantile, t_quantiles
from tensormetrics.uncertainty import compare_data_sets
from tensormetrics.uncertainty.functional import five_by_two_p_value
from tensormetrics.uncertainty.statistics.cross_validation import t_tail


@pytest.mark.parametrize("df", [1, 2, 3, 4, 5, 9, 16, 30, 64, 300])
def test_student_distribution_agrees_with_scipy(df, device):
    t = torch.tensor([-50.0, -3, -0.2, 0, 0.7, 2, 8, 100], dtype=torch.float64, device=device)
    law, values = scipy.stats.t(df), t.cpu().numpy()
    close(t_cdf(t, df), law.cdf(values), rtol=0, atol=1e-14)
    close(log_t_pdf(t, df), law.logpdf(values), rtol=1e-12, atol=0)
    close(t_tail(t, df), law.sf(values), atol=1e-300)
    assert t_tail(torch.tensor(torch.inf), df) == 0 and t_tail(torch.tensor(-torch.inf), df) == 1
    probabilities = torch.tensor([0.001, 0.3, 0.5, 0.9, 0.975, 0.99, 0.9995], dtype=torch.float64)
    quantiles = law.ppf(probabilities)
    close(t_quantiles(probabilities, df), quantiles)
    single = torch.tensor([t_quantile(p, df) for p in probabilities[2:].tolist()], dtype=torch.float64)
    close(single, quantiles[2:])


def test_five_by_two_p_value_equals_value_by_hand():
    differences = np.array([[0.02, 0.04], [0.01, -0.01], [0.03, 0.03], [0.0, 0.05], [0.02, 0.01]])
    variances = [np.var(row, ddof=0) * 2 for row in differences]  # (p1 - mean)^2 + (p2 - mean)^2
    t = differences[0, 0] / np.sqrt(np.mean(variances))
    p_value = five_by_two_p_value(torch.from_numpy(differences))
    assert float(p_value) == pytest.approx(2 * scipy.stats.t.sf(abs(t), 5), rel=1e-10)
    assert five_by_two_p_value(torch.full((5, 2), 0.1)).item() == 0 and five_by_two_p_value(torch.zeros(5, 2)).isnan()
    with pytest.raises(ValueError, match=r"^differences: got shape \(2, 5\), wanted \(\.\.\., 5, 2\)$"):
        five_by_two_p_value(torch.zeros(2, 5))


def by_quadrature(values, rho, rope, grid_shape=(90, 70), nodes=90):
    """Integrate the posterior over a grid of mean and standard deviation.

    Returns quantiles of the mean, probabilities that a further data set is worse, within the rope or better, how often
    each of these is the largest, and the probabilities that the mean is below 0 and within the rope.

    The mean is center + size tan(u). The likelihood of a data set is a trapezoidal sum over nodes of its distribution
    around its mean and of that of all data sets.
    """
    n = values.shape[1]
    means = values.mean(1)
    scales = np.sqrt(values.var(1, ddof=1) * (n - 1) / (n - 2) * (1 / n + rho / (1 - rho)))
    center, size = np.median(means), means.std() + scales.mean()
    u = np.pi * ((np.arange(grid_shape[0]) + 0.5) / grid_shape[0] - 0.5)
    angle = np.pi / 2 * (np.arange(grid_shape[1]) + 0.5) / grid_shape[1]
    mean = (center + size * np.tan(u))[:, None] * np.ones(grid_shape[1])
    radius = np.hypot(size, mean - center)
    sd = radius * np.tan(angle)
    df = np.array([1, 2, 4, 8, 16, 32, 64])
    log = np.log(radius) - 2 * np.log(np.cos(u))[:, None] - 2 * np.log(np.cos(angle))
    log = log + (2 * np.log(df) - df / 10)[:, None, None]
    steps = np.sinh(np.linspace(-12, 12, nodes))
    for data_mean, scale in zip(means, scales, strict=True):
        x = np.broadcast_to(data_mean + scale * steps, (*mean.shape, nodes))
        x = np.sort(np.concatenate([x, mean[..., None] + sd[..., None] * steps], -1), -1)
        weights = scipy.stats.t.pdf((x - data_mean) / scale, n - 2) / scale
        squares = ((x - mean[..., None]) / sd[..., None]) ** 2
        for k, tail in enumerate(df):
            density = scipy.stats.t.pdf(0, tail) * (1 + squares / tail) ** (-(tail + 1) / 2) / sd[..., None]
            log[k] += np.log(np.trapezoid(weights * density, x, axis=-1))
    mass = np.exp(log - log.max())
    mass /= mass.sum()
    below = np.append(0, mass.sum((0, 2)).cumsum())
    edges = np.linspace(-np.pi / 2, np.pi / 2, grid_shape[0] + 1)
    quantiles = center + size * np.tan(np.interp([0.025, 0.5, 0.975], below, edges))
    worse, upto = (scipy.stats.t.cdf((edge - mean) / sd, df[:, None, None]) for edge in (-rope, rope))
    fractions = np.stack([worse, upto - worse, 1 - upto])
    likeliest = np.eye(3)[fractions.argmax(0)]
    ends = np.interp(np.arctan((np.array([-rope, 0, rope]) - center) / size), edges, below)
    following = (mass * fractions).sum((1, 2, 3))
    return quantiles, following, np.tensordot(mass, likeliest, 3), ends[1], ends[2] - ends[0]


def data_sets(generator, sets=8, n=10, shift=0.01, sd=0.01):
    true_means = shift + sd * torch.randn(sets, 1, generator=generator, dtype=torch.float64)
    return true_means + 0.02 * torch.randn(sets, n, generator=generator, dtype=torch.float64)


SIZES = [(3, 4)]  # a call takes a second
SIZES += [pytest.param(*size, marks=pytest.mark.full) for size in ((4, 4), (3, 10), (6, 5))]
SIZES += [pytest.param(*size, marks=pytest.mark.slow) for size in ((8, 10), (20, 5))]


@pytest.mark.parametrize("sets, n", SIZES)
def test_compare_data_sets_equals_posterior_by_quadrature(sets, n, generator):
    values = data_sets(generator, sets=sets, n=n)
    quantiles, following, likeliest, tail, rope_probability = by_quadrature(values.numpy(), 0.1, 0.01)
    zeros = torch.zeros_like(values)
    comparison = compare_data_sets(values, zeros, 0.1, rope=0.01)
    mirrored = compare_data_sets(values, zeros, 0.1, rope=0.01, higher_is_better=False)
    ends = [float(x) for x in (comparison.low, comparison.difference, comparison.high)]
    assert ends == pytest.approx(quantiles, abs=0.02 * (quantiles[2] - quantiles[0]))
    assert float(comparison.p_better) == pytest.approx(1 - tail, abs=0.005)
    assert float(comparison.p_value) == pytest.approx(2 * min(tail, 1 - tail), abs=0.01)
    assert float(comparison.p_rope) == pytest.approx(rope_probability, abs=0.01)
    for result, order in (comparison, (0, 1, 2)), (mirrored, (2, 1, 0)):
        p_next = [float(result.details[f"p_next_{name}"]) for name in ("worse", "rope", "better")]
        assert p_next == pytest.approx([following[i] for i in order], abs=0.005) and sum(p_next) == pytest.approx(1)
        assert float(result.details["p_likeliest_better"]) == pytest.approx(likeliest[order[2]], abs=0.02)
    assert float(mirrored.p_better) == pytest.approx(1 - float(comparison.p_better))


def test_interval_of_three_known_differences_reaches_into_its_tails(generator):
    values = torch.tensor([[-0.97], [0], [0.97]]) + 1e-3 * torch.randn(3, 10, generator=generator)
    comparison = compare_data_sets(values, 0 * values)
    assert [float(comparison.low), float(comparison.high)] == pytest.approx([-9.7, 9.7], rel=0.02)


@pytest.mark.full
def test_interval_of_data_sets_excludes_zero_exactly_where_p_value_is_small(generator):
    values = data_sets(generator, sets=5, shift=0.03)
    comparison = compare_data_sets(values, 0 * values)
    wide, narrow = (
        compare_data_sets(values, 0 * values, confidence=1 - float(comparison.p_value) * x) for x in (0.999, 1.001)
    )
    assert wide.low < 0 < narrow.low and comparison.p_rope.isnan()


@pytest.fixture(scope="module")
def four():
    values = data_sets(torch.Generator().manual_seed(0), sets=4, shift=0.03, sd=0.005)
    return values, compare_data_sets(values, 0 * values, 0.1, rope=0.01)


@pytest.mark.full
def test_compare_data_sets_shrinks_differences_and_is_antisymmetric(four):
    values, comparison = four
    mirrored = compare_data_sets(0 * values, values, 0.1, rope=0.01)
    assert comparison.difference == pytest.approx(-float(mirrored.difference), abs=1e-4)
    assert comparison.details["p_likeliest_better"] > 0.9 and mirrored.details["p_likeliest_better"] < 0.05
    p_next = comparison.details["p_next_better"], mirrored.details["p_next_worse"]
    assert float(p_next[0]) == pytest.approx(float(p_next[1]), abs=1e-6)
    means = values.mean(1)
    assert (comparison.details["differences"] - means.mean()).abs().sum() < (means - means.mean()).abs().sum()


@pytest.mark.full
@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_compare_data_sets_does_not_depend_on_scale_of_scores(size, four):
    values, unscaled = four
    scaled = compare_data_sets(size * values, 0 * values, 0.1, rope=size * 0.01)
    for name in ("p_value", "p_better", "p_rope"):
        torch.testing.assert_close(getattr(scaled, name), getattr(unscaled, name))
    torch.testing.assert_close(torch.stack([*scaled]) / size, torch.stack([*unscaled]))
    differences = {"differences": scaled.details["differences"] / size}
    torch.testing.assert_close(scaled.details | differences, unscaled.details)
