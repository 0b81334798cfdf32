import math

import numpy as np
import pytest
import torch
from posterior_oracle import GOLDEN

from tensormetrics.uncertainty import hdi
from tensormetrics.uncertainty.statistics import samples
from tensormetrics.uncertainty.statistics.samples import equal_tailed, estimate

SEQUENCE = torch.arange(1, 201, dtype=torch.float64).mul(0.6180339887498949).frac() ** 2


def hdi_loop(samples, p):
    x = sorted(v for v in samples if not math.isnan(v))
    k = math.floor(p * len(x))
    if not x or k >= len(x):
        return (x[0], x[-1]) if x else (math.nan, math.nan)
    widths = [0.0 if x[i + k] == x[i] else x[i + k] - x[i] for i in range(len(x) - k)]
    i = widths.index(min(widths))
    return x[i], x[i + k]


def test_hdi_golden_values_match(device):
    x = SEQUENCE.to(device)
    for key, expected in GOLDEN["hdi"].items():
        assert [float(end) for end in hdi(x, float(key.removeprefix("x,")))] == pytest.approx(expected, rel=1e-9)
    median, low, high = estimate(x, 0.95)
    expected = GOLDEN["summary"]["x,0.95"]
    assert [float(low), float(high)] == pytest.approx(expected["hdi"], rel=1e-9)
    assert float(median) == pytest.approx(expected["median"], rel=1e-9)


@pytest.mark.parametrize("p", [0.01, 0.5, 0.95, 1.0])
@pytest.mark.parametrize("S", [1, 2, 3, 20, 101])
def test_hdi_batch_equals_loop(S, p, device):
    x = torch.randn(3, S, 12).round(decimals=1)  # ties
    x[0, :, 0] = math.nan
    x[0, : S // 2, 1] = math.nan
    x[0, S // 3 :, 2] = math.inf
    x[0, : S // 3, 3] = -math.inf
    x[0, : S // 2, 4], x[0, S // 2 :, 4] = -math.inf, math.inf
    median, low, high = (values.cpu().numpy() for values in estimate(x.to(device), p, dim=1))
    assert median.shape == low.shape == high.shape == (3, 12)
    for i, j in np.ndindex(3, 12):
        column = x[i, :, j].double().numpy()
        np.testing.assert_array_equal((low[i, j], high[i, j]), hdi_loop(column, p))
        valid = np.sort(column[~np.isnan(column)])
        if len(valid) and (i, j) != (0, 4):
            central = valid[(len(valid) - 1) // 2], valid[len(valid) // 2]
            np.testing.assert_allclose(median[i, j], central[0] if central[0] == central[1] else sum(central) / 2)


def test_estimate_no_samples_gives_nan(device):
    for values in estimate(torch.zeros(0, 3, device=device)):
        assert values.shape == (3,) and values.isnan().all() and values.dtype == torch.float64


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sort_samples_radix_sort_equals_default(dtype, device, monkeypatch):
    x = torch.randn(40, 2, dtype=dtype, device=device)
    x[:7, 0] = torch.tensor([torch.nan, -torch.inf, torch.inf, 0.0, -0.0, -1e-40, 1e-40], device=device)
    x[7, 0] = -torch.tensor(torch.nan)  # its sign bit is set
    expected = estimate(x)
    monkeypatch.setattr(samples, "RADIX", 4)
    ordered, counts = samples.sort_samples(x, 0)
    assert counts.tolist() == [[38], [40]] and ordered[0, 38:].isnan().all() and ordered.dtype == torch.float64
    for row, column in zip(ordered, x.unbind(1), strict=True):
        torch.testing.assert_close(row, column.double().sort().values, rtol=0, atol=0, equal_nan=True)
    for left, right in zip(expected, estimate(x), strict=True):
        torch.testing.assert_close(left, right, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("p", [0, -0.5, 1.01, math.nan])
def test_statistics_invalid_arguments_raise(p):
    for function in hdi, estimate, equal_tailed:
        with pytest.raises(ValueError, match=rf"^confidence: got {p}, wanted a number in \(0, 1\]$"):
            function(torch.zeros(3), p)
    with pytest.raises(ValueError, match="samples: got torch.int64, wanted a floating dtype"):
        hdi(torch.zeros(3, dtype=torch.int64))
