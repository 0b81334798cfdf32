"""Weights of items: functions of seed, item and replicate, whose sums are exact."""

import math

import numpy as np
import pytest
import scipy.stats
import torch

from tensormetrics.core.numbers.philox import philox4x32, philox_key
from tensormetrics.core.resampling import weights


def weight(seed: int, item: int, replicate: int) -> tuple[float, int]:
    """Compute the weight of an item and its random half with Python integers."""
    key = philox_key(seed, "items", "weights", "exponential")
    outputs = philox4x32((item & 2**32 - 1, item >> 32 & 2**32 - 1, replicate // 8, 0), key)
    bits = outputs[replicate % 8 // 2]
    uniform_bits = bits >> 16 if replicate % 2 else bits & 0xFFFF
    return round(-math.log((uniform_bits + 0.5) / 65536) * 1024) / 1024, uniform_bits & 1


def test_weighted_sums_equal_products_with_weights(generator, device):
    items = [0, 1, 2**40 + 3, -5, -(2**62), 1]
    rows = torch.randn(6, 2, generator=generator, dtype=torch.float64)
    sums = weights.weighted_sums(rows.to(device), torch.tensor(items, device=device), 19, 7, random_halves=True)
    assert sums.shape == (2, 3, 19, 1, 2)
    draws = np.array([[weight(7, item, r) for item in items] for r in range(19)])  # (19, 6, 2)
    for kind in range(2):
        expected = draws[..., kind] @ rows.numpy()
        np.testing.assert_allclose(weights.joined(sums[kind])[:, 0].cpu(), expected, atol=1e-11)


def test_weighted_sums_with_cells_and_start_equal_separate_sums(generator, device):
    rows = torch.randn(50, 1, generator=generator, dtype=torch.float64).to(device)
    units, cells = torch.randint(0, 20, (2, 50), generator=generator).to(device)
    all_sums = weights.joined(weights.weighted_sums(rows, units, 33, 0, cells=cells, width=20)[0])
    for cell in range(20):
        in_cell = cells == cell
        cell_sums = weights.joined(weights.weighted_sums(rows[in_cell], units[in_cell], 33, 0)[0])
        torch.testing.assert_close(all_sums[:, cell], cell_sums[:, 0], rtol=0, atol=1e-11)
    late = weights.joined(weights.weighted_sums(rows, units, 9, 0, cells=cells, width=20, start=24)[0])
    assert torch.equal(late, all_sums[24:])


def test_weighted_sums_do_not_depend_on_order_or_batches(generator, device, monkeypatch):
    rows = torch.randn(200, 3, generator=generator, dtype=torch.float64).to(device) * 1e3
    units = torch.arange(200, device=device)
    expected = weights.weighted_sums(rows, units, 50, 0)
    order = torch.randperm(200, generator=generator).to(device)
    monkeypatch.setitem(weights.LANES, device.type, 100)
    parts = [weights.weighted_sums(rows[part], units[part], 50, 0) for part in order.split(33)]
    assert torch.equal(sum(parts), expected)


def test_item_weights_kernel_equals_reference():  # of the CPU; a GPU has no such kernel
    key = torch.tensor(philox_key(3, "items", "weights", "exponential"))
    units = torch.arange(-70, 70) * (2**33 + 1)
    table = weights._tables(torch.empty(0))[0]
    actual, expected = torch.empty(2, 21, 140, dtype=torch.float64)
    weights.item_weights(actual, units, table, key, 5)
    weights._item_weights(expected, units, table, key, 5)
    assert torch.equal(actual, expected)


def test_weights_are_exponential_and_independent(device):
    ones = torch.eye(300, dtype=torch.float64, device=device)
    samples = weights.joined(weights.weighted_sums(ones, torch.arange(300, device=device), 1000, 1)[0])[:, 0].cpu()
    assert samples.mean() == pytest.approx(1, abs=0.01) and samples.var() == pytest.approx(1, abs=0.03)
    assert scipy.stats.kstest(samples.flatten(), "expon").statistic < 0.01
    for matrix in (samples, samples.T[:, :300]):
        correlation = torch.corrcoef(matrix.T if matrix is samples else matrix)
        assert (correlation - torch.eye(len(correlation))).abs().max() < 0.35


def test_units_convert_names_and_integers(device):
    names = weights.units("ids", ["a", "b", "a"], 3, device)
    assert names[0] == names[2] != names[1]
    assert weights.units("ids", np.array([3, 4], np.int32), 2, device).tolist() == [3, 4]
    assert weights.units("ids", range(2), 2, device).tolist() == [0, 1]


def test_fingerprint_does_not_depend_on_order(device):
    items = torch.arange(100, device=device)
    assert weights.fingerprint(items) == weights.fingerprint(items.flip(0))
    assert weights.fingerprint(items) == weights.fingerprint(items[:40]) + weights.fingerprint(items[40:])
    others = {int(weights.fingerprint(variant)) for variant in (items, items + 1, items[1:], items * 2, items % 50)}
    assert len(others) == 5
