"""Intervals and comparisons of small samples, against an oracle, values by hand, and properties."""

import math

import numpy as np
import pytest
import scipy.stats
import small_samples_oracle as oracle
import torch
import torchmetrics
from test_weights import weight
from torchmetrics import MeanSquaredError

from tensormetrics.core.resampling.draws import Bounds, mean_bounds, pseudo_masses, t_scales
from tensormetrics.core.resampling.intervals import interval
from tensormetrics.core.resampling.paired import comparisons
from tensormetrics.core.resampling.resampling import Items, Resampled
from tensormetrics.core.resampling.statements import Question
from tensormetrics.core.resampling.units import read_entries
from tensormetrics.uncertainty import BinaryAUROC, BrierScore, Uncertain, UncertaintyWarning

R = 300
MASSES = pseudo_masses(0, R, torch.device("cpu")).numpy()
BOUNDS = np.array([[0.0, 1.0], [1.0, 1.0]])  # of sums of scores in [0, 1] and of their number
UNKNOWN = -math.inf, math.inf


def read_mean(sums):
    return sums[..., 0, 0] / sums[..., 0, 1]


def mean(sums):
    return sums[0] / sums[1]


def read_f1(sums):
    return 2 * sums[..., 0, 0] / (2 * sums[..., 0, 0] + sums[..., 0, 1] + sums[..., 0, 2])


def resampled(rows, groups=None, read=read_mean, bounds=None, value_range=(0.0, 1.0), replicates=R) -> Resampled:
    units = torch.arange(len(rows)) if groups is None else groups
    bounds = mean_bounds(1) if bounds is None and read is read_mean else bounds
    return Items(rows, units, read, bounds=bounds, range=value_range).resampled(replicates, 0)


def means(values: torch.Tensor) -> torch.Tensor:
    return torch.stack([values.double(), torch.ones(len(values), dtype=torch.float64)], 1)


KINDS = {
    "continuous": lambda g, n: torch.rand(n, generator=g).double(),
    "binary": lambda g, n: (torch.rand(n, generator=g) < 0.8).double(),
    "narrow": lambda g, n: 0.5 + 0.02 * torch.rand(n, generator=g).double(),
}


def by_unit(rows: torch.Tensor, groups: torch.Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows, sizes and ids of units in the order of their ids."""
    ids, unit, sizes = groups.unique(return_inverse=True, return_counts=True)
    sums = torch.zeros(len(ids), rows.shape[1], dtype=torch.float64).index_add_(0, unit, rows)
    return sums.numpy(), sizes.double().numpy(), ids.numpy()


def weights_of(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    pairs = np.array([[weight(0, int(item), r) for item in ids] for r in range(R)])
    return pairs[..., 0], pairs[..., 1]


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_interval_of_means_equals_oracle(kind, grouped, generator):
    values = KINDS[kind](generator, 40)
    groups = torch.arange(40) ** 2 % 11 if grouped else torch.arange(40)
    rows, sizes, ids = by_unit(means(values), groups)
    expected = oracle.interval(rows, sizes, weights_of(ids)[0], MASSES, mean, BOUNDS, True, (0, 1), 0.9)
    estimate = interval(resampled(means(values), groups), 0.9)
    assert [float(estimate.low), float(estimate.high)] == pytest.approx(expected, rel=1e-10)
    assert float(estimate) == pytest.approx(float(values.mean())) and estimate.items == 40
    assert estimate.groups == len(ids) and estimate.effective_groups == pytest.approx(40**2 / (sizes**2).sum())


def test_interval_of_f1_equals_oracle(generator):
    outcome = torch.randint(0, 4, (30,), generator=generator)  # true positive, false positive, false negative, none
    rows = torch.nn.functional.one_hot(outcome, 4)[:, :3].double()
    bounds = np.array([[0, 0.5, 0.5], [1.0, 0, 0]])

    def f1(sums):
        return 2 * sums[0] / (2 * sums[0] + sums[1] + sums[2])

    weights = weights_of(np.arange(30))[0]
    expected = oracle.interval(rows.numpy(), np.ones(30), weights, MASSES, f1, bounds, False, (0, 1), 0.95)
    estimate = interval(resampled(rows, read=read_f1, bounds=Bounds(*torch.tensor(bounds))), 0.95)
    assert [float(estimate.low), float(estimate.high)] == pytest.approx(expected, rel=1e-10)


ALTERNATIVES = "two-sided", "greater", "less"


@pytest.mark.parametrize("alternative", ALTERNATIVES)
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_comparison_of_means_equals_oracle(kind, grouped, alternative, generator):
    a, b = KINDS[kind](generator, 40), KINDS[kind](generator, 40)
    b = torch.where(torch.arange(40) % 3 == 0, a, b)
    groups = torch.arange(40) ** 2 % 11 if grouped else torch.arange(40)
    (x, sizes, ids), (y, _, _) = by_unit(means(a), groups), by_unit(means(b), groups)
    weights, swap_masks = weights_of(ids)
    effective = (sizes**2).sum() / 40
    scales = t_scales(0, R, 40 / effective - 1, torch.device("cpu")).numpy()
    low, high, p_value, p_better = oracle.comparison(
        x, y, sizes, weights, MASSES, scales, mean, BOUNDS, True, 1.0, 0.95, swap_masks, alternative
    )
    comparison = comparisons(resampled(means(a), groups), resampled(means(b), groups), Question(0.95, alternative))
    assert [float(comparison.low), float(comparison.high)] == pytest.approx([low, high], rel=1e-9, abs=1e-12)
    assert float(comparison.p_value) == pytest.approx(p_value, rel=1e-9)
    assert float(comparison.p_better) == pytest.approx(p_better, rel=1e-9)
    assert comparison.discordant == (x != y).any(1).sum()


def test_pseudo_masses_and_scales_have_their_distributions():
    masses = pseudo_masses(3, 4000, torch.device("cpu"))
    for mass in masses:
        assert scipy.stats.kstest(mass.numpy(), scipy.stats.gamma(0.5).cdf).pvalue > 0.01
    assert abs(np.corrcoef(masses.numpy())[0, 1]) < 0.05
    for df in (0.5, 3, 40.5):
        chi2 = df / t_scales(3, 4000, df, torch.device("cpu")).numpy() ** 2
        assert scipy.stats.kstest(chi2, scipy.stats.chi2(df).cdf).pvalue > 0.01


@pytest.mark.parametrize("n", [10, 30])
def test_pseudo_draws_of_binary_means_are_jeffreys(n):
    """The ends are those of Beta(x + 1/2, n - x + 1/2), except where the jackknife is wider."""
    for right in range(n + 1):
        values = (torch.arange(n) < right).double()
        estimate = interval(resampled(means(values), replicates=10_000), 0.95)
        law = scipy.stats.beta(right + 0.5, n - right + 0.5)
        assert float(estimate.low) <= law.ppf(0.025) + 0.01 and float(estimate.high) >= law.ppf(0.975) - 0.01
        if right in (0, n):  # the jackknife has no variance
            assert float(estimate.low) == pytest.approx(0 if right == 0 else law.ppf(0.025), abs=0.01)


def test_interval_of_three_groups_warns_and_is_wider(generator):
    rows, groups = means(torch.rand(30, generator=generator)), torch.arange(30) % 3
    with pytest.warns(UncertaintyWarning, match="^3 groups: the interval rests on the range of the scores"):
        grouped = interval(resampled(rows, groups), 0.95)
    ungrouped = interval(resampled(rows), 0.95)
    assert grouped.high - grouped.low > ungrouped.high - ungrouped.low and grouped.groups == 3 and grouped.items == 30


def test_interval_of_no_items_is_nan():
    estimate = interval(resampled(means(torch.zeros(0))), 0.95)
    assert all(end.isnan() for end in estimate) and estimate.items == 0


def test_interval_above_the_unit_limit_counts_groups_of_stored_rows():
    groups = torch.cat([torch.arange(1200), torch.arange(600)])
    estimate = interval(resampled(means(torch.arange(1800) % 2), groups), 0.95)
    assert estimate.groups == 1200 and estimate.effective_groups == pytest.approx(1800**2 / (600 * 4 + 600))
    assert estimate.details == {}
    auroc = BinaryAUROC()
    auroc.update(torch.arange(1800.0), torch.arange(1800) % 2, groups=groups)
    assert auroc.interval().groups == 1200


def test_interval_above_the_unit_limit_estimates_groups_of_sums():
    metric, ids = BrierScore(replicates=100), torch.arange(1500)
    metric.update(torch.full((1500,), 0.5), ids % 2, ids=ids)
    estimate = metric.interval()
    assert estimate.details == {"groups_estimated": True} and estimate.groups == pytest.approx(1500, rel=0.5)


def test_interval_above_the_unit_limit_is_close_to_that_at_the_limit(generator):
    right = (torch.rand(1001, generator=generator) < 0.5).double()
    above_limit, at_limit = interval(resampled(means(right)), 0.95), interval(resampled(means(right[:1000])), 0.95)
    for one, other in zip(above_limit, at_limit, strict=True):
        assert float(one) == pytest.approx(float(other), abs=0.01)
    assert above_limit.groups == above_limit.effective_groups == 1001 and at_limit.groups == 1000
    assert at_limit.details == above_limit.details == {}
    rare = torch.zeros(1500)
    rare[:2] = 1  # the value rests on two items
    assert interval(resampled(means(rare), replicates=1000), 0.95).high > 2.5 / 1500


def test_interval_above_the_unit_limit_of_only_right_answers_is_not_a_point():
    estimate = interval(resampled(means(torch.ones(1500)), replicates=1000), 0.95)
    exact = scipy.stats.beta(1500.5, 0.5).ppf(0.025)
    assert float(estimate.low) == pytest.approx(exact, abs=2e-4) and float(estimate.high) == pytest.approx(1, abs=1e-4)


def brier(preds, target, order=None, batches=(1000,), **items) -> BrierScore:
    metric = BrierScore(replicates=50)
    order = torch.arange(len(preds)) if order is None else order
    for part in order.split(batches[0]):
        metric.update(preds[part], target[part], **{name: values[part] for name, values in items.items()})
    return metric


@pytest.mark.parametrize("count", [900, 1500])
def test_interval_of_a_sum_metric_does_not_depend_on_order_or_merges(count, generator):
    """The store of units may overflow in one order of the updates and not in another."""
    preds, target = torch.rand(count, generator=generator), torch.arange(count) % 2
    groups = torch.randint(0, 1200, (count,), generator=generator)
    expected = brier(preds, target, groups=groups).interval()
    order = torch.randperm(count, generator=generator)
    others = [brier(preds, target, order, (7,), groups=groups), brier(preds, target, order, (400,), groups=groups)]
    parts = [brier(preds, target, part, groups=groups) for part in order.chunk(2)]
    parts[0].merge_state(parts[1])
    restored = BrierScore(replicates=50)
    others[0].persistent(True)
    restored.load_state_dict(others[0].state_dict())
    forward = BrierScore(replicates=50)
    for part in order.split(100):
        forward(preds[part], target[part], groups=groups[part])
    for metric in (*others, parts[0], restored, forward):
        estimate = metric.interval()
        assert torch.equal(estimate.low, expected.low) and torch.equal(estimate.high, expected.high)
        assert estimate.items == count and estimate.groups == expected.groups


def test_draws_of_sums_of_several_items_cover_as_those_of_all(generator):
    """The spread of draws of a mean is that of the deviations of units: of 1,000 sums instead of 5,000 items."""
    ratios = []
    for _ in range(100):
        wrong, metric = (torch.rand(5000, generator=generator) < 0.3).double(), BrierScore()
        metric.update(torch.zeros(5000), wrong.long())
        metric._fold()
        units, _, is_grouped = read_entries(metric.units)
        assert is_grouped and 900 < len(units.ids) <= 1000 and metric.interval().groups == 5000
        deviations = units.rows[:, 0] - wrong.mean() * units.rows[:, 1]
        ratios.append(deviations.square().sum() / (wrong - wrong.mean()).square().sum())
    coverage = 2 * torch.special.ndtr(1.96 * torch.stack(ratios).sqrt()) - 1
    assert float(coverage.mean()) == pytest.approx(0.95, abs=0.01)


def test_merge_state_of_separately_numbered_items_is_refused():
    preds, target = torch.rand(6), torch.arange(6) % 2
    one, other = brier(preds, target), brier(preds, target)
    with pytest.raises(ValueError, match="^incoming_state: both metrics numbered their own items"):
        one.merge_state(other)
    named = brier(preds, target, ids=torch.arange(6))
    named.merge_state(brier(preds, target, ids=torch.arange(6, 12)))
    assert named.interval().items == 12
    without_replicates = BrierScore()
    without_replicates.update(preds, target)
    without_replicates.merge_state(without_replicates.metric_state)  # without replicates, items are not numbered


def test_update_after_restore_continues_numbering(generator):
    preds, target = torch.rand(40, generator=generator), torch.arange(40) % 2
    first = brier(preds[:25], target[:25])
    first.persistent(True)
    restored = BrierScore(replicates=50)
    restored.load_state_dict(first.state_dict())
    restored.update(preds[25:], target[25:])
    expected = brier(preds, target).interval()
    assert all(map(torch.equal, restored.interval(), expected))


def test_update_with_and_without_groups_is_refused():
    preds, target = torch.rand(6), torch.arange(6) % 2
    metric = brier(preds, target, groups=torch.arange(6))
    with pytest.raises(ValueError, match="^ids, groups: got neither after updates with groups"):
        metric.update(preds, target)
    metric.merge_state(brier(preds, target, ids=torch.arange(6)))
    with pytest.raises(ValueError, match="identified in different ways"):
        metric.interval()


SCORES = "Accuracy", "Precision", "Recall", "F1Score", "Specificity", "JaccardIndex", "HammingDistance"
STAT_SCORES = [f"{kind}{name}" for kind in ("Binary", "Multiclass", "Multilabel") for name in SCORES]


@pytest.mark.parametrize("name", STAT_SCORES)
def test_interval_of_ten_right_answers_by_torchmetrics_is_not_a_point(name):
    kind = getattr(torchmetrics.classification, name)
    metric = Uncertain(kind(*[] if name.startswith("Binary") else [3]), replicates=300)
    for item in range(10):
        labels = torch.tensor([item % 3])
        if name.startswith("Binary"):
            labels = torch.tensor([item % 2])
        elif name.startswith("Multilabel"):
            labels = torch.nn.functional.one_hot(labels, 3)
        metric.update(labels, labels)
    value, low, high = metric.interval()
    best = 0.0 if "Hamming" in name else 1.0
    assert float(value) == best
    assert (0.02 < high < 0.6 and low == 0) if best == 0 else (0.4 < low < 0.985 and high > 0.999)


def test_interval_of_a_wrapped_metric_with_item_bounds_is_not_a_point():
    bounds = [{"sum_squared_error": torch.tensor(error), "total": torch.tensor(1)} for error in (4.0, 0.0)]
    metric, without_bounds = (
        Uncertain(MeanSquaredError(), replicates=300, **options) for options in ({"item_bounds": bounds}, {})
    )
    for _ in range(10):
        metric.update(torch.ones(1), torch.ones(1))
        without_bounds.update(torch.ones(1), torch.ones(1))
    estimate = metric.interval()
    assert estimate.low == 0 and 0.1 < estimate.high < 2
    with pytest.warns(UncertaintyWarning, match="^all items are alike and the range of the score is unknown"):
        assert without_bounds.interval().high == torch.inf
