"""Corpus scores of objects: averages, labels, state."""

import math
from dataclasses import dataclass

import pytest

from tensormetrics.structured import Family, derive, macro_average, metametric, micro_average


@dataclass
class Entity:
    label: str
    span: tuple[int, int]


@metametric(normalizer="f1")
@dataclass
class Doc:
    entities: list[Entity]


LABELS = {"L": "LOC", "P": "PER", "O": "ORG"}


def doc(text):
    return Doc([Entity(LABELS[word[0]], (int(word[1]), int(word[2]))) for word in text.split()])


PREDS = [doc("L01 P23 P45"), doc(""), doc("O01")]
REFS = [doc("L01 L23 P45"), doc("L01"), doc("P01")]
BOTH = {"micro": micro_average(["precision", "f1"]), "macro": macro_average(["f1"])}


def floats(values):
    return {key: value.item() for key, value in values.items()}


def test_family_keys_follow_names_and_reductions():
    assert list(Family(Doc.metric, micro_average(["none", "f1"])).compute()) == ["overlap", "f1"]
    assert list(Family(Doc.metric, {"micro": micro_average(["f1", "none"])}).compute()) == ["micro-f1", "micro"]


def test_family_by_label_matches_hand_computation():
    family = Family(Doc.metric, micro_average(["precision", "f1"]), by="label")
    for pred, ref in zip(PREDS, REFS, strict=True):
        family.update([pred], [ref])
    scores = floats(family.compute())
    # label: matched, predicted, expected. LOC 1 1 3, PER 1 2 2, ORG 0 1 0
    expected = {"f1[LOC]": 0.5, "f1[PER]": 0.5, "f1[ORG]": 0.0, "types-f1": 1 / 3, "weighted-f1": 0.5}
    assert {key: scores[key] for key in expected} == pytest.approx(expected)
    assert scores["precision[LOC]"] == 1 and scores["weighted-precision"] == pytest.approx((3 * 1 + 2 * 0.5) / 5)
    assert scores["f1"] == pytest.approx(4 / 9)


def test_family_requested_labels_have_scores():
    family = Family(Doc.metric, micro_average(["f1"]), by="label", labels=["PER", "MISC"])
    family.update(PREDS, REFS)
    scores = floats(family.compute())
    assert [key for key in scores if key.startswith("f1[")] == ["f1[PER]", "f1[MISC]"]
    assert scores["f1[PER]"] == 0.5 == scores["types-f1"] and scores["f1[MISC]"] == 1.0  # of no items
    assert floats(family(PREDS[:1], REFS[:1]))["f1[PER]"] == pytest.approx(2 / 3)
    family.reset()
    assert math.isnan(family.compute()["types-f1"]) and family.documents == 0


def test_undefined_label_scores_are_ignored_in_averages():
    family = Family(Doc.metric, micro_average(["precision"]), by="label", zero_division=math.nan)
    family.update([doc("L01 L23")], [doc("L01 P45 P67")])
    scores = floats(family.compute())
    assert math.isnan(scores["precision[PER]"]) and scores["types-precision"] == scores["weighted-precision"] == 0.5


@metametric(normalizer="f1")
@dataclass
class Tagged:
    label: str
    tags: list[str]


@metametric(normalizer="f1")
@dataclass
class Inner:
    items: list[Tagged]


@dataclass
class Outer:
    inner: Inner


@pytest.mark.parametrize("wrap", [list, lambda items: Inner([*items]), lambda items: Outer(Inner([*items]))])
def test_labels_of_normalized_items_and_collections(wrap):
    """Items of one label have the overlap that their normalizer gives them: for A the F1 of tags, 2/3."""
    pred, ref = [Tagged("A", ["x", "y"]), Tagged("B", ["z"])], [Tagged("A", ["x"]), Tagged("B", ["w"])]
    kind = {list: list[Tagged], Inner: Inner, Outer: Outer}[type(wrap([]))]
    family = Family(derive(kind), micro_average(["f1", "recall"]), by="label")
    family.update([wrap(pred), wrap(pred)], [wrap(ref), wrap(ref[:1])])
    scores = floats(family.compute())
    # label: overlap, predicted, expected. A 4/3 2 2, B 0 2 1
    expected = {"f1[A]": 2 / 3, "recall[A]": 2 / 3, "f1[B]": 0, "types-f1": 1 / 3, "weighted-f1": 4 / 9}
    assert {key: scores[key] for key in expected} == pytest.approx(expected)


def test_scores_of_documents_change_no_state():
    family = Family(Doc.metric, macro_average(["f1"]))
    family.update(PREDS[:1], REFS[:1])
    assert family.per_document(PREDS, REFS)["f1"].tolist() == pytest.approx([2 / 3, 0, 0]) and family.documents == 1


def test_policies_of_families():
    empty = [Doc([])]
    for options, value in (
        ({}, 1.0),
        ({"policy": "conventional"}, 0.0),
        ({"zero_division": 1.0}, 1.0),
        ({"empty": "one"}, 1.0),
    ):
        family = Family(Doc.metric, micro_average(["f1"]), **options)
        family.update(empty, empty)
        assert family.compute()["f1"].item() == value


def test_family_normalizer_none_equals_the_metric():
    """Its own normalizer is kept: the mean of its scores, or its ratio of sums; without one, overlaps."""
    singles = [Doc.metric.score(*pair) for pair in zip(PREDS, REFS, strict=True)]
    assert singles == pytest.approx([2 / 3, 0, 0])
    family = Family(Doc.metric, {"macro": macro_average(["none", "precision"]), "micro": micro_average(["none"])})
    family.update(PREDS, REFS)
    expected = {"macro": 2 / 9, "macro-precision": 2 / 9, "micro": 2 * 2 / (4 + 5)}
    assert floats(family.compute()) == pytest.approx(expected)
    assert floats(family(PREDS[:1], REFS[:1])) == pytest.approx(
        {"macro": 2 / 3, "macro-precision": 2 / 3, "micro": 2 / 3}
    )
    single = Family(Doc.metric, macro_average(["none"]), by="label")
    single.update(PREDS, REFS)
    scores = floats(single.compute())
    assert scores["overlap"] == pytest.approx(2 / 9) and scores["overlap[LOC]"] == pytest.approx(2 / 4)
    baseline = Family(derive(list[Entity]), macro_average(["none"]))
    baseline.update(*([document.entities for document in part] for part in (PREDS, REFS)))
    assert floats(baseline.compute()) == {"overlap": pytest.approx(2 / 3)}
