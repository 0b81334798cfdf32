import math

import numpy as np
import pytest
import scipy.stats
import torch
from posterior_oracle import GOLDEN, as_float64, log_gamma

from tensormetrics.core.numbers.philox import philox4x32, philox_key
from tensormetrics.posterior import dirichlet_prior, sample_dirichlet, sample_log_gamma


@pytest.mark.parametrize("case", GOLDEN["philox"])
def test_philox_golden_values_match(case, device):
    assert list(philox4x32(case["counter"], case["key"])) == case["words"]
    lanes = torch.tensor([case["counter"] + case["key"]] * 3, device=device).unbind(-1)
    for value, expected in zip(philox4x32(lanes[:4], lanes[4:]), case["words"], strict=True):
        assert value.tolist() == [expected] * 3


@pytest.mark.parametrize("case", GOLDEN["draws"])
def test_log_gamma_golden_values_match(case, device):
    address = {field: case[field] for field in ("seed", "name", "method", "stream")}
    assert list(philox_key(**address)) == case["key"]
    alpha = torch.tensor(case["alpha"], dtype=torch.float64, device=device)
    for dtype, rtol in (torch.float64, 1e-12), (torch.float32, 1e-5):
        for sample, expected in zip(case["samples"], case["log_gamma"], strict=True):
            (log_gammas,) = sample_log_gamma(alpha, 1, start=sample, dtype=dtype, **address)
            torch.testing.assert_close(log_gammas.cpu().double(), as_float64(expected), rtol=rtol, atol=rtol)


def test_log_gamma_equals_a_loop(device):
    alpha = torch.tensor([[[0.0, 0.02, 0.7], [1.0, 1.5, 40.0]], [[0.0, 0.0, 3.0], [1e6, 0.3, 1.0]]], device=device)
    log_gammas = sample_log_gamma(alpha, 200, seed=3, name="a/b", stream="spread", dtype=torch.float64)
    key, rows = philox_key(3, "a/b", "posterior", "spread"), alpha.reshape(4, 3).tolist()
    expected = [[[log_gamma(rows[r][k], key, 4 * r + k, s) for k in range(3)] for r in range(4)] for s in range(200)]
    torch.testing.assert_close(log_gammas.cpu().reshape(200, 4, 3), as_float64(expected), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("alpha", [0.001, 0.05, 0.5, 1.0, 50.0, 1e6])
def test_log_gamma_has_the_gamma_distribution(alpha, device):
    x = sample_log_gamma(torch.full((10,), alpha, device=device), 2_000, dtype=torch.float64).cpu().numpy().ravel()
    # P(log G <= x) for small alpha, where G itself underflows: alpha * x - log(Gamma(alpha + 1)), for G near 0.
    tiny = np.exp(np.minimum(alpha * x - math.lgamma(alpha + 1), 0))
    uniform = np.where(x < -40, tiny, scipy.stats.gamma(alpha).cdf(np.exp(x)))
    assert scipy.stats.kstest(uniform, "uniform").pvalue > 1e-3


@pytest.mark.parametrize(
    ("alpha", "tolerance"), [(0.001, 1e-3), (0.05, 2e-5), (0.1, 1e-5), (1, 1e-5), (50, 1e-5), (1e12, 1e-5)]
)
def test_log_gamma_float32_agrees_with_float64(alpha, tolerance, device):
    cells = torch.full((20,), alpha, device=device)
    single, double = (sample_log_gamma(cells, 5_000, dtype=dtype).double() for dtype in (torch.float32, torch.float64))
    apart = (single - double).abs() > tolerance * double.abs().clamp(min=1)
    assert apart.double().mean() <= 1e-4


def test_log_gamma_neighbors_are_uncorrelated(device):
    x = sample_log_gamma(torch.full((2, 4), 2.0, device=device), 20_000, dtype=torch.float64).reshape(-1, 8).T
    correlation = torch.corrcoef(x) - torch.eye(8, device=device)
    assert correlation.abs().max() < 5 / math.sqrt(20_000)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_log_gamma_shards_equal_full_range(dtype, device):
    alpha, start = torch.rand(3, 5, device=device) * 4, 2**32 - 200  # the high word of the number changes within a tile
    full = sample_log_gamma(alpha, 600, start=start, dtype=dtype)
    for size in 1, 7, 256:
        sizes = [min(size, 600 - s) for s in range(0, 600, size)]
        parts = [sample_log_gamma(alpha, n, start=start + k * size, dtype=dtype) for k, n in enumerate(sizes)]
        assert torch.equal(torch.cat(parts), full)


def test_log_gamma_other_address_changes_all_samples(device):
    alpha = torch.rand(3, 5, device=device) * 4
    default = sample_log_gamma(alpha, 70, dtype=torch.float64)
    others = [{"seed": 1}, {"name": "x"}, {"method": "prior"}, {"stream": "split"}, {"start": 1}]
    for other in others:
        assert not (sample_log_gamma(alpha, 70, dtype=torch.float64, **other) == default).any()


def test_philox_key_separator_in_name_raises():
    philox_key(0, "a/posterior", "m", "x")
    for names in ("a\x1fposterior", "m", "x"), ("a", "posterior\x1fm", "x"), ("a", "posterior", "m\x1fx"):
        with pytest.raises(ValueError, match=r"^name: got '.*' with the character U\+001F, which separates"):
            philox_key(0, *names)


def test_dirichlet_moments_and_extreme_concentrations(device):
    alpha = torch.tensor([0.2, 3.0, 7.0, 0.0], device=device, dtype=torch.float64)
    x = sample_dirichlet(alpha, 40_000, dtype=torch.float64)
    mean = alpha / alpha.sum()
    variance = mean * (1 - mean) / (alpha.sum() + 1)
    assert ((x.mean(0) - mean).abs() <= 5 * (variance / len(x)).sqrt()).all()
    assert (x[:, 3] == 0).all()
    for dtype in torch.float32, torch.float64:
        sparse = sample_dirichlet(torch.full((2, 6), 1e-4, device=device), 500, dtype=dtype)
        assert sparse.dtype == dtype and sparse.isfinite().all()
        torch.testing.assert_close(sparse.sum(-1), torch.ones(500, 2, dtype=dtype, device=device))
    assert sample_dirichlet(torch.zeros(3, device=device), 2).isnan().all()


@pytest.mark.parametrize("shape", [(0,), (3,), (2, 0), (0, 5), (2, 3, 4)])
def test_samplers_shapes_follow_alpha(shape, device):
    assert sample_log_gamma(torch.ones(shape, device=device), 2).shape == (2, *shape)
    assert sample_dirichlet(torch.ones(shape, dtype=torch.int64, device=device), 0).shape == (0, *shape)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sample_log_gamma(torch.tensor([-1.0, 2.0]), 1), "alpha: got entries from -1.0 to 2.0, wanted finite"),
        (lambda: sample_log_gamma(torch.tensor([math.nan]), 1), "alpha: got entries from nan to nan, wanted finite"),
        (lambda: sample_dirichlet(torch.tensor([math.inf]), 1), "alpha: got entries from inf to inf, wanted finite"),
        (lambda: sample_log_gamma(torch.tensor(1.0), 1), r"alpha: got shape \(\), wanted \(..., K\)"),
        (lambda: sample_log_gamma(torch.ones(2), -1), "replicates: got -1, wanted an integer >= 0"),
        (lambda: sample_log_gamma(torch.ones(2), 1, seed=-1), "seed: got -1, wanted an integer >= 0"),
        (lambda: sample_log_gamma(torch.ones(2), 1, start=1.5), "start: got 1.5, wanted an integer >= 0"),
        (lambda: sample_dirichlet(torch.ones(2), 1, dtype=torch.float16), "dtype: got torch.float16, wanted one of"),
        (
            lambda: sample_log_gamma(torch.tensor([2.0, 3e38]), 1),
            r"alpha: got entries from 2.0 to 3.*e\+38, wanted at most 1e\+37",
        ),
        (lambda: dirichlet_prior("flat", (3,)), "strategy: got 'flat', wanted one of 'perks', 'balanced', 'bayes-"),
        (lambda: dirichlet_prior("balanced", (3, 2)), r"strategy: got 'balanced' for shape \(3, 2\), wanted \(C, C\)"),
        (lambda: dirichlet_prior(-1, (3,)), "strategy: got entries from -1.0 to -1.0, wanted finite ones >= 0"),
        (lambda: dirichlet_prior(math.nan, (3,)), "strategy: got entries from nan to nan, wanted finite ones >= 0"),
        (lambda: dirichlet_prior([1, 2], (3,)), r"strategy: got an array of shape \(2,\), wanted \(3,\)"),
    ],
)
def test_samplers_invalid_arguments_raise(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_dirichlet_prior_strategies_give_concentrations():
    values = {"ones": 1, "bayes-laplace": 1, "half": 0.5, "jeffreys": 0.5, "haldane": 0, "zero": 0, "perks": 0.25, 2: 2}
    for strategy, concentration in values.items():
        prior = dirichlet_prior(strategy, (3, 4))
        assert prior.dtype == torch.float64 and torch.equal(
            prior, torch.full((3, 4), concentration, dtype=torch.float64)
        )
    assert dirichlet_prior("balanced", (3, 3)).tolist() == [
        [1 / 6 if i == j else 1 / 12 for j in range(3)] for i in range(3)
    ]
    assert dirichlet_prior([[1], [2], [0]], (3,)).tolist() == [1, 2, 0]
    assert dirichlet_prior(np.arange(4.0).reshape(2, 2), (2, 2)).tolist() == [[0, 1], [2, 3]]
