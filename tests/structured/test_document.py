"""The examples of the decorator's documentation, as printed there."""

from collections.abc import Collection
from dataclasses import dataclass

import pytest

from tensormetrics.structured import metametric


@metametric(normalizer="none", constraint="<->")
@dataclass(eq=True, frozen=True)
class Mention:
    left: int
    right: int


@metametric(normalizer="none", constraint="<->")
@dataclass
class Trigger:
    mention: Mention
    type: str


@metametric(normalizer="f1", constraint="<->")
@dataclass
class TriggerExtractionOutput:
    triggers: Collection[Trigger]


M1, M2, M3 = Mention(1, 2), Mention(1, 2), Mention(1, 3)
T1, T2, T3 = Trigger(M1, "foo"), Trigger(M2, "foo"), Trigger(M3, "foo")


def test_mention_metric_compares_spans():
    assert Mention.metric.score(M1, M2) == 1.0
    assert Mention.metric.score(M1, M3) == 0.0


def test_trigger_metric_compares_fields():
    assert Trigger.metric.score(T1, T2) == 1.0
    assert Trigger.metric.score(T1, T3) == 0.0


def test_trigger_extraction_score_is_f1():
    score = TriggerExtractionOutput.metric.score(
        TriggerExtractionOutput([T1, T2]), TriggerExtractionOutput([T1, T2, T3])
    )
    assert isinstance(score, float) and score == pytest.approx(0.8, abs=1e-12)


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
    class Output:
        triggers: Collection[Trigger]

    assert Output.metric.score(Output([T1, T2]), Output([T1, T2, T3])) == pytest.approx(score, abs=1e-12)


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
