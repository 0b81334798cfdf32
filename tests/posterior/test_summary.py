import math

import numpy as np
import pytest
import torch
from known_statistics import KNOWN
from posterior_oracle import GOLDEN

from tensormetrics.posterior import summarize
from tensormetrics.uncertainty import Estimate, as_scalars, hdi
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


def flat(found):
    """The numbers of a summary, by name; intervals as two."""
    numbers = found._asdict()
    for name in "hdi", "eti", "mcse_eti":
        numbers[f"{name}_low"], numbers[f"{name}_high"] = numbers.pop(name)
    numbers.pop("confidence")
    return numbers


def mode_loop(x):
    x = np.sort(x)
    n, spread = len(x), x[-1] - x[0]
    if spread == 0:
        return x[0]
    q1, q3 = np.quantile(x, [0.25, 0.75])
    width = max(2 * (q3 - q1) * n ** (-1 / 3), spread / (2 * math.sqrt(n)))
    bins = math.ceil(spread / min(width, spread / (math.log2(n) + 1)))
    counts, edges = np.histogram(x, bins=bins)
    return (edges[counts.argmax()] + edges[counts.argmax() + 1]) / 2


def summary_loop(samples, p):
    kept = np.sort(samples[~np.isnan(samples)])
    finite, n = kept[np.isfinite(kept)], len(kept)
    names = "median mean sd mode metric_uncertainty skew kurtosis mcse_mean mcse_median nan_fraction"
    found = dict.fromkeys([*names.split(), *(f"{i}_{e}" for i in ("hdi", "eti", "mcse_eti") for e in ("low", "high"))])
    found = dict.fromkeys(found, math.nan) | {"nan_fraction": 1 - n / len(samples)}
    if n == 0:
        return found

    def error(q):
        r = math.sqrt(n * q * (1 - q))
        a, b = max(math.ceil(n * q - r), 1), min(math.ceil(n * q + r), n)
        return (kept[b - 1] - kept[a - 1]) / 2

    tail = (1 - p) / 2
    found["median"] = (kept[(n - 1) // 2] + kept[n // 2]) / 2
    found["hdi_low"], found["hdi_high"] = hdi_loop(samples, p)
    found["metric_uncertainty"] = found["hdi_high"] - found["hdi_low"]
    found["eti_low"], found["eti_high"] = np.quantile(kept, [tail, 1 - tail])
    found["mcse_median"], found["mcse_eti_low"], found["mcse_eti_high"] = error(0.5), error(tail), error(1 - tail)
    if len(finite):
        mean = finite.mean()
        m2, m3, m4 = (((finite - mean) ** k).mean() for k in (2, 3, 4))
        found |= {"mean": mean, "mode": mode_loop(finite)}
        if len(finite) > 1:
            found["sd"] = finite.std(ddof=1)
            found["mcse_mean"] = found["sd"] / math.sqrt(len(finite))
            found |= {"skew": m3 / m2**1.5, "kurtosis": m4 / m2**2 - 3}
    return found


def test_known_summary(device):
    found = flat(summarize(SEQUENCE.to(device)))
    expected = dict(KNOWN["summary"]["x,0.95"])
    for name in "hdi", "eti", "mcse_eti":
        expected[f"{name}_low"], expected[f"{name}_high"] = expected.pop(name)
    expected["metric_uncertainty"] = expected.pop("mu")
    for name, value in expected.items():
        assert float(found[name]) == pytest.approx(value, rel=1e-9), name
    median, low, high = equal_tailed(SEQUENCE.to(device))
    assert (float(low), float(high)) == pytest.approx((expected["eti_low"], expected["eti_high"]), rel=1e-9)
    assert float(median) == pytest.approx(expected["median"], rel=1e-9)


@pytest.mark.parametrize("p", [0.5, 0.95])
@pytest.mark.parametrize("S", [2, 3, 20, 101, 1000])
def test_batched_summary_equals_a_loop(S, p, device):
    x = torch.randn(3, S, 8).exp()
    x[0, :, 0] = math.nan
    x[0, : S // 2, 1] = math.nan
    x[0, : S // 3, 2] = math.inf
    x[1, : S // 10, 3] = -math.inf
    found = {name: values.cpu().numpy() for name, values in flat(summarize(x.to(device), p, dim=1)).items()}
    with np.errstate(invalid="ignore"):
        for i, j in np.ndindex(3, 8):
            expected = summary_loop(x[i, :, j].double().numpy(), p)
            for name in expected:
                if (i, j) in ((0, 2), (1, 3)) and name.startswith(("eti", "mcse", "metric_uncertainty")):
                    continue  # differences of infinities
                np.testing.assert_allclose(found[name][i, j], expected[name], rtol=1e-9, atol=1e-12, err_msg=name)


def test_mode_of_infinite_and_equal_samples(device):
    infinite = torch.tensor([math.inf] * 6 + [1.0, 2.0, 3.0], device=device)
    assert summarize(infinite).mode == math.inf and summarize(-infinite).mode == -math.inf
    assert summarize(infinite).mean == 2 and summarize(infinite).median == math.inf
    equal = summarize(torch.full((9,), 0.1, device=device))
    assert equal.mode == equal.mean == equal.median == torch.tensor(0.1).double() and equal.sd == 0
    assert equal.skew.isnan() and equal.kurtosis.isnan() and equal.metric_uncertainty == 0


def test_headers():
    found = summarize(SEQUENCE, 0.9)
    assert found.headers == ["Median", "Mode", "90.0% HDI", "MU", "Skew", "Kurt"]
    assert found.as_dict()["90.0% HDI"] == found.hdi


def test_no_samples(device):
    for name, found in flat(summarize(torch.zeros(0, 3, device=device))).items():
        assert found.shape == (3,) and found.isnan().all(), name

    for found in estimate(torch.zeros(0, 3, device=device)):
        assert found.shape == (3,) and found.isnan().all() and found.dtype == torch.float64


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_many_samples_are_sorted_like_few(dtype, device, monkeypatch):
    x = torch.randn(40, 2, dtype=dtype, device=device)
    x[:7, 0] = torch.tensor([torch.nan, -torch.inf, torch.inf, 0.0, -0.0, -1e-40, 1e-40], device=device)
    x[7, 0] = -torch.tensor(torch.nan)  # its sign bit is set
    few = summarize(x)
    monkeypatch.setattr(samples, "RADIX", 4)
    ordered, number = samples.sort_samples(x, 0)
    assert number.tolist() == [[38], [40]] and ordered[0, 38:].isnan().all() and ordered.dtype == torch.float64
    for row, column in zip(ordered, x.unbind(1), strict=True):
        torch.testing.assert_close(row, column.double().sort().values, rtol=0, atol=0, equal_nan=True)
    for one, other in zip(few[:-1], summarize(x)[:-1], strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


def test_as_scalars():
    per_class = Estimate(*torch.tensor([[0.5, 0.6], [0.4, 0.5], [0.75, 0.7]], dtype=torch.float64))
    scalar = Estimate(*torch.tensor([0.5, 0.25, 0.75]))
    found = as_scalars({"tpr": per_class, "acc": scalar}, "val/")
    assert found["val/tpr/0"] == 0.5 and found["val/tpr/1/low"] == 0.5 and found["val/tpr/0/high"] == 0.75
    assert found["val/acc/low"] == 0.25 and len(found) == 9
    assert all(type(value) is float for value in found.values())
    batch = as_scalars({"tpr": Estimate(*torch.arange(12.0).view(3, 2, 2))})
    assert batch["tpr/0/1"] == 1.0 and batch["tpr/1/0/high"] == 10.0 and len(batch) == 12


@pytest.mark.parametrize("p", [0, -0.5, 1.01, math.nan])
def test_errors(p):
    for function in hdi, summarize, equal_tailed:
        with pytest.raises(ValueError, match=rf"^confidence: got {p}, wanted a number in \(0, 1\]$"):
            function(torch.zeros(3), p)
    with pytest.raises(ValueError, match="samples: got torch.int64, wanted a floating dtype"):
        hdi(torch.zeros(3, dtype=torch.int64))
