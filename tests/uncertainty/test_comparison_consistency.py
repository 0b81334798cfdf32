"""Interval, p-value and p_better agree in comparisons of two metrics or of a metric with a constant."""

import numpy as np
import pytest
import scipy.stats
import small_samples_oracle as oracle
import torch
from test_small_samples import ALTERNATIVES, BOUNDS, KINDS, MASSES, by_unit, mean, means, resampled, weights_of
from torchmetrics.classification import BinaryAccuracy, BinaryF1Score, MulticlassAccuracy

from tensormetrics.core.resampling import swaps
from tensormetrics.core.resampling.paired import _exact_test, comparisons_with
from tensormetrics.core.resampling.resampling import values_of
from tensormetrics.core.resampling.statements import Question
from tensormetrics.retrieval import Completeness, Homogeneity, NormalizedMutualInfo, VMeasure
from tensormetrics.structured import CorefScores, Smatch, SpanScores
from tensormetrics.uncertainty import Comparison, Uncertain, UncertaintyWarning, compare, interval, plan


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


@pytest.mark.parametrize(("alternative", "sign"), [("greater", 1), ("less", -1)])
def test_corrected_p_of_skewed_differences_is_that_of_an_independent_bootstrap(alternative, sign):
    """With the other sign of the deviations p-values would be half of these."""
    rng, n, draws = np.random.default_rng(1), 15, 20_000
    base, skewed = rng.random(n), rng.exponential(size=(2, n)) ** 1.5
    models = {"a": base, "b": base - skewed[0], "c": base - skewed[1]}
    differences = np.stack([skewed[0], skewed[1], skewed[1] - skewed[0]])
    means, errors = differences.mean(1), differences.std(1, ddof=1) / n**0.5
    drawn = rng.dirichlet(np.ones(n), draws) @ differences.T
    maxima = ((drawn - means) / drawn.std(0) * np.sqrt((n - 1) / rng.chisquare(n - 1, drawn.shape))).max(1)
    expected = [(maxima >= statistic).mean() for statistic in means / errors]
    table = compare({name: sign * x for name, x in models.items()}, alternative=alternative, replicates=4000)
    assert table.columns["corrected p"].tolist() == pytest.approx(expected, abs=0.01) and 0.02 < min(expected) < 0.04
    ends = sign * getattr(table.columns["difference"], "low" if sign > 0 else "high").numpy()
    np.testing.assert_allclose((means - ends) / errors, np.quantile(maxima, 0.95), rtol=0.05)


def test_eight_perfect_documents_are_no_evidence_of_more():
    spans, coref, smatch = SpanScores(replicates=300), CorefScores(["conll"], replicates=300), Smatch(replicates=300)
    spans.update_tags([["B-P"]] * 8, [["B-P"]] * 8)
    coref.update_clusters([[["a", "b"]]] * 8, [[["a", "b"]]] * 8)
    smatch.update(["(a / b)"] * 8, ["(a / b)"] * 8)
    for metric, key in ((spans, "f1"), (coref, "conll-f1"), (smatch, "f1")):
        jeffreys = scipy.stats.beta(8.5, 0.5).ppf(0.025)  # of documents, which have several spans' worth of weight
        assert jeffreys - 0.03 < metric.interval()[key].low < 0.88 and compare(metric, 0.99)[key].p_value > 2 * 2**-8


def test_few_items_that_all_agree_are_no_knowledge():
    table = compare({"a": [1.0] * 30, "b": [1.0] * 26 + [0.0] * 4})
    assert table["a - b", "p"] == 2 * 0.5**4 and table.best == ("a", "b") and {*table.ranks.values()} == {(1, 2)}
    with pytest.warns(UncertaintyWarning, match="^3 pairs"):
        opposite = compare([1, 1, 1], [0, 0, 0])
    assert float(opposite.p_value) == pytest.approx(2 * 0.5**3) and [*map(float, opposite.assurance(0))] == [0, 0]
    with pytest.raises(ValueError, match="^sd: wanted numbers above 0; differences that are all alike"):
        plan(compare([1.0] * 30, [1.0] * 30), difference=0.05, power=0.8)
    with pytest.raises(ValueError, match="the bounds of the score; percent"):
        compare([1.0, 0.0, 1.0] * 5, 80)
    assert str(interval([1.0] * 99_995 + [0.0] * 5)) == "0.99995 [0.99989, 0.99998]"


@pytest.mark.parametrize("kind", [NormalizedMutualInfo, VMeasure, Homogeneity, Completeness])
def test_clustering_without_an_error_reaches_down_to_what_n_items_may_miss(kind):
    """A mass of 1 - .025^(1/100), spread over the six other cells, leaves no item there in .025 of all samples."""
    labels, metric, coarse = torch.arange(100) % 3, kind(), kind()
    metric.update(labels, labels)
    coarse.update(labels, labels // 2)
    sizes, share = np.bincount(labels) / 100, 1 - 0.025**0.01
    cells = np.full((3, 3), share / 6) + np.diag((1 - share) * sizes - share / 6)
    entropies = [-(x * np.log(x)).sum() for x in (cells.sum(0), cells.sum(1), cells)]
    _, low, high = metric.interval(replicates=4000)
    assert float(low) == pytest.approx(2 - 2 * entropies[2] / sum(entropies[:2]), abs=0.02) and high == 1
    # The cells of the other clustering have the same items, but not all the same score.
    assert (compare(metric, coarse).p_value > 0.05) == (kind is Completeness)


def test_clustering_by_chance_has_no_interval(generator):
    metric = NormalizedMutualInfo()
    metric.update(*torch.randint(10, (2, 100), generator=generator))  # the truth is 0, and samples have .21
    with pytest.raises(NotImplementedError, match="of 100 items are alone in their class and cluster"):
        metric.interval()


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
