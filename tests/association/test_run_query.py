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
    weat,
)

COSINES = "cos", "cos_similarity"


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


def test_golden_values_of_other_options_and_single_words_are_equal(device):
    for case in CASES:
        (kind, expected), model = (METRICS[case["metric"]], case["expected"]), table(case["model"], device)
        targets, attributes = (list(case[role].values()) for role in ("targets", "attributes"))
        if kind is WEAT:
            result = WEAT(correction=1).run_query(Query(targets, attributes), model)
            assert result["effect_size"] == pytest.approx(expected["effect_size_correction_1"], rel=1e-10, abs=1e-12)
        for word, score in (pair for words in expected.get("s_by_word", {}).values() for pair in words.items()):
            rows = (model.vectors[[model.vocab[word] for word in words]] for words in ([word], *attributes))
            x, a, b = rows  # the sum over a target of one word is the association of the word
            assert weat(x, torch.zeros_like(x), a, b).item() == pytest.approx(score, rel=1e-10, abs=1e-12)
        if case["options"].get("distance") == "cos":
            scores = [RND(distance=d).run_query(Query(targets, attributes), model)["rnd"] for d in COSINES]
            assert scores[0] == -scores[1]


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


def test_run_query_invalid_arguments_raise_before_look_up(query, tiny, monkeypatch):
    monkeypatch.setattr(WordEmbeddingModel, "index", None)

    def run(**change):
        RND().run_query(**{"query": query, "model": tiny} | change)

    with raises(TypeError, "query: got a list, wanted a Query"):
        run(query=["a"])
    with raises(TypeError, "model: got a dict, wanted a WordEmbeddingModel; write WordEmbeddingModel(model)"):
        run(model={})
    with raises(ValueError, "lost_vocabulary_threshold: got 2, wanted a number between 0 and 1"):
        run(lost_vocabulary_threshold=2)
    with raises(TypeError, "normalize: got 1, wanted True or False"):
        run(normalize=1)
    with raises(TypeError, "warn_not_found_words: got None, wanted True or False"):
        run(warn_not_found_words=None)
    with raises(TypeError, "preprocessors[0]: got a str, wanted a dict of options"):
        run(preprocessors=["x"])
    with raises(ValueError, "strategy: got 'any', wanted one of 'first', 'all'"):
        run(strategy="any")
    with raises(ValueError, "distance: got 'l2', wanted one of 'norm', 'cos', 'cos_similarity'"):
        run(distance="l2")
    with raises(TypeError, "RND.run_query: got the unknown keyword 'normalise'; did you mean 'normalize'?"):
        run(normalise=True)
    with raises(ValueError, "query: 'T wrt A' has 1 target sets, wanted 2 for the metric RND"):
        run(query=Query([["t1a"]], [["a1a"]], ["T"], ["A"]))
    with raises(ValueError, "query: 'T and U' has 0 attribute sets, wanted 1 for the metric RND"):
        run(query=Query([["t1a"], ["t2a"]], [], ["T", "U"]))


def test_run_query_missing_or_repeated_arguments_raise(query, tiny):
    with raises(TypeError, "RND.run_query: got no model"):
        RND().run_query(query)
    with raises(TypeError, "RND.run_query: got no query"):
        RND().run_query(model=tiny)
    with raises(TypeError, "RND.run_query: got query by position and by name, wanted one"):
        RND().run_query(query, tiny, query=query)
    with raises(ValueError, "query: 'T1 and T2' has 0 attribute sets, wanted one or more for the metric MAC"):
        MAC().run_query(Query(query.target_sets, [], ["T1", "T2"]), tiny)


def test_run_query_word_of_several_rows_has_one_entry_by_word(device):
    pools = {"x": [[1.0, 0.0]], "y": [[0.0, 1.0]], "a": [[2.0, 0.0], [0.0, 1.0]]}
    model = WordEmbeddingModel.from_contexts({word: torch.tensor(rows, device=device) for word, rows in pools.items()})
    result = RND().run_query(Query([["x"], ["y"]], [["a"]]), model)
    assert result["result"] == result["distance_by_word"]["a"] == pytest.approx((1 - 5**0.5 + 2**0.5) / 2)
