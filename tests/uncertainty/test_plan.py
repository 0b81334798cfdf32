"""Power, detectable difference and number of items of a comparison."""

import numpy as np
import pytest
import torch
from golden import golden
from scipy import stats

from tensormetrics import compare
from tensormetrics.uncertainty import Comparison, plan
from tensormetrics.uncertainty.planning import more_items


@golden("evaluations", "plan")
def test_plan_golden_cases_equal_stored_values(case):
    result = plan(**case["inputs"])
    for name, expected in case["expected"].items():
        assert float(getattr(result, name)) == pytest.approx(expected, rel=0, abs=case["tolerance"])


def power_by_scipy(items, ratio, confidence=0.95):
    shift, df = ratio * np.sqrt(items), items - 1
    limit = stats.t.isf((1 - confidence) / 2, df)
    return stats.nct.sf(limit, df, shift) + np.nan_to_num(stats.nct.cdf(-limit, df, shift))  # NaN for tiny ones


def test_power_equals_statsmodels(device):
    power = pytest.importorskip("statsmodels.stats.power").TTestPower()
    items = torch.tensor([2, 3, 5, 10, 50, 200, 3000, 100_000])
    ratio = torch.tensor([2.0, 2.0, 1.2, 0.8, 0.4, 0.2, 0.05, 0.01], dtype=torch.float64)
    result = plan(sd=torch.full((8,), 0.5, dtype=torch.float64, device=device), difference=0.5 * ratio, items=items)
    expected = [power.power(r, n, 0.05) for r, n in zip(ratio.tolist(), items.tolist(), strict=True)]
    np.testing.assert_allclose(result.power.cpu(), expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(expected, power_by_scipy(items.numpy(), ratio.numpy()), atol=1e-9)


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.999])
def test_items_are_the_fewest_that_have_the_power(confidence):
    ratio = torch.logspace(-2.5, 0.7, 12, dtype=torch.float64)
    result = plan(sd=0.3, difference=-0.3 * ratio, power=0.9, confidence=confidence)
    items = result.items.numpy()
    np.testing.assert_allclose(result.power, power_by_scipy(items, ratio.numpy(), confidence), atol=1e-5)
    assert (result.power >= 0.9).all()
    more_than_two = items > 2
    fewer = power_by_scipy(items[more_than_two] - 1, ratio.numpy()[more_than_two], confidence)
    assert more_than_two.sum() > 8 and (fewer < 0.9 + 1e-6).all()


def test_plan_solved_for_each_unknown_is_consistent():
    result = plan(sd=0.25, items=torch.tensor([5, 40, 900]), power=0.7)
    back = plan(sd=0.25, items=result.items, difference=result.difference)
    assert back.power.tolist() == pytest.approx([0.7] * 3)
    assert plan(sd=0.25, difference=result.difference * 1.0001, power=0.7).items.tolist() == [5, 40, 900]


def test_non_inferiority_is_one_sided_from_the_margin():
    result = plan(sd=1.0, difference=0.02, items=400, rope=0.1)
    limit = stats.t.isf(0.05, 399)
    assert float(result.power) == pytest.approx(stats.nct.sf(limit, 399, 0.12 * 20), abs=1e-6)
    items = int(plan(sd=1.0, difference=0.0, power=0.8, rope=0.1).items)
    assert items == 620  # (1.645 + .842)^2 * 100 + 1.645^2 / 2
    shown = plan(sd=1.0, items=items, power=0.8, rope=0.1)
    assert abs(float(shown.difference)) < 1e-3 and "above -0.1" in repr(shown)


def test_a_pilot_of_groups_plans_groups(generator):
    groups = torch.arange(60) // 4
    a, b = torch.rand(2, 60, generator=generator, dtype=torch.float64)
    pilot = compare(a, b, groups=groups)
    result = plan(pilot, difference=0.1, power=0.8)
    assert float(result.items) == 4 * float(result.groups) and "groups" in repr(result)
    assert int(result.groups) == int(plan(sd=pilot.sd, difference=0.1, power=0.8).items)
    assert int(plan(pilot, difference=0.1, items=83).groups) == 20


def test_a_pilot_of_scores_is_their_paired_difference(generator):
    a, b = torch.rand(2, 3, 30, generator=generator, dtype=torch.float64)
    result, other = plan((a, b), difference=0.1, power=0.8), plan(sd=(a - b).std(-1), difference=0.1, power=0.8)
    assert result.items.tolist() == other.items.tolist() and repr(result) == "Plan(3,)"
    assert float(plan((a[0], b[0]), difference=0.1, power=0.8).sd) == pytest.approx(float(compare(a[0], b[0]).sd))


def comparison(difference, se):
    ends = difference - 1.959964 * se, difference + 1.959964 * se
    values = (torch.tensor(x, dtype=torch.float64) for x in (difference, *ends, 1.0, 0.5, torch.nan))
    return Comparison(*values, se=torch.tensor(se), items=200, confidence=0.95)


def test_more_items_are_the_fewest_that_decide():
    pilot = comparison(0.02, 0.015)
    more = more_items(pilot, 0.8)
    assert more is not None and float(pilot.assurance(more).better) >= 0.8 > float(pilot.assurance(more - 1).better)
    assert more_items(comparison(-0.02, 0.015), 0.8) == more
    assert more_items(pilot, 0.95) is None  # unreachable: the limit is Phi(.02 / .015) = .909
    assert more_items(comparison(0.05, 0.015), 0.8) == 0  # its interval excludes 0
    assert more_items(compare([1.0] * 8 + [0.5], 0.0), 0.8) == 0
