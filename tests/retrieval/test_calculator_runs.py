"""Runs of AccuracyCalculator: label levels, stored dtype, log messages and progress."""

import logging
import math
import re
import sys

import numpy as np
import pytest
import torch
from retrieval_oracle import KNN, TINY, TINY_LABELS, data

from tensormetrics.core.arguments import progress
from tensormetrics.retrieval import AccuracyCalculator, PrecisionAtK, TorchKNN


@pytest.mark.parametrize("options", [{}, {"k": 9}, {"return_per_class": True}, {"keep": "all"}], ids=str)
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


def test_label_levels_need_only_one_search(monkeypatch):
    depths, search = [], TorchKNN.search
    monkeypatch.setattr(TorchKNN, "search", lambda *a, **o: (depths.append(a[2]), search(*a, **o))[1])
    x, labels = data()
    calculator = AccuracyCalculator(KNN, k=9, label_levels=True)
    calculator.get_accuracy(x.numpy(), torch.stack([labels, labels % 2, labels % 3], 1))
    calculator.update(x, torch.stack([labels, labels % 2], 1))
    calculator.compute()
    assert depths == [9, 9]


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


def test_get_accuracy_logs_its_search_method(caplog):
    caplog.set_level(logging.INFO, "tensormetrics.retrieval")
    AccuracyCalculator(KNN).get_accuracy(TINY, TINY_LABELS)
    AccuracyCalculator(KNN, k="max_bin_count").get_accuracy(TINY, TINY_LABELS)
    assert caplog.messages == [
        "10 queries, 10 references, D=2, k=all: ranks",
        "10 queries, 10 references, D=2, k=3: neighbors",
    ]


def test_progress_with_tqdm_is_written_to_stderr(capsys):
    pytest.importorskip("tqdm")
    AccuracyCalculator(KNN, progress=True).get_accuracy(TINY, TINY_LABELS)
    assert "10/10" in capsys.readouterr().err
    AccuracyCalculator(KNN).get_accuracy(TINY, TINY_LABELS)
    assert capsys.readouterr().err == ""


def test_progress_without_tqdm_prints_lines(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    x, labels = data()
    scores = AccuracyCalculator(KNN, progress=True, memory_budget=60_000).get_accuracy(x, labels)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) > 1 and lines[-1] == "query: 60 of 60"
    assert scores == AccuracyCalculator(KNN).get_accuracy(x, labels)


def test_label_level_without_relevant_references_is_nan():
    scores = AccuracyCalculator(KNN, label_levels=True).get_accuracy(TINY, np.stack([TINY_LABELS, np.arange(10)], 1))
    assert not math.isnan(scores["r_precision_level0"]) and math.isnan(scores["r_precision_level1"])
