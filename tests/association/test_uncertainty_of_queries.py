"""p-values and intervals of queries."""

import numpy as np
import pytest
import torch
from metric_cases import CASES, GOLDEN, KEYS, METRICS, Gap, table
from raising import raises

from tensormetrics import association
from tensormetrics.association import ECT, GWEAT, RIPA, RND, WEAT, Query

P_VALUES = [case for case in GOLDEN["cases"] if case["kind"] == "p_value"]


EXPECTED_KEYS = {"right-sided": "p_right", "left-sided": "p_left", "two-sided": "p_two_sided"}


@pytest.mark.parametrize("test_type", EXPECTED_KEYS)
def test_run_query_p_values_equal_golden_values(test_type, device):
    flips = [case["expected"]["sign_flip"] for case in CASES if "sign_flip" in case["expected"]]
    paired = [case | {"expected": flip} for case in CASES for flip in flips if case["id"] == "tiny/ripa"]
    assert P_VALUES and paired
    for case in P_VALUES + paired:
        query = Query(list(case["targets"].values()), list(case["attributes"].values()))
        metric = METRICS[case["metric"]](calculate_p_value=True, p_value_test_type=test_type)
        result = metric.run_query(query, table(case["model"], device), **case["options"])
        assert list(result)[-1] == "p_value"
        assert result["p_value"] == pytest.approx(case["expected"][EXPECTED_KEYS[test_type]], rel=1e-12)


def test_run_query_sc_weat_has_p_value_of_each_word(tiny):
    query = Query([["t1a", "t1b"]], [["a1a", "a1b", "a1c"], ["a2a", "a2b"]])
    result = association.SCWEAT().run_query(query, tiny, calculate_p_value=True)
    single = association.SCWEAT(calculate_p_value=True).run_query(Query([["t1b"]], query.attribute_sets), tiny)
    assert list(result["p_value_by_word"]) == ["t1a", "t1b"]
    assert result["p_value_by_word"]["t1b"] == single["p_value_by_word"]["t1b"] in [i / 10 for i in range(1, 11)]


def test_run_query_p_value_of_lost_words_is_nan_and_verbose_prints(tiny, capsys):
    lost = RIPA().run_query(Query([["x"], ["y"]], [["a1a"]]), tiny, calculate_p_value=True)
    assert list(lost) == ["query_name", "result", "ripa", "word_values", "p_value"] and np.isnan(lost["p_value"])
    query = Query([["t1a"], ["t2a"]], [["a1a"]], ["T", "U"], ["A"])
    RIPA().run_query(query, tiny, calculate_p_value=True, p_value_verbose=True)
    assert capsys.readouterr().out.startswith("RIPA, T and U wrt A, right-sided: {'p_value': ")


@pytest.mark.parametrize("metric", KEYS, ids=lambda metric: metric.__name__)
def test_run_query_replicates_give_intervals(metric, tiny):
    targets, attributes = (n if isinstance(n, int) else 2 for n in metric.metric_template)
    sets = [["t1a", "t1b", "t1c"], ["t2a", "t2b", "t2c"], ["a1a", "a1b", "a1c"], ["a2a", "a2b", "a2c"]]
    query = Query(sets[:targets], sets[2 : 2 + attributes])
    result = metric(replicates=200, seed=1).run_query(query, tiny)
    corrected = ["rnd_corrected"] if metric is RND else []
    assert [key for key in result if key not in corrected] == ["query_name", "result", *KEYS[metric], "low", "high"]
    assert corrected == [key for key in result if key.endswith("corrected")]
    assert result["low"] < result["high"]
    assert repr(result) == repr(metric().run_query(query, tiny, replicates=200, seed=1))
    narrow = metric(confidence=0.5).run_query(query, tiny, replicates=200, seed=1)
    assert result["low"] <= narrow["low"] <= narrow["high"] <= result["high"]
    lost = metric(replicates=200).run_query(Query([["x"]] * targets, [["y"]] * attributes), tiny)
    assert list(lost) == list(result) and np.isnan(lost["low"])


def test_run_query_interval_of_one_word_sets_equals_score(tiny):
    query = Query([["t1a"], ["t2a"]], [["a1a"]])
    for metric in (RND, RIPA):
        result = metric(replicates=9).run_query(query, tiny)
        assert [result["low"], result["high"]] == pytest.approx([result["result"]] * 2, rel=1e-12)


def test_run_query_interval_without_score_function_raises(query, tiny):
    message = "GAP.run_query: got the unknown keyword 'confidence'; did you mean 'model'?"
    with raises(TypeError, message):
        Gap().run_query(query, tiny, confidence=0.9)


def test_run_query_p_value_without_null_distribution_raises(tiny):
    message = "MAC.run_query: got the unknown keyword 'calculate_p_value'; did you mean 'lost_vocabulary_threshold'?"
    with raises(TypeError, message):
        association.MAC().run_query(Query([["t1a"]], [["a1a"]]), tiny, calculate_p_value=True)
    with raises(NotImplementedError, "MAC has no p-value"):
        association.MAC().p_values()


def test_run_query_ect_default_p_value_tests_small_scores():
    """ECT is 1 without bias and -1 for opposite orders of the attribute words, so its default test is left-sided."""
    words = [f"{name}{i}" for name in "xya" for i in range(4)]
    angles = torch.tensor([0.0, 0.01, 0.02, 0.03, 1.5, 1.51, 1.52, 1.53, 0.1, 0.5, 1.0, 1.4], dtype=torch.float64)
    model = association.WordEmbeddingModel.from_tensor(torch.stack([angles.cos(), angles.sin()], -1), words)
    query = Query([words[:4], words[4:8]], [words[8:]])
    result = ECT().run_query(query, model, calculate_p_value=True)
    assert result["ect"] == -1 and result["p_value"] < 0.1
    right = ECT().run_query(query, model, calculate_p_value=True, p_value_test_type="right-sided")
    assert right["p_value"] == 1


def test_run_query_gweat_p_value_depends_on_seed(tiny):
    query = Query([["t1a", "t1b"], ["t2a", "t2b"]], [["a1a", "a1b"], ["a2a", "a2b"]])
    result = GWEAT().run_query(query, tiny, calculate_p_value=True, p_value_iterations=500)
    again = GWEAT(calculate_p_value=True, p_value_iterations=500).run_query(query, tiny)
    assert 0 < result["p_value"] <= 1 and repr(again) == repr(result)
    assert GWEAT(calculate_p_value=True, p_value_seed=1).run_query(query, tiny)["p_value"] != result["p_value"]


def test_run_query_ml_eat_interval_equals_that_of_effect_size(tiny):
    query = Query([["t1a", "t1b", "t1c"], ["t2a", "t2b", "t2c"]], [["a1a", "a1b", "a1c"], ["a2a", "a2b"]])
    levels = association.MLEAT(replicates=100).run_query(query, tiny)
    effect = WEAT(replicates=100, return_effect_size=True, correction=1).run_query(query, tiny)
    assert levels["low"] < levels["high"]
    assert [levels["low"], levels["high"]] == pytest.approx([effect["low"], effect["high"]])
