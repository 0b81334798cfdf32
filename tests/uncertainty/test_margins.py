"""Non-inferiority and equivalence from `rope`, standard errors, and the assurance of more items."""

import numpy as np
import pytest
import torch
from golden import golden
from scipy import stats

from tensormetrics import compare
from tensormetrics.uncertainty import BinaryAUROC, BrierScore, Comparison, compare_samples


@golden("evaluations", "equivalence")
@pytest.mark.parametrize("is_pair", [True, False])
def test_equivalence_golden_cases_equal_stored_p_values(case, is_pair):
    scores = torch.tensor(case["inputs"]["difference_scores"], dtype=torch.float64)
    arguments = (scores + 1, torch.ones_like(scores)) if is_pair else (scores, 0.0)
    comparison = compare(*arguments, rope=case["inputs"]["rope"])
    for name, expected in case["expected"].items():
        assert float(getattr(comparison, name)) == pytest.approx(expected, abs=1e-9)


@golden("evaluations", "assurance")
def test_assurance_golden_cases_equal_stored_values(case):
    inputs = case["inputs"]
    reach = stats.norm.ppf(0.975) * inputs["se"]
    ends = inputs["difference"] - reach, inputs["difference"] + reach
    comparison = Comparison(
        *map(torch.tensor, (inputs["difference"], *ends, 1.0, 0.5, torch.nan)),
        se=torch.tensor(inputs["se"]),
        items=inputs["items"],
        confidence=0.95,
    )
    assert [*map(float, comparison.assurance(inputs["more"]))] == pytest.approx(
        [case["expected"]["better"], case["expected"]["worse"]], abs=1e-4
    )


def test_margins_of_a_loss_equal_those_of_its_negative(generator):
    a, b = 0.2 * torch.rand(2, 40, generator=generator, dtype=torch.float64)
    gain, loss = compare(a, b, rope=0.03), compare(-a, -b, rope=0.03, higher_is_better=False)
    assert float(gain.p_not_worse) == pytest.approx(float(loss.p_not_worse))
    assert float(gain.p_equivalent) == pytest.approx(float(loss.p_equivalent))
    assert [*map(float, gain.assurance(60))] == pytest.approx([*map(float, loss.assurance(60))])


def test_standard_errors_of_groups_are_those_of_clusters(generator):
    groups = torch.randint(9, (60,), generator=generator)
    a, b = torch.rand(2, 60, generator=generator, dtype=torch.float64)
    differences = (a - b).numpy()
    sums = np.bincount(groups, differences - differences.mean())
    expected = np.sqrt(9 / 8 * (sums**2).sum()) / 60
    comparison = compare(a, b, groups=groups, rope=0.1)
    assert float(comparison.se) == pytest.approx(expected)
    assert float(comparison.sd) == pytest.approx(3 * expected)
    p_value = stats.t.sf((differences.mean() + 0.1) / expected, 8)
    assert float(comparison.p_not_worse) == pytest.approx(p_value)


def test_standard_error_of_a_metric_is_that_of_its_items(generator):
    preds, target = torch.rand(2, 50, generator=generator), torch.randint(2, (50,), generator=generator)
    metrics = [BrierScore(replicates=40), BrierScore(replicates=40)]
    for metric, probabilities in zip(metrics, preds, strict=True):
        metric.update(probabilities, target)
    comparison = compare(*metrics, rope=0.05)
    losses = (preds.double() - target).square()
    differences = losses[0] - losses[1]
    assert float(comparison.se) == pytest.approx(float(differences.std() / 50**0.5), rel=1e-6)
    expected = stats.t.sf((0.05 - float(differences.mean())) / float(comparison.se), 49)  # less is better
    assert expected <= float(comparison.p_not_worse) <= 3 * expected


def test_standard_error_of_auroc_comes_from_its_replicates(generator):
    target = torch.arange(80) % 2
    metrics = [BinaryAUROC(), BinaryAUROC()]
    for metric in metrics:
        metric.update(target + torch.randn(80, generator=generator), target)
    comparison = compare(*metrics, rope=0.5)
    assert 0.02 < float(comparison.se) < 0.15 and float(comparison.p_not_worse) < 0.01


@pytest.mark.parametrize(("items", "rope"), [(9, 0.001), (30, 0.05), (90, 0.05), (10, 0.3)])
def test_margins_without_a_difference_equal_the_chance_to_miss_one(items, rope):
    """If a fraction `rope` of all items differs, none of n items does with probability (1 - rope)^n."""
    comparison = compare([1, 0] * items, [1, 0] * items, groups=[i // 2 for i in range(2 * items)], rope=rope)
    for p_value in (comparison.p_not_worse, comparison.p_equivalent):
        assert float(p_value) == pytest.approx((1 - rope) ** items, abs=0.03)
        assert comparison.verdict != "equivalent" or float(p_value) <= 0.05


def test_equal_scores_of_unknown_range_and_one_pair_are_not_equivalent():
    comparison = compare([0.25, 0.5, 1.0, 0.5, 0.75, 0.0], [0.25, 0.5, 1.0, 0.5, 0.75, 0.0], rope=0.01)
    assert float(comparison.p_equivalent) == 1 and float(comparison.se) == 0
    assert [*map(float, comparison.assurance(0))] == [0, 0]
    with pytest.warns(UserWarning, match="one pair"):
        assert float(compare([0.5], [0.25], rope=0.9).p_not_worse) == 1


def test_margins_without_rope_or_items_are_none():
    assert compare([0.5] * 6, [0.25] * 6).p_not_worse is None
    draws = compare_samples(torch.rand(100), torch.rand(100), rope=0.1)
    assert (draws.se, draws.p_equivalent) == (None, None)
    with pytest.raises(ValueError, match="^assurance: got a comparison without se"):
        draws.assurance(5)
    with pytest.raises(ValueError, match="^more: got -1"):
        compare([0.5] * 6, [0.25] * 6).assurance(-1)


def test_assurance_equals_fraction_of_larger_samples_that_decide():
    generator = torch.Generator().manual_seed(0)
    differences = torch.randn(100, generator=generator, dtype=torch.float64)
    differences = 0.15 + (differences - differences.mean()) / differences.std()
    comparison = compare(differences, 0.0)
    more, sets = 300, 20_000
    true = 0.15 + 0.1 * torch.randn(sets, generator=generator, dtype=torch.float64)
    added = true + torch.randn(sets, generator=generator, dtype=torch.float64) / more**0.5
    mean = (100 * 0.15 + more * added) / (100 + more)
    fractions = [(mean > 1.96 / 20).double().mean(), (mean < -1.96 / 20).double().mean()]
    assert [*map(float, comparison.assurance(more))] == pytest.approx([*map(float, fractions)], abs=0.02)
