"""Scores of ranks, compared with values computed by hand and by loops over random rankings; edge cases."""

import math
import re
from functools import partial

import numpy as np
import pytest
import torch
from retrieval_oracle import CASES, TINY, TINY_LABELS, case_rows, cases, nonzero_ranks
from retrieval_oracle import ranks as oracle

from tensormetrics.retrieval import TorchKNN
from tensormetrics.retrieval.functional import (
    PositiveRanks,
    average_precision,
    average_precision_at_r,
    count_relevant,
    first_rank,
    hit_rate,
    inverse_negative_penalty,
    ndcg,
    positive_ranks,
    precision,
    r_precision,
    ranking_auroc,
    ranks_of_neighbors,
    recall,
    reciprocal_rank,
)

NAN = math.nan
D3, D6 = 1 / math.log2(4), 1 / math.log2(7)  # discounts of ranks 3 and 6; rank 1 has discount 1

# Four queries with 10 candidates each: four relevant, three of them retrieved at ranks 1, 3 and 6; two relevant, none
# retrieved; none relevant; two relevant, both retrieved.
RANKS = PositiveRanks(
    torch.tensor([[1, 0, 3, 0, 0, 6], [0] * 6, [0] * 6, [0, 0, 0, 2, 5, 0]]),
    torch.tensor([4, 2, 0, 2]),
    torch.tensor([10, 10, 10, 10]),
    depth=6,
)
IDEAL_4, IDEAL_2 = 1 + 1 / math.log2(3) + D3 + 1 / math.log2(5), 1 + 1 / math.log2(3)
BY_HAND = {
    "precision@5": (partial(precision, k=5), [2 / 5, 0, NAN, 2 / 5]),
    "precision@20": (partial(precision, k=20), [3 / 20, 0, NAN, 2 / 20]),
    "recall@3": (partial(recall, k=3), [2 / 4, 0, NAN, 1 / 2]),
    "hit_rate@1": (partial(hit_rate, k=1), [1, 0, NAN, 0]),
    "hit_rate@2": (partial(hit_rate, k=2), [1, 0, NAN, 1]),
    "r_precision": (r_precision, [2 / 4, 0, NAN, 1 / 2]),
    "average_precision": (average_precision, [(1 + 2 / 3 + 3 / 6) / 4, 0, NAN, (1 / 2 + 2 / 5) / 2]),
    "average_precision@3": (partial(average_precision, k=3), [(1 + 2 / 3) / 4, 0, NAN, 1 / 2 / 2]),
    "average_precision@3 min": (
        partial(average_precision, k=3, denominator="min"),
        [(1 + 2 / 3) / 3, 0, NAN, 1 / 2 / 2],
    ),
    "average_precision@3 found": (
        partial(average_precision, k=3, denominator="found"),
        [(1 + 2 / 3) / 2, 0, NAN, 1 / 2 / 1],
    ),
    "average_precision_at_r": (average_precision_at_r, [(1 + 2 / 3) / 4, 0, NAN, 1 / 2 / 2]),
    "reciprocal_rank": (reciprocal_rank, [1, 0, NAN, 1 / 2]),
    "reciprocal_rank@1": (partial(reciprocal_rank, k=1), [1, 0, NAN, 0]),
    "ndcg@6": (partial(ndcg, k=6), [(1 + D3 + D6) / IDEAL_4, 0, NAN, (1 / math.log2(3) + 1 / math.log2(6)) / IDEAL_2]),
    "ndcg": (ndcg, [(1 + D3 + D6) / IDEAL_4, 0, NAN, (1 / math.log2(3) + 1 / math.log2(6)) / IDEAL_2]),
    "ndcg@1": (partial(ndcg, k=1), [1, 0, NAN, 0]),
    "first_rank": (first_rank, [1, math.inf, NAN, 2]),
    "inverse_negative_penalty": (inverse_negative_penalty, [0, 0, NAN, 2 / 5]),
    # discordant pairs over R (C - R); positives that were not retrieved rank below all six, eight, eight negatives
    "ranking_auroc": (ranking_auroc, [1 - (0 + 1 + 3 + 6) / 24, 0, NAN, 1 - (1 + 3) / 16]),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_scores_match_hand_computed_values(name, device):
    score, expected = BY_HAND[name]
    ranks = PositiveRanks(*(t.to(device) for t in RANKS[:3]), depth=6)
    for kind in (torch.int32, torch.int64):
        got = score(ranks._replace(rank=ranks.rank.to(kind)))
        target = torch.tensor(expected, dtype=torch.float64, device=device)
        torch.testing.assert_close(got, target, rtol=1e-15, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", BY_HAND)
def test_scores_ignore_position_of_padding(name, device):
    score = BY_HAND[name][0]
    dense = PositiveRanks(
        torch.tensor([[1, 2, 4]], device=device), *torch.tensor([[3], [9]], device=device), depth=None
    )
    padded = dense._replace(rank=torch.tensor([[0, 1, 0, 0, 2, 4, 0, 0, 0]], device=device))
    assert torch.equal(score(dense), score(padded))
    lone = PositiveRanks(dense.rank[:, :0], *torch.zeros(2, 1, dtype=torch.int64, device=device))
    assert score(lone).isnan().tolist() == [True]


@pytest.mark.parametrize("ks", [(1, 3, 5), [6], range(8, 1, -3)])
def test_scores_of_several_k_match_single_k(ks, device):
    graded = RANKS._replace(gain=RANKS.rank.double() / 2, ideal=RANKS.rank.double().sort(descending=True).values)
    ranks = PositiveRanks(*(part.to(device) if isinstance(part, torch.Tensor) else part for part in graded))
    others = [partial(average_precision, denominator=name) for name in ("min", "found")]
    for score in (precision, recall, hit_rate, average_precision, *others, reciprocal_rank, ndcg):
        stacked = torch.stack([score(ranks, k=k) for k in ks], -1)
        assert score(ranks, k=ks).shape == (4, len(ks))
        torch.testing.assert_close(score(ranks, k=ks), stacked, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("k", [None, 2, 9])
@pytest.mark.parametrize("gain", ["linear", "exp2"])
def test_ndcg_of_graded_relevance_matches_hand_computed(k, gain, device):
    # The positives with gains 1, 3 and 0.5 have ranks 2, 3 and 5; the entry in between is padding.
    gains = [1.0, 3.0, 0.0, 0.5]
    ranks = PositiveRanks(
        torch.tensor([[2, 3, 0, 5]], device=device),
        torch.tensor([3], device=device),
        gain=torch.tensor([gains], dtype=torch.float64, device=device),
        ideal=torch.tensor([sorted(gains, reverse=True)], dtype=torch.float64, device=device),
    )
    gain_transform = (lambda g: g) if gain == "linear" else (lambda g: 2**g - 1)
    depth = k or 5
    reached = sum(gain_transform(g) / math.log2(1 + r) for r, g in ((2, 1), (3, 3), (5, 0.5)) if r <= depth)
    best = sum(gain_transform(g) / math.log2(1 + j) for j, g in ((1, 3), (2, 1), (3, 0.5)) if j <= depth)
    assert ndcg(ranks, k, gain).tolist() == pytest.approx([reached / best], rel=1e-15)


WITH_K = [average_precision, hit_rate, ndcg, precision, recall, reciprocal_rank]
BAD = {
    **{
        f"k: got {k!r}, wanted an integer >= 1{others}": [partial(score, k=k) for score in WITH_K]
        for others, ks in (
            ("", (0, -3, 1.0, True, "1")),
            (", or one or more such integers that differ", ((), [2, 2])),
        )
        for k in ks
    },
    "denominator: got 'k', wanted one of 'relevant', 'min', 'found'": [
        partial(average_precision, k=3, denominator="k")
    ],
    "k: got None with denominator='min', wanted an integer >= 1": [partial(average_precision, denominator="min")],
    "gain: got 'log', wanted one of 'linear', 'exp2'": [partial(ndcg, gain="log")],
    "ranks: got candidates=None, wanted the number of candidates of every query": [
        lambda ranks: ranking_auroc(ranks._replace(candidates=None))
    ],
}


@pytest.mark.parametrize("message", BAD)
def test_invalid_arguments_raise_value_error(message):
    for call in BAD[message]:
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            call(RANKS)


WITHOUT_K = [average_precision_at_r, first_rank, inverse_negative_penalty, r_precision, ranking_auroc]


@pytest.mark.parametrize("function", WITH_K + WITHOUT_K)
def test_scores_of_a_tensor_that_is_no_ranks_raise(function):
    message = f"ranks: got a Tensor, wanted PositiveRanks; write {function.__name__}(positive_ranks("
    with pytest.raises(TypeError, match=f"^{re.escape(message)}"):
        function(torch.ones(4, 3), *([1] if function in WITH_K else []))


def test_compiled_score_reuses_graph_for_other_column_counts():
    graphs = []

    def count(module, inputs):
        graphs.append(module)
        return module.forward

    torch.compiler.reset()
    compiled = torch.compile(average_precision, backend=count, fullgraph=True)
    for columns in (5, 7, 9, 33, 2, 100, 65, 17, 400, 2_000):
        ranks = PositiveRanks(torch.arange(1, columns + 1).repeat(columns % 7 + 3, 1) * 2, torch.tensor(columns))
        assert torch.equal(compiled(ranks), average_precision(ranks))
    assert len(graphs) <= 2, "the number of columns is a symbol, not a constant of the graph"


def check(ranks, expected, relevant):
    """Compare ranks with the lists of the oracle; `relevant` also counts positives below the depth."""
    rank, gain, candidates = expected
    assert nonzero_ranks(ranks.rank) == rank and ranks.rank.dtype == torch.int32
    assert ranks.relevant.tolist() == list(relevant) and ranks.candidates.tolist() == candidates
    assert ranks.rank.shape[1] == max(relevant, default=0)
    if ranks.gain is not None:
        assert [row[:n].tolist() for row, n in zip(ranks.gain, map(len, rank), strict=True)] == gain
        assert ranks.gain.shape == ranks.ideal.shape == ranks.rank.shape


def self_ranks(embeddings, labels, device):
    x, labels = torch.tensor(embeddings, device=device), torch.tensor(labels, device=device)
    indices = TorchKNN().indices(x, len(x), x, True)
    return ranks_of_neighbors(indices, labels, labels, count_relevant(labels, labels, True))


def test_golden_ranks_of_tiny_case_match(device):
    case = CASES["ranks/tiny_self"]
    ranks = self_ranks(TINY, TINY_LABELS, device)
    assert nonzero_ranks(ranks.rank) == case["ranks"] and ranks.relevant.tolist() == case["relevant"]
    assert ranks.rank.dtype == ranks.relevant.dtype == torch.int64


@pytest.mark.parametrize("name", [name for name, case in cases("get_accuracy").items() if "ranks" in case])
def test_golden_ranks_of_accuracy_cases_match(name, device):
    case = CASES[name]
    x, labels = (torch.tensor(column, device=device) for column in case_rows(case))
    if case["self"]:
        reference, reference_labels = x, labels
    else:
        reference = torch.tensor(case["reference"], dtype=x.dtype, device=device)
        reference_labels = torch.tensor(case["reference_labels"], device=device)
    indices = TorchKNN().indices(x, len(reference), reference, case["self"])
    relevant = count_relevant(labels, reference_labels, case["self"])
    assert nonzero_ranks(ranks_of_neighbors(indices, labels, reference_labels, relevant).rank) == case["ranks"]
    assert relevant.tolist() == [len(row) for row in case["ranks"]]


def labeled_points(device, n=40, others=55):
    random = np.random.RandomState(3)
    points = [torch.tensor(random.randint(-2, 3, (m, 3)), dtype=torch.float32, device=device) for m in (n, others)]
    labels = [torch.tensor(random.randint(0, 7, m), device=device) for m in (n, others)]
    return points[0], labels[0], points[1], labels[1]


def test_positive_ranks_of_self_and_other_references_match_oracle(device):
    x, labels, reference, reference_labels = labeled_points(device)
    match, eye = (labels[:, None] == labels).cpu().numpy(), np.eye(len(x), dtype=bool)
    for depth in (None, 1, 5, 39):
        expected = oracle(x.cpu(), x.cpu(), match & ~eye, eye, depth=depth)
        check(positive_ranks(x, labels, depth=depth), expected, (match.sum(1) - 1).tolist())
    match = (labels[:, None] == reference_labels).cpu().numpy()
    self_index = np.random.RandomState(1).randint(-1, len(reference), len(x))
    ignored = self_index[:, None] == np.arange(len(reference))
    for distance in ("l2", "sqeuclidean", "ip", "cosine"):
        expected = oracle(x.cpu(), reference.cpu(), match & ~ignored, ignored, distance)
        ranks = positive_ranks(
            x,
            labels,
            reference,
            reference_labels,
            self_index=torch.tensor(self_index, device=device),
            distance=distance,
        )
        check(ranks, expected, (match & ~ignored).sum(1).tolist())


@pytest.mark.parametrize("kind", ["mask", "function", "groups"])
def test_positive_ranks_with_ignored_references_match_oracle(kind, device):
    x, labels, reference, reference_labels = labeled_points(device)
    match = (labels[:, None] == reference_labels).cpu().numpy()
    random = np.random.RandomState(2)
    if kind == "groups":
        groups = [torch.tensor(random.randint(0, 3, len(points)), device=device) for points in (x, reference)]
        ignore, ignored = tuple(groups), match & (groups[0][:, None] == groups[1]).cpu().numpy()
    else:
        ignored = random.rand(*match.shape) < 0.3
        mask = torch.tensor(ignored, device=device)
        ignore = mask if kind == "mask" else lambda rows: mask[rows]
    for depth in (None, 4):
        expected = oracle(x.cpu(), reference.cpu(), match & ~ignored, ignored, depth=depth)
        ranks = positive_ranks(x, labels, reference, reference_labels, ignore=ignore, depth=depth, memory_budget=50_000)
        check(ranks, expected, (match & ~ignored).sum(1).tolist())


def test_positive_ranks_with_label_comparison_match_oracle(device):
    x, labels, reference, reference_labels = labeled_points(device)
    match = (labels[:, None] - reference_labels).abs().cpu().numpy() == 1
    expected = oracle(x.cpu(), reference.cpu(), match, np.zeros_like(match))
    close = positive_ranks(x, labels, reference, reference_labels, label_comparison_fn=lambda a, b: (a - b).abs() == 1)
    check(close, expected, match.sum(1).tolist())
    # two label columns; the comparison reads only the first
    two, other_two = (torch.stack([column, column * 0 + 7], 1) for column in (labels, reference_labels))
    columns = positive_ranks(x, two, reference, other_two, label_comparison_fn=lambda a, b: (a - b)[:, 0].abs() == 1)
    assert torch.equal(columns.rank, close.rank)
    # a label that does not match itself
    never = positive_ranks(x, labels, label_comparison_fn=lambda a, b: a != b)
    assert never.relevant.tolist() == [(labels != label).sum() for label in labels]


def test_positive_ranks_with_gains_match_oracle(device):
    x, labels, reference, reference_labels = labeled_points(device)
    gains = (labels[:, None] * reference_labels % 5).double()
    ignored = np.zeros(gains.shape, dtype=bool)
    expected = oracle(x.cpu(), reference.cpu(), gains.cpu(), ignored)
    sorted_gains = [sorted(row[row > 0].tolist(), reverse=True) for row in gains]
    for gains_input in (gains, gains.float(), lambda a, b: a * b % 5):
        ranks = positive_ranks(x, labels, reference, reference_labels, gains=gains_input)
        check(ranks, expected, (gains > 0).sum(1).tolist())
        assert [row[row > 0].tolist() for row in ranks.ideal] == sorted_gains
    for depth in (3, 50):
        expected = oracle(x.cpu(), reference.cpu(), gains.cpu(), ignored, depth=depth)
        ranks = positive_ranks(x, labels, reference, reference_labels, gains=gains, depth=depth)
        check(ranks, expected, (gains > 0).sum(1).tolist())
        assert [row[row > 0].tolist() for row in ranks.ideal] == sorted_gains
