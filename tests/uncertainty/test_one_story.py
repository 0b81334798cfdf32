"""Comparisons of two metrics, or of one with a number, of one or two sides: interval, p-value and p_better agree."""

import math
import warnings

import numpy as np
import pytest
import scipy.stats
import small_samples_oracle as oracle
import torch
from test_small_samples import KINDS, SIDES, UNKNOWN, R, by_unit, means, resampled, weights_of
from torchmetrics.classification import BinaryAccuracy, BinaryF1Score, MulticlassAccuracy

from tensormetrics.uncertainty import Comparison, Uncertain, UncertaintyWarning, compare
from tensormetrics.uncertainty.engine import swaps
from tensormetrics.uncertainty.engine.draws import mean_bounds, pseudo_masses
from tensormetrics.uncertainty.engine.intervals import interval
from tensormetrics.uncertainty.engine.paired import _exact_test, comparisons, comparisons_with
from tensormetrics.uncertainty.engine.resampling import values_of
from tensormetrics.uncertainty.engine.statements import Question


def contradictions(comparison: Comparison, confidence: float, direction: int = 1) -> list[str]:
    """Name what does not fit together in one statement; direction: -1 where less is better."""
    low, high, difference = (float(x) for x in (comparison.low, comparison.high, comparison.difference))
    p_value, p_better = float(comparison.p_value), float(comparison.p_better)
    above = p_better if direction > 0 else 1 - p_better
    sides = {"two-sided": 2 * min(above, 1 - above), "greater": 1 - above, "less": above}
    p_of_draws, sure = sides[comparison.alternative], 0.05 if comparison.alternative == "two-sided" else 0.025
    is_wrong = {
        "p_value and interval": (low > 0 or high < 0) != (p_value <= 1 - confidence),
        "difference and interval": not low <= difference <= high,
        "p_better and p_value": p_of_draws < sure and p_value > 2 * sure,
        "the sides of p_better and p_value": p_value < 0.5 < p_of_draws and comparison.alternative != "two-sided",
    }
    return [name for name, value in is_wrong.items() if value]


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("number", [0.45, 0.8])
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_comparison_with_a_number_equals_oracle(kind, grouped, number, side, generator):
    values = KINDS[kind](generator, 40)
    groups = torch.arange(40) ** 2 % 11 if grouped else torch.arange(40)
    rows, sizes, ids = by_unit(means(values), groups)
    weights, halves = weights_of(ids)
    masses = pseudo_masses(0, R, torch.device("cpu")).numpy()
    bounds = np.array([[0.0, 1.0], [1.0, 1.0]])
    low, high, p_value, p_better = oracle.comparison_with(
        rows, sizes, weights, masses, lambda s: s[0] / s[1], bounds, (0, 1), number, 0.9, halves, side
    )
    comparison = comparisons_with(resampled(means(values), groups), number, Question(0.9, side))
    assert float(comparison.difference) == pytest.approx(float(values.mean()) - number)
    assert [float(comparison.low), float(comparison.high)] == pytest.approx([low, high], rel=1e-9, abs=1e-12)
    assert float(comparison.p_value) == pytest.approx(p_value, rel=1e-9)
    assert float(comparison.p_better) == pytest.approx(p_better, rel=1e-9)
    assert comparison.alternative == side and comparison.discordant is None


@pytest.mark.parametrize("with_number", [False, True])
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("confidence", [0.55, 0.8, 0.95, 0.99])
def test_comparison_of_random_small_data_tells_one_story(confidence, side, with_number, generator):
    """The interval excludes 0 exactly where p_value <= 1 - confidence; p_better is not surer than the p-value."""
    wrong = []
    for case in range(100):
        n = int(torch.randint(2, 40, (), generator=generator))
        kind = list(KINDS)[case % 3]
        a, b = KINDS[kind](generator, n), KINDS[kind](generator, n)
        b = b.clamp(max=float(torch.rand((), generator=generator)) + 0.3)
        groups = torch.arange(n) if case % 2 else torch.randint(0, max(n // 3, 2), (n,), generator=generator)
        question = Question(confidence, side)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UncertaintyWarning)
            first, second = (resampled(means(x), groups, replicates=200) for x in (a, b))
            number = float(torch.rand((), generator=generator))
            comparison = (
                comparisons_with(first, number, question) if with_number else comparisons(first, second, question)
            )
        wrong += [(case, comparison, name) for name in contradictions(comparison, confidence)]
    assert wrong == []


@pytest.mark.parametrize("with_number", [False, True])
def test_two_sided_p_value_is_twice_the_smaller_one_sided_one(with_number, generator):
    for case in range(20):
        a, b = (KINDS[list(KINDS)[case % 3]](generator, 6 + case) for _ in range(2))
        sides = [resampled(means(x), replicates=200) for x in (a, b)]
        two, greater, less = (
            float((comparisons_with(sides[0], 0.6, q) if with_number else comparisons(*sides, q)).p_value)
            for q in (Question(0.95, side) for side in SIDES)
        )
        assert two == pytest.approx(min(1, 2 * min(greater, less)))


def test_comparison_with_a_number_has_the_interval_of_the_metric(generator):
    """Where the tests do not know better; and ends of the range where it is one-sided."""
    metric = resampled(means(torch.rand(40, generator=generator)))
    estimate = interval(metric, 0.95)
    comparison = comparisons_with(metric, 0.2, Question(0.95))
    assert [float(comparison.low), float(comparison.high)] == pytest.approx([float(end) - 0.2 for end in estimate][1:])
    for side, end in (("greater", 0.8), ("less", -0.2)):
        one_sided = comparisons_with(metric, 0.2, Question(0.975, side))
        free, bound = ("high", "low") if side == "greater" else ("low", "high")
        assert float(getattr(one_sided, free)) == pytest.approx(end)
        assert float(getattr(one_sided, bound)) == pytest.approx(float(getattr(comparison, bound)))
    unbounded = resampled(
        means(torch.rand(40, generator=generator)), bounds=mean_bounds(1, *UNKNOWN), value_range=UNKNOWN
    )
    assert comparisons_with(unbounded, 0.2, Question(0.95, "greater")).high == math.inf


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(("right", "count", "number"), [(10, 10, 0.8), (7, 10, 0.3), (30, 100, 0.5), (0, 30, 0.01)])
def test_comparison_of_right_answers_with_a_number_is_no_surer_than_the_exact_binomial_test(right, count, number, side):
    comparison = comparisons_with(resampled(means(torch.arange(count) < right)), number, Question(0.95, side))
    exact = scipy.stats.binomtest(right, count, number, alternative=side).pvalue
    if side == "two-sided":
        tails = (scipy.stats.binomtest(right, count, number, alternative=tail).pvalue for tail in SIDES[1:])
        exact = min(1, 2 * min(tails))
    assert float(comparison.p_value) >= exact * (1 - 1e-9)
    if exact > 0.02:
        assert float(comparison.p_value) == pytest.approx(exact, rel=0.35)


@pytest.mark.parametrize("make", [lambda: BinaryAccuracy(), lambda: MulticlassAccuracy(3, average="micro")])
def test_comparison_of_a_wrapped_accuracy_with_a_number_uses_the_binomial_test(make):
    metric = Uncertain(make(), replicates=300)
    for item in range(20):
        metric.update(torch.tensor([int(item < 19)]), torch.tensor([1]))
    assert float(compare(metric, 0.75, alternative="greater").p_value) >= scipy.stats.binom.sf(18, 20, 0.75)
    exact = swaps.binomial_test(torch.tensor([19]), torch.tensor([20]), 0.75)
    sums = metric._resampled("comparison")
    test, is_binomial = _exact_test(sums, values_of(sums), 0.75)
    assert is_binomial and test.greater == exact.greater
    f1 = Uncertain(BinaryF1Score(), replicates=300)  # of true positives alone it is no share
    for _ in range(20):
        f1.update(torch.tensor([1]), torch.tensor([1]))
    sums = f1._resampled("comparison")
    assert not _exact_test(sums, values_of(sums), 0.75)[1]
