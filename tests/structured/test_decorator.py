"""Arguments of the decorator."""

from dataclasses import dataclass

import pytest

from tensormetrics.structured import metametric


def test_metametric_without_arguments_gives_overlap():
    @metametric
    @dataclass
    class Bag:
        items: list[int]

    assert Bag.metric.score(Bag([1, 2]), Bag([2, 1, 3])) == 2.0


@pytest.mark.parametrize(
    ("normalizer", "score"),
    [("none", 2), ("precision", 1), ("recall", 2 / 3), ("jaccard", 2 / 3), ("dice", 0.8), ("f2", 10 / 14)],
)
def test_metametric_normalizer_changes_score(normalizer, score):
    @metametric(normalizer=normalizer)
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
