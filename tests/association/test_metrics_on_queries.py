"""Metrics on queries: pairs, groups, and words that occur in several sets."""

import itertools

import numpy as np
import pytest
import torch
from metric_cases import GOLDEN, answer, flatten_values
from raising import raises

from tensormetrics.association import ECT, GWEAT, MAC, RIPA, RNSB, SAME, DirectBias, Query
from tensormetrics.association.extend import IndexedQuery
from tensormetrics.association.functional import WordSet, rnsb


def test_ripa_incomplete_and_equal_pairs_are_dropped(tiny):
    pairs = Query([["t1a", "x", "t1b"], ["t2a", "t2b", "t1b"]], [["a1a"]])  # one lost, one of equal vectors
    result = answer(RIPA(lost_vocabulary_threshold=0.5), pairs, tiny)
    expected = answer(RIPA(), Query([["t1a"], ["t2a"]], [["a1a"]]), tiny)
    assert repr(result) == repr(expected) and expected["std_by_word"]["a1a"] == 0 and result["pairs"] == 1
    empty = answer(RIPA(), Query([["t1a"], ["t1a"]], [["a1a"]]), tiny)
    assert np.isnan(empty["result"]) and np.isnan(empty["mean_by_word"]["a1a"])
    with raises(
        ValueError,
        "query: 'Target set 0' has 2, 'Target set 1' has 1 words, wanted lists of one length, because they form tuples "
        "by position",
    ):
        answer(RIPA(), Query([["t1a", "t1b"], ["t2a"]], [["a1a"]]), tiny)


def test_rnsb_word_of_two_sets_counts_once(tiny):
    sets = [["a1a", "a1b"], ["a2a", "a2b"]]
    result = answer(RNSB(), Query([["t1a", "t1b"], ["t2a", "t1b", "t1a"]], sets), tiny)
    expected = answer(RNSB(), Query([["t1a", "t1b", "t2a"]], sets), tiny)
    assert list(result["negative_sentiment_probabilities"]) == ["t1a", "t1b", "t2a"]
    for key in result.keys() - {"query_name", "low", "high"}:
        assert result[key] == pytest.approx(expected[key], rel=1e-12)
    assert sum(result["negative_sentiment_distribution"].values()) == pytest.approx(1)


def test_rnsb_holdout_averages_over_splits(tiny):
    words = [word for word in GOLDEN["models"]["tiny"] if word[0] == "t"]
    query = Query([words[:4], words[4:]], [[f"a1{c}" for c in "abcd"], [f"a2{c}" for c in "abcd"]])
    fitted_to_all = answer(RNSB(holdout=False), query, tiny)
    assert repr(fitted_to_all) == repr(answer(RNSB(n_iterations=7, random_state=3), query, tiny))
    t, a, b = tiny.index_query(query).sets(tiny.vectors, ("joined", 2))
    assert fitted_to_all["result"] == pytest.approx(rnsb(t, a, b).item(), rel=1e-10)
    single = [answer(RNSB(holdout=True, random_state=i), query, tiny) for i in range(4)]
    mean = answer(RNSB(holdout=True, n_iterations=4), query, tiny)
    assert mean["rnsb"] == pytest.approx(np.mean([result["rnsb"] for result in single]), rel=1e-12)
    assert len({result["rnsb"] for result in single} | {fitted_to_all["rnsb"]}) > 2
    p = [result["negative_sentiment_probabilities"]["t1a"] for result in single]
    assert mean["negative_sentiment_probabilities"]["t1a"] == pytest.approx(np.mean(p), rel=1e-12)
    assert sum(mean["negative_sentiment_distribution"].values()) == pytest.approx(1)
    a, b = ([words[:i] + words[i + 1 :] for i in range(4)] for words in query.attribute_sets)
    left = [answer(RNSB(), Query(query.target_sets, pair), tiny)["rnsb"] for pair in itertools.product(a, b)]
    for result in single:  # each split holds out one word of each attribute set
        assert min(abs(result["rnsb"] - other) for other in left) < 1e-12


def test_run_query_wrong_number_of_groups_raises(tiny):
    one = Query([["t1a"]], [["a1a"]], ["T"], ["A"])
    for metric in (DirectBias, SAME):
        message = (
            "query: 'T wrt A' has 1 target and 1 attribute sets, wanted at least 2 attribute sets for the metric "
            + metric.metric_short_name
        )
        with raises(ValueError, message):
            answer(metric(), one, tiny)
    message = (
        "query: 'T wrt A and B' has 1 target and 2 attribute sets, wanted equally many, at least 2 for the metric "
    )
    with raises(ValueError, message + "GWEAT"):
        answer(GWEAT(), Query([["t1a"]], [["a1a"], ["a2a"]], ["T"], ["A", "B"]), tiny)
    lengths = "query: 'A' has 1, 'B' has 2 words, wanted lists of one length, because they form tuples by position"
    with raises(ValueError, lengths):
        answer(DirectBias(), Query([["t1a"]], [["a1a"], ["a2a", "a2b"]], ["T"], ["A", "B"]), tiny)


def test_direct_bias_batch_with_lost_tuples_equals_single_queries(tiny):
    query = Query([["t1a", "t1b"]], [["a1a", "x", "a1c"], ["a2a", "a2b", "a2c"]])
    complete = Query([["t1a", "t1b"]], [["a1a", "a1b", "a1c"], ["a2a", "a2b", "a2c"]])
    indices = [tiny.index_query(q, paired=True, lost_vocabulary_threshold=0.5) for q in (query, complete)]
    metric = DirectBias(lost_vocabulary_threshold=0.5)
    scores = metric.measure(*metric.arguments(IndexedQuery.stack(indices), tiny.vectors))["direct_bias"].tolist()
    expected = [answer(metric, q, tiny)["result"] for q in (query, complete)]
    assert scores == pytest.approx(expected, rel=1e-12)


def test_mac_word_of_two_sets_counts_in_each_set(tiny):
    result = answer(MAC(), Query([["t1a", "t1b"], ["t1a"]], [["a1a"], ["a2a", "a2b"]], ["T", "U"], ["A", "B"]), tiny)
    table = result["targets_eval"]
    assert {name: list(words) for name, words in table.items()} == {"T": ["t1a", "t1b"], "U": ["t1a"]}
    assert result["mac"] == pytest.approx(np.mean(flatten_values(table))) and table["T"]["t1a"] == table["U"]["t1a"]


class Fixed:
    """Classifier whose probability of the negative class depends on the first component only."""

    def __init__(self, scale=1.0):
        self.scale, self.classes_ = scale, np.array([-1, 1])

    def fit(self, x, y):
        self.seen = sorted(y.tolist())

    def predict_proba(self, x):
        assert self.seen == [-1, -1, 1, 1]
        p = 1 / (1 + np.exp(-self.scale * x[:, 0]))
        return np.stack([p, 1 - p], 1)


def test_rnsb_custom_estimator_is_fitted_and_used(tiny):
    query = Query([["t1a", "t1b"], ["t2a"]], [["a1a", "a1b"], ["a2a", "a2b"]])
    params = {"scale": 0.5}
    result = answer(RNSB(estimator=Fixed, estimator_params=params), query, tiny)
    p = {word: 1 / (1 + np.exp(-0.5 * tiny[word][0])) for word in ("t1a", "t1b", "t2a")}
    assert result["negative_sentiment_probabilities"] == pytest.approx(p) and params == {"scale": 0.5}
    q = np.array(list(p.values())) / sum(p.values())
    assert result["result"] == pytest.approx(np.sum(q * np.log(3 * q)))
    sets = map(WordSet.of, RNSB().arguments(tiny.index_query(query), tiny.vectors))
    batch = RNSB(estimator=Fixed).measure(*(s._replace(values=torch.stack([s.values, 2 * s.values])) for s in sets))
    assert batch["rnsb"].shape == (2,) and batch["rnsb"][0] != batch["rnsb"][1]


def test_rnsb_sklearn_estimator_equals_default(tiny):
    linear = pytest.importorskip("sklearn.linear_model")
    query = Query([["t1a", "t1b"], ["t2a"]], [["a1a", "a1b"], ["a2a", "a2b"]])
    params = {"tol": 1e-10, "max_iter": 5000}
    result = answer(RNSB(estimator=linear.LogisticRegression, estimator_params=params), query, tiny)
    assert result["rnsb"] == pytest.approx(answer(RNSB(penalize_intercept=False), query, tiny)["rnsb"], rel=1e-5)


def test_rnsb_print_model_evaluation_prints_report(tiny, capsys):
    words = [f"{w}{c}" for w in ("a1", "a2") for c in "abcd"]
    query = Query([["t1a"], ["t2a"]], [words[:4], words[4:]])
    expected = answer(RNSB(), query, tiny)
    assert repr(answer(RNSB(print_model_evaluation=True), query, tiny)) == repr(expected)
    head, positive, negative = capsys.readouterr().out.splitlines()
    assert head.split() == ["precision", "recall", "F1", "words"]
    assert positive.split()[0] == "positive" and positive.split()[-1] == negative.split()[-1] == "1"
    answer(RNSB(print_model_evaluation=True, holdout=True, n_iterations=5), query, tiny)
    assert capsys.readouterr().out.splitlines()[1].split()[-1] == "5"
    answer(RNSB(print_model_evaluation=True, holdout=False), query, tiny)
    assert capsys.readouterr().out == "RNSB: no words are set aside to evaluate the classifier (holdout=False)\n"


def test_rnsb_invalid_estimator_options_raise():
    with raises(TypeError, "estimator_params: got a list, wanted a dict or None"):
        RNSB(estimator_params=[])
    with raises(TypeError, "estimator_params: got options without an estimator; write estimator="):
        RNSB(estimator_params={"tol": 1})
    with raises(ValueError, "replicates: got 5 with holdout=True, wanted 0"):
        RNSB(holdout=True, replicates=5)


def test_run_query_nan_score_is_explained_in_log(tiny, logged):
    query = Query([["t1a"], ["t2a"]], [["a1a"]], ["T", "U"], ["A"])
    assert np.isnan(answer(ECT(), query, tiny)["result"])
    assert logged.messages[-1] == (
        "'T and U wrt A' has no score in the model 'Unnamed model': fewer than two attribute words, or all are equally "
        "near to a target, or a vector is not finite"
    )
