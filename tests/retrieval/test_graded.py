"""Graded relevance, compared labels, and candidates of a query: ignored references, roles, cameras and lone queries."""

import math
import re

import numpy as np
import pytest
import torch
from retrieval_oracle import KNN, data, mean_scores, neighbors

from tensormetrics.retrieval import AccuracyCalculator, TorchKNN

NAMES = [*KNN, "ndcg", "ndcg_at_5", "mean_inp"]


def graded_gains(x, y):
    return (2 - (x - y).abs()).clamp(min=0)


def expected_ndcg(x, labels, k, gains, ignored=None):
    """Compute the mean nDCG of self-retrieval, one query at a time."""
    order, _ = neighbors(x, x, len(x) - 1, "l2", np.arange(len(x)))
    discount = 1 / np.log2(2 + np.arange(len(x)))
    scores = []
    for i, row in enumerate(order):
        query_gains = np.array([gains[i, j] for j in row if ignored is None or not ignored[i, j]])
        ideal_gains = np.sort(query_gains)[::-1][:k]
        if ideal_gains.sum():
            scores.append(
                (query_gains[:k] * discount[: len(query_gains[:k])]).sum()
                / (ideal_gains * discount[: len(ideal_gains)]).sum()
            )
    return np.mean(scores)


def test_gains_from_table_or_function_give_expected_ndcg(device):
    x, labels = (tensor.to(device) for tensor in data())
    table = graded_gains(labels[:, None], labels)
    expected = {
        name: expected_ndcg(x.cpu().numpy(), labels.tolist(), k, table.cpu().numpy())
        for name, k in (("ndcg", None), ("ndcg_at_5", 5))
    }
    by_function = AccuracyCalculator(NAMES, gains=graded_gains)
    actual = by_function.get_accuracy(x, labels)
    assert {name: actual[name] for name in expected} == pytest.approx(expected, rel=1e-12)
    for gains in (table, table.cpu().numpy()):
        assert AccuracyCalculator(NAMES, gains=gains).get_accuracy(x, labels) == actual
        assert AccuracyCalculator(NAMES).get_accuracy(x, labels, gains=gains) == actual
    # Every reference of positive gain is relevant, including those of adjacent labels.
    tolerant = AccuracyCalculator(NAMES[:5], label_comparison_fn=lambda a, b: (a - b).abs() < 2).get_accuracy(x, labels)
    assert {name: actual[name] for name in tolerant} == tolerant


def test_keep_all_stores_ranks_of_last_call(device):
    x, labels = (tensor.to(device) for tensor in data())
    for options in ({}, {"gains": graded_gains}, {"k": 5}):
        calculator = AccuracyCalculator(KNN, keep="all", **options)
        calculator.get_accuracy(x, labels)
        ranks = calculator.last.ranks
        assert ranks.rank.shape == (60, int(ranks.relevant.max())) or "k" in options
        assert (ranks.candidates == 59).all() and (ranks.gain is None) == ("gains" not in options)
        is_first_relevant = (ranks.rank == 1).any(1).double().masked_fill(ranks.relevant == 0, math.nan)
        assert torch.equal(is_first_relevant.nan_to_num(-1), calculator.last.scores["precision_at_1"].nan_to_num(-1))
    assert AccuracyCalculator(KNN).last is None
    calculator = AccuracyCalculator(KNN)
    calculator.get_accuracy(x, labels)
    assert calculator.last.ranks is None


def test_ignore_mask_or_groups_exclude_references(device):
    x, labels = (tensor.to(device) for tensor in data())
    ignored = torch.rand(60, 60, device=device) < 0.3
    same = (labels[:, None] == labels).cpu().numpy().astype(float)
    expected = expected_ndcg(x.cpu().numpy(), labels.tolist(), None, same, ignored.cpu().numpy())
    calculators = [
        AccuracyCalculator(NAMES, ignore=ignore) for ignore in (ignored, ignored.tolist(), ignored.__getitem__)
    ]
    for calculator in calculators:
        actual = calculator.get_accuracy(x, labels)
        assert actual["ndcg"] == pytest.approx(expected, rel=1e-12)
        calculator.update(x, labels)
        assert {name: float(value) for name, value in calculator.compute().items()} == actual
    cameras = torch.randint(0, 3, (60,), device=device)
    with_groups = AccuracyCalculator(NAMES, ignore=(cameras, cameras.tolist())).get_accuracy(x, labels)
    assert with_groups == AccuracyCalculator(NAMES).get_accuracy(x, labels, query_cameras=cameras)


def test_self_index_of_queries_at_any_position_equals_prefix(device):
    x, labels = (tensor.to(device) for tensor in data())
    positions = torch.tensor([50, 3, 17, 4, 29], device=device)
    outsider = torch.ones(1, 6, device=device)
    query, query_labels = torch.cat([x[positions], outsider]), torch.cat([labels[positions], labels[:1]])
    self_index = [*positions.tolist(), -1]
    for k in (None, 4):
        # The expected scores come from references that begin with the queries.
        rest = [i for i in range(60) if i not in positions.tolist()]
        order = torch.tensor([*positions.tolist(), *rest], device=device)
        expected = AccuracyCalculator(KNN, k=k).get_accuracy(
            x[positions], labels[positions], x[order], labels[order], True
        )
        calculator = AccuracyCalculator(KNN, k=k)
        calculator.get_accuracy(query, query_labels, x, labels, self_index=self_index)
        scores = calculator.last.scores
        assert {name: float(score[:5].mean()) for name, score in scores.items()} == pytest.approx(expected, rel=1e-14)
        with_function = AccuracyCalculator(KNN, k=k, knn_func=lambda *a, **o: TorchKNN()(*a, **o))
        actual = with_function.get_accuracy(query, query_labels, x, labels, self_index=self_index)
        assert actual == pytest.approx({name: float(score.mean()) for name, score in scores.items()}, rel=1e-14)


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


def test_update_repeated_ids_count_once(device):
    x, labels = (tensor.to(device) for tensor in data())
    expected = AccuracyCalculator().get_accuracy(x, labels)
    order = torch.randperm(60).to(device)
    order = torch.cat([order, order[:7]])
    calculator, shards = AccuracyCalculator(), [AccuracyCalculator(), AccuracyCalculator()]
    for i, batch in enumerate(order.split(11)):
        calculator.update(x[batch], labels[batch], ids=batch)
        shards[i % 2].update(x[batch], labels[batch], ids=batch.int())
    shards[0].merge_state(shards[1])
    for metric in (calculator, shards[0]):
        assert {name: float(value) for name, value in metric.compute().items()} == expected
    separate = AccuracyCalculator(KNN)
    separate.update(x[[4, 3, 4]], labels[[4, 3, 4]], role="query", ids=[4, 3, 4])
    separate.update(x[10:], labels[10:], role="reference")
    expected_separate = AccuracyCalculator(KNN).get_accuracy(x[3:5], labels[3:5], x[10:], labels[10:])
    assert {name: float(value) for name, value in separate.compute().items()} == pytest.approx(expected_separate)
    for ids, message in (
        ([1, 2], "ids: got shape (2,), wanted (3,)"),
        ([1.0, 2.0, 3.0], "ids: got torch.float64, wanted an integer dtype; write ids.long()"),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            calculator.update(x[:3], labels[:3], ids=ids)


@pytest.mark.parametrize("k", [None, "max_bin_count", 4])
def test_cameras_exclude_relevant_references_of_same_group(k, device):
    x, labels = data()
    cameras = torch.randint(0, 3, (60,))
    label_list, camera_list = labels.tolist(), cameras.tolist()
    tensors = [tensor.to(device) for tensor in (x, labels, cameras)]
    calculator = AccuracyCalculator(KNN, k=k)
    actual = calculator.get_accuracy(*tensors[:2], query_cameras=tensors[2])
    options = {"self_index": range(60), "cameras": (camera_list, camera_list)}
    expected = mean_scores(x.numpy(), label_list, x.numpy(), label_list, **options)
    if k is None:
        assert actual == pytest.approx(expected, rel=1e-12)
    else:
        for name in ("precision_at_1", *(["r_precision"] if k == "max_bin_count" else [])):
            assert actual[name] == pytest.approx(expected[name], rel=1e-12)
    for rows in (slice(0, 25), slice(25, 60)):
        calculator.update(*(tensor[rows] for tensor in tensors[:2]), cameras=tensors[2][rows], ids=range(60)[rows])
    assert {name: float(value) for name, value in calculator.compute().items()} == actual
    separate = AccuracyCalculator(KNN)
    separate.update(*(tensor[:20] for tensor in tensors[:2]), cameras=tensors[2][:20], role="query")
    separate.update(*(tensor[20:] for tensor in tensors[:2]), cameras=tensors[2][20:], role="reference")
    sides = [(x[rows].numpy(), label_list[rows]) for rows in (slice(20), slice(20, None))]
    expected = mean_scores(*sides[0], *sides[1], cameras=(camera_list[:20], camera_list[20:]))
    assert {name: float(value) for name, value in separate.compute().items()} == pytest.approx(expected, rel=1e-12)


def test_cameras_of_a_part_of_the_updates_raise(device):
    x, labels = (tensor.to(device) for tensor in data())
    groups = torch.zeros(60, dtype=torch.int64)
    message = "cameras: got some for a part of the rows, wanted them in every update or in none"
    calculator = AccuracyCalculator(KNN)
    calculator.update(x, labels, role="query", cameras=groups.to(device))
    calculator.update(x, labels, role="reference")
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        calculator.compute()
