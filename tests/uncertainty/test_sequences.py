"""Anytime-valid intervals, against stored values, a loop over means, and simulations."""

import math

import numpy as np
import pytest
import torch
from golden import golden

from tensormetrics import compare, interval
from tensormetrics.uncertainty import Scores


def log_capital(scores, mean, confidence):
    """Compute the largest log-capital of the first gambler, item by item (Waudby-Smith & Ramdas 2023)."""
    total = squares = 0.0
    variance, capital, largest = 0.25, 0.0, 0.0
    for t, score in enumerate(scores, 1):
        stake = math.sqrt(2 * math.log(2 / (1 - confidence)) / (variance * t * math.log(t + 1)))
        stake = min(stake, 1 / (2 * mean)) if mean > 0 else stake
        capital += math.log1p(stake * (score - mean))
        largest = max(largest, capital)
        total += score
        squares += (score - (0.5 + total) / (t + 1)) ** 2
        variance = (0.25 + squares) / (t + 1)
    return largest


def is_rejected(scores, mean, confidence):
    threshold = math.log(2 / (1 - confidence))
    mirrored = [1 - score for score in scores]
    return log_capital(scores, mean, confidence) >= threshold, log_capital(mirrored, 1 - mean, confidence) >= threshold


@golden("sequences", "confidence_sequence")
def test_golden_scores_give_stored_ends(case):
    inputs, expected = case["inputs"], case["expected"]
    options = {name: inputs[name] for name in ("confidence", "looks")}
    estimate = interval(inputs["scores"], bounds=inputs["bounds"], anytime=True, **options)
    np.testing.assert_allclose(estimate.low, expected["low"], rtol=0, atol=case["tolerance"])
    np.testing.assert_allclose(estimate.high, expected["high"], rtol=0, atol=case["tolerance"])
    assert estimate.labels == tuple(map(str, inputs["looks"]))
    assert estimate.method == "betting confidence sequence"


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
@pytest.mark.parametrize("kind", ["uniform", "binary", "skewed", "all 1"])
def test_interval_ends_where_the_capital_rejects_the_mean(generator, confidence, kind):
    x = torch.rand(60, generator=generator).double()
    scores = {"uniform": x, "binary": (x < 0.8).double(), "skewed": x**6, "all 1": torch.ones(60)}[kind]
    value, low, high = (float(end) for end in interval(scores, bounds=(0, 1), confidence=confidence, anytime=True))
    assert value == pytest.approx(float(scores.mean()))
    for mean in (low - 1e-9, low + 1e-9, high - 1e-9, high + 1e-9, 0.1, 0.5, 0.9):
        if 0 < mean < 1:
            expected = mean <= low, mean >= high
            assert is_rejected(scores.tolist(), mean, confidence) == expected, mean


def test_looks_are_intervals_of_the_items_so_far(generator):
    scores = torch.rand(3, 50, generator=generator).double()
    path = interval(scores, bounds=(0, 1), anytime=True, looks=[7, 20, 50])
    assert path.low.shape == (3, 3)
    for column, look in enumerate([7, 20, 50]):
        for row in range(3):
            single = interval(scores[row, :look], bounds=(0, 1), anytime=True)
            assert [*map(float, path[row, column])] == pytest.approx([*map(float, single)], abs=1e-12)
    assert bool((path.low.diff() >= -1e-12).all() & (path.high.diff() <= 1e-12).all())  # a rejected mean stays rejected


def test_groups_count_as_their_means_when_they_are_complete():
    groups = ["b", "a", "a", "b", "c", "c"]
    estimate = interval([0, 1, 0, 1, 1, 1], groups=groups, anytime=True, looks=[1, 2, 3])
    means = interval([0.5, 0.5, 1.0], bounds=(0, 1), anytime=True, looks=[1, 2, 3])  # a is complete before b
    assert [end.tolist() for end in estimate] == [end.tolist() for end in means]
    assert (estimate.items, estimate.groups) == (6, 3)
    assert repr(estimate).endswith(
        "6 items in 3 groups, betting confidence sequence of the mean of group means, only 3 groups"
    )
    uneven = interval([1, 1, 1, 0], groups=["a", "a", "a", "b"], anytime=True)
    assert float(uneven) == 0.5


def test_repeats_of_an_item_count_once_at_the_last_of_them():
    estimate = interval([1, 0, 0, 1, 1], ids=["a", "b", "a", "c", "b"], bounds=(0, 1), anytime=True, looks=[1, 2, 3])
    expected = interval([0.5, 1, 0.5], bounds=(0, 1), anytime=True, looks=[1, 2, 3])
    assert estimate.low.tolist() == expected.low.tolist() and estimate.value.tolist() == expected.value.tolist()


def test_missing_scores_are_left_out(generator):
    scores = torch.rand(2, 40, generator=generator).double()
    with_nan = scores.clone()
    with_nan[0, [3, 17]] = torch.nan
    estimate = interval(with_nan, bounds=(0, 1), anytime=True)
    for row in range(2):
        valid = with_nan[row][with_nan[row].isfinite()]
        expected = [*map(float, interval(valid, bounds=(0, 1), anytime=True))]
        assert [*map(float, estimate[row])] == pytest.approx(expected, abs=1e-12)
    assert estimate.details["missing"] == 2


def two(generator, count=120):
    hard = torch.rand(count, generator=generator)
    return [(hard + 0.3 * torch.rand(count, generator=generator) < ease).double() for ease in (0.9, 0.6)]


def test_compare_is_the_sequence_of_differences(generator):
    a, b = two(generator)
    comparison = compare(a, b, anytime=True, looks=[30, 120])
    expected = interval(a - b, bounds=(-1, 1), anytime=True, looks=[30, 120])
    for mine, other in zip(comparison, expected, strict=True):
        assert mine.tolist() == pytest.approx(other.tolist())
    assert comparison.a.low.tolist() == interval(a, anytime=True, looks=[30, 120]).low.tolist()
    assert comparison.test == "anytime" and comparison.p_better.isnan().all()
    assert compare(a, b, anytime=True).verdict == "better" and compare(b, a, anytime=True).verdict == "worse"
    assert compare(b, a, anytime=True, higher_is_better=False).verdict == "better"


def test_p_value_is_that_of_the_capital_against_no_difference(generator):
    a, b = two(generator, 30)
    scaled = [(x + 1) / 2 for x in (a - b).tolist()]
    largest = max(log_capital(scaled, 0.5, 0.95), log_capital([1 - x for x in scaled], 0.5, 0.95))
    assert float(compare(a, b, anytime=True).p_value) == pytest.approx(min(1, 2 * math.exp(-largest)))


@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_interval_excludes_0_exactly_where_the_p_value_is_small(generator, alternative, confidence):
    flips = torch.rand(60, 50, generator=generator).double()
    a, b = (flips < torch.linspace(0.3, 0.9, 60)[:, None]).double(), (flips.flip(1) < 0.5).double()
    options = {"alternative": alternative, "confidence": confidence, "anytime": True, "looks": [10, 30, 50]}
    result = compare(a, b, **options)
    excludes = (result.low > 0) | (result.high < 0)
    assert torch.equal(excludes, result.p_value <= 1 - confidence) and bool(excludes.any()) and not bool(excludes.all())
    assert bool((result.p_value.diff() <= 0).all())


def test_one_sided_bound_is_that_of_a_two_sided_interval_of_less_confidence(generator):
    a, b = two(generator)
    one, both = (
        compare(a, b, anytime=True, alternative=alternative, confidence=c)
        for alternative, c in (("greater", 0.95), ("two-sided", 0.9))
    )
    assert float(one.low) == pytest.approx(float(both.low)) and float(one.high) == 1
    assert float(one.p_value) == pytest.approx(float(both.p_value) / 2)


def test_compare_with_a_number_moves_the_interval(generator):
    a, _ = two(generator)
    comparison, estimate = compare(a, 0.7, anytime=True), interval(a, anytime=True)
    assert [*map(float, comparison)] == pytest.approx([float(end) - 0.7 for end in estimate])
    expected = [log_capital(x, m, 0.95) for x, m in ((a.tolist(), 0.7), ((1 - a).tolist(), 0.3))]
    assert float(comparison.p_value) == pytest.approx(min(1, 2 * math.exp(-max(expected))))


def test_compare_pairs_by_id_in_the_order_of_the_first(generator):
    a, b = two(generator)
    ids = [f"q{i}" for i in range(120)]
    order = torch.randperm(120, generator=generator).tolist()
    shuffled = Scores(b[order], [ids[i] for i in order])
    paired = compare(Scores(a, ids), shuffled, anytime=True, looks=[30, 120])
    for mine, other in zip(paired, compare(a, b, anytime=True, looks=[30, 120]), strict=True):
        assert mine.tolist() == pytest.approx(other.tolist())


def test_compare_drops_items_that_one_lacks(generator):
    a, b = two(generator)
    ids = [f"q{i}" for i in range(120)]
    comparison = compare(Scores(a, ids), Scores(b[10:], ids[10:]), anytime=True, on_missing="drop")
    expected = compare(a[10:], b[10:], anytime=True)
    assert float(comparison.low) == pytest.approx(float(expected.low)) and comparison.details["dropped"] == 10


def test_equal_models_are_undecided(generator):
    a, _ = two(generator)
    comparison = compare(a, a, anytime=True)
    assert float(comparison.p_value) == 1 and float(comparison.low) < 0 < float(comparison.high)
    assert comparison.discordant == 0 and comparison.verdict == "undecided"


LOOKS = [10, 20, 35, 50, 75, 100, 150, 200, 300, 400]


@pytest.mark.parametrize(
    "kind", ["right .9", *(pytest.param(kind, marks=pytest.mark.full) for kind in ("right .5", "Beta(.3, 3)"))]
)
def test_simulated_means_are_missed_at_any_look_in_less_than_5_percent(generator, kind):
    if kind == "Beta(.3, 3)":
        scores = torch.from_numpy(np.random.default_rng(0).beta(0.3, 3, (400, 400)))
        mean = 0.3 / 3.3
    else:
        mean = float(kind[-2:])
        scores = (torch.rand(400, 400, generator=generator) < mean).double()
    path = interval(scores, bounds=(0, 1), anytime=True, looks=LOOKS)
    missed = ((path.low > mean) | (path.high < mean)).any(-1).double().mean()
    assert 0 < float(missed) <= 0.05
