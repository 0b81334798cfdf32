"""Metrics on queries: golden values, result keys, options and errors of `run_query`."""

import numpy as np
import pytest
import torch
from metric_cases import CASES, KEYS, METRICS, flatten_values, table
from raising import raises

from tensormetrics.association import (
    MAC,
    RND,
    WEAT,
    Query,
    WordEmbeddingModel,
)

LOWER = {"lowercase": True}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_run_query_equals_golden_values(case, dtype, device):
    query_parts = [case["targets"], case["attributes"]]
    query = Query(
        *(list(named_sets.values()) for named_sets in query_parts), *(list(named_sets) for named_sets in query_parts)
    )
    result = METRICS[case["metric"]]().run_query(query, table(case["model"], device, dtype), **case["options"])
    assert list(result)[:2] == ["query_name", "result"] and result["query_name"] == query.query_name
    tolerance = {"rtol": 1e-10, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 1e-6, "atol": 1e-6}
    if case["metric"] == "RNSB":
        tolerance["rtol"] = max(tolerance["rtol"], 1e-7)
    shared = result.keys() & case["expected"].keys()
    assert shared
    for key in shared:
        got, expected = result[key], case["expected"][key]
        if isinstance(got, dict):
            assert list(got) == list(expected)
            got, expected = flatten_values(got), flatten_values(expected)
        else:
            assert isinstance(got, np.float64)
        np.testing.assert_allclose(got, expected, **tolerance)


@pytest.mark.parametrize("metric", KEYS, ids=lambda metric: metric.__name__)
def test_run_query_with_lost_words_has_same_keys(metric, tiny):
    targets, attributes = (n if isinstance(n, int) else 2 for n in metric.metric_template)
    sets = [["t1a", "t1b"], ["t2a", "t2b"], ["a1a", "a1b"], ["a2a", "a2b"]]
    complete = metric().run_query(Query(sets[:targets], sets[2 : 2 + attributes]), tiny)
    lost = metric().run_query(Query([["x", "y"]] * targets, sets[2 : 2 + attributes]), tiny)
    assert list(complete) == list(lost) == ["query_name", "result", *KEYS[metric]]
    for key, value in lost.items():
        if key != "query_name":
            assert value == {} if isinstance(complete[key], dict) else np.isnan(value)


def test_run_query_options_override_those_of_constructor(tiny):
    query = Query([["t1a", "t1b"], ["t2a", "t2b"]], [["a1a", "a1b"], ["a2a", "a2b"]])
    metric = WEAT(correction=1)
    result = metric.run_query(query, tiny, return_effect_size=True)
    assert result["result"] == result["effect_size"] != result["weat"]
    assert metric.run_query(query, tiny)["result"] == result["weat"]
    assert WEAT().run_query(query, tiny, correction=1) == pytest.approx(metric.run_query(query, tiny), nan_ok=True)


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"query": ["a"]}, TypeError, "query: got a list, wanted a Query"),
        (
            {"model": {}},
            TypeError,
            "model: got a dict, wanted a WordEmbeddingModel; write WordEmbeddingModel(model)",
        ),
        (
            {"lost_vocabulary_threshold": 2},
            ValueError,
            "lost_vocabulary_threshold: got 2, wanted a number between 0 and 1",
        ),
        ({"normalize": 1}, TypeError, "normalize: got 1, wanted True or False"),
        ({"warn_not_found_words": None}, TypeError, "warn_not_found_words: got None, wanted True or False"),
        ({"preprocessors": ["x"]}, TypeError, "preprocessors[0]: got a str, wanted a dict of options"),
        ({"strategy": "any"}, ValueError, "strategy: got 'any', wanted one of 'first', 'all'"),
        ({"distance": "l2"}, ValueError, "distance: got 'l2', wanted one of 'norm', 'cos', 'cos_similarity'"),
        (
            {"normalise": True},
            TypeError,
            "RND.run_query: got the unknown keyword 'normalise'; did you mean 'normalize'?",
        ),
        (
            {"query": Query([["t1a"]], [["a1a"]], ["T"], ["A"])},
            ValueError,
            "query: 'T wrt A' has 1 target sets, wanted 2 for the metric RND",
        ),
        (
            {"query": Query([["t1a"], ["t2a"]], [], ["T", "U"])},
            ValueError,
            "query: 'T and U' has 0 attribute sets, wanted 1 for the metric RND",
        ),
    ],
)
def test_run_query_invalid_arguments_raise_before_look_up(change, kind, message, query, tiny, monkeypatch):
    monkeypatch.setattr(WordEmbeddingModel, "index", None)
    with raises(kind, message):
        RND().run_query(**{"query": query, "model": tiny} | change)


def test_run_query_missing_or_repeated_arguments_raise(query, tiny):
    with raises(TypeError, "RND.run_query: got no model"):
        RND().run_query(query)
    with raises(TypeError, "RND.run_query: got no query"):
        RND().run_query(model=tiny)
    with raises(TypeError, "RND.run_query: got query by position and by name, wanted one"):
        RND().run_query(query, tiny, query=query)
    with raises(ValueError, "query: 'T1 and T2' has 0 attribute sets, wanted one or more for the metric MAC"):
        MAC().run_query(Query(query.target_sets, [], ["T1", "T2"]), tiny)
    with raises(ValueError, "correction: got 2, wanted 0 or 1"):
        WEAT(correction=2)
    with raises(TypeError, "return_effect_size: got 1, wanted True or False"):
        WEAT(return_effect_size=1)


def test_run_query_word_of_several_rows_has_one_entry_by_word(device):
    pools = {"x": [[1.0, 0.0]], "y": [[0.0, 1.0]], "a": [[2.0, 0.0], [0.0, 1.0]]}
    model = WordEmbeddingModel.from_contexts({word: torch.tensor(rows, device=device) for word, rows in pools.items()})
    result = RND().run_query(Query([["x"], ["y"]], [["a"]]), model)
    assert result["result"] == result["distance_by_word"]["a"] == pytest.approx((1 - 5**0.5 + 2**0.5) / 2)
