"""Rows with NaN or infinity retrieve nothing and are never retrieved in any implementation; masked rows are ignored."""

import math

import numpy as np
import pytest
import torch
from retrieval_oracle import nonzero_ranks
from retrieval_oracle import ranks as ranks_of

from tensormetrics.retrieval import TorchKNN
from tensormetrics.retrieval.functional import average_precision, nearest_centroid, positive_ranks, ranking_auroc
from tensormetrics.retrieval.inputs import RetrievalInputs, ShardLayout, finite_rows
from tensormetrics.retrieval.ranking.positive_ranks import joined
from tensormetrics.retrieval.ranking.ranking import RankingOptions
from tensormetrics.retrieval.ranking.sharded import gathered_ranks, tiles_of
from tensormetrics.retrieval.search.ring_pass import redistribute_rows, summarize_positions

N, CLASSES = 200, 20
BAD = [math.nan, math.inf, -math.inf]
DISTANCES = ["l2", "sqeuclidean", "ip", "cosine"]


def rows(bad, row_indices=(0, 57, 58), dtype=torch.float32):
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(N, 8, generator=generator)
    x[list(row_indices), 2] = bad
    return x.to(dtype), torch.arange(N) % CLASSES


def brute_force_ranks(x, labels, distance="l2", ties="index", depth=None):
    """Rank in float64: rows that are not finite are excluded from the ranking but still count as relevant."""
    bad, eye = ~x.isfinite().all(1).numpy(), np.eye(len(x), dtype=bool)
    same = (labels[:, None] == labels).numpy() & ~eye
    with np.errstate(invalid="ignore"):
        return ranks_of(x.double(), x.double(), same, eye | bad | bad[:, None], distance, ties, depth)[0]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("distance", DISTANCES)
def test_nonfinite_positives_are_never_retrieved(bad, distance, implementation, device):
    x, labels = (tensor.to(device) for tensor in rows(bad))
    expected = brute_force_ranks(x.cpu(), labels.cpu(), distance)
    for options in ({}, {"memory_budget": 20_000}, {"depth": N}, {"exact": False, "depth": N}, {"exact": False}):
        ranks = positive_ranks(x, labels, distance=distance, **options)
        assert nonzero_ranks(ranks.rank) == expected
        assert ranks.relevant.tolist() == [N // CLASSES - 1] * N and ranks.candidates.tolist() == [N - 1] * N
    shallow = positive_ranks(x, labels, distance=distance, depth=10)
    assert nonzero_ranks(shallow.rank) == brute_force_ranks(x.cpu(), labels.cpu(), distance, depth=10)
    for ties in ("optimistic", "pessimistic"):
        ranks = positive_ranks(x, labels, distance=distance, ties=ties)
        assert nonzero_ranks(ranks.rank) == brute_force_ranks(x.cpu(), labels.cpu(), distance, ties)


def test_all_nan_embeddings_have_the_worst_score(implementation, device):
    x, labels = torch.full((50, 3), math.nan, device=device), torch.arange(50, device=device) % 5
    for options in ({}, {"depth": 5}, {"depth": 49}, {"ties": "optimistic"}):
        ranks = positive_ranks(x, labels, **options)
        assert average_precision(ranks).tolist() == [0.0] * 50 and ranks.relevant.tolist() == [9] * 50
    assert ranking_auroc(positive_ranks(x, labels)).tolist() == [0.0] * 50
    assert (TorchKNN().indices(x, 4, x, True) == -1).all()


@pytest.mark.parametrize("bad", [70000.0, math.inf])
def test_overflow_of_one_row_lowers_score_slightly(bad, implementation, device):
    x, labels = (tensor.to(device) for tensor in rows(bad, row_indices=(0,)))
    half = x.half()  # 70000 is above the largest float16
    score = average_precision(positive_ranks(half, labels)).mean()
    without = average_precision(positive_ranks(half[1:], labels[1:])).mean()
    assert 0.9 * without < score < without < 0.2


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("distance", DISTANCES)
def test_knn_of_nonfinite_rows_returns_no_neighbors(bad, distance, implementation, device):
    x, _ = rows(bad)
    good = x.isfinite().all(1).nonzero()[:, 0]
    for k in (3, N - 4, N - 1):  # N - 4 others are finite
        distances, indices = TorchKNN(distance)(x.to(device), k, x.to(device), True)
        finite_only = TorchKNN(distance)(x[good].to(device), k, x[good].to(device), True)
        assert (indices.cpu()[~x.isfinite().all(1)] == -1).all()
        expected = torch.where(finite_only[1].cpu() < 0, -1, good[finite_only[1].cpu()])
        assert torch.equal(indices.cpu()[good], expected) and torch.equal(distances.cpu()[good], finite_only[0].cpu())
        for options in ({"exact": False}, {"memory_budget": 20_000}):
            assert torch.equal(TorchKNN(distance, **options).indices(x.to(device), k, x.to(device), True), indices)


@pytest.mark.parametrize("largest", [True, False])
def test_custom_distance_nonfinite_values_return_no_neighbors(largest, device):
    def similarity(query, reference):
        return query @ reference.T

    similarity.largest = largest
    x, _ = (tensor.to(device) for tensor in rows(math.nan))
    indices = TorchKNN(similarity).indices(x, N, x, True)
    finite = x.isfinite().all(1)
    assert (indices[~finite] == -1).all() and (indices[finite, : N - 4] >= 0).all()
    assert (indices[:, N - 4 :] == -1).all() and not (~finite)[indices[indices >= 0]].any()


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("distance", DISTANCES)
def test_nearest_centroid_excludes_nonfinite_rows(bad, distance, device):
    x, labels = (
        tensor.to(device) for tensor in rows(bad, row_indices=(0, 57, 58, *range(4, N, CLASSES)))
    )  # all of class 4
    finite = x.isfinite().all(1)
    scores = nearest_centroid(x, labels, distance=distance)
    finite_only = nearest_centroid(x[finite], labels[finite], distance=distance)
    assert torch.equal(scores[finite], finite_only) and scores[~finite].isnan().all() and not finite_only.isnan().any()


def rows_of_all_ranks():
    x, labels = rows(math.nan)
    x[100, 4] = math.inf
    return x, labels


def results_of(rank, pair):
    """Compute the positive ranks of rows that are sharded over three processes."""
    x, labels = rows_of_all_ranks()
    positions = torch.arange(rank, N, 3)
    summaries = [summarize_positions(torch.arange(other, N, 3), N, 3) for other in range(3)]
    local_rows, sizes = redistribute_rows(x[positions], positions, N, summaries, None)
    layout = ShardLayout(sizes, sizes, None, 2**28, {})
    inputs = RetrievalInputs(local_rows, labels, local_rows, labels, N, layout=layout)
    return gathered_ranks(joined(tiles_of(inputs, RankingOptions()), len(local_rows), False, None, x.device), layout)


def test_ranks_of_sharded_rows_match_brute_force(ranks):
    x, labels = rows_of_all_ranks()
    expected = brute_force_ranks(x, labels)
    for of_rank in ranks:
        assert nonzero_ranks(of_rank.rank) == expected and of_rank.relevant.tolist() == [N // CLASSES - 1] * N


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # by the inductor backend
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_finite_rows_eager_and_compiled_agree(dtype):
    rows = torch.full((6, 5), torch.finfo(dtype).max, dtype=dtype)
    rows[1, 4], rows[2, 0], rows[3, 2], rows[4] = torch.nan, torch.inf, -torch.inf, -torch.finfo(dtype).max
    for function in (finite_rows, torch.compile(finite_rows, backend="inductor")):
        assert function(rows).tolist() == [True, False, False, False, True, True]
    assert finite_rows(rows[:, :0]).tolist() == [True] * 6 and finite_rows(rows[:0]).shape == (0,)
    assert finite_rows(torch.tensor([[-128, 127]], dtype=torch.int8)).tolist() == [True]
