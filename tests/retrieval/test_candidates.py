"""Who is scored against whom: roles, repeated items, groups, lone queries."""

import math
import re

import numpy as np
import pytest
import torch
from retrieval_oracle import KNN, data, neighbours, scores

from tensormetrics.retrieval import AccuracyCalculator, TorchKNN


def test_roles_equal_get_accuracy(device):
    x, labels = (side.to(device) for side in data())
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


def test_lone_queries(device):
    x, labels = (side.to(device) for side in data())
    names = [*KNN, "nearest_centroid_accuracy"]
    left_out = AccuracyCalculator(names).get_accuracy(x, labels)
    zero = AccuracyCalculator(names, on_lone="zero")
    assert zero.get_accuracy(x, labels) == pytest.approx({name: v * 59 / 60 for name, v in left_out.items()})
    assert zero.class_labels.tolist() == [0, 1, 2, 3, 4, 99]
    message = (
        "on_lone='error': 1 of 60 queries have no relevant reference, the first is query 59; write on_lone='exclude' "
        "to leave them out"
    )
    strict = AccuracyCalculator(names, on_lone="error")
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        strict.get_accuracy(x, labels)
    assert strict.get_accuracy(x[:59], labels[:59]).keys() == set(names)


def test_items_that_a_sampler_repeats_count_once(device):
    x, labels = (side.to(device) for side in data())
    expected = AccuracyCalculator().get_accuracy(x, labels)
    order = torch.randperm(60).to(device)
    order = torch.cat([order, order[:7]])
    calculator, halves = AccuracyCalculator(), [AccuracyCalculator(), AccuracyCalculator()]
    for i, batch in enumerate(order.split(11)):
        calculator.update(x[batch], labels[batch], ids=batch)
        halves[i % 2].update(x[batch], labels[batch], ids=batch.int())
    halves[0].merge_state(halves[1])
    for metric in (calculator, halves[0]):
        assert {name: float(value) for name, value in metric.compute().items()} == expected
    apart = AccuracyCalculator(KNN)
    apart.update(x[[4, 3, 4]], labels[[4, 3, 4]], role="query", ids=[4, 3, 4])
    apart.update(x[10:], labels[10:], role="reference")
    few = AccuracyCalculator(KNN).get_accuracy(x[3:5], labels[3:5], x[10:], labels[10:])
    assert {name: float(value) for name, value in apart.compute().items()} == pytest.approx(few)
    for ids, message in (
        (None, "ids, groups: got neither after updates with ids; give every update the same, or call reset()"),
        ([1, 2], "ids: got shape (2,), wanted (3,)"),
        ([1.0, 2.0, 3.0], "ids: got torch.float64, wanted an integer dtype; write ids.long()"),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            calculator.update(x[:3], labels[:3], ids=ids)
    message = "ids, groups: got ids after updates with neither; give every update the same, or call reset()"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        apart.update(x[:3], labels[:3], role="reference", ids=[1, 2, 3])


def of_other_groups(x, labels, groups, reference, reference_labels, reference_cameras, own=None):
    """The five scores of every query by loops, without relevant references of its own group."""
    indices, _ = neighbours(x, reference, len(reference), "l2", own)
    rows = []
    for i, row in enumerate(indices):
        listed = [j for j in row if j >= 0 and (reference_labels[j] != labels[i] or reference_cameras[j] != groups[i])]
        ranked = [reference_labels[j] for j in listed]
        rows.append(scores(ranked, labels[i], ranked.count(labels[i])) if ranked else [math.nan] * 5)
    return dict(zip(KNN, np.nanmean(rows, 0), strict=True))


@pytest.mark.parametrize("k", [None, "max_bin_count", 4])
def test_references_of_the_own_group_are_left_out(k, device):
    x, labels = data()
    cameras = torch.randint(0, 3, (60,))
    numbers = [side.tolist() for side in (labels, cameras)]
    sides = [side.to(device) for side in (x, labels, cameras)]
    calculator = AccuracyCalculator(KNN, k=k)
    got = calculator.get_accuracy(*sides[:2], query_cameras=sides[2])
    expected = of_other_groups(x.numpy(), *numbers, x.numpy(), *numbers, np.arange(60))
    if k is None:
        assert got == pytest.approx(expected, rel=1e-12)
    else:
        for name in ("precision_at_1", *(["r_precision"] if k == "max_bin_count" else [])):
            assert got[name] == pytest.approx(expected[name], rel=1e-12)
    for rows in (slice(0, 25), slice(25, 60)):
        calculator.update(*(side[rows] for side in sides[:2]), cameras=sides[2][rows], ids=range(60)[rows])
    assert {name: float(value) for name, value in calculator.compute().items()} == got
    apart = AccuracyCalculator(KNN)
    apart.update(*(side[:20] for side in sides[:2]), cameras=sides[2][:20], role="query")
    apart.update(*(side[20:] for side in sides[:2]), cameras=sides[2][20:], role="reference")
    expected = of_other_groups(
        x[:20].numpy(), *(side[:20] for side in numbers), x[20:].numpy(), *(side[20:] for side in numbers)
    )
    assert {name: float(value) for name, value in apart.compute().items()} == pytest.approx(expected, rel=1e-12)
    groups = {"query_cameras": cameras[:20], "reference_cameras": cameras[20:].tolist()}
    got = AccuracyCalculator(KNN).get_accuracy(
        *(f(s) for f in (lambda s: s[:20], lambda s: s[20:]) for s in sides[:2]), **groups
    )
    assert got == pytest.approx(expected, rel=1e-12)


def test_groups_of_one_side_or_with_another_search(device):
    x, labels = (side.to(device) for side in data())
    groups = torch.zeros(60, dtype=torch.int64)
    for options, message in (
        (
            {"query_cameras": groups},
            "reference_cameras: got None, wanted both query_cameras and reference_cameras or neither",
        ),
        (
            {"reference_cameras": groups},
            "query_cameras: got None, wanted both query_cameras and reference_cameras or neither",
        ),
        ({"query_cameras": groups[:3], "reference_cameras": groups}, "query_cameras: got shape (3,), wanted (60,)"),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            AccuracyCalculator(KNN).get_accuracy(x, labels, x, labels, **options)
    message = "cameras: got some for a part of the rows, wanted them in every update or in none"
    calculator = AccuracyCalculator(KNN)
    calculator.update(x, labels, role="query", cameras=groups.to(device))
    calculator.update(x, labels, role="reference")
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        calculator.compute()
    message = "cameras: nearest_centroid_accuracy cannot leave them out; write exclude=('nearest_centroid_accuracy',)"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        AccuracyCalculator(["nearest_centroid_accuracy"]).get_accuracy(x, labels, query_cameras=groups)


def test_labels_of_different_kinds_in_different_roles(device):
    x, labels = (side.to(device) for side in data())
    calculator = AccuracyCalculator()
    calculator.update(x[:20], labels[:20], role="query")
    calculator.update(x[20:], labels[20:].double(), role="reference")
    expected = AccuracyCalculator().get_accuracy(x[:20], labels[:20], x[20:], labels[20:])
    assert {name: float(value) for name, value in calculator.compute().items()} == expected
