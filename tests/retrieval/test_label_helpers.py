"""Functions that compute scores from tables of labels, for subclasses of AccuracyCalculator."""

import numpy as np
import pytest
import torch
from retrieval_oracle import data, neighbors, scores

from tensormetrics.compat.pytorch_metric_learning import accuracy_calculator


def test_label_helpers_equal_explicit_loops(device):
    x, labels = (tensor.to(device) for tensor in data())
    has_positive = (labels != 99).cpu()
    indices, _ = neighbors(x.cpu().numpy(), x.cpu().numpy(), 59, "l2", np.arange(60))
    ranked = labels.cpu().numpy()[indices]
    label_list = labels.tolist()
    rows = np.array([scores(row, i, label_list.count(i) - 1) for row, i in zip(ranked, label_list, strict=True)])
    rows, classes = rows[has_positive.numpy()], labels[has_positive].cpu().numpy()
    counts = accuracy_calculator.get_label_match_counts(labels, labels)
    knn_labels, gt_labels = torch.tensor(ranked, device=device)[has_positive], labels[has_positive][:, None]
    for flags, average in (
        ((False, False), lambda column: column.mean()),
        ((True, False), lambda column: np.mean([column[classes == c].mean() for c in range(5)])),
        ((False, True), lambda column: [column[classes == c].mean() for c in range(5)]),
    ):
        actual = (
            accuracy_calculator.mean_average_precision(knn_labels, gt_labels, True, counts, *flags),
            accuracy_calculator.mean_average_precision(knn_labels, gt_labels, True, counts, *flags, at_r=True),
            accuracy_calculator.mean_reciprocal_rank(knn_labels, gt_labels, *flags),
            accuracy_calculator.precision_at_k(knn_labels, gt_labels, 1, *flags),
            accuracy_calculator.r_precision(knn_labels, gt_labels, True, counts, *flags),
        )
        for value, column in zip(actual, rows.T, strict=True):
            assert value == pytest.approx(average(column), rel=1e-13)
            assert isinstance(value, list if flags[1] else float)
    with pytest.raises(ValueError, match=r"^avg_of_avgs and return_per_class: got both, wanted one of them$"):
        accuracy_calculator.precision_at_k(knn_labels, gt_labels, 1, True, True)


def test_label_helpers_support_label_columns(device):
    labels = torch.tensor([[0, 1], [0, 2], [0, 1], [3, 3]], device=device)
    unique, counts = accuracy_calculator.get_label_match_counts(labels, labels)
    assert unique.tolist() == [[0, 1], [0, 2], [3, 3]] and counts.tolist() == [2, 1, 1]
    assert accuracy_calculator.get_unique_labels(labels).tolist() == unique.tolist()
    lone, mask = accuracy_calculator.get_lone_query_labels(labels, (unique, counts), True)
    assert lone.tolist() == [[0, 2], [3, 3]] and mask.tolist() == [True, False, True, False]

    def differs_in_second(x, y):
        return (x[..., 0] == y[..., 0]) & (x[..., 1] != y[..., 1])

    unique, counts = accuracy_calculator.get_label_match_counts(labels, labels, differs_in_second)
    assert counts.tolist() == [1, 2, 0]
    lone, mask = accuracy_calculator.get_lone_query_labels(labels, (unique, counts), True, differs_in_second)
    assert lone.tolist() == [[3, 3]] and mask.tolist() == [True, True, True, False]
    knn_labels = labels[torch.tensor([[1, 2], [0, 2], [1, 0], [0, 1]], device=device)]
    queries = labels[:, None]
    assert accuracy_calculator.precision_at_k(knn_labels, queries, 2) == 2 / 8
    assert accuracy_calculator.precision_at_k(knn_labels, queries, 2, label_comparison_fn=differs_in_second) == 4 / 8
    assert accuracy_calculator.mean_reciprocal_rank(knn_labels, queries) == (1 / 2 + 0 + 1 / 2 + 0) / 4
