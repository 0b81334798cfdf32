"""Scores of ranks, compared with values computed by hand and by loops over random rankings; edge cases."""

import math
import re
from functools import partial

import numpy as np
import pytest
import torch

from tensormetrics.retrieval import (
    PositiveRanks,
    average_precision,
    average_precision_at_r,
    first_rank,
    hit_rate,
    inverse_negative_penalty,
    ndcg,
    precision,
    r_precision,
    ranking_auroc,
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


def loop_scores(match, k):
    """Compute all scores of one query from its candidates, nearest first, True where relevant."""
    positives = [rank for rank, relevant in enumerate(match, 1) if relevant]
    r, top_positives = len(positives), [rank for rank in positives if rank <= k]
    precisions = {rank: sum(match[:rank]) / rank for rank in positives}
    discordant_pairs = sum(sum(not other for other in match[:rank]) for rank in positives)
    return {
        "precision": sum(match[:k]) / k,
        "recall": len(top_positives) / r,
        "hit_rate": float(any(match[:k])),
        "r_precision": sum(match[:r]) / r,
        "average_precision": sum(precisions.values()) / r,
        "average_precision_k": sum(precisions[rank] for rank in top_positives) / r,
        "average_precision_min": sum(precisions[rank] for rank in top_positives) / min(r, k),
        "average_precision_at_r": sum(value for rank, value in precisions.items() if rank <= r) / r,
        "reciprocal_rank": 1 / positives[0],
        "reciprocal_rank_k": 1 / top_positives[0] if top_positives else 0.0,
        "ndcg": sum(1 / np.log2(1 + p) for p in positives) / sum(1 / np.log2(1 + j) for j in range(1, r + 1)),
        "ndcg_k": sum(1 / np.log2(1 + p) for p in top_positives)
        / sum(1 / np.log2(1 + j) for j in range(1, min(r, k) + 1)),
        "first_rank": positives[0],
        "inverse_negative_penalty": r / positives[-1],
        "ranking_auroc": 1 - discordant_pairs / (r * (len(match) - r)) if r < len(match) else NAN,
    }


@pytest.mark.parametrize("k", [1, 4, 12, 40])
def test_scores_of_random_rankings_match_loops(k, device):
    match = np.random.rand(30, 12) < np.linspace(0.05, 0.95, 30)[:, None]
    match = match[match.any(1)]
    ranks = PositiveRanks(
        torch.tensor(match * np.arange(1, 13), device=device),
        torch.tensor(match.sum(1), device=device),
        torch.full((len(match),), 12, device=device),
    )
    got = {
        "precision": precision(ranks, k),
        "recall": recall(ranks, k),
        "hit_rate": hit_rate(ranks, k),
        "r_precision": r_precision(ranks),
        "average_precision": average_precision(ranks),
        "average_precision_k": average_precision(ranks, k),
        "average_precision_min": average_precision(ranks, k, "min"),
        "average_precision_at_r": average_precision_at_r(ranks),
        "reciprocal_rank": reciprocal_rank(ranks),
        "reciprocal_rank_k": reciprocal_rank(ranks, k),
        "ndcg": ndcg(ranks),
        "ndcg_k": ndcg(ranks, k),
        "first_rank": first_rank(ranks),
        "inverse_negative_penalty": inverse_negative_penalty(ranks),
        "ranking_auroc": ranking_auroc(ranks),
    }
    for i, row in enumerate(match.tolist()):
        expected = loop_scores(row, k)
        assert {name: float(values[i]) for name, values in got.items()} == pytest.approx(
            expected, rel=1e-13, nan_ok=True
        )
        assert all(0 <= value <= 1 or math.isnan(value) or name == "first_rank" for name, value in expected.items())


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


BAD = {
    **{
        f"k: got {k!r}, wanted an integer >= 1": [
            partial(score, k=k) for score in (precision, recall, hit_rate, average_precision, reciprocal_rank, ndcg)
        ]
        for k in (0, -3, 1.0, True, "1")
    },
    **{
        f"k: got {k!r}, wanted an integer >= 1, or one or more such integers that differ": [
            partial(score, k=k) for score in (precision, recall, hit_rate, average_precision, reciprocal_rank, ndcg)
        ]
        for k in ((), [2, 2])
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


WITH_K = [average_precision, hit_rate, ndcg, precision, recall, reciprocal_rank]
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
