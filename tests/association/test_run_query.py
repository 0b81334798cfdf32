"""Metrics on queries: golden values, result keys, options and errors of `run_query`."""

import numpy as np
import pytest
import torch
from metric_cases import CASES, KEYS, METRICS, answer, flatten_values, table
from raising import raises

from tensormetrics.association import MAC, RND, WEAT, Query, WordEmbeddingModel


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_run_query_equals_golden_values(case, dtype, device):
    query_parts = [case["targets"], case["attributes"]]
    query = Query(
        *(list(named_sets.values()) for named_sets in query_parts), *(list(named_sets) for named_sets in query_parts)
    )
    result = answer(METRICS[case["metric"]](**case["options"]), query, table(case["model"], device, dtype))
    assert result["query_name"] == query.query_name
    tolerance = {"rtol": 1e-10, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 1e-6, "atol": 1e-6}
    if case["metric"] == "RNSB":
        tolerance["rtol"] = max(tolerance["rtol"], 1e-7)
    if case["metric"] == "RIPA":
        means, stds = result["mean_by_word"], result["std_by_word"]
        result["word_values"] = {word: {"mean": means[word], "std": stds[word]} for word in means}
    shared = result.keys() & case["expected"].keys()
    assert shared
    for key in shared:
        got, expected = result[key], case["expected"][key]
        if isinstance(got, dict):
            assert got.keys() == expected.keys()
            got, expected = flatten_values(got), flatten_values({name: expected[name] for name in got})
        np.testing.assert_allclose(got, expected, **tolerance)


@pytest.mark.parametrize("metric", KEYS, ids=lambda metric: metric.__name__)
def test_run_query_details_say_what_the_score_is_made_of(metric, tiny):
    targets, attributes = (n if isinstance(n, int) else 2 for n in metric.metric_template)
    sets = [["t1a", "t1b", "?"], ["t2a", "t2b", "?"], ["a1a", "a1b"], ["a2a", "a2b"]]
    query = Query(sets[:targets], sets[2 : 2 + attributes])
    found = metric(lost_vocabulary_threshold=0.5).run_query(query, tiny)
    assert list(found.details) == [*KEYS[metric], "words", "lost"]
    assert found.value == found.details[KEYS[metric][0]] and found.name == query.query_name
    assert found.details["words"] == ([s[:2] for s in sets[:targets]], sets[2 : 2 + attributes])
    assert found.details["lost"] == ([["?"]] * targets, [[]] * attributes)
    lost = metric().run_query(query, tiny)
    assert list(lost.details) == ["reason", "words", "lost"] and all(end.isnan() for end in lost)
    assert " lost 1 of 3 " in lost.details["reason"]


def test_return_effect_size_makes_it_the_score(tiny):
    query = Query([["t1a", "t1b"], ["t2a", "t2b"]], [["a1a", "a1b"], ["a2a", "a2b"]])
    result = answer(WEAT(return_effect_size=True), query, tiny)
    assert result["result"] == result["effect_size"] != result["weat"]
    plain = WEAT().run_query(query, tiny)
    assert plain.value == result["weat"] and plain.details["effect_size"] == result["effect_size"]


def test_run_query_invalid_arguments_raise_before_look_up(query, tiny, monkeypatch):
    monkeypatch.setattr(WordEmbeddingModel, "index_query", None)

    def run(query=query, model=tiny, **options):
        RND(**options).run_query(query, model)

    lost = "lost_vocabulary_threshold"
    for name, value, kind, message in (
        ("query", ["a"], TypeError, "query: got a list, wanted a Query"),
        ("model", {}, TypeError, "model: got a dict, wanted a WordEmbeddingModel; write WordEmbeddingModel(model)"),
        (lost, 2, ValueError, f"{lost}: got 2, wanted a number between 0 and 1"),
        ("normalize", 1, TypeError, "normalize: got 1, wanted True or False"),
    ):
        with raises(kind, message):
            run(**{name: value})
    with pytest.raises(TypeError, match="^RND: got the argument 'normalise', wanted .*; write normalize$"):
        run(normalise=True)
    with raises(ValueError, "query: 'T wrt A' has 1 target sets, wanted 2 for the metric RND"):
        run(query=Query([["t1a"]], [["a1a"]], ["T"], ["A"]))
    with raises(ValueError, "query: 'T and U' has 0 attribute sets, wanted 1 for the metric RND"):
        run(query=Query([["t1a"], ["t2a"]], [], ["T", "U"]))
    with raises(ValueError, "query: 'T1 and T2' has 0 attribute sets, wanted one or more for the metric MAC"):
        MAC().run_query(Query(query.target_sets, [], ["T1", "T2"]), tiny)


def test_run_query_word_of_several_rows_has_one_entry_by_word(device):
    pools = {"x": [[1.0, 0.0]], "y": [[0.0, 1.0]], "a": [[2.0, 0.0], [0.0, 1.0]]}
    model = WordEmbeddingModel.from_contexts({word: torch.tensor(rows, device=device) for word, rows in pools.items()})
    result = answer(RND(), Query([["x"], ["y"]], [["a"]]), model)
    assert result["result"] == result["distance_by_word"]["a"] == pytest.approx((1 - 5**0.5 + 2**0.5) / 2)
