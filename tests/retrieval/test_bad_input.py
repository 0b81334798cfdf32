"""Inputs that are easily scored wrongly: the full error message or the correct score."""

import math
import re

import pytest
import torch

from tensormetrics.retrieval import (
    AccuracyCalculator,
    NearestCentroidAccuracy,
    RunMetric,
    TorchKNN,
    contingency,
    evaluate_run,
    nearest_centroid,
    positive_ranks,
    v_measure,
)

X, Y = torch.tensor([[0.0], [1.0], [3.0], [7.0]]), torch.arange(4)
RANKS = ["mean_reciprocal_rank", "precision_at_1"]


def make_calculator(function, **options):
    return AccuracyCalculator(RANKS, label_comparison_fn=function, **options)


INVALID_CALLS = {
    "query_labels and reference_labels: got shapes (4, 2) and (4,), wanted the same number of columns": lambda: (
        make_calculator(lambda a, b: (a == b).all(1)).get_accuracy(X, torch.stack([Y, Y], 1), X, Y)
    ),
    "label_comparison_fn: got shape (16,) and torch.int64 for 16 pairs of labels, wanted a torch.bool for each pair": (
        lambda: make_calculator(torch.sub, k=1).get_accuracy(X, Y)
    ),
    "devices differ: query on cpu, query_labels on cpu, reference on cpu, reference_labels on meta; move them with "
    ".to(device)": lambda: positive_ranks(X, Y, X, Y.to("meta")),
    "ignore: got torch.int64, wanted torch.bool; write ignore.bool()": lambda: positive_ranks(
        X, Y, ignore=Y.expand(4, 4)
    ),
    "ignore: got torch.float32, wanted torch.bool; write ignore.bool()": lambda: TorchKNN()(
        X, 1, X, ignore=torch.eye(4)
    ),
    "ignore: got torch.int32, wanted torch.bool; write ignore.bool()": lambda: TorchKNN()(
        X, 1, X, ignore=lambda rows: torch.eye(4).int()[rows]
    ),
    "ignore: got torch.uint8, wanted torch.bool; write ignore.bool()": lambda: TorchKNN()(
        X[None], 1, X[None], ignore=torch.eye(4).byte()[None]
    ),
    "self_index: got 9, wanted -1 to 3": lambda: nearest_centroid(X, Y, X, Y, self_index=Y + 6),
    "self_index: got 5, wanted -1 to 3": lambda: nearest_centroid(
        *[torch.stack([part, part]) for part in (X, Y, X, Y)], self_index=torch.stack([Y + 2, Y])
    ),
    "self_index: got shape (2,), wanted (4,)": lambda: nearest_centroid(X, Y, X, Y, self_index=Y[:2]),
    "self_index: got torch.float32, wanted an integer dtype; write self_index.long()": lambda: nearest_centroid(
        X, Y, X, Y, self_index=Y.float()
    ),
    "relevance_level: got 'x', wanted a number": lambda: evaluate_run(
        {"q": {"a": 1.0}}, {"q": {"a": 1}}, relevance_level="x"
    ),
    "relevance_level: got None, wanted a number": lambda: RunMetric(relevance_level=None),
    "beta: got inf, wanted a finite number >= 0": lambda: v_measure(Y, Y, beta=math.inf),
    "clusters: got shape (3,), wanted (4,)": lambda: contingency(Y, Y[:3]),
    "labels: 1 of 4 rows hold NaN or infinity, the first is row 3; wanted finite values": lambda: (
        AccuracyCalculator().update(X, torch.tensor([0.0, 1, 2, math.nan]))
    ),
    "labels: got torch.uint64 above 2**63 - 1, wanted integers that int64 can hold, or real numbers": lambda: (
        NearestCentroidAccuracy().update(X, (Y - 1).to(torch.uint64))
    ),
    "ties: got 'first', wanted one of 'index', 'optimistic', 'pessimistic'": lambda: AccuracyCalculator(ties="first"),
}


@pytest.mark.parametrize("message", INVALID_CALLS)
def test_invalid_call_raises_documented_message(message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        INVALID_CALLS[message]()


def test_missing_neighbors_never_count_as_hits(device):
    def search_first_two(query, k, reference, ref_includes_query):
        indices = torch.full((len(query), k), -1, device=query.device)
        indices[:, :2] = torch.arange(2, device=query.device)
        return indices.double(), indices

    x, reference = X.to(device), X[:3].to(device)
    calculator = AccuracyCalculator(["mean_average_precision", "r_precision"], k=9, knn_func=search_first_two)
    # The last reference is the only one with label 2, and the search does not return it.
    assert calculator.get_accuracy(x, [2] * 4, reference, [0, 1, 2]) == {"mean_average_precision": 0, "r_precision": 0}


def test_comparison_without_self_match_keeps_all_positives(device):
    labels = torch.tensor([0, 1, 0, 1], device=device)
    names = ["mean_average_precision_at_r", "r_precision"]
    scores = AccuracyCalculator(names, label_comparison_fn=lambda a, b: a != b).get_accuracy(X.to(device), labels)
    # Whether each neighbor, nearest first, has the other label.
    is_other_label = [[1, 0, 1], [1, 1, 0], [1, 0, 1], [1, 0, 1]]
    assert scores["r_precision"] == sum(sum(row[:2]) / 2 for row in is_other_label) / 4
    assert scores["mean_average_precision_at_r"] == (1 / 2 + 1 + 1 / 2 + 1 / 2) / 4
    assert all(0 <= value <= 1 for value in scores.values())


def test_max_bin_count_with_only_lone_queries_is_nan(device, caplog):
    scores = AccuracyCalculator(RANKS, k="max_bin_count").get_accuracy(X.to(device), Y)
    assert scores.keys() == set(RANKS) and all(map(math.isnan, scores.values()))
    assert caplog.messages == ["no query has a relevant reference: every metric of neighbors is NaN"]


@pytest.mark.parametrize("name", ["gains", "ignore", "label_comparison_fn", "ties"])
def test_nearest_centroid_accuracy_refuses_options_of_ranks(name):
    with pytest.raises(TypeError, match=f"^NearestCentroidAccuracy: got the argument '{name}', which "):
        NearestCentroidAccuracy(**{name: None})
