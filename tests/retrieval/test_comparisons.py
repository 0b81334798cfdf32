"""Labels compared by a custom function."""


import numpy as np
import pytest
import torch

from tensormetrics.retrieval import AccuracyCalculator, TorchKNN


def test_label_comparison_fn_documented_examples_give_expected_scores(device):
    # Labels of two columns: the first has to match, the second must not.
    x = torch.tensor([[0.0], [1.0], [1.5], [5.0], [6.0]], device=device)
    labels = torch.tensor([(1, 3), (7, 4), (1, 4), (1, 5), (1, 6)], device=device)
    for comparison in (
        lambda x, y: (x[..., 0] == y[..., 0]) & (x[..., 1] != y[..., 1]),
        lambda x, y: (x[:, 0] == y[:, 0]) & (x[:, 1] != y[:, 1]),
    ):
        for knn in (None, lambda *a: TorchKNN()(*a)):
            calculator = AccuracyCalculator(exclude=("NMI", "AMI"), label_comparison_fn=comparison, knn_func=knn)
            actual = calculator.get_accuracy(x, labels)
            # Ranks of the other three items of class 1 for queries 0, 2, 3 and 4; query 1 has no relevant reference.
            ranks = [[2, 3, 4], [2, 3, 4], [1, 2, 4], [1, 2, 4]]
            assert actual["precision_at_1"] == 2 / 4 and actual["mean_reciprocal_rank"] == 3 / 4
            ap = [sum(j / r for j, r in enumerate(row, 1)) / 3 for row in ranks]
            assert actual["mean_average_precision"] == pytest.approx(np.mean(ap))
            assert calculator.last.lone.tolist() == [False, True, False, False, False]
            assert calculator.class_labels.tolist() == [[1, 3], [1, 4], [1, 5], [1, 6]]
    tolerant = AccuracyCalculator(exclude=("NMI", "AMI"), label_comparison_fn=lambda x, y: (x - y).abs() < 1)
    actual = tolerant.get_accuracy(x[:4], [10.0, 0.03, 0.04, 0.05])
    assert actual["precision_at_1"] == 1 and tolerant.last.lone.tolist() == [True, False, False, False]
