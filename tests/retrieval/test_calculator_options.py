"""Averages, ties, distances, and invalid options of AccuracyCalculator."""

import logging
import subprocess
import sys

import numpy as np
import pytest
import torch
from retrieval_oracle import KNN, TINY, TINY_LABELS, data

from tensormetrics.core.metric.base import NoDataError
from tensormetrics.retrieval import AccuracyCalculator
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
    assert interval.value == pytest.approx(mean) and interval.low < mean < interval.high
    grouped = trained.interval(replicates=200, confidence=0.9, groups=[f"class {c}" for c in labels])["r_precision"]
    assert grouped.high - grouped.low > interval.high - interval.low
    comparison = compare(trained, random, replicates=200)["r_precision"]
    assert float(comparison.p_value) < 0.05 and float(comparison.p_better) > 0.97
    assert comparison.difference == pytest.approx(mean - float(random.compute()["r_precision"]))
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
