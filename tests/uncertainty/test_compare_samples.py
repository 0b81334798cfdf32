"""`compare_samples`: comparison of two posteriors by their samples."""

import pytest
import torch
from scipy import stats

from tensormetrics.uncertainty import compare_samples


def normal_draws(generator, shift, size=20_000):
    return shift + torch.randn(size, generator=generator, dtype=torch.float64)


def test_compare_samples_of_normal_draws_is_the_normal_law(generator, device):
    a, b = normal_draws(generator, 0.8).to(device), torch.zeros(20_000, dtype=torch.float64, device=device)
    comparison = compare_samples(a, b, confidence=0.9, rope=0.5)
    law = stats.norm(0.8)
    assert float(comparison.difference) == pytest.approx(0.8, abs=0.03)
    assert (float(comparison.low), float(comparison.high)) == pytest.approx(law.interval(0.9), abs=0.05)
    assert float(comparison.p_better) == pytest.approx(law.sf(0), abs=0.01)
    assert float(comparison.p_value) == pytest.approx(2 * law.cdf(0), abs=0.02)
    assert float(comparison.p_rope) == pytest.approx(law.cdf(0.5) - law.cdf(-0.5), abs=0.01)
    assert comparison.confidence == 0.9 and comparison.rope == 0.5
    mirrored = compare_samples(a, b, higher_is_better=False)
    assert float(mirrored.p_better) == pytest.approx(1 - float(comparison.p_better)) and mirrored.p_rope.isnan()


def test_compare_samples_interval_excludes_zero_exactly_where_p_value_is_small(generator):
    draws = torch.randn(199, 400, generator=generator, dtype=torch.float64)
    draws += torch.linspace(-4, 4, 400)
    for confidence in 0.8, 0.95, 0.99:
        comparison = compare_samples(draws, torch.zeros_like(draws), confidence=confidence)
        excludes = (comparison.low > 0) | (comparison.high < 0)
        assert torch.equal(excludes, comparison.p_value <= 1 - confidence) and 0 < excludes.sum() < 400
        assert (comparison.low <= comparison.difference).all() and (comparison.difference <= comparison.high).all()


def test_compare_samples_interval_contains_observed_difference(generator):
    draws = normal_draws(generator, 0.0, 99)
    comparison = compare_samples(draws, 0 * draws, observed=5.0)
    assert comparison.difference == comparison.high == 5


def test_compare_samples_of_equal_draws_is_undecided(generator):
    draws = normal_draws(generator, 0.0, 99)
    comparison = compare_samples(draws, draws)
    assert [float(x) for x in (*comparison, comparison.p_value, comparison.p_better)] == [0, 0, 0, 1, 0.5]
