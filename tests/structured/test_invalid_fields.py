"""Values of JSON that are values of their types or not, which cost their fields only, in `Family(on_invalid=...)`."""

import collections
import random
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
import torch
from typing_extensions import TypedDict

from tensormetrics.structured import Family, derive, dsl, metametric, micro_average


@dataclass(frozen=True)
class Person:
    name: str
    born: int | None = None


@metametric(normalizer="f1")
@dataclass
class Doc:
    people: list[Person]


class Bag(TypedDict):
    words: list[str]


class Note(TypedDict):
    words: list[str]
    number: int


class Titled(TypedDict):
    words: list[str]
    title: str | None
    pages: list[int] | None


ADA, KURT = Person("Ada", 1815), Person("Kurt", 1906)


def scores(metric, preds, refs, **options):
    family = Family(metric, micro_average(["precision", "recall"]), on_invalid="wrong", **options)
    family.update(preds, refs)
    return {name: float(value) for name, value in family.compute().items()}


@pytest.mark.parametrize(
    ("metric", "pred", "ref", "precision", "recall", "invalid_fields"),
    [
        (derive(list[int]), [1, "x", 3], [1, 2, 3], 2 / 3, 2 / 3, 1),
        (derive(list[int]), [1, True, None], [1], 1 / 3, 1, 2),
        (derive(list[float]), [1, float("nan")], [1.0], 1 / 2, 1, 1),
        (derive(Bag), {"words": "no list"}, {"words": ["a", "b"]}, 0, 0, 1),
        (derive(Bag), {"words": ["a", 3, "c"]}, {"words": ["a", "b"]}, 1 / 3, 1 / 2, 1),
        (derive(Bag), {}, {"words": ["a", "b"]}, float("nan"), 0, 0),
        (Doc.metric, Doc([ADA, Person("Kurt", "1906")]), Doc([ADA, KURT]), 1 / 2, 1 / 2, 1),
        (Doc.metric, Doc([ADA, "Kurt"]), Doc([ADA, KURT]), 1 / 2, 1 / 2, 1),
        (Doc.metric, Doc({"name": "Ada"}), Doc([ADA, KURT]), 0, 0, 1),
        (derive(list[Note]), [{"words": ["a"]}], [{"words": ["a"], "number": 1}], 0, 0, 0),
        (derive(Titled), {"words": ["a"]}, {"words": ["a"], "title": None, "pages": None}, 1, 1, 0),
        (derive(Titled), {"words": ["a"]}, {"words": ["a"], "title": "b", "pages": None}, 0, 0, 0),
        (derive(list[Note]), [{"words": ["a"], "number": "1"}], [{"words": ["a"], "number": 1}], 0, 0, 1),
        (derive(list[Note]), [{"words": ["a", 5], "number": 1}], [{"words": ["a"], "number": 1}], 1 / 2, 1, 1),
        (derive(dict[str, int]), {"a": 1, "b": "x"}, {"a": 1, "b": 2}, 1 / 2, 1 / 2, 1),
        (derive(list[int | str]), [1, [2]], [1, "2"], 1 / 2, 1 / 2, 1),
        (derive(list[tuple[int, int]]), [(1, 2), (3,)], [(1, 2), (3, 4)], 1 / 2, 1 / 2, 1),
        (derive(list[list[int]]), [[1, "2"], 3], [[1, 2]], 1 / 3, 1 / 2, 2),
    ],
)
def test_invalid_field_counts_as_one_unmatched_item(metric, pred, ref, precision, recall, invalid_fields):
    expected = {"precision": precision, "recall": recall, "invalid": 0, "invalid_fields": invalid_fields}
    zero = {} if precision == precision else {"zero_division": float("nan")}
    for preds, refs, times in (([pred], [ref], 1), ([pred] * 3, [ref] * 3, 3)):
        expected["invalid_fields"] = invalid_fields * times
        assert scores(metric, preds, refs, **zero) == pytest.approx(expected, nan_ok=True)
    with pytest.raises((TypeError, ValueError), match=r"^refs\[0\]"):
        scores(metric, [ref], [pred])
    if invalid_fields:
        with pytest.raises((TypeError, ValueError), match=r"^preds\[0\]"):
            metric([pred], [ref])


def test_invalid_documents_stay_invalid_as_a_whole():
    preds = [Doc([ADA]), None, "Ada", Doc([ADA, "Kurt"]), Doc(None)]
    result = scores(Doc.metric, preds, [Doc([ADA])] * 5)
    assert result["invalid"] == 2 and result["invalid_fields"] == 2
    assert result["precision"] == 2 / 6 and result["recall"] == 2 / 5


def test_similarities_of_users_see_no_invalid_value():
    seen = []

    def similarity(a, b):
        seen.append((a, b))
        return float(a == b)

    metric = derive(list[Annotated[str, dsl.from_func(similarity)]])
    result = scores(metric, [["a", "b"], 5], [["a", "b"], ["a"]])
    assert result["invalid"] == 1 and all(isinstance(value, str) for pair in seen for value in pair)


def test_labels_need_valid_documents():
    family = Family(derive(list[Person]), micro_average(["f1"]), by="name", on_invalid="wrong")
    family.update([[ADA, Person(3)], [KURT]], [[ADA, KURT], [KURT]])
    assert family.compute()["invalid"] == 1 and family.compute()["invalid_fields"] == 0


def test_documents_are_independent_of_invalid_documents():
    generator = random.Random(0)
    choices: list[Any] = ["a", "b", "c", 1, None]
    preds = [{"words": generator.choices(choices, k=generator.randrange(5))} for _ in range(80)]
    refs = [{"words": generator.choices("abc", k=generator.randrange(1, 5))} for _ in range(80)]
    family = Family(derive(Bag), micro_average(["precision", "recall", "f1"]), on_invalid="wrong")
    full = family.per_document(preds, refs)
    single = [family.per_document([pred], [ref]) for pred, ref in zip(preds, refs, strict=True)]
    for name, values in full.items():
        assert torch.equal(values, torch.cat([batch[name] for batch in single]))
    for pred, ref, precision in zip(preds, refs, full["precision"].tolist(), strict=True):
        valid = [word for word in pred["words"] if isinstance(word, str)]
        matched = sum(min(valid.count(word), ref["words"].count(word)) for word in "abc")
        assert precision == pytest.approx(matched / len(pred["words"]) if pred["words"] else 0)


@pytest.mark.filterwarnings("ignore:2 items")
def test_number_of_invalid_fields_is_part_of_the_state():
    first, second = (
        Family(derive(list[int]), micro_average(["f1"]), on_invalid="empty", replicates=9) for _ in range(2)
    )
    first.update([[1, "x"]], [[1]], ids=[1])
    second.update([["y", "z"]], [[1]], ids=[2])
    first.merge_state(second)
    assert first.compute()["invalid_fields"] == 3
    first.persistent(True)
    second.load_state_dict(first.state_dict())
    assert second.compute()["invalid_fields"] == 3
    assert [*first.interval()] == ["f1"]


def family(tp):
    return Family(derive(list[tp]), micro_average(["f1"]), on_invalid="empty")


@pytest.mark.parametrize(
    ("tp", "pred", "ref"),
    [
        (float, 12, 12.0),
        (float | None, 12, 12.0),
        (float | str, 12, 12.0),
        (list[float | None], [1, None], [1.0, None]),
        (dict[str, float | None], {"a": 1}, {"a": 1.0}),
        (int | None, 12.0, 12),
        (int | str, 12.0, 12),
        (Literal[1, 2] | None, 1.0, 1),
        (tuple[float, float], [1, 2], (1.0, 2.0)),
        (tuple[float, float] | None, [1, 2], (1.0, 2.0)),
        (list[int] | None, (1, 2), [1, 2]),
    ],
    ids=str,
)
def test_values_of_json_are_values_of_their_types(tp, pred, ref):
    for first, second in ((pred, ref), (ref, pred)):
        scores = family(tp)
        scores.update([[first]], [[second]])
        assert {key: float(value) for key, value in scores.compute().items()} == {
            "f1": 1.0,
            "invalid": 0.0,
            "invalid_fields": 0.0,
        }
        metric = derive(list[tp])
        assert metric.score([first], [second]) == metric.score([second], [second])
        assert metric([[first]] * 2, [[second]] * 2).tolist() == [metric.score([second], [second])] * 2


@pytest.mark.parametrize(
    ("tp", "pred", "ref"),
    [
        (int | None, 12.5, 12),
        (int | None, "12", 12),
        (float | None, "12", 12.0),
        (Literal[1, 2] | None, 1.5, 1),
        (tuple[float, float], [1], (1.0, 2.0)),
        (tuple[float, float] | None, "ab", (1.0, 2.0)),
        (list[str], {"a": 0}, ["a"]),
        (dict[str, int], [("a", 1)], {"a": 1}),
        (collections.Counter[str], ["a"], collections.Counter("a")),
    ],
    ids=str,
)
def test_json_values_of_other_types_are_invalid(tp, pred, ref):
    scores = family(tp)
    scores.update([[pred], [ref]], [[ref], [ref]])
    assert scores.compute()["invalid"] + scores.compute()["invalid_fields"] == 1
    for error in (TypeError, ValueError):
        with pytest.raises(error, match=r"^preds\[0\]"):
            derive(list[tp]).score([pred], [ref])
        with pytest.raises(error, match=r"^refs\[0\]"):
            derive(list[tp]).score([ref], [pred])


def test_the_case_of_a_number_is_that_of_its_class_if_there_is_one():
    metric = derive(list[int | float])
    assert metric.score([1, 2.0], [1, 2.0]) == 2.0
    assert metric.score([1], [1.0]) == 0.0  # two cases
