import numpy as np
import pytest
import torch
from known_statistics import close

from tensormetrics.uncertainty.statistics.density import kde


def kde_loop(samples, grid, bandwidth):
    kernels = np.exp(-0.5 * ((grid[:, None] - samples) / bandwidth) ** 2)
    return kernels.sum(1) / (len(samples) * bandwidth * np.sqrt(2 * np.pi))


@pytest.mark.parametrize("boundary", ["none", "reflect"])
def test_kde_batch_equals_a_loop(boundary, device):
    x = torch.rand(300, 2, 3, dtype=torch.float64) ** 2
    x[:100, 0, 1] = torch.nan
    x[5, 1, 1] = torch.inf
    estimate = kde(x.to(device), clip=(0, 1), boundary=boundary, bw_adjust=0.7, cut=2)
    assert estimate.grid.shape == estimate.density.shape == (2, 3, 200)
    for i, j in np.ndindex(2, 3):
        column = x[:, i, j].numpy()
        column = column[np.isfinite(column)]
        bandwidth = len(column) ** (-0.2) * 0.7 * column.std(ddof=1)
        low, high = max(column.min() - 2 * column.std(), 0), min(column.max() + 2 * column.std(), 1)
        grid = np.linspace(low, high, 200)
        expected = kde_loop(column, grid, bandwidth)
        if boundary == "reflect":
            expected += kde_loop(-column, grid, bandwidth) + kde_loop(2 - column, grid, bandwidth)
        close(estimate.grid[i, j], grid)
        close(estimate.density[i, j], expected)
        close(estimate.bandwidth[i, j], bandwidth)


def test_reflection_loses_no_mass(device):
    x = 1 - torch.rand(4000, device=device) ** 3
    estimate = kde(x, clip=(0, 1), boundary="reflect", cut=5)
    assert torch.trapezoid(estimate.density, estimate.grid).item() == pytest.approx(1, abs=1e-3)
    unreflected = kde(x, clip=(0, 1), cut=5)
    assert torch.trapezoid(unreflected.density, unreflected.grid) < 0.95


@pytest.mark.parametrize("heavy", [False, True])
def test_kde_large_sample_is_binned_accurately(heavy, monkeypatch, device):
    x = torch.randn(30_000, 2, device=device, dtype=torch.float64)
    x = x / torch.rand_like(x).clamp(min=0.01) if heavy else x
    x[7] = torch.nan
    binned = kde(x)
    monkeypatch.setattr("tensormetrics.uncertainty.statistics.density.EXACT", 10**9)
    exact = kde(x)
    assert torch.equal(binned.grid, exact.grid) and not torch.equal(binned.density, exact.density)
    assert (binned.density - exact.density).abs().max() < 1e-4 * exact.density.max()


def test_kde_without_variance_or_samples_is_nan(device):
    estimate = kde(torch.full((50,), 0.5, device=device))
    assert estimate.bandwidth == 0 and estimate.density.isnan().all() and (estimate.grid == 0.5).all()
    assert kde(torch.zeros(0, 3, device=device)).density.isnan().all()
