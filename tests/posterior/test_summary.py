import math

import numpy as np
import pytest
import torch
from posterior_oracle import GOLDEN

from tensormetrics.posterior import Estimate, as_scalars, hdi
from tensormetrics.posterior.summary import estimate

SEQUENCE = torch.arange(1, 201, dtype=torch.float64).mul(0.6180339887498949).frac() ** 2


def hdi_loop(samples, p):
    x = sorted(v for v in samples if not math.isnan(v))
    k = math.floor(p * len(x))
    if not x or k >= len(x):
        return (x[0], x[-1]) if x else (math.nan, math.nan)
    widths = [0.0 if x[i + k] == x[i] else x[i + k] - x[i] for i in range(len(x) - k)]
    i = widths.index(min(widths))
    return x[i], x[i + k]


def test_known_answers(device):
    x = SEQUENCE.to(device)
    for key, expected in GOLDEN["hdi"].items():
        assert [float(end) for end in hdi(x, float(key.removeprefix("x,")))] == pytest.approx(expected, rel=1e-9)
    median, low, high = estimate(x, 0.95)
    expected = GOLDEN["summary"]["x,0.95"]
    assert [float(low), float(high)] == pytest.approx(expected["hdi"], rel=1e-9)
    assert float(median) == pytest.approx(expected["median"], rel=1e-9)


@pytest.mark.parametrize("p", [0.01, 0.5, 0.95, 1.0])
@pytest.mark.parametrize("S", [1, 2, 3, 20, 101])
def test_batched_equals_a_loop(S, p, device):
    x = torch.randn(3, S, 12).round(decimals=1)  # ties
    x[0, :, 0] = math.nan
    x[0, : S // 2, 1] = math.nan
    x[0, S // 3 :, 2] = math.inf
    x[0, : S // 3, 3] = -math.inf
    x[0, : S // 2, 4], x[0, S // 2 :, 4] = -math.inf, math.inf
    median, low, high = (found.cpu().numpy() for found in estimate(x.to(device), p, dim=1))
    assert median.shape == low.shape == high.shape == (3, 12)
    for i, j in np.ndindex(3, 12):
        column = x[i, :, j].double().numpy()
        np.testing.assert_array_equal((low[i, j], high[i, j]), hdi_loop(column, p))
        kept = np.sort(column[~np.isnan(column)])
        if len(kept) and (i, j) != (0, 4):
            middle = kept[(len(kept) - 1) // 2], kept[len(kept) // 2]
            np.testing.assert_allclose(median[i, j], middle[0] if middle[0] == middle[1] else sum(middle) / 2)


def test_no_samples(device):
    for found in estimate(torch.zeros(0, 3, device=device)):
        assert found.shape == (3,) and found.isnan().all() and found.dtype == torch.float64


def test_as_scalars():
    per_class = Estimate(*torch.tensor([[0.5, 0.6], [0.4, 0.5], [0.75, 0.7]], dtype=torch.float64))
    scalar = Estimate(*torch.tensor([0.5, 0.25, 0.75]))
    found = as_scalars({"tpr": per_class, "acc": scalar}, "val/")
    assert found["val/tpr/0/median"] == 0.5 and found["val/tpr/1/low"] == 0.5 and found["val/tpr/0/high"] == 0.75
    assert found["val/acc/low"] == 0.25 and len(found) == 9
    assert all(type(value) is float for value in found.values())


@pytest.mark.parametrize("p", [0, -0.5, 1.01, math.nan])
def test_errors(p):
    with pytest.raises(ValueError, match=rf"ci_probability: got {p}, wanted a number in \(0, 1\]"):
        hdi(torch.zeros(3), p)
    with pytest.raises(ValueError, match="samples: got torch.int64, wanted a floating dtype"):
        hdi(torch.zeros(3, dtype=torch.int64))
