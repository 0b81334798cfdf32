"""What subclasses of AccuracyCalculator build on: own metrics, and what these are given."""

import copy
import logging
import math
import pickle

import numpy as np
import pytest
import torch
from retrieval_oracle import KNN, data

from tensormetrics.retrieval import AccuracyCalculator, TorchKNN
from tensormetrics.retrieval.calculator import accuracy_calculator


class YourCalculator(accuracy_calculator.AccuracyCalculator):
    def calculate_precision_at_2(self, knn_labels, query_labels, **kwargs):
        return accuracy_calculator.precision_at_k(knn_labels, query_labels[:, None], 2)

    def calculate_fancy_mutual_info(self, query_labels, cluster_labels, **kwargs):
        assert cluster_labels.shape == query_labels.shape
        return np.float64(0.25)

    def requires_clustering(self):
        return super().requires_clustering() + ["fancy_mutual_info"]

    def requires_knn(self):
        return super().requires_knn() + ["precision_at_2"]


def test_a_subclass_with_own_metrics(device):
    x, labels = (side.to(device) for side in data())
    calculator = YourCalculator()
    got = calculator.get_accuracy(x, labels, x, labels, ref_includes_query=True)
    assert list(got) == sorted([*("AMI", "NMI", "fancy_mutual_info", "precision_at_2"), *KNN])
    assert list(got) == calculator.get_curr_metrics() == list(calculator.curr_function_dict)
    builtin = AccuracyCalculator([*KNN, "precision_at_2"]).get_accuracy(x, labels)
    assert got["precision_at_2"] == pytest.approx(builtin["precision_at_2"] * 59 / 60)  # the helper knows no lone query
    assert {name: got[name] for name in KNN} == {name: builtin[name] for name in KNN}
    assert {type(value) for value in got.values()} == {float}
    calculator.update(x, labels)
    assert {name: float(value) for name, value in calculator.compute().items()} == got
    assert calculator.get_accuracy(x, labels, include=["precision_at_2"]).keys() == {"precision_at_2"}
    assert list(calculator.original_function_dict) == list(got)


def test_arguments_of_own_metrics(device):
    seen = {}

    class Calculator(AccuracyCalculator):
        def calculate_everything(self, **kwargs):
            seen["everything"] = kwargs
            return torch.tensor([1, 2])

        def calculate_named(self, knn_indices, knn_distances, lone_query_labels):
            seen["named"] = knn_indices, knn_distances, lone_query_labels
            return np.float32(0.5)

        def calculate_without_neighbours(self, query, query_labels, reference, label_comparison_fn):
            return {"queries": len(query)}

        def requires_knn(self):
            return super().requires_knn() + ["everything", "named"]

    x, labels = (side.to(device) for side in data())
    calculator = Calculator(["everything", "named", "without_neighbours"], k=7)
    got = calculator.get_accuracy(x[:20], labels[:20], x, labels, True)
    assert got == {"everything": [1, 2], "named": 0.5, "without_neighbours": {"queries": 20}}
    given = seen["everything"]
    indices = TorchKNN().indices(x[:20], 7, x, True)
    assert torch.equal(given["knn_labels"], labels[indices])
    assert torch.equal(given["knn_indices"], indices) and torch.equal(seen["named"][0], indices)
    assert given["knn_distances"].shape == seen["named"][1].shape == (20, 7)
    assert given["ref_includes_query"] is True and given["label_comparison_fn"] is torch.eq
    assert torch.equal(given["query"], x[:20]) and torch.equal(given["reference_labels"], labels)
    counts = {int(label): int(count) for label, count in zip(*given["label_counts"], strict=True)}
    assert counts == {label: int((labels == label).sum()) for label in range(5)}
    assert given["not_lone_query_mask"].all() and len(given["lone_query_labels"]) == 0
    calculator.get_accuracy(x, labels, include=["named"])
    assert seen["named"][2].tolist() == [99]


def test_a_built_in_metric_that_is_given_nothing_says_so():
    with pytest.raises(ValueError) as raised:
        AccuracyCalculator().calculate_precision_at_1(query_labels=torch.arange(3))
    assert str(raised.value) == "precision_at_1: got neither scores nor knn_labels, wanted one of them"


def test_a_subclass_replaces_a_built_in_metric(device):
    class Doubled(AccuracyCalculator):
        def calculate_precision_at_1(self, **kwargs):
            return 2 * super().calculate_precision_at_1(**kwargs)

        def calculate_recall_at_3(self, query_labels):
            return -1

    x, labels = (side.to(device) for side in data())
    got = Doubled().get_accuracy(x, labels)
    once = AccuracyCalculator().get_accuracy(x, labels)
    assert got.pop("recall_at_3") == -1
    assert got == pytest.approx({**once, "precision_at_1": 2 * once["precision_at_1"]})


@pytest.mark.parametrize("options", [{}, {"avg_of_avgs": True}, {"return_per_class": True}], ids=str)
@pytest.mark.parametrize("columns", [4, 59])
def test_built_in_metrics_from_labels_alone(options, columns, device):
    x, labels = (side.to(device) for side in data())
    calculator = AccuracyCalculator(KNN, k=columns, **options)
    expected = calculator.get_accuracy(x, labels)
    knn_labels = labels[TorchKNN().indices(x, columns, x, True)]
    counts = accuracy_calculator.get_label_match_counts(labels, labels)
    for pair in (counts, [side.flip(0) for side in counts], [side.tolist() for side in counts]):
        got = calculator._get_accuracy(
            calculator.get_function_dict(),
            knn_labels=knn_labels,
            query_labels=labels,
            label_counts=pair,
            not_lone_query_mask=(labels != 99).cpu(),
            ref_includes_query=True,
        )
        for name in KNN:
            assert got[name] == pytest.approx(expected[name], abs=1e-14)
    clusters = labels.cpu().numpy() // 2
    both = AccuracyCalculator()._get_accuracy(
        AccuracyCalculator().get_function_dict(["NMI", "AMI"]), query_labels=labels, cluster_labels=clusters
    )
    assert 0.5 < both["AMI"] < both["NMI"] < 1


def test_copies_and_pickles_answer_for_themselves(device):
    x, labels = (side.to(device) for side in data())
    calculator = YourCalculator(k=9)
    got = calculator.get_accuracy(x, labels)
    for twin in (copy.deepcopy(calculator), pickle.loads(pickle.dumps(calculator))):
        assert twin.get_accuracy(x, labels) == got
        assert all(function.__self__ is twin for function in twin.original_function_dict.values())
        assert twin.last is not calculator.last


def test_a_table_of_labels_that_outgrows_the_budget_is_announced(caplog):
    x, labels = data()
    YourCalculator(["precision_at_2"], memory_budget=1_000).get_accuracy(x, labels)
    assert caplog.record_tuples == [
        (
            "tensormetrics.retrieval",
            logging.WARNING,
            "knn_labels takes 0 MiB, more than the memory budget of 0 MiB; write k='max_bin_count' or an integer",
        )
    ]


def test_determine_k():
    counts = torch.tensor([4, 2])
    for k, expected in ((None, 29), (5, 5), (50, 29), ("max_bin_count", 3)):
        assert AccuracyCalculator(k=k).determine_k(counts, 30, True) == expected
    assert AccuracyCalculator(k="max_bin_count").determine_k(counts, 30, False) == 4
    assert AccuracyCalculator(k="max_bin_count").determine_k([], 30, False) == 0


def test_neither_queries_nor_references(device):
    x, labels = (side.to(device) for side in data())
    calculator = YourCalculator(["precision_at_1", "precision_at_2"])
    for sides in ((x[:0], labels[:0], x, labels), (x[:0], labels[:0], x, labels, True), (x, labels, x[:0], labels[:0])):
        got = calculator.get_accuracy(*sides)
        assert math.isnan(got["precision_at_1"])
