"""Graded relevance, references that are ignored, and queries that say which reference they are."""

import math
import re

import numpy as np
import pytest
import torch
from retrieval_oracle import KNN, data, neighbours

from tensormetrics.retrieval import AccuracyCalculator, TorchKNN

NAMES = [*KNN, "ndcg", "ndcg_at_5", "mean_inp"]


def graded(x, y):
    return (2 - (x - y).abs()).clamp(min=0)


def expected_ndcg(x, labels, k, gains, hidden=None):
    """Mean nDCG of self-retrieval, one query at a time."""
    order, _ = neighbours(x, x, len(x) - 1, "l2", np.arange(len(x)))
    discount = 1 / np.log2(2 + np.arange(len(x)))
    scores = []
    for i, row in enumerate(order):
        g = np.array([gains[i, j] for j in row if hidden is None or not hidden[i, j]])
        best = np.sort(g)[::-1][:k]
        if best.sum():
            scores.append((g[:k] * discount[: len(g[:k])]).sum() / (best * discount[: len(best)]).sum())
    return np.mean(scores)


def test_graded_relevance(device):
    x, labels = (side.to(device) for side in data())
    table = graded(labels[:, None], labels)
    wanted = {
        name: expected_ndcg(x.cpu().numpy(), labels.tolist(), k, table.cpu().numpy())
        for name, k in (("ndcg", None), ("ndcg_at_5", 5))
    }
    by_function = AccuracyCalculator(NAMES, gains=graded)
    got = by_function.get_accuracy(x, labels)
    assert {name: got[name] for name in wanted} == pytest.approx(wanted, rel=1e-12)
    for gains in (table, table.cpu().numpy()):
        assert AccuracyCalculator(NAMES, gains=gains).get_accuracy(x, labels) == got
        assert AccuracyCalculator(NAMES).get_accuracy(x, labels, gains=gains) == got
    by_function.update(x[:40], labels[:40])
    by_function.update(x[40:], labels[40:])
    assert {name: float(value) for name, value in by_function.compute().items()} == got
    # All that is worth something is relevant: near labels too.
    near = AccuracyCalculator(NAMES[:5], label_comparison_fn=lambda a, b: (a - b).abs() < 2).get_accuracy(x, labels)
    assert {name: got[name] for name in near} == near


def test_kept_ranks(device):
    x, labels = (side.to(device) for side in data())
    for options in ({}, {"gains": graded}, {"k": 5}):
        calculator = AccuracyCalculator(KNN, keep="all", **options)
        calculator.get_accuracy(x, labels)
        ranks = calculator.last.ranks
        assert ranks.rank.shape == (60, int(ranks.relevant.max())) or "k" in options
        assert (ranks.candidates == 59).all() and (ranks.gain is None) == ("gains" not in options)
        found = (ranks.rank == 1).any(1).double().masked_fill(ranks.relevant == 0, math.nan)
        assert torch.equal(found.nan_to_num(-1), calculator.last.scores["precision_at_1"].nan_to_num(-1))
    assert AccuracyCalculator(KNN).last is None
    calculator = AccuracyCalculator(KNN)
    calculator.get_accuracy(x, labels)
    assert calculator.last.ranks is None


def test_ignored_references(device):
    x, labels = (side.to(device) for side in data())
    hidden = torch.rand(60, 60, device=device) < 0.3
    same = (labels[:, None] == labels).cpu().numpy().astype(float)
    wanted = expected_ndcg(x.cpu().numpy(), labels.tolist(), None, same, hidden.cpu().numpy())
    calculators = [AccuracyCalculator(NAMES, ignore=ignore) for ignore in (hidden, hidden.tolist(), hidden.__getitem__)]
    for calculator in calculators:
        got = calculator.get_accuracy(x, labels)
        assert got["ndcg"] == pytest.approx(wanted, rel=1e-12)
        calculator.update(x, labels)
        assert {name: float(value) for name, value in calculator.compute().items()} == got
    cameras = torch.randint(0, 3, (60,), device=device)
    by_groups = AccuracyCalculator(NAMES, ignore=(cameras, cameras.tolist())).get_accuracy(x, labels)
    assert by_groups == AccuracyCalculator(NAMES).get_accuracy(x, labels, query_cameras=cameras)


def test_queries_anywhere_among_the_references(device):
    x, labels = (side.to(device) for side in data())
    place = torch.tensor([50, 3, 17, 4, 29], device=device)
    outsider = torch.ones(1, 6, device=device)
    query, query_labels = torch.cat([x[place], outsider]), torch.cat([labels[place], labels[:1]])
    own = [*place.tolist(), -1]
    for k in (None, 4):
        # In front of all references as they stand elsewhere, each query is the prefix.
        rest = [i for i in range(60) if i not in place.tolist()]
        order = torch.tensor([*place.tolist(), *rest], device=device)
        expected = AccuracyCalculator(KNN, k=k).get_accuracy(x[place], labels[place], x[order], labels[order], True)
        calculator = AccuracyCalculator(KNN, k=k)
        calculator.get_accuracy(query, query_labels, x, labels, self_index=own)
        scores = calculator.last.scores
        assert {name: float(score[:5].mean()) for name, score in scores.items()} == pytest.approx(expected, rel=1e-14)
        whole = AccuracyCalculator(KNN, k=k, knn_func=lambda *a, **o: TorchKNN()(*a, **o))
        got = whole.get_accuracy(query, query_labels, x, labels, self_index=own)
        assert got == pytest.approx({name: float(score.mean()) for name, score in scores.items()}, rel=1e-14)


X, Y = torch.zeros(4, 2), torch.tensor([0, 0, 1, 1])
MASK = torch.zeros(4, 4, dtype=torch.bool)


@pytest.mark.parametrize(
    ("options", "call", "message"),
    [
        (
            {},
            {"gains": -torch.ones(4, 4)},
            "gains: got values that are negative or not finite, wanted finite numbers >= 0",
        ),
        (
            {"gains": lambda a, b: a * math.nan},
            {},
            "gains: got values that are negative or not finite, wanted finite numbers >= 0",
        ),
        ({}, {"gains": torch.ones(4, 3)}, "gains: got shape (4, 3), wanted (4, 4)"),
        (
            {"gains": lambda a, b: a[:1]},
            {},
            "gains: got shape (1,) and torch.int64 for 4 pairs of labels, wanted a number for each pair",
        ),
        ({"ignore": MASK[1:]}, {}, "ignore: got shape (3, 4), wanted (4, 4)"),
        ({"ignore": lambda rows: MASK[rows][:, 1:]}, {}, "ignore: got shape (4, 3), wanted (4, 4)"),
        ({"ignore": MASK.int()}, {}, "ignore: got torch.int32, wanted torch.bool; write ignore.bool()"),
        ({"ignore": (Y, Y[:3])}, {}, "ignore: reference groups: got shape (3,), wanted (4,)"),
        ({"ignore": MASK}, {"query_cameras": Y}, "ignore: got some together with cameras, wanted one of them"),
        ({}, {"self_index": [0, 1]}, "self_index: got shape (2,), wanted (4,)"),
        ({}, {"self_index": [0, 1, 2, 4]}, "self_index: got 4, wanted -1 to 3"),
        (
            {},
            {"self_index": [0.0] * 4},
            "self_index: got torch.float64, wanted an integer dtype; write self_index.long()",
        ),
    ],
)
def test_bad_calls(options, call, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        AccuracyCalculator(KNN, **options).get_accuracy(X, Y, **call)


def test_bad_options():
    message = "gains and label_comparison_fn: got both, wanted one; a gain above 0 means relevant"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        AccuracyCalculator(KNN, gains=graded, label_comparison_fn=lambda a, b: a == b)
    message = "gains: AMI, NMI cannot use it; write exclude=('AMI', 'NMI')"
    with pytest.raises(NotImplementedError, match=f"^{re.escape(message)}$"):
        AccuracyCalculator(gains=graded)
    message = "ignore: nearest_centroid_accuracy cannot leave them out; write exclude=('nearest_centroid_accuracy',)"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        AccuracyCalculator(["nearest_centroid_accuracy"], ignore=MASK).get_accuracy(X, Y)
    with pytest.raises(ValueError, match=r"^keep: got 'ranks', wanted one of 'scores', 'all', 'neighbours'$"):
        AccuracyCalculator(keep="ranks")
