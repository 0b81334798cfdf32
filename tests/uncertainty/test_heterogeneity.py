import numpy as np
import pytest
import torch
from known_statistics import KNOWN, X, Y, Z, close
from scipy import optimize, stats

from tensormetrics.uncertainty.statistics.heterogeneity import (
    estimate_i2,
    heterogeneity_dl,
    heterogeneity_pm,
    interpret_i2,
)

SAMPLES = torch.stack([0.2 * X + 0.6, 0.2 * Y + 0.62, 0.2 * Z + 0.66], 1)


def tensor(values, device="cpu"):
    return torch.tensor(values, dtype=torch.float64, device=device)


def test_heterogeneity_known_case_equals_stored_values(device):
    expected = KNOWN["heterogeneity"]
    means, variances = tensor(expected["means"], device), tensor(expected["variances"], device)
    close(heterogeneity_dl(means, variances), expected["tau2_dl"])
    close(heterogeneity_pm(means, variances), expected["tau2_pm"])
    close(estimate_i2(SAMPLES.to(device)).i2, KNOWN["pooling"][POOLING]["random_pm"]["i2"])


POOLING = "columns .2x+.6, .2y+.62, .2z+.66; bounds (0, 1)"


@pytest.mark.parametrize("corrected", [False, True])
def test_paule_mandel_is_the_root(corrected, generator, device):
    means = torch.rand(5, 30, generator=generator, dtype=torch.float64)
    variances = torch.rand(5, 30, generator=generator, dtype=torch.float64) ** 3 * 0.3
    tau2 = heterogeneity_pm(means.to(device), variances.to(device), use_viechtbauer_correction=corrected)
    target = stats.chi2(4).median() if corrected else 4
    zeros = 0
    for c in range(30):
        m, v = means[:, c].numpy(), variances[:, c].numpy()

        def excess(t, m=m, v=v):
            w = 1 / (v + t)
            return (w * (m - (w * m).sum() / w.sum()) ** 2).sum() - target

        expected = optimize.brentq(excess, 0, 10, xtol=1e-16, rtol=1e-14) if excess(0) > 0 else 0.0
        zeros += expected == 0
        close(tau2[c], expected)
        close(heterogeneity_pm(means[:, c], variances[:, c], use_viechtbauer_correction=corrected), tau2[c].cpu())
        w = 1 / v
        q = (w * (m - (w * m).sum() / w.sum()) ** 2).sum()
        dl = max(0, (q - 4) / (w.sum() - (w**2).sum() / w.sum()))
        close(heterogeneity_dl(means, variances)[c], dl)
    assert 0 < zeros < 30


def test_estimate_i2_without_variance_is_nan(device):
    one = estimate_i2(SAMPLES[:, :1].to(device))
    assert one.i2.isnan() and one.i2_interpretation == "not applicable"
    nothing = estimate_i2(torch.full((9, 3), 0.5, device=device))
    assert nothing.i2.isnan() and nothing.i2_interpretation == "unknown"
    assert heterogeneity_dl(tensor([0.5]), tensor([0.1])) == 0 == heterogeneity_pm(tensor([0.5]), tensor([0.1]))


def test_dersimonian_laird_variance_of_zero_gives_nan(device):
    means, variances = tensor([0.8, 0.9, 0.7], device), tensor([[0.0] * 3, [0.0, 1e-4, 1e-4], [1e-4] * 3], device).T
    assert heterogeneity_dl(means[:, None].expand(3, 3), variances).isnan().tolist() == [True, True, False]
    assert heterogeneity_dl(tensor([0.5], device), tensor([0.0], device)) == 0


def test_interpret_i2_changes_description_at_each_threshold():
    assert estimate_i2(SAMPLES).template_sentence(3) == (
        "Between the experiments the variance is 0.002, within them it is 0.003, so I2 = 0.327: "
        "borderline moderate heterogeneity."
    )
    assert [*estimate_i2(torch.stack([SAMPLES, SAMPLES], -1)).i2_interpretation] == [
        estimate_i2(SAMPLES).i2_interpretation
    ] * 2
    descriptions = {0: "insignificant", 0.3: "borderline moderate", 0.4: "moderate", 0.5: "borderline substantial"}
    descriptions |= {0.6: "borderline considerable", 0.75: "considerable", 1: "considerable"}
    for i2, description in descriptions.items():
        assert interpret_i2(i2) == description + " heterogeneity"
        if 0 < i2 < 1:
            assert interpret_i2(np.nextafter(i2, 0)) != interpret_i2(i2)
    for wrong in -0.1, 1.1, float("nan"):
        with pytest.raises(ValueError, match=rf"^i2: got {wrong}, wanted a number in \[0, 1\]$"):
            interpret_i2(wrong)
