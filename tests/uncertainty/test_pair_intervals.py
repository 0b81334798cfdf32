"""Intervals of scores of pairs: replicates against a list of all pairs, each with the weights of its two items."""

import warnings
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from test_weights import weight

from tensormetrics.retrieval import EqualErrorRate, PairwiseAUROC, PairwiseROC, TARAtFAR
from tensormetrics.retrieval.functional import tar_at_far
from tensormetrics.retrieval.ranking import pair_counts
from tensormetrics.uncertainty import UncertaintyWarning, compare

FAR = (0.05, 0.2)
METRICS = {"area": PairwiseAUROC, "equal error": EqualErrorRate, "accepted": lambda **options: TARAtFAR(FAR, **options)}
REPLICATES = 8


def items(count=26, classes=4, dims=3, ties=True, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (count,), generator=generator)
    x = torch.randn(count, dims, generator=generator) + 1.5 * torch.randn(classes, dims, generator=generator)[labels]
    return (x.round() if ties else x), labels


def product(first, second, mean):
    return first * second


def linear(first, second, mean):
    return first + second - mean


def expected_score(name, distances, same, weights):
    """Compute the score of a list of weighted pairs, point by point."""
    grid = distances.unique()
    tar, far = (
        [0.0] + [float(weights[kind & (distances <= distance)].sum() / weights[kind].sum()) for distance in grid]
        for kind in (same, ~same)
    )
    steps = range(len(grid))
    if name == "area":
        return sum((tar[k] + tar[k + 1]) / 2 * (far[k + 1] - far[k]) for k in steps)
    if name == "equal error":
        k = next(k for k in steps if tar[k + 1] + far[k + 1] >= 1)
        gap, left = 1 - tar[k] - far[k], tar[k + 1] + far[k + 1] - 1
        return far[k] + gap / (gap + left) * (far[k + 1] - far[k])
    return [tar[next((k for k in steps if far[k + 1] > max_far), len(grid))] for max_far in FAR]


def check_replicates(name, metric, pairs, units, law):
    # pairs: (P,), (P,) items  units: (V,)
    """Compare every replicate with the score of the listed pairs."""
    sampled = metric._resampled("interval", REPLICATES, 3)
    replicates = sampled.read(sampled.weighted)
    first, second, distances, same = pairs
    for replicate in range(REPLICATES):
        weights = torch.tensor([weight(3, int(unit), replicate)[0] for unit in units], dtype=torch.float64)
        pair_weights = law(weights[first], weights[second], weights.mean())
        expected = expected_score(name, distances, same, pair_weights)
        assert replicates[replicate].tolist() == pytest.approx(expected, rel=1e-9)
    assert sampled.read(sampled.observed).tolist() == pytest.approx(metric.compute().tolist(), rel=1e-12)


def all_pairs(x, y, x2=None, y2=None):
    """Return both items, the distance and the equality of labels of all pairs."""
    if x2 is None:
        first, second = torch.triu_indices(len(x), len(x), 1)
        return first, second, (x[first] - x[second]).square().sum(-1), y[first] == y[second]
    first, second = torch.cartesian_prod(torch.arange(len(x)), torch.arange(len(x2))).unbind(1)
    return first, len(x) + second, (x[first] - x2[second]).square().sum(-1), y[first] == y2[second]


@pytest.mark.parametrize("law", [product, linear])
@pytest.mark.parametrize("name", METRICS)
def test_replicates_weigh_each_pair_by_both_items(name, law, monkeypatch):
    if law is linear:  # as if there were too many pairs to list
        monkeypatch.setattr(pair_counts, "PRODUCTS", 0)
    x, y = items()
    metric = METRICS[name]()
    metric.update(x[:10], y[:10])
    metric.update(x[10:], y[10:])
    check_replicates(name, metric, all_pairs(x, y), torch.arange(len(x)), law)


@pytest.mark.parametrize("name", METRICS)
def test_queries_and_references_have_separate_weights(name):
    x, y = items()
    metric = METRICS[name]()
    metric.update(x[:12], y[:12], role="query", ids=torch.arange(12))
    metric.update(x[12:], y[12:], role="reference", ids=torch.arange(14))
    units = torch.cat([torch.arange(12), ~torch.arange(14)])
    check_replicates(name, metric, all_pairs(x[:12], y[:12], x[12:], y[12:]), units, product)


def test_a_group_of_queries_and_references_has_one_weight():
    x, y = items()
    groups = torch.arange(26) % 5
    metric = PairwiseAUROC()
    metric.update(x[:12], y[:12], role="query", groups=groups[:12])
    metric.update(x[12:], y[12:], role="reference", groups=groups[12:])
    check_replicates("area", metric, all_pairs(x[:12], y[:12], x[12:], y[12:]), groups, product)
    assert metric.interval().groups == 5


@pytest.mark.parametrize("name", METRICS)
def test_binned_distances_approximate_all_pairs(name):
    x, y = items(300, 20, ties=False)
    metric = METRICS[name]()
    metric.update(x, y)
    sampled = metric._resampled("interval", REPLICATES, 3)
    assert sampled.observed.shape[-1] < 2 * pair_counts.BINS
    replicates, (first, second, distances, same) = sampled.read(sampled.weighted), all_pairs(x, y)
    order = distances.argsort()
    distances, same = distances[order], same[order]
    max_sd = float(replicates.std(0).max())
    for replicate in range(2):
        weights = torch.tensor([weight(3, unit, replicate)[0] for unit in range(300)], dtype=torch.float64)
        pair_weights = (weights[first] * weights[second])[order]
        tar, far = ((pair_weights * kind).cumsum(0) / pair_weights[kind].sum() for kind in (same, ~same))
        expected = {
            "area": float((tar * pair_weights * ~same).sum() / pair_weights[~same].sum()),
            "equal error": float(far[(tar + far < 1).sum()]),
            "accepted": [float(tar[(far <= max_far).sum() - 1]) for max_far in FAR],
        }[name]
        assert replicates[replicate].tolist() == pytest.approx(expected, abs=0.05 * max_sd)


def test_perfect_scores_have_an_interval():
    x, y = items(30, 3, ties=False)
    x = x + 1000 * y[:, None]
    for make, perfect_value in ((PairwiseAUROC, 1.0), (EqualErrorRate, 0.0), (lambda: TARAtFAR(0.01), 1.0)):
        metric = make()
        metric.update(x, y)
        estimate = metric.interval()
        assert float(estimate.value) == perfect_value and 0.01 < float(estimate.high - estimate.low) < 0.25


def test_intervals_of_several_rates_equal_those_of_the_curve():
    x, y = items(60)
    several, curve_metric = TARAtFAR(FAR), PairwiseROC(FAR)
    for metric in (several, curve_metric):
        metric.update(x, y)
    assert several.compute().tolist() == curve_metric.compute().tar.tolist() == tar_at_far(x, y, far=FAR).tolist()
    ends, of_curve = several.interval(), curve_metric.interval()
    assert set(of_curve) == {"tar", "threshold", "auroc", "equal_error_rate"}
    assert torch.equal(ends.low, of_curve["tar"].low) and torch.equal(ends.high, of_curve["tar"].high)
    assert (of_curve["threshold"].low <= of_curve["threshold"].value).all()
    single_rate = TARAtFAR(FAR[0])
    single_rate.update(x, y)
    assert single_rate.compute().shape == () and single_rate.interval().low.shape == ()


def test_compare_finds_better_embeddings():
    x, y = items(100, 8, ties=False)
    noise = 3 * torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
    better, worse = PairwiseAUROC(), PairwiseAUROC()
    better.update(x, y)
    worse.update(x + noise, y)
    result = compare(better, worse)
    assert float(result.low) > 0 and float(result.p_value) < 0.05
    same = PairwiseAUROC()
    same.update(x, y)
    assert float(compare(better, same).p_value) == 1


ALL_METRICS = {**METRICS, "curve": PairwiseROC}


@pytest.mark.parametrize("name", ALL_METRICS)
def test_compare_models_with_different_bins_equals_difference_of_values(name):
    """One model has a distinct distance for each pair, the other only a few distances, so their bins differ."""
    x, y = items(60, ties=False)
    a, b = (ALL_METRICS[name]() for _ in range(2))
    a.update(x, y)
    b.update(x.round(), y)
    results = compare(a, b, replicates=40)
    values = [metric.compute() for metric in (a, b)]
    if name == "curve":
        results, values = results["tar"], [value.tar for value in values]
    assert results.difference.tolist() == pytest.approx((values[0] - values[1]).tolist(), abs=1e-3)
    assert (results.low <= results.difference).all() and results.discordant is None


@pytest.mark.parametrize("count", [0, 1, 2])
@pytest.mark.parametrize("name", ALL_METRICS)
def test_interval_of_two_or_fewer_items_is_nan(name, count):
    metric = ALL_METRICS[name]()
    metric.update(torch.randn(count, 3), torch.zeros(count, dtype=torch.int64))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncertaintyWarning)
        estimates = metric.interval(replicates=20)
    for estimate in estimates.values() if isinstance(estimates, Mapping) else [estimates]:
        assert all(end.isnan().all() for end in estimate)


def test_tar_at_far_accepts_any_numeric_type():
    x, y = items(30)
    expected = tar_at_far(x, y, far=0.25)
    for far in (0.25, np.float32(0.25), torch.tensor(0.25)):
        metric = TARAtFAR(far)
        metric.update(x, y)
        assert metric.compute() == tar_at_far(x, y, far=far) == expected and metric.compute().shape == ()
    for far in ((0.25,), np.array([0.25]), torch.tensor([0.25])):
        assert tar_at_far(x, y, far=far).tolist() == [float(expected)]


def test_interval_without_pairs_of_one_kind_is_nan():
    metric = EqualErrorRate()
    metric.update(torch.randn(8, 2), torch.zeros(8, dtype=torch.int64))
    assert all(end.isnan() for end in metric.interval())
