"""Weights are functions of seed, item and replicate; sums of them are exact."""

import math

import numpy as np
import pytest
import scipy.stats
import torch

from tensormetrics.uncertainty.engine import weights
from tensormetrics.uncertainty.engine.philox import philox4x32, philox_key


def weight(seed: int, item: int, replicate: int) -> tuple[float, int]:
    """By Python's integers: the weight of an item, and which half it is in."""
    key = philox_key(seed, "items", "weights", "exponential")
    words = philox4x32((item & 2**32 - 1, item >> 32 & 2**32 - 1, replicate // 8, 0), key)
    word = words[replicate % 8 // 2]
    number = word >> 16 if replicate % 2 else word & 0xFFFF
    return round(-math.log((number + 0.5) / 65536) * 1024) / 1024, number & 1


def test_sums_of_weighted_rows(generator, device):
    items = [0, 1, 2**40 + 3, -5, -(2**62), 1]
    rows = torch.randn(6, 2, generator=generator, dtype=torch.float64)
    found = weights.weighted_sums(rows.to(device), torch.tensor(items, device=device), 19, 7, random_halves=True)
    assert found.shape == (2, 3, 19, 1, 2)
    drawn = np.array([[weight(7, item, r) for item in items] for r in range(19)])  # (19, 6, 2)
    for side in range(2):
        expected = drawn[..., side] @ rows.numpy()
        np.testing.assert_allclose(weights.joined(found[side])[:, 0].cpu(), expected, atol=1e-11)


def test_cells_and_starts(generator, device):
    rows = torch.randn(50, 1, generator=generator, dtype=torch.float64).to(device)
    units, cells = torch.randint(0, 20, (2, 50), generator=generator).to(device)
    whole = weights.joined(weights.weighted_sums(rows, units, 33, 0, cells=cells, width=20)[0])
    for cell in range(20):
        mine = cells == cell
        alone = weights.joined(weights.weighted_sums(rows[mine], units[mine], 33, 0)[0])
        torch.testing.assert_close(whole[:, cell], alone[:, 0], rtol=0, atol=1e-11)
    late = weights.joined(weights.weighted_sums(rows, units, 9, 0, cells=cells, width=20, start=24)[0])
    assert torch.equal(late, whole[24:])


def test_sums_have_no_order_and_no_batches(generator, device, monkeypatch):
    rows = torch.randn(200, 3, generator=generator, dtype=torch.float64).to(device) * 1e3
    units = torch.arange(200, device=device)
    whole = weights.weighted_sums(rows, units, 50, 0)
    order = torch.randperm(200, generator=generator).to(device)
    monkeypatch.setitem(weights.LANES, device.type, 100)
    parts = [weights.weighted_sums(rows[part], units[part], 50, 0) for part in order.split(33)]
    assert torch.equal(sum(parts), whole)


def test_kernel_and_reference_are_equal(device):
    key = torch.tensor(philox_key(3, "items", "weights", "exponential"), device=device)
    units = torch.arange(-70, 70, device=device) * (2**33 + 1)
    table = weights._tables(torch.empty(0, device=device))[0]
    found, expected = torch.empty(2, 21, 140, dtype=torch.float64, device=device)
    weights.item_weights(found, units, table, key, 5)
    weights._item_weights(expected, units, table, key, 5)
    assert torch.equal(found, expected)


def test_weights_are_exponential_and_independent(device):
    ones = torch.eye(300, dtype=torch.float64, device=device)
    drawn = weights.joined(weights.weighted_sums(ones, torch.arange(300, device=device), 1000, 1)[0])[:, 0].cpu()
    assert drawn.mean() == pytest.approx(1, abs=0.01) and drawn.var() == pytest.approx(1, abs=0.03)
    assert scipy.stats.kstest(drawn.flatten(), "expon").statistic < 0.01
    for side in (drawn, drawn.T[:, :300]):
        correlation = torch.corrcoef(side.T if side is drawn else side)
        assert (correlation - torch.eye(len(correlation))).abs().max() < 0.35


def test_names_and_numbers_of_items(device):
    names = weights.units("ids", ["a", "b", "a"], 3, device)
    assert names[0] == names[2] != names[1]
    assert weights.units("ids", np.array([3, 4], np.int32), 2, device).tolist() == [3, 4]
    assert weights.units("ids", range(2), 2, device).tolist() == [0, 1]
    for given, message in (
        ([1.0, 2.0], "ids: got torch.float64, wanted an integer dtype; write ids.long()"),
        (torch.arange(3), "ids: got shape (3,), wanted (2,)"),
    ):
        with pytest.raises(ValueError) as error:
            weights.units("ids", given, 2, device)
        assert str(error.value) == message
    for given, message in (
        ("ab", "ids: got a str, wanted a tensor of integers or a list of names"),
        (["a", 1], "ids: got 1 among names, wanted a str"),
    ):
        with pytest.raises(TypeError) as error:
            weights.units("ids", given, 2, device)
        assert str(error.value) == message


def test_the_fingerprint_is_of_the_items_in_any_order(device):
    items = torch.arange(100, device=device)
    assert weights.fingerprint(items) == weights.fingerprint(items.flip(0))
    assert weights.fingerprint(items) == weights.fingerprint(items[:40]) + weights.fingerprint(items[40:])
    others = {int(weights.fingerprint(each)) for each in (items, items + 1, items[1:], items * 2, items % 50)}
    assert len(others) == 5
