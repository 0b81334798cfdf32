"""Averages, label levels, stored dtypes and progress of AccuracyCalculator."""

import re
import sys
from typing import get_args

import numpy as np
import pytest
import torch
from retrieval_oracle import KNN, TINY, TINY_LABELS, data

from tensormetrics.core.arguments import progress
from tensormetrics.core.metric.base import NoDataError
from tensormetrics.retrieval import AccuracyCalculator, PrecisionAtK, TorchKNN
from tensormetrics.retrieval.search.distance import DISTANCES, DistanceName


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


def test_get_accuracy_inexact_and_function_distances_agree(device):
    x, labels = (tensor.to(device) for tensor in data())
    expected = AccuracyCalculator(KNN).get_accuracy(x, labels)
    for options in ({"exact": False}, {"distance": lambda q, r: torch.cdist(q.double(), r.double())}):
        for k in (None, 59):
            assert AccuracyCalculator(KNN, k=k, **options).get_accuracy(x, labels) == pytest.approx(expected)


def test_interval_before_update_or_of_clusters_alone_raises():
    with pytest.raises(NoDataError):
        AccuracyCalculator().interval()
    clusters = AccuracyCalculator(["AMI"])
    clusters.get_accuracy(*data())
    with pytest.raises(ValueError, match=r"^include: got \('AMI',\), wanted at least one mean over queries"):
        clusters.interval()


def test_distance_name_type_lists_all_table_entries():
    assert get_args(DistanceName) == tuple(DISTANCES) == tuple(distance.name for distance in DISTANCES.values())


def test_nearest_centroid_accuracy_custom_distance_raises():
    # Centroids use canonical distances, which a custom function does not define.
    def cityblock(a, b):
        return torch.cdist(a, b, p=1)

    calculator = AccuracyCalculator(("nearest_centroid_accuracy",), knn_func=TorchKNN(cityblock))
    with pytest.raises(
        ValueError, match=r"(?s)^nearest_centroid_accuracy: got .*cityblock.*wanted one of 'l2', .*exclude="
    ) as error:
        calculator.get_accuracy(torch.randn(20, 3), torch.arange(20) % 2)
    assert str(error.value).endswith("write exclude=('nearest_centroid_accuracy',)")


@pytest.mark.parametrize(
    "options", [{}, {"k": 9}, {"return_per_class": True}, {"keep": "all"}, {"k": "max_bin_count"}], ids=str
)
def test_label_levels_equal_separate_calculators(options, device):
    x, labels = (tensor.to(device) for tensor in data())
    levels = torch.stack([labels, labels % 2], 1)
    calculator = AccuracyCalculator(label_levels=True, **options)
    scores = calculator.get_accuracy(x, levels)
    single_level = AccuracyCalculator(**options)
    for i, level in enumerate(levels.unbind(1)):
        for name, value in single_level.get_accuracy(x, level).items():
            assert scores.pop(f"{name}_level{i}") == value
        assert torch.equal(calculator.class_labels[i], single_level.class_labels)
        assert torch.equal(calculator.last.lone[i], single_level.last.lone)
        assert torch.equal(calculator.last.cluster_labels[i], single_level.last.cluster_labels)
        assert (calculator.last.ranks[i] is None) == (single_level.last.ranks is None)
        intervals, expected_intervals = calculator.interval(replicates=50), single_level.interval(replicates=50)
        for name, estimate in expected_intervals.items():
            for actual_part, expected_part in zip(intervals[f"{name}_level{i}"], estimate, strict=True):
                torch.testing.assert_close(actual_part, expected_part, rtol=1e-12, atol=1e-12, equal_nan=True)
    assert scores == {}
    calculator.update(x[:30], levels[:30])
    calculator.update(x[30:], levels[30:])
    computed = {name: value.tolist() for name, value in calculator.compute().items()}
    assert computed == calculator.get_accuracy(x, levels)
    assert AccuracyCalculator(label_levels=True).get_accuracy(x, labels) == AccuracyCalculator(
        label_levels=True
    ).get_accuracy(x, levels[:, :1])


def test_label_levels_use_one_search_of_largest_depth(monkeypatch):
    depths, search = [], TorchKNN.search
    monkeypatch.setattr(TorchKNN, "search", lambda *a, **o: (depths.append(a[2]), search(*a, **o))[1])
    x, labels = torch.randn(60, 4), torch.arange(60) % 12
    levels = torch.stack([labels, labels % 4], 1)
    for k in ("max_bin_count", 9):
        calculator = AccuracyCalculator(KNN, k=k, label_levels=True)
        scores = calculator.get_accuracy(x, levels)
        calculator.update(x, levels)
        calculator.compute()
        assert list(scores) == [f"{name}_level{i}" for i in range(2) for name in KNN]
    assert depths == [14, 14, 9, 9]  # 14: depth of the coarse level, which is the second level


@pytest.mark.parametrize("make", [AccuracyCalculator, lambda **options: PrecisionAtK(1, **options)])
def test_update_store_dtype_rounds_embeddings(make, device):
    x, labels = (tensor.to(device) for tensor in data())
    metric = make(store_dtype=torch.float16)
    metric.update(x[:20].double(), labels[:20])
    metric.update(x[20:], labels[20:])
    assert metric.embeddings.dtype == torch.float16
    rounded = make()
    rounded.update(x.half(), labels)
    assert str(metric.compute()) == str(rounded.compute())
    message = "store_dtype: got torch.int64, wanted a floating dtype such as torch.float16"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make(store_dtype=torch.int64)
    message = "embeddings: 1 of 1 rows hold NaN or infinity, the first is row 0; wanted finite values"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        metric.update(torch.full((1, 6), 1e9), [0])  # above the largest float16 value


def test_progress_with_tqdm_is_written_to_stderr(capsys, monkeypatch):
    pytest.importorskip("tqdm")
    AccuracyCalculator(KNN, progress=True).get_accuracy(TINY, TINY_LABELS)
    assert "10/10" in capsys.readouterr().err
    AccuracyCalculator(KNN).get_accuracy(TINY, TINY_LABELS)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(progress, "DELAY", 0)
    AccuracyCalculator(KNN).get_accuracy(TINY, TINY_LABELS)
    assert "query" in capsys.readouterr().err


def test_progress_without_tqdm_prints_lines(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    x, labels = data()
    scores = AccuracyCalculator(KNN, progress=True, memory_budget=60_000).get_accuracy(x, labels)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) > 1 and lines[-1] == "query: 60 of 60"
    assert scores == AccuracyCalculator(KNN).get_accuracy(x, labels)


@pytest.mark.parametrize("metric", [AccuracyCalculator, lambda **options: PrecisionAtK(3, **options)])
def test_update_of_meta_tensors_reads_no_values(metric):
    calculator = metric(device="meta", store_dtype=torch.float16)  # tensors without values
    x, integers = torch.empty(5, 3, device="meta"), torch.empty(5, dtype=torch.int64, device="meta")
    for role in ("both", "query", "reference", "both"):
        calculator.update(x, integers, role=role, ids=integers, cameras=integers)
    assert calculator.embeddings.shape == (10, 3) and calculator.query_ids.shape == (5,)
