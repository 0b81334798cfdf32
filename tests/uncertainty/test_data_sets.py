"""Comparisons over data sets and the 5x2 test, against scipy and numerical quadrature."""

import numpy as np
import pytest
import scipy.stats
import torch

from tensormetrics.core.numbers.student import log_t_pdf, t_cdf, t_quantiles
from tensormetrics.uncertainty import compare_data_sets, five_by_two_p_value


@pytest.mark.parametrize("df", [1, 2, 3, 4, 5, 9, 16, 64])
def test_student_distribution_agrees_with_scipy(df):
    t = torch.tensor([-50.0, -3, -0.2, 0, 0.7, 2, 8], dtype=torch.float64)
    np.testing.assert_allclose(t_cdf(t, df), scipy.stats.t.cdf(t, df), atol=1e-14)
    np.testing.assert_allclose(log_t_pdf(t, df), scipy.stats.t.logpdf(t, df), rtol=1e-12)
    probabilities = torch.tensor([0.001, 0.3, 0.5, 0.99], dtype=torch.float64)
    np.testing.assert_allclose(
        t_quantiles(probabilities, df), scipy.stats.t.ppf(probabilities, df), rtol=1e-9, atol=1e-12
    )


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


SIZES = [(3, 4), (4, 4), (3, 10), (6, 5), *(pytest.param(*size, marks=pytest.mark.slow) for size in ((8, 10), (20, 5)))]


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


def test_interval_of_data_sets_excludes_zero_exactly_where_p_value_is_small(generator):
    values = data_sets(generator, shift=0.03)
    p_value = float(compare_data_sets(values, 0 * values).p_value)
    wide, narrow = (compare_data_sets(values, 0 * values, confidence=1 - p_value * x) for x in (0.999, 1.001))
    assert wide.low < 0 < narrow.low and compare_data_sets(values, 0 * values).p_rope.isnan()


def test_compare_data_sets_shrinks_differences_and_is_antisymmetric(generator):
    values = data_sets(generator, sets=4, shift=0.03, sd=0.005)
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


def test_compare_data_sets_invalid_scores_are_refused(generator):
    values = data_sets(generator)
    for a, message in (
        (values[:2], "a, b: got shape (2, 10), wanted at least 3 data sets of 4 results each"),
        (values[:, :3], "a, b: got shape (8, 3), wanted at least 3 data sets of 4 results each"),
        (torch.ones(3, 5), "a, b: got a data set whose differences are all equal or not finite, wanted differing ones"),
    ):
        with pytest.raises(ValueError) as error:
            compare_data_sets(a, torch.zeros_like(a))
        assert str(error.value) == message


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_compare_data_sets_does_not_depend_on_scale_of_scores(size, generator):
    values = data_sets(generator, sets=4)
    unscaled, scaled = (compare_data_sets(x * values, 0 * values, 0.1, rope=x * 0.01) for x in (1.0, size))
    for name in ("p_value", "p_better", "p_rope"):
        torch.testing.assert_close(getattr(scaled, name), getattr(unscaled, name))
    torch.testing.assert_close(torch.stack([*scaled]) / size, torch.stack([*unscaled]))
    differences = scaled.details.pop("differences"), unscaled.details.pop("differences")
    torch.testing.assert_close(differences[0] / size, differences[1])
    torch.testing.assert_close(scaled.details, unscaled.details)
