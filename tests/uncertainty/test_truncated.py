import math

import numpy as np
import pytest
import torch
from known_statistics import close
from scipy import stats

from tensormetrics.uncertainty.statistics.truncated import (
    MIN_INTERPOLATED,
    beta_icdf,
    truncated_gamma_icdf,
    truncated_normal_icdf,
    truncated_t_icdf,
)

U = np.array([1e-9, 0.001, 0.3, 0.5, 0.999, 1 - 1e-9])


def tensors(device, *values):
    return [torch.tensor(value, dtype=torch.float64, device=device) for value in values]


@pytest.mark.parametrize(
    ("mean", "sd", "low", "high"),
    [
        (0.9, 0.1, 0, 1),
        (5, 0.1, 0, 1),
        (-3, 0.1, 0, 1),
        (0.5, 10, 0, 1),
        (2, 1, -math.inf, math.inf),
        (0, 1, 30, math.inf),
    ],
)
def test_truncated_normal_quantiles_agree_with_scipy(mean, sd, low, high, device):
    expected = stats.truncnorm.ppf(U, (low - mean) / sd, (high - mean) / sd, mean, sd)
    close(truncated_normal_icdf(*tensors(device, U, mean, sd), float(low), float(high)), expected)


def test_truncated_normal_far_from_its_mean_stays_within_bounds(device):
    """Near the end of the interval the distribution is exponential with scale sd^2 / distance."""
    u = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64, device=device)
    mean, sd = tensors(device, [50.0, -50.0], [0.01, 0.01])
    quantiles = truncated_normal_icdf(u[:, None], mean, sd, 0.0, 1.0)
    assert ((quantiles >= 0) & (quantiles <= 1)).all()
    close((1 - quantiles[:, 0]), -(u.log().cpu()) * 0.01**2 / 49, rtol=1e-4)
    close(quantiles[:, 1], -((1 - u).log().cpu()) * 0.01**2 / 50, rtol=1e-4)


@pytest.mark.parametrize("df", [1.0, 2.0, 4.0, 60.0])
@pytest.mark.parametrize("bounds", [(-math.inf, math.inf), (0.0, 1.0), (3.0, 4.0)])
def test_truncated_t_quantiles_agree_with_scipy(df, bounds, device):
    law = stats.t(df, 0.8, 0.1)
    if bounds[0] == 3:  # in the upper tail, where only the survival function is precise
        a, b = law.sf(bounds)
        expected = law.isf(a + U[1:-1] * (b - a))
    else:
        a, b = law.cdf(bounds)
        expected = law.ppf(a + U[1:-1] * (b - a))
    close(truncated_t_icdf(*tensors(device, U[1:-1], df, 0.8, 0.1), *bounds), expected, rtol=1e-7)


@pytest.mark.parametrize("shape", [0.01, 0.5, 3.0, 50.0, 1e6])
def test_truncated_gamma_quantiles_agree_with_scipy(shape, device):
    law = stats.gamma(shape, scale=2)
    u, k, scale = tensors(device, U[1:-1], shape, 2.0)
    close(truncated_gamma_icdf(u, k, scale), law.ppf(U[1:-1]), rtol=1e-7, atol=1e-200)
    high = law.ppf(0.4)
    close(truncated_gamma_icdf(u, k, scale, 0.0, high), law.ppf(0.4 * U[1:-1]), rtol=1e-7, atol=1e-200)


@pytest.mark.parametrize(("a", "b"), [(0.5, 0.5), (136.46, 50.0), (1e5, 2.0), (1.0, 1.0), (0.3, 20.0)])
def test_beta_quantiles_agree_with_scipy(a, b, device):
    close(beta_icdf(*tensors(device, U[1:-1], a, b)), stats.beta.ppf(U[1:-1], a, b), rtol=1e-7)


@pytest.mark.parametrize("ends", [False, True])
def test_interpolated_quantiles_equal_exact_ones(ends, generator, device):
    """Large inputs are interpolated by cubics; small ones and the ends of (0, 1) are not."""
    u = (torch.randint(2**32, (MIN_INTERPOLATED + 9, 2), generator=generator).double() + 0.5) / 2**32
    u[:8, 0] = torch.tensor([2**-33, 1e-9, 1e-3, 0.5, 0.5 + 2**-33, 0.999, 1 - 1e-9, 1 - 2**-33], dtype=u.dtype)
    if ends:  # which no random variate reaches
        u[8] = torch.tensor([0.0, 1.0])
    u = u.to(device)
    a, b, zero = tensors(device, [0.5, 30.0], [200.0, 2.0], [0.0, 0.3])
    for call in (
        lambda u: truncated_normal_icdf(u, a / 40, b / 100, 0.0, 1.0),
        lambda u: truncated_normal_icdf(u, -a * 10, a, 0.0, 1.0),
        lambda u: truncated_t_icdf(u, 3.0, a / 40, b / 100, 0.0, 1.0),
        lambda u: truncated_gamma_icdf(u, a, b, 0.0, 300.0),
        lambda u: beta_icdf(u, a, b),
    ):
        quantiles, expected = call(u), torch.cat([call(part) for part in u.split(1000)])
        torch.testing.assert_close(quantiles, expected, rtol=1e-7, atol=1e-14)
        torch.testing.assert_close(quantiles[8:], expected[8:], rtol=3e-9, atol=1e-14)
    assert torch.equal(beta_icdf(u.float(), a, b), beta_icdf(u.float().double(), a, b))
    assert (truncated_normal_icdf(u, a, zero, 0.0, 50.0)[:, 0] == 0.5).all()
    assert (truncated_t_icdf(u, 3.0, a, zero, 0.0, 50.0)[:, 0] == 0.5).all()


def test_beta_icdf_broadcasts_probabilities_over_distributions(device):
    u, a, b = tensors(device, [0.2, 0.9], [2.0, 3.0, 4.0], 5.0)
    expected = torch.stack([beta_icdf(u, one, b) for one in a], -1)
    assert torch.equal(beta_icdf(u, a, b), expected) and torch.equal(beta_icdf(u[:, None], a, b), expected)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float16, torch.bfloat16, torch.float32])
def test_parameters_of_any_dtype_are_computed_in_float64(dtype, device):
    u, two, three = (torch.tensor(value, device=device) for value in ([0.2, 0.9], 2, 3))
    for quantile, ends in (
        (beta_icdf, ()),
        (truncated_gamma_icdf, (1, 4)),
        (truncated_normal_icdf, (1, 4)),
        (lambda *args: truncated_t_icdf(args[0], 5.0, *args[1:]), (1, 4)),
    ):
        result = quantile(u, two.to(dtype), three.to(dtype), *ends)
        torch.testing.assert_close(result, quantile(u, two.double(), three.double(), *ends), rtol=1e-12, atol=0)
