import inspect
import logging
import math
import re

import numpy as np
import pytest
import torch
from retrieval_oracle import KNN, TINY, TINY_LABELS, case_rows, cases

from tensormetrics import retrieval
from tensormetrics.retrieval import AccuracyCalculator, TorchKNN
from tensormetrics.retrieval.calculator.metric_names import RANK_SCORES, SCORES_AT_K

DEFAULT = ("AMI", "NMI", *KNN)


def make_clusters(items=120, classes=5, dtype=torch.float32, device="cpu"):
    labels = torch.arange(items) % classes
    return (torch.randn(classes, 6)[labels] + torch.randn(items, 6)).to(device, dtype), labels.to(device)


GOLDEN = {**cases("get_accuracy"), **cases("metrics")}
DIVIDED_BY_MIN = "mean_average_precision_at_"  # k; see test_query_metrics


@pytest.mark.parametrize("case", GOLDEN.values(), ids=GOLDEN.keys())
def test_get_accuracy_golden_cases_match_expected_values(case, device):
    rows, labels = case_rows(case)
    inputs = [torch.tensor(rows, device=device), labels]
    if "reference" in case:
        inputs += [np.array(case["reference"], dtype=rows.dtype), case["reference_labels"]]
    names = tuple(name for name in case["expected"] if not re.fullmatch(rf"{DIVIDED_BY_MIN}\d+", name))
    options = {"include": names, **case.get("options", {})}
    if "label_comparison" in case:
        options["label_comparison_fn"] = lambda x, y: (x[..., 0] == y[..., 0]) & (x[..., 1] == y[..., 1])
    calculator = AccuracyCalculator(**options)
    expected = {name: math.nan if value is None else value for name, value in case["expected"].items()}
    actual = calculator.get_accuracy(*inputs)
    assert actual == pytest.approx({name: expected[name] for name in actual}, abs=1e-12, nan_ok=True)
    for name, values in case.get("per_query", {}).items():
        expected_values = [math.nan if value is None else value for value in values]
        if name in actual:
            assert calculator.last.scores[name].tolist() == pytest.approx(expected_values, abs=1e-12, nan_ok=True)


def test_get_accuracy_arrays_and_lists_equal_tensors(device):
    expected = AccuracyCalculator().get_accuracy(torch.tensor(TINY, device=device), TINY_LABELS)
    for rows, labels in (
        (TINY, TINY_LABELS.astype(np.int16)),
        (TINY.tolist(), TINY_LABELS.tolist()),
        (TINY.astype(np.float64), TINY_LABELS[:, None]),
        (torch.tensor(TINY), TINY_LABELS.astype(np.float32)),
        (TINY, torch.tensor(TINY_LABELS, dtype=torch.uint8)),
        (TINY[::-1].copy()[::-1], TINY_LABELS),  # has a negative stride
    ):
        assert AccuracyCalculator().get_accuracy(rows, labels) == pytest.approx(expected, abs=1e-15)
    assert AccuracyCalculator().get_accuracy([[0, 0], [1, 0], [9, 0]], [True, True, False])["r_precision"] == 1


def test_get_accuracy_close_points_in_lists_stay_distinct():
    points = [[10000.0], [10000.0001], [10000.00021], [10000.0003]]
    assert AccuracyCalculator().get_accuracy(points, [0, 0, 1, 1])["precision_at_1"] == 1


def test_include_and_exclude_select_metrics(device):
    x, labels = torch.tensor(TINY, device=device), torch.tensor(TINY_LABELS, device=device)
    all_scores = AccuracyCalculator().get_accuracy(x, labels)
    assert list(all_scores) == sorted(DEFAULT)
    calculator = AccuracyCalculator(include=["precision_at_1", "r_precision"], exclude=("r_precision",))
    calculator.update(x, labels)
    assert calculator.compute().keys() == {"precision_at_1"}
    assert calculator.get_accuracy(x, labels) == {"precision_at_1": all_scores["precision_at_1"]}
    assert calculator.get_accuracy(x, labels, include=("r_precision",)) == {"r_precision": all_scores["r_precision"]}
    others = [name for name in DEFAULT if name != "precision_at_1"]
    assert AccuracyCalculator().get_accuracy(x, labels, exclude=others) == {"precision_at_1": 1 / 3}
    names = ["recall_at_2", "r_precision", "ARI", "precision_at_1"]
    assert list(AccuracyCalculator(names).get_accuracy(x, labels)) == [
        *("precision_at_1", "r_precision", "recall_at_2", "ARI")
    ]


def test_search_depth_never_exceeds_depth_of_metrics(device, monkeypatch):
    depths = []
    search = TorchKNN.search

    def recorded_search(self, query, k, *arguments, **options):
        depths.append(k)
        return search(self, query, k, *arguments, **options)

    monkeypatch.setattr(TorchKNN, "search", recorded_search)
    x, labels = torch.tensor(TINY, device=device), torch.tensor(TINY_LABELS, device=device)
    shallow_names = ("mean_average_precision_at_r", "r_precision", "recall_at_2")
    for k in (None, "max_bin_count", 3, np.int64(50)):
        AccuracyCalculator(shallow_names, k=k).get_accuracy(x, labels)
    AccuracyCalculator(k=2, include=("precision_at_1",)).get_accuracy(x, labels)
    AccuracyCalculator(KNN, k=8).get_accuracy(x, labels)
    AccuracyCalculator(KNN, k=50).get_accuracy(x, labels)
    assert depths == [3, 3, 3, 3, 1, 8, 9]


def test_small_k_warns_of_lower_bounds(logged):
    AccuracyCalculator(k=2, include=("precision_at_1",)).get_accuracy(TINY, TINY_LABELS)
    assert logged.messages == []
    AccuracyCalculator(k=2).get_accuracy(TINY, TINY_LABELS)
    assert logged.rows == [
        (
            "tensormetrics.retrieval",
            logging.WARNING,
            "k=2 is below the 3 neighbors that are looked at by mean_average_precision_at_r and r_precision: "
            "lower bounds; write k=None",
        )
    ]


def test_get_accuracy_without_relevant_references_is_nan(logged, device):
    x = torch.tensor(TINY, device=device)
    calculator = AccuracyCalculator([*KNN, "median_rank", "nearest_centroid_accuracy"])
    for inputs in ((x, range(10)), (x, [0] * 10, x[:0], []), (x[:1], [0])):
        assert all(math.isnan(value) for value in calculator.get_accuracy(*inputs).values())
    assert set(logged.messages) == {"no query has a relevant reference: every metric of neighbors is NaN"}
    logged.rows.clear()
    actual = AccuracyCalculator().get_accuracy(x[:0], [], x, range(10))
    assert actual.keys() == set(DEFAULT) and all(math.isnan(value) for value in actual.values())
    assert logged.messages == ["there is no query: every metric is NaN"]
    assert list(AccuracyCalculator(KNN, return_per_class=True).get_accuracy(x[:0], []).values()) == [[]] * 5


def test_get_accuracy_labels_of_any_dtype_compare_exactly(device):
    x = torch.tensor([[0.0], [0.1], [10.0], [10.1]], device=device)
    calculator = AccuracyCalculator(include=("precision_at_1",))
    for labels, value in (
        ([2**60, 2**60, 2**60 + 1, 2**60 + 1], 1),
        ([2**60, 2**60 + 1, 2**60, 2**60 + 1], 0),
        ([0.5, 0.5, -1.5, -1.5], 1),
    ):
        assert calculator.get_accuracy(x, labels) == {"precision_at_1": value}
        calculator.update(x, torch.tensor(labels, dtype=torch.float64 if value == 0.5 else None, device=device))
        assert calculator.compute() == {"precision_at_1": value}
        calculator.reset()
    mixed_dtypes = calculator.get_accuracy(x, [0, 0, 1, 1], x, np.float32([0, 0, 1, 1]))
    assert mixed_dtypes == {"precision_at_1": 1}


def test_knn_func_replaces_built_in_search(device):
    x, labels = make_clusters(device=device)
    calls = []

    def brute_force(query, k, reference, ref_includes_query):
        calls.append((len(query), k, ref_includes_query))
        distances = torch.cdist(query.double(), reference.double(), compute_mode="donot_use_mm_for_euclid_dist")
        if ref_includes_query:
            distances.diagonal().fill_(torch.inf)
        return distances.topk(k, largest=False)

    for k, num_columns in ((None, 119), ("max_bin_count", 23), (5, 5), (500, 119)):
        actual = AccuracyCalculator(KNN, k=k, knn_func=brute_force).get_accuracy(x, labels)
        assert actual == pytest.approx(AccuracyCalculator(KNN, k=k).get_accuracy(x, labels), rel=1e-14)
        assert calls.pop() == (120, num_columns, True)
    cosine = AccuracyCalculator(KNN, knn_func=TorchKNN("cosine")).get_accuracy(x, labels)
    assert cosine == AccuracyCalculator(KNN, distance="cosine").get_accuracy(x, labels)
    for indices, message in (
        (torch.zeros(120, 23), "indices of knn_func: got torch.float32, wanted an integer dtype"),
        (torch.zeros(120, 22).long(), "indices of knn_func: got shape (120, 22), wanted (120, 23)"),
        (torch.full((120, 23), 120), "indices of knn_func: got 120, wanted -1 to 119"),
    ):
        invalid = AccuracyCalculator(KNN, k=23, knn_func=lambda *_, indices=indices: (indices.float(), indices))
        with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
            invalid.get_accuracy(x, labels)


def test_get_accuracy_ragged_lists_raise():
    with pytest.raises(ValueError, match=r"^query: .* inhomogeneous shape"):
        AccuracyCalculator().get_accuracy([[0, 0], [1]], [0, 1])


def test_rank_score_functions_all_have_metric_names():
    functions = {name: value for name, value in vars(retrieval.functional).items() if inspect.isfunction(value)}
    rank_functions = {name for name, f in functions.items() if [*inspect.signature(f).parameters][:1] == ["ranks"]}
    # The CMC curve is no score of a query; its points are hit_rate_at_1, hit_rate_at_2, ...
    named_functions = [*(score.function for score in RANK_SCORES.values()), *SCORES_AT_K.values()]
    missing = rank_functions - {"cmc"} - {getattr(function, "func", function).__name__ for function in named_functions}
    assert not missing, f"write a row for {missing} in calculator/metric_names.py, and AccuracyCalculator knows it"
    assert len(rank_functions) > 10


def test_knn_func_for_tables_and_ranks_is_called_once():
    class CustomCalculator(AccuracyCalculator):
        def requires_knn(self):
            return [*super().requires_knn(), "nearest"]

        def calculate_nearest(self, knn_distances, **kwargs):
            return float(knn_distances[:, 0].mean())

    depths = []

    def knn(*arguments):
        depths.append(arguments[1])
        return TorchKNN()(*arguments)

    CustomCalculator(["nearest", "mean_average_precision"], knn_func=knn).get_accuracy(
        torch.randn(30, 3), torch.arange(30) % 3
    )
    assert depths == [29]
