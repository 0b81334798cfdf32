import math

import numpy as np
import pytest
import torch
from known_statistics import KNOWN, close
from scipy import stats

from tensormetrics.core.numbers.student import t_quantiles_of, t_sf, t_upper_quantile
from tensormetrics.uncertainty import compare_folds


def test_compare_folds_known_cases_equal_stored_values(device):
    for case in KNOWN["folds"]:
        a, b = (torch.tensor(case[key], dtype=torch.float64, device=device) for key in "ab")
        comparison = compare_folds(a, b, case["rho"], rope=case["rope"])
        for field, name in {"difference": "mean", "p_value": "p_value", "p_rope": "p_rope"}.items():
            close(getattr(comparison, field), case[name])
        for field, name in {"sd": "sd", "se": "scale", "t": "t_statistic"}.items():
            close(comparison.details[field], case[name])
        close(torch.stack([comparison.low, comparison.high]), case["interval_95"])
        assert comparison.details["df"] == case["df"] and compare_folds(a, b).details["rho"] == 1 / len(a)
        close(compare_folds(a - case["rope"], b, case["rho"]).p_better, case["p_right"])
        close(compare_folds(b - case["rope"], a, case["rho"]).p_better, case["p_left"])


def test_compare_folds_batch_equals_a_loop(generator, device):
    a, b = torch.rand(2, 6, 4, generator=generator, dtype=torch.float64).to(device)
    comparison = compare_folds(a, b, 0.1, rope=0.02, confidence=0.9)
    fewer_is_better = compare_folds(a, b, 0.1, higher_is_better=False)
    for k in range(4):
        x = (a - b)[:, k].cpu().numpy()
        scale = math.sqrt((1 / 6 + 0.1 / 0.9) * x.var(ddof=1))
        law = stats.t(5, x.mean(), scale)
        close(comparison.p_better[k], law.sf(0))
        close(fewer_is_better.p_better[k], law.cdf(0))
        close(comparison.p_rope[k], law.cdf(0.02) - law.cdf(-0.02))
        close(torch.stack([comparison.low, comparison.high])[:, k], law.interval(0.9), atol=1e-9)
        close(comparison.p_value[k], 2 * stats.t.sf(abs(x.mean()) / scale, 5))


def test_compare_folds_of_equal_differences_is_certain():
    a = torch.full((4,), 0.5, dtype=torch.float64)
    better, same = compare_folds(a, a - 0.25, rope=0), compare_folds(a, a, rope=0)
    assert better.details["t"] == math.inf and better.p_value == 0 and better.p_better == 1 and better.p_rope == 0
    assert same.details["t"].isnan() and same.p_value.isnan() and same.p_rope == 1 and same.p_better == 0.5
    assert compare_folds(a, a).p_rope.isnan()


def test_t_quantiles_of_a_tensor_of_df_agree_with_scipy():
    df = torch.tensor([[1, 2, 3, 5, 29], [60, 100, 101, 500, 10**6]])
    for probability in (0.55, 0.9, 0.975, 0.995, 0.9995):
        expected = torch.from_numpy(stats.t.ppf(probability, df.numpy()))
        torch.testing.assert_close(t_quantiles_of(probability, df), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("df", [1, 1.1, 1.82, 2, 3, 9.4, 100, 1e5])
def test_tails_of_any_degrees_of_freedom_equal_scipy(df):
    t = torch.tensor([-5.0, -1, 0, 0.3, 1, 2, 5, 12.7, 30], dtype=torch.float64)
    np.testing.assert_allclose(t_sf(t, df), stats.t.sf(t, df), rtol=0, atol=1e-13)
    for shift in (0.5, 3, 10):
        np.testing.assert_allclose(t_sf(t, df, shift), stats.nct.sf(t, df, shift), rtol=0, atol=1e-12)
    quantiles = [float(t_upper_quantile(tail, torch.tensor(df, dtype=torch.float64))) for tail in (0.25, 0.025, 5e-4)]
    np.testing.assert_allclose(quantiles, stats.t.isf([0.25, 0.025, 5e-4], df), rtol=1e-10)
