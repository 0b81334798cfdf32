"""Candidates of a query: roles, repeated items, groups, and queries without relevant references."""

import math
import re

import numpy as np
import pytest
import torch
from retrieval_oracle import KNN, data, neighbors, scores

from tensormetrics.retrieval import AccuracyCalculator, TorchKNN


def test_update_roles_equal_get_accuracy(device):
    x, labels = (tensor.to(device) for tensor in data())
    options = {"include": [*KNN, "nearest_centroid_accuracy", "ARI"]}
    for knn in (None, lambda *a: TorchKNN()(*a)):
        calculator = AccuracyCalculator(**options, knn_func=knn)
        for role, rows in (("reference", slice(20, 60)), ("query", slice(0, 12)), ("query", slice(12, 20))):
            calculator.update(x[rows], labels[rows], role=role)
        expected = AccuracyCalculator(**options).get_accuracy(x[:20], labels[:20], x[20:], labels[20:])
        assert {name: float(value) for name, value in calculator.compute().items()} == pytest.approx(expected)
        calculator.reset()
        calculator.update(x[:20], labels[:20])
        calculator.update(x[20:], labels[20:], role="reference")
        expected = AccuracyCalculator(**options).get_accuracy(x[:20], labels[:20], x, labels, True)
        assert {name: float(value) for name, value in calculator.compute().items()} == pytest.approx(expected)
        calculator.update(x[:5] + 0.5, labels[:5], role="query")
        assert all(math.isfinite(value) for value in calculator.compute().values())


def test_on_lone_options_treat_lone_queries_as_documented(device):
    x, labels = (tensor.to(device) for tensor in data())
    names = [*KNN, "nearest_centroid_accuracy"]
    excluded = AccuracyCalculator(names).get_accuracy(x, labels)
    zero = AccuracyCalculator(names, on_lone="zero")
    assert zero.get_accuracy(x, labels) == pytest.approx({name: score * 59 / 60 for name, score in excluded.items()})
    assert zero.class_labels.tolist() == [0, 1, 2, 3, 4, 99]
    message = (
        "on_lone='error': 1 of 60 queries have no relevant reference, the first is query 59; write on_lone='exclude' "
        "to leave them out"
    )
    strict = AccuracyCalculator(names, on_lone="error")
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        strict.get_accuracy(x, labels)
    assert strict.get_accuracy(x[:59], labels[:59]).keys() == set(names)


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
        (None, "ids, groups: got neither after updates with ids; give every update the same, or call reset()"),
        ([1, 2], "ids: got shape (2,), wanted (3,)"),
        ([1.0, 2.0, 3.0], "ids: got torch.float64, wanted an integer dtype; write ids.long()"),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            calculator.update(x[:3], labels[:3], ids=ids)
    message = "ids, groups: got ids after updates with neither; give every update the same, or call reset()"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        separate.update(x[:3], labels[:3], role="reference", ids=[1, 2, 3])


def scores_without_same_group(x, labels, groups, reference, reference_labels, reference_cameras, self_index=None):
    """Return the five mean scores by loops, without relevant references in the group of the query."""
    indices, _ = neighbors(x, reference, len(reference), "l2", self_index)
    rows = []
    for i, row in enumerate(indices):
        candidates = [
            j for j in row if j >= 0 and (reference_labels[j] != labels[i] or reference_cameras[j] != groups[i])
        ]
        ranked = [reference_labels[j] for j in candidates]
        rows.append(scores(ranked, labels[i], ranked.count(labels[i])) if ranked else [math.nan] * 5)
    return dict(zip(KNN, np.nanmean(rows, 0), strict=True))


@pytest.mark.parametrize("k", [None, "max_bin_count", 4])
def test_cameras_exclude_relevant_references_of_same_group(k, device):
    x, labels = data()
    cameras = torch.randint(0, 3, (60,))
    label_lists = [tensor.tolist() for tensor in (labels, cameras)]
    tensors = [tensor.to(device) for tensor in (x, labels, cameras)]
    calculator = AccuracyCalculator(KNN, k=k)
    actual = calculator.get_accuracy(*tensors[:2], query_cameras=tensors[2])
    expected = scores_without_same_group(x.numpy(), *label_lists, x.numpy(), *label_lists, np.arange(60))
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
    expected = scores_without_same_group(
        x[:20].numpy(),
        *(tensor[:20] for tensor in label_lists),
        x[20:].numpy(),
        *(tensor[20:] for tensor in label_lists),
    )
    assert {name: float(value) for name, value in separate.compute().items()} == pytest.approx(expected, rel=1e-12)
    groups = {"query_cameras": cameras[:20], "reference_cameras": cameras[20:].tolist()}
    actual = AccuracyCalculator(KNN).get_accuracy(
        *(f(s) for f in (lambda s: s[:20], lambda s: s[20:]) for s in tensors[:2]), **groups
    )
    assert actual == pytest.approx(expected, rel=1e-12)


def test_cameras_of_a_part_of_the_updates_raise(device):
    x, labels = (tensor.to(device) for tensor in data())
    groups = torch.zeros(60, dtype=torch.int64)
    message = "cameras: got some for a part of the rows, wanted them in every update or in none"
    calculator = AccuracyCalculator(KNN)
    calculator.update(x, labels, role="query", cameras=groups.to(device))
    calculator.update(x, labels, role="reference")
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        calculator.compute()


def test_update_label_dtypes_may_differ_between_roles(device):
    x, labels = (tensor.to(device) for tensor in data())
    calculator = AccuracyCalculator()
    calculator.update(x[:20], labels[:20], role="query")
    calculator.update(x[20:], labels[20:].double(), role="reference")
    expected = AccuracyCalculator().get_accuracy(x[:20], labels[:20], x[20:], labels[20:])
    assert {name: float(value) for name, value in calculator.compute().items()} == expected
