"""Debiased calibration error and its intervals, against loops in numpy and simulated data sets."""

import numpy as np
import pytest
import torch
from test_weights import weight

from tensormetrics.uncertainty import CalibrationError, compare
from tensormetrics.uncertainty.functional import calibration_error

BINS = 5


def bins_of(preds, target):
    """Yield the indices of the items of each bin with at least two items, and their differences."""
    item_bins = np.minimum((preds * BINS).astype(int), BINS - 1)
    for bin_index in range(BINS):
        if (item_bins == bin_index).sum() > 1:
            yield np.flatnonzero(item_bins == bin_index), (target - preds)[item_bins == bin_index]


def debiased_mean_square(preds, target):
    terms = [
        len(differences) * (differences.mean() ** 2 - differences.var(ddof=1) / len(differences))
        for _, differences in bins_of(preds, target)
    ]
    return sum(terms) / len(preds)


def replicate_mean_squares(preds, target, weights):
    # weights: (R, N)  ->  (R,)
    squares = np.zeros(len(weights))
    for indices, differences in bins_of(preds, target):
        counts = weights[:, indices].sum(1)
        means = weights[:, indices] @ differences / counts
        squares += counts * (means**2 - 2 * differences.var(ddof=1) / len(differences))
    return squares / weights.sum(1)


def simulated(count, offset, generator):
    """Draw probabilities in [.2, .8] that are too high by the offset."""
    preds = torch.rand(count, generator=generator, dtype=torch.float64) * 0.6 + 0.2
    return preds, (torch.rand(count, generator=generator, dtype=torch.float64) < preds - offset).long()


def test_calibration_error_rms_equals_values_by_hand():
    preds = torch.tensor([0.25, 0.25, 0.75, 0.75], dtype=torch.float64)
    value = calibration_error(preds, torch.ones(4, dtype=torch.int64), 2, norm="rms")
    assert value == pytest.approx(((0.75**2 + 0.25**2) / 2) ** 0.5)  # no variance in either bin
    # Differences .75 and -.25: their squared mean .0625 is below its sampling variance .5 / 2, so the estimate is 0.
    assert calibration_error(preds, torch.tensor([1, 0, 1, 1]), 2, norm="rms") == 0
    assert calibration_error(preds[[0, 2]], torch.tensor([0, 1]), 2, norm="rms") == 0  # two bins of one item


@pytest.mark.parametrize("offset", [0.0, 0.2])
def test_calibration_error_interval_agrees_with_numpy(offset, generator, device):
    preds, target = simulated(40, offset, generator)
    weights = np.array([[weight(2, item, r)[0] for item in range(40)] for r in range(60)])
    arrays = preds.numpy(), target.numpy()
    squares = replicate_mean_squares(*arrays, weights)
    root = max(debiased_mean_square(*arrays), 0) ** 0.5
    rms, l1 = (CalibrationError(BINS, norm=norm, replicates=60, seed=2).to(device) for norm in ("rms", "l1"))
    for metric in rms, l1:
        metric.update(preds[:15].to(device), target[:15].to(device))
        metric.update(preds[15:].to(device), target[15:].to(device))
    value, low, high = rms.interval(confidence=0.8)
    ends = np.quantile(np.sqrt(np.maximum(squares, 0)), [0.1, 0.9])
    assert float(value) == pytest.approx(root, rel=1e-6, abs=1e-9)
    assert [float(low), float(high)] == pytest.approx([min(ends[0], root), max(ends[1], root)], rel=1e-6, abs=1e-4)
    value, low, high = l1.interval(confidence=0.8)
    error = float(calibration_error(preds, target, BINS))
    item_bins = np.minimum((arrays[0] * BINS).astype(int), BINS - 1)
    differences = np.stack([weights @ np.where(item_bins == k, arrays[1] - arrays[0], 0) for k in range(BINS)])
    draws = np.sort(np.maximum(2 * error - np.abs(differences).sum(0) / weights.sum(1), 0))
    draws[: (squares <= 0).sum()] = 0
    ends = np.quantile(draws, [0.1, 0.9])
    assert float(value) == pytest.approx(error, rel=1e-6)
    assert [float(low), float(high)] == pytest.approx([min(ends[0], error), max(ends[1], error)], rel=1e-6, abs=1e-7)


def test_comparison_finds_the_calibrated_model(generator):
    preds, target = simulated(1000, 0.0, generator)
    for norm in "l1", "rms":
        a, b = (CalibrationError(norm=norm, replicates=300) for _ in range(2))
        a.update(preds, target)
        b.update(preds + 0.2, target)
        comparison = compare(a, b)
        assert comparison.high < 0 and comparison.p_value < 0.05 and comparison.p_better > 0.99


def test_debiased_error_is_closer_to_the_population_error(generator):
    values, debiased = [], []
    for seed in range(30):
        metric = CalibrationError(replicates=100, seed=seed)
        metric.update(*simulated(300, 0.1, generator))
        values.append(float(metric.compute()))
        debiased.append(float(metric.debiased()))
    assert abs(np.mean(debiased) - 0.1) < 0.5 * (np.mean(values) - 0.1)
    rms = CalibrationError(norm="rms", replicates=100)
    rms.update(*simulated(300, 0.1, generator))
    assert rms.debiased() == rms.compute()


@pytest.mark.parametrize("norm", ["l1", "rms"])
@pytest.mark.slow
def test_p_values_of_equal_models_hold_the_nominal_rate(norm, generator):
    """200 pairs of models with equally biased probabilities; standard error .015 at .05."""
    for offset in 0.0, 0.1:
        significant = 0
        for seed in range(200):
            models = [CalibrationError(norm=norm, replicates=400, seed=seed) for _ in range(2)]
            preds, target = simulated(500, offset, generator)
            for model in models:
                noise = 0.02 * torch.randn(len(preds), generator=generator, dtype=preds.dtype)
                model.update(preds + noise, target)
            significant += bool(compare(*models).p_value <= 0.05)
        print(f"calibration error, {norm}, equal models off by {offset}: p <= .05 in {significant / 200}")
        assert significant / 200 <= 0.08


@pytest.mark.parametrize("norm", ["l1", "rms"])
@pytest.mark.slow
def test_calibration_error_intervals_cover_the_population_error(norm, generator):
    """100 data sets a row; standard error .022 at .95. The limits of "l1" are those of its docstring."""
    limits = {"l1": {0.0: 0.95, 0.1: 0.78, 0.2: 0.76}, "rms": {0.0: 0.92, 0.1: 0.9, 0.2: 0.87}}
    for count in 100, 1000:
        for offset, lowest in limits[norm].items():
            covered = 0
            for seed in range(100):
                metric = CalibrationError(norm=norm, replicates=400, seed=seed)
                metric.update(*simulated(count, offset, generator))
                _, low, high = metric.interval()
                covered += bool(low <= offset <= high)
            print(f"calibration error, {norm}, {count} items, offset {offset}: {covered / 100}")
            assert covered / 100 >= lowest
