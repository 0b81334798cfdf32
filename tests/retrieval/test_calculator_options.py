"""Averages, ties, distances, and invalid options of AccuracyCalculator."""

import logging
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from retrieval_oracle import KNN, TINY, TINY_LABELS, data

from tensormetrics.core.metric.base import NoDataError
from tensormetrics.retrieval import AccuracyCalculator, TorchKNN
from tensormetrics.uncertainty import compare


def test_get_accuracy_averages_agree_with_scores_per_class(device):
    x, labels = (tensor.to(device) for tensor in data(47))
    micro = AccuracyCalculator([*KNN, "median_rank", "nearest_centroid_accuracy", "ARI"])
    micro_scores = micro.get_accuracy(x, labels)
    per_class = AccuracyCalculator(micro.get_curr_metrics(), return_per_class=True)
    macro = AccuracyCalculator(micro.get_curr_metrics(), avg_of_avgs=True)
    assert (micro.description(), per_class.description(), macro.description()) == ("", "", "avg_of_avgs")
    class_scores, macro_scores = per_class.get_accuracy(x, labels), macro.get_accuracy(x, labels)
    assert per_class.class_labels.tolist() == [0, 1, 2, 3, 4]
    sizes = [int((labels == c).sum()) for c in range(5)]
    for name in micro.get_curr_metrics():
        if name == "ARI":
            assert class_scores[name] == macro_scores[name] == micro_scores[name]
            continue
        assert macro_scores[name] == pytest.approx(np.mean(class_scores[name]))
        if name != "median_rank":
            assert np.average(class_scores[name], weights=sizes) == pytest.approx(micro_scores[name])
        assert np.isnan(micro.last.scores[name].tolist()).nonzero()[0].tolist() == [46]
    per_class.update(x, labels)
    assert {name: value.tolist() for name, value in per_class.compute().items()} == class_scores
    with pytest.raises(ValueError, match=r"^avg_of_avgs and return_per_class: got both, wanted one of them$"):
        AccuracyCalculator(avg_of_avgs=True, return_per_class=True)


def test_get_accuracy_k_above_reference_count_is_clipped(caplog):
    caplog.set_level(logging.INFO, "tensormetrics.retrieval")
    scores = AccuracyCalculator(KNN, k=50).get_accuracy(TINY, TINY_LABELS)
    assert scores == AccuracyCalculator(KNN).get_accuracy(TINY, TINY_LABELS)
    assert "k=50 is cut to the 9 references of a query" in caplog.messages


def test_init_device_option_sets_metric_device():
    x, labels = data()
    calculator = AccuracyCalculator(device="cpu")
    assert calculator.device == torch.device("cpu")
    calculator.update(x.tolist(), labels.tolist())
    assert calculator.compute().keys() == calculator.get_accuracy(x, labels).keys()


def test_get_accuracy_ties_options_bound_scores(device):
    x = torch.zeros(12, 3, device=device)  # embeddings of a collapsed model
    labels = torch.arange(12, device=device) % 3
    scores_by_ties = {
        ties: AccuracyCalculator(KNN, ties=ties).get_accuracy(x, labels)
        for ties in ("pessimistic", "index", "optimistic")
    }
    assert set(scores_by_ties["optimistic"].values()) == {1.0}
    for name in KNN:
        assert scores_by_ties["pessimistic"][name] < scores_by_ties["index"][name] < 1
    assert scores_by_ties["pessimistic"]["precision_at_1"] == 0
    distinct = torch.randn(12, 3, device=device)
    scores = [AccuracyCalculator(KNN, ties=ties).get_accuracy(distinct, labels) for ties in scores_by_ties]
    assert scores[0] == pytest.approx(scores[1]) and scores[0] == pytest.approx(scores[2])


def test_get_accuracy_inexact_and_function_distances_agree(device):
    x, labels = (tensor.to(device) for tensor in data())
    expected = AccuracyCalculator(KNN).get_accuracy(x, labels)
    for options in ({"exact": False}, {"distance": lambda q, r: torch.cdist(q.double(), r.double())}):
        for k in (None, 59):
            assert AccuracyCalculator(KNN, k=k, **options).get_accuracy(x, labels) == pytest.approx(expected)


def test_interval_and_compare_cover_mean_score(device):
    x, labels = (tensor.to(device) for tensor in data())
    trained, random = AccuracyCalculator(KNN), AccuracyCalculator(KNN)
    mean = trained.get_accuracy(x, labels)["r_precision"]
    random.update(torch.randn_like(x), labels)
    random.compute()
    intervals = trained.interval(replicates=200, confidence=0.9)
    assert list(intervals) == KNN
    interval = intervals["r_precision"]
    assert float(interval.value) == pytest.approx(mean) and interval.low < mean < interval.high
    grouped = trained.interval(replicates=200, confidence=0.9, groups=[f"class {c}" for c in labels])["r_precision"]
    assert grouped.high - grouped.low > interval.high - interval.low
    comparison = compare(trained, random, replicates=200)["r_precision"]
    assert float(comparison.p_value) < 0.05 and float(comparison.p_better) > 0.97
    assert float(comparison.difference) == pytest.approx(mean - float(random.compute()["r_precision"]))
    with pytest.raises(NoDataError):
        AccuracyCalculator().interval()
    clusters = AccuracyCalculator(["AMI"])
    clusters.get_accuracy(x, labels)
    with pytest.raises(ValueError, match=r"^include: got \('AMI',\), wanted at least one mean over queries"):
        clusters.interval()


def test_default_options_import_only_torch():
    blocked = ("faiss", "sklearn", "scipy", "pykeops", "triton", "pytorch_metric_learning")
    script = f"""
import sys
import torch, torchmetrics
for name in {blocked!r}:
    sys.modules[name] = None
from tensormetrics.retrieval import AccuracyCalculator
got = AccuracyCalculator().get_accuracy(torch.randn(30, 3), torch.arange(30) % 3)
assert len(got) == 7 and all(0 <= abs(value) <= 1 for value in got.values()), got
"""
    subprocess.run([sys.executable, "-c", script], check=True)


INVALID_CALLS = {
    "query_labels and reference_labels: got shapes (10, 2) and (10, 3), wanted the same number of columns": (
        {"label_comparison_fn": lambda x, y: (x == y).all(-1)},
        (TINY, np.zeros((10, 2)), TINY, np.zeros((10, 3))),
    ),
    "distances of knn_func: got shape (10, 3), wanted (10, 9)": (
        {"knn_func": lambda q, k, r, i: (torch.zeros(10, 3), torch.zeros(10, k, dtype=torch.int64))},
        (TINY, TINY_LABELS),
    ),
}


INVALID_OPTIONS = {
    "ties: got 'random', wanted one of 'index', 'optimistic', 'pessimistic'": {"ties": "random"},
    "ties: got 'optimistic', wanted 'index' where the neighbors come from a function": {
        "ties": "optimistic",
        "knn_func": lambda *a: TorchKNN()(*a),
    },
    "on_lone: got 'skip', wanted one of 'exclude', 'zero', 'error'": {"on_lone": "skip"},
    "on_lone: got 'zero', which is better than any median_rank; wanted 'exclude' or 'error'": {
        "on_lone": "zero",
        "include": ["median_rank"],
    },
    "exact: got False together with a knn_func; give exact=False to the knn_func": {
        "exact": False,
        "knn_func": TorchKNN(),
    },
}


def test_kmeans_func_wrong_length_raises():
    with pytest.raises(ValueError, match=r"^clusters: got shape \(3,\), wanted \(10,\)$"):
        AccuracyCalculator(["NMI"], kmeans_func=lambda x, n: [0, 1, 2]).get_accuracy(TINY, TINY_LABELS)


@pytest.mark.parametrize("message", INVALID_CALLS)
def test_get_accuracy_invalid_inputs_raise(message):
    options, call = INVALID_CALLS[message]
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        AccuracyCalculator(KNN, **options).get_accuracy(*call)


@pytest.mark.parametrize("message", INVALID_OPTIONS)
def test_init_invalid_option_values_raise(message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        AccuracyCalculator(**INVALID_OPTIONS[message])
