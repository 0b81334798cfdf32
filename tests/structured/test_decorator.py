"""Arguments of the decorator."""

from dataclasses import dataclass

import pytest

from tensormetrics.structured import StructuredMetric, metametric, metric_of


@pytest.mark.parametrize(
    ("normalizer", "score"),
    [(None, 2), ("none", 2), ("precision", 1), ("recall", 2 / 3), ("jaccard", 2 / 3), ("dice", 0.8), ("f2", 10 / 14)],
)
def test_metametric_normalizer_changes_score(normalizer, score):
    @metametric(**{"normalizer": normalizer} if normalizer else {})
    @dataclass
    class Bag:
        items: list[int]

    assert Bag.metric.score(Bag([1, 2]), Bag([2, 1, 3])) == pytest.approx(score, abs=1e-12)


@pytest.mark.parametrize(
    ("arrow", "ratio", "overlap"), [("<->", "1:1", 1), ("->", "1:*", 1), ("<-", "*:1", 3), ("~", "*:*", 3)]
)
def test_metametric_constraint_spellings_agree(arrow, ratio, overlap):
    """One predicted item and three equal reference items."""
    for spelling in (arrow, ratio):

        @metametric(constraint=spelling)
        @dataclass
        class Bag:
            items: list[int]

        assert Bag.metric.score(Bag([1]), Bag([1, 1, 1])) == overlap


def test_metric_of_returns_the_attribute():
    @metametric
    @dataclass
    class Bag:
        items: list[str]

    assert type(metric_of(Bag)) is StructuredMetric and metric_of(Bag) is Bag.metric
    for tp in (int, "Bag"):
        with pytest.raises(TypeError, match=r"^metric_of: got .*, which has no metric; write @metametric above it, or"):
            metric_of(tp)
