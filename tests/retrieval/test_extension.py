"""Subclasses of AccuracyCalculator: custom metrics and the arguments that they receive."""

import logging
import math

import numpy as np
import pytest
import torch
from retrieval_oracle import KNN, data

from tensormetrics.retrieval import AccuracyCalculator, TorchKNN
from tensormetrics.retrieval.calculator.knn_labels import get_label_match_counts


class YourCalculator(AccuracyCalculator):
    def calculate_precision_at_2(self, knn_labels, query_labels, **kwargs):
        return (knn_labels[:, :2] == query_labels[:, None]).double().mean()

    def calculate_fancy_mutual_info(self, query_labels, cluster_labels, **kwargs):
        assert cluster_labels.shape == query_labels.shape
        return np.float64(0.25)

    def requires_clustering(self):
        return super().requires_clustering() + ["fancy_mutual_info"]

    def requires_knn(self):
        return super().requires_knn() + ["precision_at_2"]


def test_subclass_custom_metrics_join_built_in_ones(device):
    x, labels = (tensor.to(device) for tensor in data())
    calculator = YourCalculator()
    actual = calculator.get_accuracy(x, labels, x, labels, ref_includes_query=True)
    assert list(actual) == sorted([*("AMI", "NMI", "fancy_mutual_info", "precision_at_2"), *KNN])
    assert list(actual) == calculator.get_curr_metrics() == list(calculator.curr_function_dict)
    builtin = AccuracyCalculator([*KNN, "precision_at_2"]).get_accuracy(x, labels)
    assert actual["precision_at_2"] == pytest.approx(builtin["precision_at_2"] * 59 / 60)  # counts lone queries
    assert {name: actual[name] for name in KNN} == {name: builtin[name] for name in KNN}
    assert {type(value) for value in actual.values()} == {float}
    calculator.update(x, labels)
    assert {name: float(value) for name, value in calculator.compute().items()} == actual
    assert calculator.get_accuracy(x, labels, include=["precision_at_2"]).keys() == {"precision_at_2"}
    assert list(calculator.original_function_dict) == list(actual)


def test_custom_metrics_receive_requested_arguments(device):
    received = {}

    class Calculator(AccuracyCalculator):
        def calculate_everything(self, **kwargs):
            received["everything"] = kwargs
            return torch.tensor([1, 2])

        def calculate_named(self, knn_indices, knn_distances, lone_query_labels):
            received["named"] = knn_indices, knn_distances, lone_query_labels
            return np.float32(0.5)

        def calculate_without_neighbors(self, query, query_labels, reference, label_comparison_fn):
            return {"queries": len(query)}

        def requires_knn(self):
            return super().requires_knn() + ["everything", "named"]

    x, labels = (tensor.to(device) for tensor in data())
    calculator = Calculator(["everything", "named", "without_neighbors"], k=7)
    actual = calculator.get_accuracy(x[:20], labels[:20], x, labels, True)
    assert actual == {"everything": [1, 2], "named": 0.5, "without_neighbors": {"queries": 20}}
    arguments = received["everything"]
    indices = TorchKNN().indices(x[:20], 7, x, True)
    assert torch.equal(arguments["knn_labels"], labels[indices])
    assert torch.equal(arguments["knn_indices"], indices) and torch.equal(received["named"][0], indices)
    assert arguments["knn_distances"].shape == received["named"][1].shape == (20, 7)
    assert arguments["ref_includes_query"] is True and arguments["label_comparison_fn"] is torch.eq
    assert torch.equal(arguments["query"], x[:20]) and torch.equal(arguments["reference_labels"], labels)
    counts = {int(label): int(count) for label, count in zip(*arguments["label_counts"], strict=True)}
    assert counts == {label: int((labels == label).sum()) for label in range(5)}
    assert arguments["not_lone_query_mask"].all() and len(arguments["lone_query_labels"]) == 0
    calculator.get_accuracy(x, labels, include=["named"])
    assert received["named"][2].tolist() == [99]


def test_subclass_method_replaces_built_in_metric(device):
    class Doubled(AccuracyCalculator):
        def calculate_precision_at_1(self, **kwargs):
            return 2 * super().calculate_precision_at_1(**kwargs)

        def calculate_recall_at_3(self, query_labels):
            return -1

    x, labels = (tensor.to(device) for tensor in data())
    doubled = Doubled().get_accuracy(x, labels)
    original = AccuracyCalculator().get_accuracy(x, labels)
    assert doubled.pop("recall_at_3") == -1
    assert doubled == pytest.approx({**original, "precision_at_1": 2 * original["precision_at_1"]})


@pytest.mark.parametrize("options", [{}, {"avg_of_avgs": True}, {"return_per_class": True}], ids=str)
@pytest.mark.parametrize("columns", [4, 59])
def test_built_in_metrics_from_knn_labels_equal_get_accuracy(options, columns, device):
    x, labels = (tensor.to(device) for tensor in data())
    calculator = AccuracyCalculator(KNN, k=columns, **options)
    expected = calculator.get_accuracy(x, labels)
    knn_labels = labels[TorchKNN().indices(x, columns, x, True)]
    counts = get_label_match_counts(labels, labels)
    for label_counts in (counts, [tensor.flip(0) for tensor in counts], [tensor.tolist() for tensor in counts]):
        actual = calculator._get_accuracy(
            calculator.get_function_dict(),
            knn_labels=knn_labels,
            query_labels=labels,
            label_counts=label_counts,
            not_lone_query_mask=(labels != 99).cpu(),
            ref_includes_query=True,
        )
        for name in KNN:
            assert actual[name] == pytest.approx(expected[name], abs=1e-14)
    clusters = labels.cpu().numpy() // 2
    scores = AccuracyCalculator()._get_accuracy(
        AccuracyCalculator().get_function_dict(["NMI", "AMI"]), query_labels=labels, cluster_labels=clusters
    )
    assert 0.5 < scores["AMI"] < scores["NMI"] < 1


def test_knn_labels_above_memory_budget_warn(logged):
    x, labels = data()
    YourCalculator(["precision_at_2"], memory_budget=1_000).get_accuracy(x, labels)
    assert logged.rows == [
        (
            "tensormetrics.retrieval",
            logging.WARNING,
            "knn_labels takes 0 MiB, more than the memory budget of 0 MiB; write k='max_bin_count' or an integer",
        )
    ]


def test_determine_k_options_return_expected_depth():
    counts = torch.tensor([4, 2])
    for k, expected in ((None, 29), (5, 5), (50, 29), ("max_bin_count", 3)):
        assert AccuracyCalculator(k=k).determine_k(counts, 30, True) == expected
    assert AccuracyCalculator(k="max_bin_count").determine_k(counts, 30, False) == 4
    assert AccuracyCalculator(k="max_bin_count").determine_k([], 30, False) == 0


def test_custom_metrics_without_rows_return_nan(device):
    x, labels = (tensor.to(device) for tensor in data())
    calculator = YourCalculator(["precision_at_1", "precision_at_2"])
    for inputs in (
        (x[:0], labels[:0], x, labels),
        (x[:0], labels[:0], x, labels, True),
        (x, labels, x[:0], labels[:0]),
    ):
        scores = calculator.get_accuracy(*inputs)
        assert math.isnan(scores["precision_at_1"])
