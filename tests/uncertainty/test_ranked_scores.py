"""Scores of two classes and probabilities, against scikit-learn and torchmetrics, with ties and weights."""

import numpy as np
import pytest
import torch
from test_weights import weight
from torchmetrics.functional import classification as torchmetrics

from tensormetrics import uncertainty
from tensormetrics.core.resampling.draws import pseudo_masses
from tensormetrics.uncertainty import BinaryAUROC, BinaryAveragePrecision, UncertaintyWarning, compare
from tensormetrics.uncertainty.functional import (
    binary_auroc,
    binary_average_precision,
    brier_score,
    calibration_error,
    delong,
)

STREAMS = "pseudo positives", "pseudo negatives"


def sample_predictions(generator, count=200, ties=10):
    preds = torch.rand(count, generator=generator, dtype=torch.float64).mul(ties).round() / ties
    return preds, torch.rand(count, generator=generator).lt(preds * 0.7 + 0.1).long()


@pytest.mark.parametrize("ties", [3, 10, 10**9])
def test_weighted_scores_agree_with_scikit_learn(ties, generator, device):
    sklearn = pytest.importorskip("sklearn.metrics")
    preds, target = sample_predictions(generator, ties=ties)
    weights = torch.rand(200, generator=generator, dtype=torch.float64).mul(4).round()  # some are 0
    arrays, on_device = (target.numpy(), preds.numpy()), (preds.to(device), target.to(device))
    for ours, theirs in (
        (binary_auroc, sklearn.roc_auc_score),
        (binary_average_precision, sklearn.average_precision_score),
    ):
        assert float(ours(*on_device)) == pytest.approx(theirs(*arrays), rel=1e-12)
        expected = theirs(*arrays, sample_weight=weights.numpy())
        assert float(ours(*on_device, weights.to(device))) == pytest.approx(expected, rel=1e-12)


def test_calibration_errors_agree_with_torchmetrics(generator):
    preds, target = sample_predictions(generator)
    smooth = preds * 0.999 + 5e-4  # not on the border of a bin
    error = torchmetrics.binary_calibration_error(smooth, target, n_bins=15)
    assert float(calibration_error(smooth, target)) == pytest.approx(float(error), rel=1e-5)
    several = torch.randn(300, 4, generator=generator).softmax(-1)
    labels = torch.randint(4, (300,), generator=generator)
    error = torchmetrics.multiclass_calibration_error(several, labels, 4, n_bins=10)
    assert float(calibration_error(several, labels, 10)) == pytest.approx(float(error), rel=1e-5)


def test_scores_of_four_items_equal_values_by_hand():
    preds, target = torch.tensor([0.9, 0.5, 0.5, 0.1]), torch.tensor([1, 1, 0, 0])
    assert binary_auroc(preds, target) == 3.5 / 4  # one pair of four is a tie
    assert binary_average_precision(preds, target) == pytest.approx(0.5 * 1 + 0.5 * 2 / 3)
    assert brier_score(preds, target) == pytest.approx((0.01 + 0.25 + 0.25 + 0.01) / 4)
    two = torch.stack([1 - preds, preds], -1)
    assert brier_score(two, target) == pytest.approx(2 * float(brier_score(preds, target)))
    assert calibration_error(preds, target, 2) == pytest.approx((abs(0.1 + 0.5 - 0.5) + 0.1) / 4)
    for value in binary_auroc(preds, torch.ones(4, dtype=torch.int64)), binary_auroc(preds[:0], target[:0]):
        assert value.isnan()
    assert binary_average_precision(preds, torch.zeros_like(target)).isnan()
    assert binary_auroc(-preds, target) == 1 - binary_auroc(preds, target)


def test_labels_and_numbers_that_are_no_classes_and_probabilities_are_refused():
    preds, target = torch.tensor([0.9, 0.5, 0.5, 0.1]), torch.tensor([1, 1, -1, -1])
    scores = binary_auroc, binary_average_precision, brier_score, calibration_error
    for score in (*scores, lambda preds, target: uncertainty.functional.delong(torch.stack([preds, preds]), target)):
        with pytest.raises(ValueError, match=r"^target: got the label -1, wanted 0 to 1; write \(target > 0\)"):
            score(preds, target)
        with pytest.raises(ValueError, match="^target: got the label 2, wanted 0 to 1$"):
            score(preds, target.abs() + 1)
    for score in scores[2:]:
        with pytest.raises(ValueError, match="^preds: got 3, wanted probabilities from 0 to 1; write preds.sigmoid"):
            score(torch.tensor([3.0, 0.5]), target[:2])
        with pytest.raises(ValueError, match="^preds: got -1, .* write preds.softmax"):
            score(torch.tensor([[-1.0, 0.5]]), target[:1])


@pytest.mark.parametrize(
    ("metric", "score"), [(BinaryAUROC, binary_auroc), (BinaryAveragePrecision, binary_average_precision)]
)
def test_intervals_are_quantiles_with_four_pseudo_scores(metric, score, generator, device, monkeypatch):
    monkeypatch.setitem(__import__("tensormetrics.core.resampling.weights", fromlist=["LANES"]).LANES, device.type, 100)
    preds, target = sample_predictions(generator, 30)
    scorer = metric().to(device)
    scorer.update(preds[:10].to(device), target[:10].to(device), ids=list(range(10)))
    scorer.update(preds[10:].to(device), target[10:].to(device), ids=list(range(10, 30)))
    weights = torch.tensor([[weight(2, item, r)[0] for item in range(30)] for r in range(60)], dtype=torch.float64)
    positives, negatives = (pseudo_masses(2, 60, torch.device("cpu"), name) for name in STREAMS)
    weights = torch.cat([weights, positives.T, negatives.T], 1)
    preds = torch.cat([preds, torch.tensor([2.0, -1.0, 2.0, -1.0], dtype=torch.float64)])
    target = torch.cat([target, torch.tensor([1, 1, 0, 0])])
    values = score(preds.expand(60, -1), target.expand(60, -1), weights)
    preds, target = preds[:30], target[:30]
    value, low, high = scorer.interval(replicates=60, seed=2, confidence=0.8)
    assert float(value) == pytest.approx(float(score(preds, target)))
    assert [float(low), float(high)] == pytest.approx(np.quantile(values.numpy(), [0.1, 0.9]), rel=1e-10)


def gamma_quantiles(preds, target, groups, probabilities):
    """Simulate replicates of the area with Gamma weights over all pairs of items and four pseudo-scores."""
    rng, draws = np.random.default_rng(0), 40_000
    group_sizes = np.bincount(groups)
    size = (group_sizes**2).sum() / group_sizes.sum()
    weights = rng.exponential(size=(draws, len(group_sizes)))[:, groups]
    weights = np.concatenate([weights, size * rng.gamma(0.5, size=(draws, 4))], 1)
    preds, target = np.concatenate([preds, [9, 9, -9, -9]]), np.concatenate([target, [1, 0, 1, 0]])
    positive, negative = weights * target, weights * (1 - target)
    wins = (preds[:, None] > preds) + 0.5 * (preds[:, None] == preds)
    areas = np.einsum("ri,ij,rj->r", positive, wins, negative) / positive.sum(1) / negative.sum(1)
    return np.quantile(areas, probabilities)


@pytest.mark.parametrize(
    ("preds", "target", "groups", "value"),
    [
        ([0.9, 0.8, 0.2, 0.1], [1, 1, 0, 0], [0, 1, 2, 3], 1.0),  # all in order
        ([0.9, 0.8, 0.2, 0.1], [0, 0, 1, 1], [0, 1, 2, 3], 0.0),  # all in reverse
        ([0.5, 0.5, 0.5, 0.5, 0.5], [1, 0, 0, 1, 0], [0, 1, 2, 3, 4], 0.5),  # all tied
        ([0.9, 0.5, 0.4, 0.3, 0.2], [1, 0, 0, 0, 0], [0, 1, 2, 3, 4], 1.0),  # one positive
        ([0.9, 0.8, 0.7, 0.2, 0.1, 0.3], [1, 0, 1, 0, 0, 1], [0, 0, 0, 1, 1, 2], 7 / 9),  # three groups
    ],
)
@pytest.mark.filterwarnings("ignore::tensormetrics.uncertainty.UncertaintyWarning")
def test_auroc_interval_of_small_sample_equals_simulated_pseudo_scores(preds, target, groups, value):
    metric = BinaryAUROC()
    metric.update(torch.tensor(preds), torch.tensor(target), groups=torch.tensor(groups))
    estimate = metric.interval(replicates=10_000)
    low, high = gamma_quantiles(np.array(preds), np.array(target), np.array(groups), [0.025, 0.975])
    assert float(estimate.value) == pytest.approx(value)
    assert float(estimate.low) == pytest.approx(min(low, value), abs=0.02)
    assert float(estimate.high) == pytest.approx(max(high, value), abs=0.02)
    assert (estimate.items, estimate.groups) == (len(preds), len(set(groups)))


def test_precision_of_one_positive_by_hand():
    """The positive lies above all items and below one pseudo-positive and one pseudo-negative, which are tied."""
    metric = BinaryAveragePrecision()
    metric.update(torch.tensor([0.9, 0.5, 0.4, 0.3, 0.2]), torch.tensor([1, 0, 0, 0, 0]))
    rng, draws = np.random.default_rng(1), 100_000
    above, false_above, below, false_below = rng.gamma(0.5, size=(4, draws))
    weight, others = rng.exponential(size=draws), rng.gamma(4, size=draws)
    total = above + weight + below
    precisions = above / (above + false_above), (above + weight) / (above + weight + false_above)
    last = total / (total + false_above + others + false_below)
    areas = (above * precisions[0] + weight * precisions[1] + below * last) / total
    value, low, high = metric.interval(replicates=10_000)
    assert value == 1 and high == 1
    assert float(low) == pytest.approx(np.quantile(areas, 0.025), abs=0.02)


def test_auroc_of_three_items_warns():
    metric, other = BinaryAUROC(), BinaryAUROC()
    metric.update(torch.tensor([0.9, 0.2, 0.1]), torch.tensor([1, 0, 0]))
    other.update(torch.tensor([0.1, 0.2, 0.9]), torch.tensor([1, 0, 0]))
    with pytest.warns(UncertaintyWarning, match="^3 items: the interval rests on the range"):
        estimate = metric.interval(replicates=200)
    with pytest.warns(UncertaintyWarning, match="^3 pairs: the interval rests on the range"):
        comparison = compare(metric, other, replicates=200)
    assert estimate.low < 0.6 and estimate.groups == 3
    assert comparison.low <= 0 and comparison.p_value > 0.05 and comparison.discordant is None


@pytest.mark.slow
def test_intervals_cover_the_area(generator):
    """The area of normal scores whose means differ by 1 is Phi(1 / sqrt(2))."""
    truth, covered = 0.7602499389, 0
    for i in range(1000):
        target = torch.arange(200) % 2
        metric = BinaryAUROC()
        metric.update(target + torch.randn(200, generator=generator), target)
        _, low, high = metric.interval(replicates=400, seed=i)
        covered += bool(low <= truth <= high)
    print(f"AUROC of 200 items: {covered / 1000}")
    assert 0.92 <= covered / 1000 <= 0.97


@pytest.mark.parametrize("wrong", [-1.0, torch.nan, torch.inf])
def test_scores_with_invalid_weights_are_nan(wrong, device):
    preds, target = torch.tensor([[0.1, 0.2, 0.3]] * 2, device=device), torch.tensor([[0, 1, 1]] * 2, device=device)
    weights = torch.ones(2, 3, device=device)
    weights[0, 0] = wrong
    for score in binary_auroc, binary_average_precision:
        assert score(preds, target, weights).isnan().tolist() == [True, False]


def test_comparison_of_models_that_are_alike_is_nearly_as_narrow_as_delongs(generator):
    target, common = torch.arange(200) % 2, torch.randn(200, generator=generator)
    noise = 0.1 * torch.randn(2, 200, generator=generator) + torch.tensor([[0.3], [0.0]]) * target
    preds, metrics = (common + 1.2 * target + noise).double(), (BinaryAUROC(), BinaryAUROC())
    for metric, scores in zip(metrics, preds, strict=True):
        metric.update(scores, target)
    comparison, expected = compare(*metrics), delong(preds, target)
    sign = torch.tensor([1.0, -1.0], dtype=torch.float64)
    width = 2 * 1.96 * float((sign @ expected.covariance @ sign).sqrt())
    assert width < float(comparison.high - comparison.low) < 1.3 * width
    assert float(comparison.p_value) <= 0.01 and float(expected.p_value[0, 1]) <= 0.01
    equal = compare(metrics[0], metrics[0])
    assert equal.low < 0 < equal.high and float(equal.p_value) == 1
