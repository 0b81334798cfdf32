"""Inputs of `evaluate`: arrays, ids, groups, options; reports match the documents that they show."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from tensormetrics import compare
from tensormetrics.structured import FieldScores, evaluate

pytestmark = pytest.mark.filterwarnings("ignore:one ")

SCHEMA = {
    "type": "object",
    "properties": {
        "a": {"type": "integer"},
        "flag": {"type": "boolean"},
        "words": {"type": "array", "items": {"type": "string"}},
    },
}
REFS = [{"a": n, "flag": True, "words": ["x"]} for n in range(3)]


def test_evaluate_numpy_values_equal_python_values():
    preds = [{"a": np.int64(n), "flag": np.bool_(True), "words": np.array(["x"])} for n in range(3)]
    assert evaluate(preds, REFS, SCHEMA, replicates=0).totals["exact"] == 1
    texts = np.array(['{"a": 0}', '{"a": 1}', "no"], dtype=object)
    assert evaluate(texts, REFS, SCHEMA, replicates=0)["a"].correct == 2


def test_parsed_answers_of_another_kind_are_unreadable_like_their_texts():
    parsed, text = (evaluate([answer], REFS[:1], SCHEMA, replicates=0) for answer in ([1], "[1]"))
    assert str(parsed["a"]) == str(text["a"]) and parsed["a"].missed == 1
    assert parsed.totals["readable"] == text.totals["readable"] == 0 and parsed.invalid == text.invalid == {}


@pytest.mark.parametrize("make", [list, np.array, torch.tensor])
def test_ids_may_be_lists_arrays_and_tensors(make):
    report = evaluate(['{"a": 0}', '{"a": 5}', "no"], REFS, SCHEMA, ids=make([7, 8, 9]), replicates=0)
    assert [document.id for document in report.documents] == [7, 8, 9]
    assert report.explain(8).counts["wrong"] == 1


@pytest.mark.parametrize("names", [{"ids": [1, 2]}, {"groups": [1, 2, 3, 4]}])
def test_ids_and_groups_of_wrong_length_raise(names):
    with pytest.raises(ValueError, match=f"^{[*names][0]}: got {len([*names.values()][0])}, wanted 3, one for each"):
        evaluate(["{}"] * 3, REFS, SCHEMA, **names)


def test_explanations_after_skipped_documents_match_documents():
    report = evaluate(["no", '{"a": 1}', '{"a": 5}'], REFS, SCHEMA, on_invalid="skip", ids=[7, 8, 9], replicates=0)
    assert [document.id for document in report.documents] == [8, 9]
    rows = [report.explain(name).rows[0] for name in (8, 9)]
    assert [(row.prediction, row.reference) for row in rows] == [(1, 1), (5, 2)]
    assert "skipped: 1 unreadable" in str(report)


def test_evaluate_number_keys_equal_json_keys():
    report = evaluate([{1: "x", "b": 2}], ['{"1": "x", "b": 2}'], replicates=20)
    assert report.totals["exact"].value == 1 and report["1"].correct == 1
    same = evaluate(['{"1": "x"}'], [{"1": "x", "b": 2}], replicates=20)
    assert float(compare(report, same)["exact"].difference) == 1


def test_reports_do_not_change_with_their_metric():
    first, other = (FieldScores(SCHEMA, replicates=20) for _ in range(2))
    first.update(['{"a": 0}'], REFS[:1])
    other.update(['{"a": 4}'], REFS[:1])
    report, text = first.report(), str(first.report())
    first.update(['{"a": 9}'] * 2, REFS[1:])
    assert str(report) == text and report.metric.compute()["f1[a]"] == 1
    assert float(compare(report, other.report())["f1[a]"].difference) == 1


@dataclass
class WithDefault:
    a: int
    b: int = 3


def test_evaluate_fills_in_defaults_on_request():
    assert evaluate(['{"a": 1}'], ['{"a": 1, "b": 3}'], WithDefault, replicates=0)["b"].missed == 1
    assert evaluate(['{"a": 1}'], ['{"a": 1, "b": 3}'], WithDefault, defaults=True, replicates=0)["b"].correct == 1
    report = evaluate(["{}"], ['{"a": 1}'], WithDefault, defaults=True, replicates=0)
    assert report.totals["valid"] == 0 and report["b"].correct == 1


def test_documents_are_valid_if_the_function_does_not_raise():
    def validate(value):
        if value["a"] > 1:
            raise ValueError("too large")

    answers = ['{"a": 0}', '{"a": 5}', "no"]
    assert evaluate(answers, REFS, SCHEMA, validate=validate, replicates=0).totals["valid"] == pytest.approx(1 / 3)
    with pytest.raises(KeyError):  # a mistake of the function is no invalid document
        evaluate(["{}"] * 3, REFS, SCHEMA, validate=validate, replicates=0)


def test_evaluate_wide_documents_use_requested_replicates():
    wide = {f"k{n}": n for n in range(300)}
    assert evaluate([wide], [wide], replicates=50).metric.replicates == 50  # Holm's would need 6,019
    small = {f"k{n}": n for n in range(60)}
    assert evaluate([small], [small], replicates=50).metric.replicates == 20 * 61 - 1
