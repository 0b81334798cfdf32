"""`PairPreference` against loops written from the papers, its sign test against scipy, and its intervals."""

from collections import Counter, defaultdict

import numpy as np
import pytest
import scipy.stats
import torch
from raising import raises

from tensormetrics.association import PairPreference
from tensormetrics.association.functional import pair_preference
from tensormetrics.uncertainty import compare


def scores_of(generator, count, decimals=2):
    """Return three tensors of scores with ties."""
    return [torch.randn(count, generator=generator).double().round(decimals=decimals) for _ in range(3)]


def crows_pairs_of(more, less):
    """Compute the metric score of Nangia et al. 2020, where a tie only adds to N."""
    preferred = total = 0
    for first, second in zip(more, less, strict=True):
        first, second = round(first, 3), round(second, 3)
        total += 1
        if first != second:
            preferred += first > second
    return preferred / total * 100


def stereoset_of(scores, terms):
    """Compute the scores of Nadeem et al. 2021 from counts of each term."""
    counts = defaultdict(Counter)
    for stereotype, other, unrelated, term in zip(*scores, terms, strict=True):
        counts[term]["pro"] += stereotype > other
        counts[term]["related"] += (stereotype > unrelated) + (other > unrelated)
        counts[term]["total"] += 1
    ss = np.mean([100 * count["pro"] / count["total"] for count in counts.values()])
    lms = np.mean([100 * count["related"] / (2 * count["total"]) for count in counts.values()])
    return {"ss": ss, "lms": lms, "icat": lms * min(ss, 100 - ss) / 50}


def values(result):
    return {name: float(value) for name, value in result.items()}


def test_pair_preference_ties_count_half_or_by_protocol():
    more, less = torch.tensor([-1.0, -2.0, -3.0, -4.0]), torch.tensor([-1.5, -2.0, -3.0002, -3.0])
    assert float(pair_preference(more, less)) == 2.5 / 4
    assert (
        float(pair_preference(more, less, protocol="crows-pairs")) == 25
    )  # the third pair ties after rounding to 3 decimals
    mask = torch.tensor([True, True, False, False])
    assert float(pair_preference(more, less, mask=mask)) == 0.75
    assert pair_preference(more.log(), less).isnan()


def test_crows_pairs_categories_equal_loop_of_the_paper():
    generator = torch.Generator().manual_seed(0)
    more, less, _ = scores_of(generator, 300, 1)
    less = less + 2e-4
    names = ["age", "race", "religion"]
    categories = [names[i] for i in torch.randint(3, (300,), generator=generator).tolist()]
    metric = PairPreference("crows-pairs", categories=names)
    for part in (slice(100), slice(100, None)):
        metric.update(more[part], less[part], categories=categories[part])
    expected = {"all": crows_pairs_of(more.tolist(), less.tolist())}
    for name in names:
        selected = [i for i, category in enumerate(categories) if category == name]
        expected[name] = crows_pairs_of(more[selected].tolist(), less[selected].tolist())
    assert values(metric.compute()) == pytest.approx(expected, rel=1e-12)


def stereoset(generator, count=200, terms=20):
    scores = scores_of(generator, count, 1)
    named = [f"t{i}" for i in torch.randint(terms, (count,), generator=generator).tolist()]
    categories = torch.tensor([int(name[1:]) % 2 for name in named])
    return scores, named, categories


def test_stereoset_categories_equal_loop_of_the_paper():
    scores, terms, categories = stereoset(torch.Generator().manual_seed(0))
    metric = PairPreference("stereoset", categories=["gender", "race"])
    for part in (slice(50), slice(50, None)):  # both updates contain items of each term
        metric.update(*(score[part] for score in scores), terms=terms[part], categories=categories[part])
    expected = dict(stereoset_of([score.tolist() for score in scores], terms))
    for index, name in enumerate(["gender", "race"]):
        selected = (categories == index).nonzero()[:, 0].tolist()
        category_scores = stereoset_of([score[selected].tolist() for score in scores], [terms[i] for i in selected])
        expected |= {f"{name}/{key}": value for key, value in category_scores.items()}
    assert values(metric.compute()) == pytest.approx(expected, rel=1e-12)
    intervals = metric.interval(replicates=200)
    assert {name: float(estimate.value) for name, estimate in intervals.items()} == pytest.approx(expected, rel=1e-12)
    assert all(estimate.low <= estimate.value <= estimate.high for estimate in intervals.values())
    assert intervals["ss"].groups == intervals["ss"].items == 20


def test_stereoset_repeated_items_of_terms_change_nothing():
    """The resampling unit is the term, so repeated items change neither values nor intervals."""
    scores, terms, _ = stereoset(torch.Generator().manual_seed(1))
    once, twice = PairPreference("stereoset"), PairPreference("stereoset")
    once.update(*scores, terms=terms)
    twice.update(*(score.repeat(2) for score in scores), terms=2 * terms)
    for name, estimate in once.interval(replicates=200).items():
        other = twice.interval(replicates=200)[name]
        assert list(map(float, other)) == pytest.approx(list(map(float, estimate)), rel=1e-9)


def test_sign_test_equals_exact_binomial_test_without_ties():
    more = torch.tensor([1.0] * 14 + [0.0] * 5 + [0.5] * 3)
    metric = PairPreference()
    metric.update(more, torch.full_like(more, 0.5))
    result = metric.sign_test()
    assert float(result.p_value) == pytest.approx(scipy.stats.binomtest(14, 19).pvalue, rel=1e-9)
    assert float(result.difference) == pytest.approx(15.5 / 22 - 0.5)


def test_sign_test_corrects_p_values_of_categories():
    generator = torch.Generator().manual_seed(0)
    more, less, _ = scores_of(generator, 200, 8)
    categories = torch.arange(200) % 3
    metric = PairPreference(categories=["a", "b", "c"])
    metric.update(more + 0.8 * (categories == 1), less, categories=categories)
    result = metric.sign_test(correction="holm")
    p_values = sorted((float(result[name].p_value), name) for name in "abc")
    expected, largest = {}, 0.0
    for rank, (p_value, name) in enumerate(p_values):
        largest = max(largest, min(1.0, (3 - rank) * p_value))
        expected[name] = largest
    assert {name: float(result[name].p_corrected) for name in "abc"} == pytest.approx(expected)
    for index, name in enumerate("abc"):
        selected = categories == index
        wins = int((more + 0.8 * (categories == 1) > less)[selected].sum())
        assert float(result[name].p_value) >= scipy.stats.binomtest(wins, int(selected.sum())).pvalue * (1 - 1e-9)
    assert result["all"].p_corrected is None


def test_compare_requires_equal_pairs_and_categories():
    generator = torch.Generator().manual_seed(0)
    more, less, noise = scores_of(generator, 100, 8)
    a, b = PairPreference(categories=["x", "y"]), PairPreference(categories=["x", "y"])
    categories = torch.arange(100) % 2
    a.update(more, less, categories=categories)
    b.update(more + noise / 10, less, categories=categories)
    result = compare(a, b)
    assert set(result) == {"all", "x", "y"} and float(result["all"].p_value) > 0.05
    c = PairPreference(categories=["x", "y"])
    c.update(more, less, categories=1 - categories)
    with raises(ValueError, "a, b: their items differ; feed both with the same ids (or, without ids, the same order)"):
        compare(a, c)


def test_update_arguments_of_another_protocol_raise():
    scores = torch.zeros(2)
    for options, arguments, keywords, message in [
        ({}, 3, {}, "unrelated: got some with protocol=None, wanted nothing"),
        ({"protocol": "stereoset"}, 3, {}, "terms: got nothing with protocol='stereoset', wanted one of each item"),
        (
            {"protocol": "stereoset"},
            3,
            {"terms": [1, 2], "groups": [1, 2]},
            "groups: got some with protocol='stereoset', whose groups are the terms; leave it out",
        ),
        ({"categories": ["a"]}, 2, {}, "categories: got none, wanted one of each pair"),
        ({}, 2, {"categories": [0, 0]}, "categories: got some, wanted none; write PairPreference(categories=[...])"),
        ({"categories": ["a"]}, 2, {"categories": ["a", "b"]}, "categories: got 'b', wanted one of ['a']"),
    ]:
        with raises(ValueError, message):
            PairPreference(**options).update(*[scores] * arguments, **keywords)
    with raises(ValueError, "categories: got ['all'], wanted distinct names other than 'all'"):
        PairPreference(categories=["all"])


@pytest.mark.slow
@pytest.mark.parametrize(("fraction", "terms"), [(0.5, 12), (0.65, 12), (0.5, 60)])
def test_stereoset_intervals_cover_population_scores(fraction, terms):
    """200 data sets have 5 items per term; related sentences win 4 times out of 5."""
    generator = torch.Generator().manual_seed(0)
    expected = {"ss": 100 * fraction, "lms": 80.0, "icat": 80 * min(fraction, 1 - fraction) / 0.5}
    covered, size = Counter(), 200
    for _ in range(size):
        more, related = (torch.rand(5 * terms, generator=generator) < p for p in (fraction, 0.8))
        metric = PairPreference("stereoset")
        unrelated = torch.where(related, -1.0, 2.0)
        metric.update(more.float(), 1 - more.float(), unrelated, terms=torch.arange(terms).repeat_interleave(5))
        for name, (_, low, high) in metric.interval(replicates=200).items():
            covered[name] += bool(low <= expected[name] <= high)
    assert all(covered[name] / size >= 0.92 for name in expected), covered


@pytest.mark.slow
@pytest.mark.parametrize("fraction", [0.5, 0.65, 0.9])
def test_intervals_cover_population_fraction(fraction):
    """300 data sets have 60 independent pairs, or 60 pairs in 12 terms of StereoSet."""
    generator = torch.Generator().manual_seed(0)
    covered, covered_terms, size = 0, 0, 300
    for _ in range(size):
        preferred = torch.rand(60, generator=generator) < fraction
        metric = PairPreference()
        metric.update(preferred.double(), torch.full((60,), 0.5).double())
        _, low, high = metric.interval(replicates=200)
        covered += bool(low <= fraction <= high)
        tendency = fraction + 0.2 * (torch.rand(12, generator=generator) - 0.5) * min(1.0, 10 * (1 - fraction))
        preferred = torch.rand(12, 5, generator=generator) < tendency[:, None]
        metric = PairPreference("stereoset")
        unrelated = torch.full((60,), -1.0).double()
        terms = torch.arange(12).repeat_interleave(5)
        metric.update(preferred.flatten().double(), torch.full((60,), 0.5).double(), unrelated, terms=terms)
        _, low, high = metric.interval(replicates=200)["ss"]
        covered_terms += bool(low <= 100 * fraction <= high)
    assert covered / size >= 0.925 and covered_terms / size >= 0.92
