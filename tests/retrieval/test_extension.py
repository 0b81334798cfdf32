"""What subclasses and users of AccuracyCalculator build on: own metrics, helpers, comparisons, kept neighbours."""

import copy
import gc
import logging
import math
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from retrieval_oracle import TINY, TINY_LABELS, neighbours, scores

from tensormetrics.retrieval import AccuracyCalculator, TorchKNN, accuracy_calculator

KNN = [name for name in AccuracyCalculator().requires_knn()]


def data(items=60, classes=5):
    labels = torch.arange(items) % classes
    labels[-1] = 99  # lone
    return torch.randn(classes, 6)[labels % classes] + torch.randn(items, 6), labels


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


def test_documented_comparisons(device):
    # Five items of two columns: the first has to match, the second must not.
    x = torch.tensor([[0.0], [1.0], [1.5], [5.0], [6.0]], device=device)
    labels = torch.tensor([(1, 3), (7, 4), (1, 4), (1, 5), (1, 6)], device=device)
    for comparison in (
        lambda x, y: (x[..., 0] == y[..., 0]) & (x[..., 1] != y[..., 1]),
        lambda x, y: (x[:, 0] == y[:, 0]) & (x[:, 1] != y[:, 1]),
    ):
        for knn in (None, lambda *a: TorchKNN()(*a)):
            calculator = AccuracyCalculator(exclude=("NMI", "AMI"), label_comparison_fn=comparison, knn_func=knn)
            got = calculator.get_accuracy(x, labels)
            # ranks of the three others of class 1, from items 0, 2, 3 and 4; item 1 is lone
            ranks = [[2, 3, 4], [2, 3, 4], [1, 2, 4], [1, 2, 4]]
            assert got["precision_at_1"] == 2 / 4 and got["mean_reciprocal_rank"] == 3 / 4
            ap = [sum(j / r for j, r in enumerate(row, 1)) / 3 for row in ranks]
            assert got["mean_average_precision"] == pytest.approx(np.mean(ap))
            assert calculator.last.lone.tolist() == [False, True, False, False, False]
            assert calculator.class_labels.tolist() == [[1, 3], [1, 4], [1, 5], [1, 6]]
    near = AccuracyCalculator(exclude=("NMI", "AMI"), label_comparison_fn=lambda x, y: (x - y).abs() < 1)
    got = near.get_accuracy(x[:4], [10.0, 0.03, 0.04, 0.05])
    assert got["precision_at_1"] == 1 and near.last.lone.tolist() == [True, False, False, False]


def test_a_comparison_excludes_clustering():
    for options, names in (
        ({}, ("AMI", "NMI")),
        ({"include": ["ARI", "r_precision"]}, ("ARI",)),
        ({"include": ["nearest_centroid_accuracy", "r_precision"]}, ("nearest_centroid_accuracy",)),
    ):
        message = f"label_comparison_fn: {', '.join(names)} cannot use it; write exclude={names!r}"
        with pytest.raises(NotImplementedError, match=f"^{re.escape(message)}$"):
            AccuracyCalculator(label_comparison_fn=lambda x, y: x == y, **options)
    calculator = AccuracyCalculator(KNN, label_comparison_fn=lambda x, y: x == y)
    with pytest.raises(NotImplementedError):
        calculator.get_accuracy(TINY, TINY_LABELS, include=["FMI"])
    assert AccuracyCalculator(label_comparison_fn=torch.eq).label_comparison_fn is torch.eq


@pytest.mark.parametrize(
    ("comparison", "got"),
    [
        (lambda x, y: (x == y).float(), "shape (16,) and torch.float32"),
        (lambda x, y: (x == y).all(), "shape () and torch.bool"),
    ],
)
def test_comparisons_that_answer_something_else(comparison, got):
    message = f"label_comparison_fn: got {got} for 16 pairs of labels, wanted a torch.bool for each pair"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        AccuracyCalculator(KNN, label_comparison_fn=comparison).get_accuracy(TINY, TINY_LABELS)


def test_averages_and_classes(device):
    x, labels = (side.to(device) for side in data(47))
    micro = AccuracyCalculator([*KNN, "median_rank", "nearest_centroid_accuracy", "ARI"])
    whole = micro.get_accuracy(x, labels)
    per_class = AccuracyCalculator(micro.get_curr_metrics(), return_per_class=True)
    macro = AccuracyCalculator(micro.get_curr_metrics(), avg_of_avgs=True)
    assert (micro.description(), per_class.description(), macro.description()) == ("", "", "avg_of_avgs")
    classes, means = per_class.get_accuracy(x, labels), macro.get_accuracy(x, labels)
    assert per_class.class_labels.tolist() == [0, 1, 2, 3, 4]
    sizes = [int((labels == c).sum()) for c in range(5)]
    for name in micro.get_curr_metrics():
        if name == "ARI":
            assert classes[name] == means[name] == whole[name]
            continue
        assert means[name] == pytest.approx(np.mean(classes[name]))
        if name != "median_rank":
            assert np.average(classes[name], weights=sizes) == pytest.approx(whole[name])
        assert np.isnan(micro.last.scores[name].tolist()).nonzero()[0].tolist() == [46]
    per_class.update(x, labels)
    assert {name: value.tolist() for name, value in per_class.compute().items()} == classes
    with pytest.raises(ValueError, match=r"^avg_of_avgs and return_per_class: got both, wanted one of them$"):
        AccuracyCalculator(avg_of_avgs=True, return_per_class=True)


def test_copies_and_pickles_answer_for_themselves(device):
    x, labels = (side.to(device) for side in data())
    calculator = YourCalculator(k=9)
    got = calculator.get_accuracy(x, labels)
    for twin in (copy.deepcopy(calculator), pickle.loads(pickle.dumps(calculator))):
        assert twin.get_accuracy(x, labels) == got
        assert all(function.__self__ is twin for function in twin.original_function_dict.values())
        assert twin.last is not calculator.last


def searches(monkeypatch):
    done, search = [], TorchKNN.indices

    def recorded(self, query, k, *arguments, **options):
        done.append(k)
        return search(self, query, k, *arguments, **options)

    monkeypatch.setattr(TorchKNN, "indices", recorded)
    return done


def test_neighbours_are_kept_for_the_next_labels(monkeypatch, device):
    done = searches(monkeypatch)
    x, labels = (side.to(device) for side in data())
    coarse = labels % 2
    calculator = AccuracyCalculator(KNN, k=10)
    first = calculator.get_accuracy(x, labels)
    second = calculator.get_accuracy(x, coarse)
    assert done == [10] and second == AccuracyCalculator(KNN, k=10).get_accuracy(x, coarse)
    assert calculator.get_accuracy(x, labels, include=["precision_at_1"])["precision_at_1"] == first["precision_at_1"]
    del done[:]
    for sides in ((x.clone(), labels), (x[:30], labels[:30], x, labels), (x[:30], labels[:30], x, labels, True)):
        calculator.get_accuracy(*sides)
    assert done == [10] * 3
    before = calculator.get_accuracy(x, labels)
    x[:30] = x[:30].flip(0)
    assert calculator.get_accuracy(x, labels) != before
    assert done == [10] * 5
    calculator.reset()
    calculator.get_accuracy(x, labels)
    with torch.inference_mode():
        inference = x.clone()
    for _ in range(2):
        calculator.get_accuracy(inference, labels)
        calculator.get_accuracy(x.cpu().numpy(), labels)
    assert done == [10] * 10


def test_kept_neighbours_are_freed_with_the_embeddings(device):
    x, labels = (side.to(device) for side in data())
    calculator = AccuracyCalculator(KNN, k=10)
    calculator.get_accuracy(x, labels)
    assert calculator.search.indices is not None
    del x
    gc.collect()
    assert calculator.search.indices is None


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


def test_a_large_k_is_cut(caplog):
    caplog.set_level(logging.INFO, "tensormetrics.retrieval")
    got = AccuracyCalculator(KNN, k=50).get_accuracy(TINY, TINY_LABELS)
    assert got == AccuracyCalculator(KNN).get_accuracy(TINY, TINY_LABELS)
    assert "k=50 is cut to the 9 references of a query" in caplog.messages


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


def test_device_option():
    x, labels = data()
    calculator = AccuracyCalculator(device="cpu")
    assert calculator.device == torch.device("cpu")
    calculator.update(x.tolist(), labels.tolist())
    assert calculator.compute().keys() == calculator.get_accuracy(x, labels).keys()


def test_ties_bound_each_other(device):
    x = torch.zeros(12, 3, device=device)  # a collapsed model
    labels = torch.arange(12, device=device) % 3
    got = {
        ties: AccuracyCalculator(KNN, ties=ties).get_accuracy(x, labels)
        for ties in ("pessimistic", "index", "optimistic")
    }
    assert set(got["optimistic"].values()) == {1.0}
    for name in KNN:
        assert got["pessimistic"][name] < got["index"][name] < 1
    assert got["pessimistic"]["precision_at_1"] == 0
    spread = torch.randn(12, 3, device=device)
    same = [AccuracyCalculator(KNN, ties=ties).get_accuracy(spread, labels) for ties in got]
    assert same[0] == pytest.approx(same[1]) and same[0] == pytest.approx(same[2])


def test_inexact_and_function_distances(device):
    x, labels = (side.to(device) for side in data())
    expected = AccuracyCalculator(KNN).get_accuracy(x, labels)
    for options in ({"exact": False}, {"distance": lambda q, r: torch.cdist(q.double(), r.double())}):
        for k in (None, 59):
            assert AccuracyCalculator(KNN, k=k, **options).get_accuracy(x, labels) == pytest.approx(expected)


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
        (None, "ids: got none after updates that differ in this; call reset()"),
        ([1, 2], "ids: got shape (2,), wanted (3,)"),
        ([1.0, 2.0, 3.0], "ids: got torch.float64, wanted an integer dtype; write ids.long()"),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            calculator.update(x[:3], labels[:3], ids=ids)
    message = "ids: got some after updates that differ in this; call reset()"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        apart.update(x[:3], labels[:3], role="reference", ids=[1, 2, 3])


def of_other_groups(x, labels, groups, reference, reference_labels, reference_groups, own=None):
    """The five scores of every query by loops, without relevant references of its own group."""
    indices, _ = neighbours(x, reference, len(reference), "l2", own)
    rows = []
    for i, row in enumerate(indices):
        listed = [j for j in row if j >= 0 and (reference_labels[j] != labels[i] or reference_groups[j] != groups[i])]
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
    got = calculator.get_accuracy(*sides[:2], query_groups=sides[2])
    expected = of_other_groups(x.numpy(), *numbers, x.numpy(), *numbers, np.arange(60))
    if k is None:
        assert got == pytest.approx(expected, rel=1e-12)
    else:
        for name in ("precision_at_1", *(["r_precision"] if k == "max_bin_count" else [])):
            assert got[name] == pytest.approx(expected[name], rel=1e-12)
    for rows in (slice(0, 25), slice(25, 60)):
        calculator.update(*(side[rows] for side in sides[:2]), groups=sides[2][rows], ids=range(60)[rows])
    assert {name: float(value) for name, value in calculator.compute().items()} == got
    apart = AccuracyCalculator(KNN)
    apart.update(*(side[:20] for side in sides[:2]), groups=sides[2][:20], role="query")
    apart.update(*(side[20:] for side in sides[:2]), groups=sides[2][20:], role="reference")
    expected = of_other_groups(
        x[:20].numpy(), *(side[:20] for side in numbers), x[20:].numpy(), *(side[20:] for side in numbers)
    )
    assert {name: float(value) for name, value in apart.compute().items()} == pytest.approx(expected, rel=1e-12)
    groups = {"query_groups": cameras[:20], "reference_groups": cameras[20:].tolist()}
    got = AccuracyCalculator(KNN).get_accuracy(
        *(f(s) for f in (lambda s: s[:20], lambda s: s[20:]) for s in sides[:2]), **groups
    )
    assert got == pytest.approx(expected, rel=1e-12)


def test_groups_of_one_side_or_with_another_search(device):
    x, labels = (side.to(device) for side in data())
    groups = torch.zeros(60, dtype=torch.int64)
    for options, message in (
        (
            {"query_groups": groups},
            "reference_groups: got None, wanted both query_groups and reference_groups or neither",
        ),
        (
            {"reference_groups": groups},
            "query_groups: got None, wanted both query_groups and reference_groups or neither",
        ),
        ({"query_groups": groups[:3], "reference_groups": groups}, "query_groups: got shape (3,), wanted (60,)"),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            AccuracyCalculator(KNN).get_accuracy(x, labels, x, labels, **options)
    message = "groups: got some where the neighbours come from a function, wanted the default knn_func"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        AccuracyCalculator(KNN, knn_func=lambda *a: TorchKNN()(*a)).get_accuracy(x, labels, query_groups=range(60))
    message = "groups: got some for a part of the rows, wanted them in every update or in none"
    calculator = AccuracyCalculator(KNN)
    calculator.update(x, labels, role="query", groups=groups.to(device))
    calculator.update(x, labels, role="reference")
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        calculator.compute()
    message = "groups: nearest_centroid_accuracy cannot leave them out; write exclude=('nearest_centroid_accuracy',)"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        AccuracyCalculator(["nearest_centroid_accuracy"]).get_accuracy(x, labels, query_groups=groups)


def test_labels_of_different_kinds_in_different_roles(device):
    x, labels = (side.to(device) for side in data())
    calculator = AccuracyCalculator()
    calculator.update(x[:20], labels[:20], role="query")
    calculator.update(x[20:], labels[20:].double(), role="reference")
    expected = AccuracyCalculator().get_accuracy(x[:20], labels[:20], x[20:], labels[20:])
    assert {name: float(value) for name, value in calculator.compute().items()} == expected


BAD_CALLS = {
    "query_labels and reference_labels: got shapes (10, 2) and (10, 3), wanted the same number of columns": (
        {"label_comparison_fn": lambda x, y: (x == y).all(-1)},
        (TINY, np.zeros((10, 2)), TINY, np.zeros((10, 3))),
    ),
    "distances of knn_func: got shape (10, 3), wanted (10, 9)": (
        {"knn_func": lambda q, k, r, i: (torch.zeros(10, 3), torch.zeros(10, k, dtype=torch.int64))},
        (TINY, TINY_LABELS),
    ),
}
BAD_OPTIONS = {
    "ties: got 'random', wanted one of 'index', 'optimistic', 'pessimistic'": {"ties": "random"},
    "ties: got 'optimistic', wanted 'index' where the neighbours come from a function": {
        "ties": "optimistic",
        "knn_func": lambda *a: TorchKNN()(*a),
    },
    "on_lone: got 'skip', wanted one of 'exclude', 'zero', 'error'": {"on_lone": "skip"},
    "on_lone: got 'zero', which is better than any median_rank; wanted 'exclude' or 'error'": {
        "on_lone": "zero",
        "include": ["median_rank"],
    },
    "exact: got False together with a knn_func; give exact=False to the knn_func": {
        "exact": False,
        "knn_func": TorchKNN(),
    },
}


def test_clusters_of_another_length():
    with pytest.raises(ValueError, match=r"^clusters: got shape \(3,\), wanted \(10,\)$"):
        AccuracyCalculator(["NMI"], kmeans_func=lambda x, n: [0, 1, 2]).get_accuracy(TINY, TINY_LABELS)


@pytest.mark.parametrize("message", BAD_CALLS)
def test_bad_calls(message):
    options, call = BAD_CALLS[message]
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        AccuracyCalculator(KNN, **options).get_accuracy(*call)


@pytest.mark.parametrize("message", BAD_OPTIONS)
def test_bad_options(message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        AccuracyCalculator(**BAD_OPTIONS[message])


def test_neither_queries_nor_references(device):
    x, labels = (side.to(device) for side in data())
    calculator = YourCalculator(["precision_at_1", "precision_at_2"])
    for sides in ((x[:0], labels[:0], x, labels), (x[:0], labels[:0], x, labels, True), (x, labels, x[:0], labels[:0])):
        got = calculator.get_accuracy(*sides)
        assert math.isnan(got["precision_at_1"])


def test_defaults_need_torch_alone():
    blocked = ("faiss", "sklearn", "scipy", "pykeops", "triton", "pytorch_metric_learning")
    script = f"""
import sys
import torch, torchmetrics
for name in {blocked!r}:
    sys.modules[name] = None
from tensormetrics.retrieval import AccuracyCalculator
got = AccuracyCalculator().get_accuracy(torch.randn(30, 3), torch.arange(30) % 3)
assert len(got) == 7 and all(0 <= abs(value) <= 1 for value in got.values()), got
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_how_sure_a_result_is(device):
    x, labels = (side.to(device) for side in data())
    good, bad = AccuracyCalculator(KNN), AccuracyCalculator(KNN)
    mean = good.get_accuracy(x, labels)["r_precision"]
    bad.update(torch.randn_like(x), labels)
    bad.compute()
    interval = good.interval("r_precision", n_resamples=200, level=0.9)
    assert interval.mean == pytest.approx(mean) and interval.low < mean < interval.high
    test = good.compare(bad, "r_precision", n_resamples=200, alternative="greater")
    assert int(test.n) == 59 and float(test.p_value) < 0.05
    assert test.mean_difference == pytest.approx(mean - float(bad.compute()["r_precision"]))
    for calculator, known in ((good, KNN), (AccuracyCalculator(), [])):
        message = f"name: got 'AMI', wanted a metric of neighbours of the latest call: {known}"
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            calculator.interval("AMI")
