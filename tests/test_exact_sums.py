"""Sums that do not depend on the order of their terms and equal those of exact arithmetic."""

import math

import pytest
import torch

from tensormetrics.core.numbers.exact_sums import COARSE, GRIDS, parts, power_of_two, total, unit_of


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_sums_of_parts_in_any_order_have_same_bits(scale, device):
    x = torch.randn(1000, dtype=torch.float64) * torch.logspace(-12, 12, 1000, dtype=torch.float64) * scale
    terms = parts(x.to(device), unit_of(x.abs().amax()).to(device), COARSE)
    orders = [torch.randperm(1000, device=device) for _ in range(20)]
    (found,) = {float(total([term[order].sum() for term in terms])) for order in orders}
    assert found == pytest.approx(math.fsum(x.tolist()), rel=1e-15, abs=1000 * 2.0**-53 * float(x.abs().max()))
    assert len({float(x[torch.randperm(1000)].sum()) for _ in range(20)}) > 1


@pytest.mark.parametrize("grids", [GRIDS, COARSE])
def test_parts_are_multiples_of_grid_and_add_up(grids):
    x = torch.randn(100, 3, dtype=torch.float64) * 2.0 ** torch.tensor([0, 40, -40])
    unit = unit_of(x.abs().amax(0))
    terms = parts(x, unit, grids)
    for term, grid in zip(terms, grids, strict=True):
        multiple = term / (grid * unit)
        assert torch.equal(multiple, multiple.round()) and (multiple.abs() <= 2.0**26).all()
    assert ((total(terms) - x).abs() <= grids[-1] / 2 * unit).all()
    assert torch.equal(unit.log2(), unit.log2().round()) and (x.abs().amax(0) / unit < 2.0**18).all()


def test_power_of_two_of_nonfinite_values_is_one():
    edge = torch.tensor([0.0, torch.nan, torch.inf, 1.0, 0.75, 3e-310], dtype=torch.float64)
    assert power_of_two(edge)[:5].tolist() == [1, 1, 1, 0.5, 1]
