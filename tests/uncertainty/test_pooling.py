import math

import numpy as np
import pytest
import torch
from known_statistics import KNOWN, X, Y, Z, close
from scipy import stats

from tensormetrics.posterior import get_experiment_aggregator
from tensormetrics.posterior.sampling.rng import RNG
from tensormetrics.uncertainty import UncertaintyWarning
from tensormetrics.uncertainty.statistics.heterogeneity import heterogeneity_pm
from tensormetrics.uncertainty.statistics.moments import finite_moments
from tensormetrics.uncertainty.statistics.pooling import (
    correlated_variance,
    fit_beta,
    fit_gamma,
    hksj_factor,
    pool_beta,
    pool_correlated,
    pool_fixed_effects,
    pool_gamma,
    pool_histogram,
    pool_random_effects,
)

SAMPLES = torch.stack([0.2 * X + 0.6, 0.2 * Y + 0.62, 0.2 * Z + 0.66], 1)
(KNOWN_POOLING,) = KNOWN["pooling"].values()
U = torch.tensor([0.001, 0.1, 0.5, 0.9, 0.999], dtype=torch.float64)
UNIT = (0.0, 1.0)
ALIASES = {
    "fe": ["fixed_effect", "fe_gaussian", "gaussian", "normal", "fe_normal"],
    "re": ["random_effect", "re_gaussian", "re_normal"],
    "beta": ["beta_conflation"],
    "gamma": ["gamma_conflation"],
    "hist": ["histogram"],
    "correlated": ["cv", "nadeau_bengio"],
}
POOLS = {
    "fe": pool_fixed_effects,
    "re": pool_random_effects,
    "re_dl": lambda *a: pool_random_effects(*a, paule_mandel_heterogeneity=False),
    "hksj": lambda *a: pool_random_effects(*a, hksj_sampling_distribution=True),
    "beta": pool_beta,
    "beta_mm": lambda *a: pool_beta(*a, estimation_method="mm"),
    "gamma": pool_gamma,
    "gamma_shifted": lambda *a: pool_gamma(*a, shifted=True),
    "hist": pool_histogram,
    "correlated": pool_correlated,
}


def truncated(law):
    low, high = law.cdf(UNIT)
    return law.ppf(low + U.numpy() * (high - low))


def test_pools_of_known_samples_equal_stored_distributions(device):
    samples, u = SAMPLES.to(device), U.to(device)
    mean, variance = KNOWN_POOLING["fixed"]
    close(pool_fixed_effects(samples, u, UNIT), truncated(stats.norm(mean, math.sqrt(variance))))
    expected = KNOWN_POOLING["random_pm"]
    close(pool_random_effects(samples, u, UNIT), truncated(stats.norm(expected["mean"], math.sqrt(expected["var"]))))
    wide = truncated(stats.t(2, expected["mean"], math.sqrt(expected["var"])))
    close(pool_random_effects(samples, u, UNIT, hksj_sampling_distribution=True), wide, rtol=1e-7)
    means, variances = finite_moments(samples)
    tau2 = heterogeneity_pm(means, variances)
    close(tau2, expected["tau2"])
    close(hksj_factor(means, variances + tau2), expected["hksj_factor"])
    a, b = fit_beta(samples, UNIT)
    close(a, KNOWN_POOLING["beta_mle"]["a"])
    close(b, KNOWN_POOLING["beta_mle"]["b"])
    close(pool_beta(samples, u, UNIT), stats.beta.ppf(U, *KNOWN_POOLING["beta_mle"]["conflated"]), rtol=1e-7)
    expected = KNOWN_POOLING["correlated"]
    close(correlated_variance(means), expected["scale2"])
    law = stats.t(expected["df"], expected["mean"], math.sqrt(expected["scale2"]))
    close(pool_correlated(samples, u, UNIT), truncated(law), rtol=1e-7)
    assert (pool_correlated(samples, u, UNIT) - pool_fixed_effects(samples, u, UNIT))[-1] > 0.1  # wider


def test_fits_equal_moments_and_scipy(device):
    a, b = fit_beta(2 * SAMPLES.to(device) - 1, (-1.0, 1.0), estimation_method="mome")
    for k, y in enumerate(SAMPLES.T.numpy()):
        strength = y.mean() * (1 - y.mean()) / y.var() - 1
        close(a[k], y.mean() * strength)
        close(b[k], (1 - y.mean()) * strength)
    shape, scale = fit_gamma(SAMPLES.to(device))
    for k, y in enumerate(SAMPLES.T.numpy()):
        expected_shape, _, expected_scale = stats.gamma.fit(y, floc=0)
        close([shape[k], scale[k]], [expected_shape, expected_scale], rtol=1e-6)
    close(shape.log() - shape.digamma(), (SAMPLES.mean(0).log() - SAMPLES.log().mean(0)), rtol=1e-8)
    law = stats.gamma(float(shape.sum()) - 2, scale=float(1 / (1 / scale).sum()))
    close(pool_gamma(SAMPLES.to(device), U.to(device), UNIT), truncated(law), rtol=1e-7)


def histogram_loop(samples, u, bounds, weight):
    """Sample the product of smoothed histograms by inversion."""
    h, S = math.inf, len(samples)
    for x in samples.T:
        q1, q3 = np.quantile(x, [0.25, 0.75])
        value_range = x.max() - x.min()
        width = min(max(2 * (q3 - q1) * S ** (-1 / 3), value_range / (2 * S**0.5)), value_range / (math.log2(S) + 1))
        h = min(h, value_range / math.ceil(value_range / width))
    a, b = max(samples.min() - h, bounds[0]), min(samples.max() + 2 * h, bounds[1])
    k = math.ceil((b - a) / h)
    edges = np.linspace(a, b, k + 1)
    counts = np.stack([np.histogram(x, edges)[0] for x in samples.T])
    c = weight * S / k
    log_mass = np.log((counts + c) / (S + weight * S)).sum(0)
    mass = np.exp(log_mass - log_mass.max())
    return np.interp(u, np.concatenate([[0], mass.cumsum() / mass.sum()]), edges)


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (0.6, 0.85)])
@pytest.mark.parametrize("weight", [0.1, 2.0])
def test_pool_histogram_equals_a_loop(bounds, weight, device):
    samples = SAMPLES.clamp(max=0.85)
    pooled = pool_histogram(samples.to(device), U.to(device), bounds, pseudo_count_weight=weight)
    close(pooled, histogram_loop(samples.numpy(), U.numpy(), bounds, weight))


@pytest.mark.parametrize("pool", POOLS)
def test_pools_batch_equals_a_loop_within_bounds(pool, generator, device):
    samples = (0.9 + 0.05 * torch.randn(500, 4, 3, generator=generator, dtype=torch.float64)).clamp(0.01, 1)
    samples[:20, 1, 2] = torch.nan
    samples[3, 2, 2] = torch.inf
    samples, u = samples.to(device), torch.rand(700, 3, generator=generator, dtype=torch.float64).to(device)
    pooled = POOLS[pool](samples, u, UNIT)
    assert pooled.shape == (700, 3) and pooled.dtype == torch.float64 and ((pooled >= 0) & (pooled <= 1)).all()
    for c in range(3):
        class_samples = samples[..., c]
        single = POOLS[pool](class_samples, u[:, c], UNIT)
        torch.testing.assert_close(pooled[:, c], single, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("pool", ["fe", "re", "beta", "gamma", "hist"])
def test_pool_of_one_experiment_keeps_its_distribution(pool, device):
    u = torch.linspace(0.05, 0.95, 19, dtype=torch.float64, device=device)
    samples = 0.7 + 0.03 * torch.special.ndtri(torch.linspace(0.0005, 0.9995, 2000, dtype=torch.float64, device=device))
    expected = 0.7 + 0.03 * torch.special.ndtri(u)
    torch.testing.assert_close(POOLS[pool](samples[:, None], u, UNIT), expected, rtol=0, atol=8e-3)


def test_pools_of_experiments_without_variance_are_constant_or_raise(device):
    samples = SAMPLES.to(device, copy=True)
    samples[:, 1] = 0.75
    for pool in "fe", "re", "hksj", "re_dl":
        assert (POOLS[pool](samples, U.to(device), UNIT) == 0.75).all()
    samples[:, 2] = 0.8
    for pool in "fe", "re":
        with pytest.raises(
            ValueError,
            match=r"^samples: experiment 2 has variance 0, and so has another one of a different mean; give their "
            "matrices a positive prior$",
        ):
            POOLS[pool](samples, U.to(device), UNIT)
    same = torch.full((50, 2), 0.3, device=device)
    assert (pool_histogram(same, U.to(device), UNIT) == same[0, 0]).all()
    for pool in "beta", "beta_mm", "gamma":
        with pytest.raises(ValueError, match="^samples: the product of their .* densities has no finite mass; "):
            POOLS[pool](same, U.to(device), UNIT)


def test_pool_with_undefined_samples_warns():
    samples = SAMPLES.clone()
    samples[:50, 1] = torch.nan
    with pytest.warns(
        UncertaintyWarning, match="^samples: 25% of an experiment's are nan or infinite and are left out"
    ):
        pool_fixed_effects(samples, U, UNIT)


def test_pools_without_samples_are_nan_or_raise(device):
    samples, u = torch.empty(0, 3, 2, device=device), torch.rand(4, 2, dtype=torch.float64, device=device)
    for pool in "fe", "re", "re_dl", "hksj", "hist", "correlated":
        pooled = POOLS[pool](samples, u, UNIT)
        assert pooled.shape == (4, 2) and pooled.isnan().all()
    for pool in "beta", "gamma":
        with pytest.raises(ValueError, match=f"^samples: the product of their {pool} densities has no finite mass; "):
            POOLS[pool](samples, u, UNIT)
    with pytest.raises(ValueError, match="^samples: got none, shifted=True wants at least one to start at; use 'fe', "):
        pool_gamma(samples, u, UNIT, shifted=True)


def test_fits_do_not_modify_the_samples():
    samples = SAMPLES.clone()
    for pool in POOLS.values():
        pool(samples, U, UNIT)
    fit_beta(samples, (-1.0, 1.0))
    assert torch.equal(samples, SAMPLES)


@pytest.mark.parametrize("alias", ALIASES)
def test_aggregators_sample_each_class_from_a_separate_stream(alias, device):
    samples = torch.stack([SAMPLES, SAMPLES**2], -1).to(device)
    options = {"hksj_sampling_distribution": True} if alias == "re" else {}
    pooled = get_experiment_aggregator(alias, RNG(3, "here", device=device), **options)(samples, UNIT)
    assert pooled.shape == (200, 2)
    for c, rng in enumerate(RNG(3, "here", device=device).spawn(2)):
        for name in [alias, *ALIASES[alias]]:
            single = get_experiment_aggregator(name, RNG(3, rng.name, device=device), **options)
            torch.testing.assert_close(single(samples[..., c], UNIT), pooled[:, c], rtol=1e-9, atol=1e-12)
    other = get_experiment_aggregator(alias, RNG(4, "here", device=device), **options)(samples, UNIT)
    assert not torch.equal(other, pooled)


def test_singleton_aggregator_returns_the_samples(device):
    samples = SAMPLES[:, :1].to(device)
    for alias in "singleton", "identity":
        assert torch.equal(get_experiment_aggregator(alias)(samples, UNIT), samples[:, 0])


@pytest.mark.parametrize("name", ["singleton", *ALIASES])
def test_aggregators_of_arrays_equal_those_of_tensors(name):
    samples = SAMPLES[:, :1] if name == "singleton" else SAMPLES
    for data in samples, torch.stack([samples, samples**2], -1):
        from_tensor, from_array, called, again = (get_experiment_aggregator(name, RNG(3)) for _ in range(4))
        expected = from_tensor.aggregate(data, UNIT)
        assert torch.equal(from_array.aggregate(data.numpy(), UNIT), expected)
        assert torch.equal(called(data.numpy(), UNIT), expected) and torch.equal(again(data, UNIT), expected)
    single = get_experiment_aggregator(name, RNG(3)).aggregate(samples.numpy().astype(np.float32), UNIT)
    assert single.shape == (len(samples),) and single.isfinite().all()
    for wrong, message in (
        (np.zeros(3), r"experiment_samples: got shape \(3,\), wanted \(S, M\) or \(S, M, classes\)"),
        (np.zeros((3, 1), int), "experiment_samples: got torch.int64, wanted a floating dtype"),
    ):
        with pytest.raises(ValueError, match=message):
            get_experiment_aggregator(name, RNG(3)).aggregate(wrong, UNIT)


@pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS)
def test_pools_accept_gradients_and_half_precision(pool, device):
    samples, u = SAMPLES.to(device), U.to(device)
    assert torch.equal(pool(samples.clone().requires_grad_(), u, UNIT).detach(), pool(samples, u, UNIT))
    half = samples.bfloat16()
    torch.testing.assert_close(pool(half, u.float(), UNIT), pool(half.double(), u.float(), UNIT))
