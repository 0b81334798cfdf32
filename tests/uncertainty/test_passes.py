"""`pass_at_k` and `PassAtK`: probabilities that any or all of k samples are right."""

import itertools
import math
from fractions import Fraction

import pytest
import torch
from golden import golden

from tensormetrics import compare, interval
from tensormetrics.uncertainty import PassAtK, UncertaintyWarning
from tensormetrics.uncertainty.functional import pass_at_k
from tensormetrics.uncertainty.metrics import passes


@golden("evaluations", "pass_at_k")
@pytest.mark.parametrize("require", ["any", "all"])
def test_pass_at_k_golden_cases_equal_stored_values(case, require):
    assert float(pass_at_k(**case["inputs"], require=require)) == pytest.approx(case["expected"][require], abs=1e-12)


@pytest.mark.parametrize(("require", "holds"), [("any", any), ("all", all)])
def test_chance_is_the_fraction_of_all_subsets(require, holds):
    for n in range(1, 7):
        for c, k in itertools.product(range(n + 1), range(1, n + 1)):
            subsets = [*itertools.combinations([True] * c + [False] * (n - c), k)]
            expected = sum(map(holds, subsets)) / len(subsets)
            assert float(pass_at_k(n, c, k, require=require)) == pytest.approx(expected, abs=1e-14)


def test_pass_at_k_of_large_counts_equals_exact_fractions():
    for n, c, k in ((10_000, 3, 1000), (10_000, 9000, 2), (2000, 1, 1999), (500, 250, 250), (300, 0, 300)):
        expected = 1 - Fraction(math.comb(n - c, k), math.comb(n, k))
        assert float(pass_at_k(n, c, k)) == pytest.approx(float(expected), abs=1e-12)


def test_counts_are_broadcast_and_chunks_change_nothing(generator, monkeypatch, device):
    n = torch.randint(20, 40, (5, 1), generator=generator).to(device)
    c = torch.randint(0, 20, (7,), generator=generator).to(device)
    monkeypatch.setattr(passes, "BLOCK", 3)
    chances = pass_at_k(n, c, (20, 1, 7))
    assert chances.shape == (5, 7, 3) and torch.equal(chances[..., 2], pass_at_k(n, c, 7))
    assert torch.equal(pass_at_k(n[:1], c[:1], (20, 1, 7)), chances[:1, :1])


def problems(generator, device):
    n = torch.randint(6, 15, (40,), generator=generator).to(device)
    return n, (n * torch.rand(40, generator=generator).to(device)).long()


def test_ragged_counts_in_parts_equal_one_update(generator, device):
    n, c = problems(generator, device)
    ids = [f"p{i}" for i in range(40)]
    metric, parts = PassAtK((1, 6)), PassAtK((1, 6))
    metric.update(c, n, ids=ids)
    parts.update(c=c // 3, n=n // 2, ids=ids)
    order = torch.randperm(40, generator=generator).tolist()
    rest = (c - c // 3)[order], (n - n // 2)[order]
    parts.update(*rest, ids=[ids[i] for i in order])
    expected = pass_at_k(n, c, (1, 6)).mean(0)
    assert torch.stack([*metric.compute().values()]).equal(torch.stack([*parts.compute().values()]))
    torch.testing.assert_close(torch.stack([*parts.compute().values()]), expected)
    first, second = metric.interval()["pass@6"], parts.interval()["pass@6"]
    assert [*map(float, first)] == [*map(float, second)] and first.items == 40


def test_interval_is_that_of_the_chances_of_problems(generator, device):
    n, c = problems(generator, device)
    metric, groups = PassAtK(4, require="all"), torch.arange(40, device=device) // 3
    metric.update(c, n, ids=torch.arange(40, device=device), groups=groups)
    chances = pass_at_k(n, c, 4, require="all")
    expected = interval(chances, bounds=(0, 1), ids=torch.arange(40), groups=groups.cpu())
    estimate = metric.interval()
    torch.testing.assert_close(torch.stack([*estimate]), torch.stack([*expected]))
    assert (estimate.groups, estimate.items) == (14, 40)


def test_comparison_pairs_problems_with_other_numbers_of_samples(generator):
    n, c = problems(generator, "cpu")
    a, b = PassAtK((1, 4)), PassAtK((1, 4))
    a.update(c, n, ids=torch.arange(40))
    b.update(c // 2, n + 3, ids=torch.arange(40))
    comparison = compare(a, b)["pass@4"]
    chances = pass_at_k(n, c, 4), pass_at_k(n + 3, c // 2, 4)
    expected = compare(*chances, bounds=(0, 1), ids=torch.arange(40))
    torch.testing.assert_close(torch.stack([*comparison]), torch.stack([*expected]))
    assert float(comparison.p_value) == float(expected.p_value) < 0.05
    with pytest.raises(ValueError, match="^require: got"):
        compare(PassAtK(1, require="all"), PassAtK(1))


def test_k_above_the_number_of_samples_names_the_problem():
    metric = PassAtK((1, 5))
    metric.update(torch.tensor([3, 1, 2]), torch.tensor([7, 4, 9]), ids=["sum", "sort", "zip"])
    with pytest.raises(ValueError, match=r"^k: got 5, but problem 'sort' has 4 samples.*wanted k <= 4"):
        metric.compute()
    with pytest.raises(ValueError, match="^k: got 5"):
        metric.interval()
    metric.update(torch.tensor([False]), ["sort"])
    assert float(metric.compute()["pass@1"]) == pytest.approx((3 / 7 + 1 / 5 + 2 / 9) / 3)


def test_more_right_samples_than_samples_name_the_problem():
    metric = PassAtK(1)
    metric.update(torch.tensor([3, 5]), torch.tensor([7, 4]), ids=torch.tensor([11, 12]))
    with pytest.raises(ValueError, match="^c: got 5 right of 4 samples of problem 12"):
        metric.compute()


def test_forward_with_insufficient_samples_is_nan_and_accumulates():
    metric = PassAtK(2)
    assert metric(torch.tensor([True, False]), ["a", "b"]).isnan()
    assert float(metric(torch.tensor([True, False]), ["c", "c"])) == 1
    metric.update(torch.tensor([False, False]), ["a", "b"])
    assert float(metric.compute()) == pytest.approx(2 / 3)


def test_groups_of_one_problem_must_agree():
    metric = PassAtK(1)
    metric.update(torch.tensor([True, False]), ["a", "a"], groups=["x", "y"])
    with pytest.raises(ValueError, match="^groups: got two for an item"):
        metric.compute()


def test_interval_of_five_right_problems_is_no_point():
    metric = PassAtK(1)
    metric.update(torch.full((5,), 4), torch.full((5,), 4), ids=torch.arange(5))
    assert float(metric.interval().low) < 0.7
    metric = PassAtK(1)
    metric.update(torch.full((3,), 4), torch.full((3,), 4), ids=torch.arange(3))
    with pytest.warns(UncertaintyWarning, match="^3 items"):
        metric.interval()
