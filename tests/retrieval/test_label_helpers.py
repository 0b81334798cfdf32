"""Scores from tables of labels, the functions that subclasses call."""

import numpy as np
import pytest
import torch
from retrieval_oracle import data, neighbours, scores

from tensormetrics.retrieval.calculator import accuracy_calculator


def test_helpers_against_loops(device):
    x, labels = (side.to(device) for side in data())
    keep = (labels != 99).cpu()
    indices, _ = neighbours(x.cpu().numpy(), x.cpu().numpy(), 59, "l2", np.arange(60))
    ranked = labels.cpu().numpy()[indices]
    numbers = labels.tolist()
    rows = np.array([scores(row, i, numbers.count(i) - 1) for row, i in zip(ranked, numbers, strict=True)])
    rows, classes = rows[keep.numpy()], labels[keep].cpu().numpy()
    counts = accuracy_calculator.get_label_match_counts(labels, labels)
    knn_labels, gt_labels = torch.tensor(ranked, device=device)[keep], labels[keep][:, None]
    for flags, average in (
        ((False, False), lambda column: column.mean()),
        ((True, False), lambda column: np.mean([column[classes == c].mean() for c in range(5)])),
        ((False, True), lambda column: [column[classes == c].mean() for c in range(5)]),
    ):
        got = (
            accuracy_calculator.mean_average_precision(knn_labels, gt_labels, True, counts, *flags),
            accuracy_calculator.mean_average_precision(knn_labels, gt_labels, True, counts, *flags, at_r=True),
            accuracy_calculator.mean_reciprocal_rank(knn_labels, gt_labels, *flags),
            accuracy_calculator.precision_at_k(knn_labels, gt_labels, 1, *flags),
            accuracy_calculator.r_precision(knn_labels, gt_labels, True, counts, *flags),
        )
        for value, column in zip(got, rows.T, strict=True):
            assert value == pytest.approx(average(column), rel=1e-13)
            assert isinstance(value, list if flags[1] else float)
    with pytest.raises(ValueError, match=r"^avg_of_avgs and return_per_class: got both, wanted one of them$"):
        accuracy_calculator.precision_at_k(knn_labels, gt_labels, 1, True, True)


def test_helpers_with_columns_of_labels(device):
    labels = torch.tensor([[0, 1], [0, 2], [0, 1], [3, 3]], device=device)
    unique, counts = accuracy_calculator.get_label_match_counts(labels, labels)
    assert unique.tolist() == [[0, 1], [0, 2], [3, 3]] and counts.tolist() == [2, 1, 1]
    assert accuracy_calculator.get_unique_labels(labels).tolist() == unique.tolist()
    lone, mask = accuracy_calculator.get_lone_query_labels(labels, (unique, counts), True)
    assert lone.tolist() == [[0, 2], [3, 3]] and mask.tolist() == [True, False, True, False]

    def other_second(x, y):
        return (x[..., 0] == y[..., 0]) & (x[..., 1] != y[..., 1])

    unique, counts = accuracy_calculator.get_label_match_counts(labels, labels, other_second)
    assert counts.tolist() == [1, 2, 0]
    lone, mask = accuracy_calculator.get_lone_query_labels(labels, (unique, counts), True, other_second)
    assert lone.tolist() == [[3, 3]] and mask.tolist() == [True, True, True, False]
    neighbour_labels = labels[torch.tensor([[1, 2], [0, 2], [1, 0], [0, 1]], device=device)]
    queries = labels[:, None]
    assert accuracy_calculator.precision_at_k(neighbour_labels, queries, 2) == 2 / 8
    assert accuracy_calculator.precision_at_k(neighbour_labels, queries, 2, label_comparison_fn=other_second) == 4 / 8
    assert accuracy_calculator.mean_reciprocal_rank(neighbour_labels, queries) == (1 / 2 + 0 + 1 / 2 + 0) / 4
