"""p-values and intervals of queries."""

import pytest
import torch
from metric_cases import CASES, GOLDEN, KEYS, METRICS, answer, table
from raising import raises

from tensormetrics import association
from tensormetrics.association import ECT, RND, WEAT, Query

P_VALUES = [case for case in GOLDEN["cases"] if case["kind"] == "p_value"]


EXPECTED_KEYS = {"greater": "p_right", "less": "p_left", "two-sided": "p_two_sided"}


@pytest.mark.parametrize("test_type", EXPECTED_KEYS)
def test_run_query_p_values_equal_golden_values(test_type, device):
    flips = [case["expected"]["sign_flip"] for case in CASES if "sign_flip" in case["expected"]]
    paired = [case | {"expected": flip} for case in CASES for flip in flips if case["id"] == "tiny/ripa"]
    assert P_VALUES and paired
    for case in P_VALUES + paired:
        query = Query(list(case["targets"].values()), list(case["attributes"].values()))
        options = {name: value for name, value in case["options"].items() if name != "p_value_method"}
        options["method"] = case["options"].get("p_value_method", "auto")
        metric = METRICS[case["metric"]](p_value=True, alternative=test_type, **options)
        result = answer(metric, query, table(case["model"], device))
        assert result["p_value"] == pytest.approx(case["expected"][EXPECTED_KEYS[test_type]], rel=1e-12)


def test_run_query_sc_weat_has_p_value_of_each_word(tiny):
    query = Query([["t1a", "t1b"]], [["a1a", "a1b", "a1c"], ["a2a", "a2b"]])
    result = answer(association.SCWEAT(p_value=True), query, tiny)
    single = answer(association.SCWEAT(p_value=True), Query([["t1b"]], query.attribute_sets), tiny)
    assert list(result["p_value_by_word"]) == ["t1a", "t1b"]
    assert result["p_value_by_word"]["t1b"] == single["p_value_by_word"]["t1b"] in [i / 10 for i in range(1, 11)]


@pytest.mark.parametrize("metric", KEYS, ids=lambda metric: metric.__name__)
def test_run_query_replicates_give_intervals(metric, tiny):
    targets, attributes = (n if isinstance(n, int) else 2 for n in metric.metric_template)
    sets = [["t1a", "t1b", "t1c"], ["t2a", "t2b", "t2c"], ["a1a", "a1b", "a1c"], ["a2a", "a2b", "a2c"]]
    query = Query(sets[:targets], sets[2 : 2 + attributes])
    result = answer(metric(replicates=200, seed=1), query, tiny)
    assert result["low"] < result["high"] and ("corrected" in result) == (metric is RND)
    assert repr(result) == repr(answer(metric(replicates=200, seed=1), query, tiny))
    narrow = answer(metric(confidence=0.5, replicates=200, seed=1), query, tiny)
    assert result["low"] <= narrow["low"] <= narrow["high"] <= result["high"]


def test_p_value_without_null_distribution_raises():
    with raises(ValueError, "p_value: got True, but MAC has no null_distributions; leave it out"):
        association.MAC(p_value=True)
    with raises(NotImplementedError, "MAC has no p-value"):
        association.MAC().p_values()


def test_run_query_ect_default_p_value_tests_small_scores():
    """ECT is 1 without bias and -1 for opposite orders of the attribute words, so its default test is less."""
    words = [f"{name}{i}" for name in "xya" for i in range(4)]
    angles = torch.tensor([0.0, 0.01, 0.02, 0.03, 1.5, 1.51, 1.52, 1.53, 0.1, 0.5, 1.0, 1.4], dtype=torch.float64)
    model = association.WordEmbeddingModel.from_tensor(torch.stack([angles.cos(), angles.sin()], -1), words)
    query = Query([words[:4], words[4:8]], [words[8:]])
    result = answer(ECT(p_value=True), query, model)
    assert result["ect"] == -1 and result["p_value"] < 0.1
    right = answer(ECT(p_value=True, alternative="greater"), query, model)
    assert right["p_value"] == 1


def test_run_query_ml_eat_interval_equals_that_of_effect_size(tiny):
    query = Query([["t1a", "t1b", "t1c"], ["t2a", "t2b", "t2c"]], [["a1a", "a1b", "a1c"], ["a2a", "a2b"]])
    levels = answer(association.MLEAT(replicates=100), query, tiny)
    effect = answer(WEAT(replicates=100, return_effect_size=True, correction=1), query, tiny)
    assert levels["low"] < levels["high"]
    assert [levels["low"], levels["high"]] == pytest.approx([effect["low"], effect["high"]])
