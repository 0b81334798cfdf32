"""Interval, p-value and p_better agree in comparisons of two metrics or of a metric with a constant."""

import math

import pytest
import scipy.stats
import small_samples_oracle as oracle
import torch
from test_small_samples import (
    ALTERNATIVES,
    BOUNDS,
    KINDS,
    MASSES,
    UNKNOWN,
    by_unit,
    mean,
    means,
    resampled,
    weights_of,
)  # fmt: skip
from torchmetrics.classification import BinaryAccuracy, BinaryF1Score, MulticlassAccuracy

from tensormetrics.core.resampling import swaps
from tensormetrics.core.resampling.draws import mean_bounds
from tensormetrics.core.resampling.intervals import interval
from tensormetrics.core.resampling.paired import _exact_test, comparisons_with
from tensormetrics.core.resampling.resampling import values_of
from tensormetrics.core.resampling.statements import Question
from tensormetrics.uncertainty import Comparison, Uncertain, compare


def contradictions(comparison: Comparison, confidence: float, direction: int = 1) -> list[str]:
    """List contradictory statistics of a comparison; direction is -1 where lower is better."""
    low, high, difference = (float(x) for x in (comparison.low, comparison.high, comparison.difference))
    p_value, p_better = float(comparison.p_value), float(comparison.p_better)
    above = p_better if direction > 0 else 1 - p_better
    p_values_of_draws = {"two-sided": 2 * min(above, 1 - above), "greater": 1 - above, "less": above}
    p_of_draws, threshold = (
        p_values_of_draws[comparison.alternative],
        0.05 if comparison.alternative == "two-sided" else 0.025,
    )
    better, worse = (low > 0, high < 0)[::direction]
    verdict, margins = comparison.verdict, {}
    if comparison.p_not_worse is not None:
        margins = {"not worse": comparison.p_not_worse, "equivalent": comparison.p_equivalent}
    smallest = 2.0 ** ((comparison.alternative == "two-sided") - (comparison.groups or 0))
    is_wrong = {
        "p_value and interval": (low > 0 or high < 0) != (float(comparison._decisive_p) <= 1 - confidence),
        "difference and interval": not low <= difference <= high,
        "p_better and p_value": p_of_draws < threshold and p_value > 2 * threshold,
        "the sides of p_better and p_value": p_value < 0.5 < p_of_draws and comparison.alternative != "two-sided",
        "verdict and interval": verdict.startswith("better") != (better > 0)
        or verdict.startswith("worse") != (worse > 0),
        "verdict and margin": float(margins.get(verdict, torch.zeros(()))) > 1 - confidence,
        "p_value and signs": comparison.test == "random signs" and p_value < smallest,
    }
    if comparison.se is not None and comparison.items is not None and comparison.confidence is not None:
        is_wrong["assurance and interval"] = tuple(map(float, comparison.assurance(0))) != (better, worse)
    return [name for name, value in is_wrong.items() if value]


@pytest.mark.parametrize("alternative", ALTERNATIVES)
@pytest.mark.parametrize("constant", [0.45, 0.8])
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_comparison_with_a_constant_equals_oracle(kind, grouped, constant, alternative, generator):
    values = KINDS[kind](generator, 40)
    groups = torch.arange(40) ** 2 % 11 if grouped else torch.arange(40)
    rows, sizes, ids = by_unit(means(values), groups)
    weights, swap_masks = weights_of(ids)
    low, high, p_value, p_better = oracle.comparison_with(
        rows, sizes, weights, MASSES, mean, BOUNDS, (0, 1), constant, 0.9, swap_masks, alternative
    )
    comparison = comparisons_with(resampled(means(values), groups), constant, Question(0.9, alternative))
    assert float(comparison.difference) == pytest.approx(float(values.mean()) - constant)
    assert [float(comparison.low), float(comparison.high)] == pytest.approx([low, high], rel=1e-9, abs=1e-12)
    assert float(comparison.p_value) == pytest.approx(p_value, rel=1e-9)
    assert float(comparison.p_better) == pytest.approx(p_better, rel=1e-9)
    assert comparison.alternative == alternative and comparison.discordant is None


def test_comparison_with_a_constant_has_the_interval_of_the_metric(generator):
    """One-sided intervals have the same bound and end at the limits of the range."""
    metric = resampled(means(torch.rand(40, generator=generator)))
    estimate = interval(metric, 0.95)
    comparison = comparisons_with(metric, 0.2, Question(0.95))
    assert [float(comparison.low), float(comparison.high)] == pytest.approx([float(end) - 0.2 for end in estimate][1:])
    for alternative, end in (("greater", 0.8), ("less", -0.2)):
        one_sided = comparisons_with(metric, 0.2, Question(0.975, alternative))
        free, bound = ("high", "low") if alternative == "greater" else ("low", "high")
        assert float(getattr(one_sided, free)) == pytest.approx(end)
        assert float(getattr(one_sided, bound)) == pytest.approx(float(getattr(comparison, bound)))
    unbounded = resampled(
        means(torch.rand(40, generator=generator)), bounds=mean_bounds(1, *UNKNOWN), value_range=UNKNOWN
    )
    assert comparisons_with(unbounded, 0.2, Question(0.95, "greater")).high == math.inf


@pytest.mark.parametrize("alternative", ALTERNATIVES)
@pytest.mark.parametrize(("right", "count", "constant"), [(10, 10, 0.8), (7, 10, 0.3), (30, 100, 0.5), (0, 30, 0.01)])
def test_comparison_of_binary_scores_with_a_constant_has_no_smaller_p_value_than_binomial_test(
    right, count, constant, alternative
):
    comparison = comparisons_with(resampled(means(torch.arange(count) < right)), constant, Question(0.95, alternative))
    exact = scipy.stats.binomtest(right, count, constant, alternative=alternative).pvalue
    if alternative == "two-sided":
        tails = (scipy.stats.binomtest(right, count, constant, alternative=tail).pvalue for tail in ALTERNATIVES[1:])
        exact = min(1, 2 * min(tails))
    assert float(comparison.p_value) >= exact * (1 - 1e-9)
    if exact > 0.02:
        assert float(comparison.p_value) == pytest.approx(exact, rel=0.35)


@pytest.mark.parametrize("make", [lambda: BinaryAccuracy(), lambda: MulticlassAccuracy(3, average="micro")])
def test_comparison_of_wrapped_accuracy_with_a_constant_uses_the_binomial_test(make):
    metric = Uncertain(make(), replicates=300)
    for item in range(20):
        metric.update(torch.tensor([int(item < 19)]), torch.tensor([1]))
    assert float(compare(metric, 0.75, alternative="greater").p_value) >= scipy.stats.binom.sf(18, 20, 0.75)
    exact = swaps.binomial_test(torch.tensor([19]), torch.tensor([20]), 0.75)
    sums = metric._resampled("comparison")
    test, is_binomial = _exact_test(sums, values_of(sums), 0.75)
    assert is_binomial and test.greater == exact.greater
    f1 = Uncertain(BinaryF1Score(), replicates=300)  # with only true positives F1 is still not a proportion
    for _ in range(20):
        f1.update(torch.tensor([1]), torch.tensor([1]))
    sums = f1._resampled("comparison")
    assert not _exact_test(sums, values_of(sums), 0.75)[1]
