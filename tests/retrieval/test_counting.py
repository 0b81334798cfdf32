"""Ranks by counting and by neighbors equal brute force on inputs whose order is difficult."""

import itertools

import numpy as np
import pytest
import torch
from retrieval_oracle import families, nonzero_ranks
from retrieval_oracle import ranks as oracle

from tensormetrics.core.native import native
from tensormetrics.retrieval.functional import positive_ranks
from tensormetrics.retrieval.search.stages import certify_topk

N = 45


@pytest.mark.parametrize("family", families(N))
@pytest.mark.parametrize(
    ("distance", "dtype"),
    [("l2", torch.float16), ("l2", torch.float64), ("ip", torch.float64), ("cosine", torch.float32)],
    ids=str,
)
def test_positive_ranks_counting_and_neighbors_equal_oracle(dtype, family, distance, implementation, device):
    x = torch.tensor(families(N)[family], dtype=dtype, device=device)
    embeddings, eye = x.double().cpu().numpy(), np.eye(N, dtype=bool)
    for classes in (2, 7, N // 2):
        labels = torch.arange(N, device=device) % classes
        match = (labels[:, None] == labels).cpu().numpy() & ~eye
        for ties in ("index", "optimistic", "pessimistic"):
            expected = oracle(embeddings, embeddings, match, eye, distance, ties)[0]
            for budget in (None, 20_000) if classes == 7 else (None,):
                ranks = positive_ranks(x, labels, distance=distance, ties=ties, memory_budget=budget)
                assert nonzero_ranks(ranks.rank) == expected
            if ties == "index":
                from_neighbors = positive_ranks(x, labels, distance=distance, depth=N)
                assert torch.equal(from_neighbors.rank, ranks.rank)


@pytest.mark.parametrize("family", families(N))
def test_positive_ranks_gains_and_ignored_references_equal_oracle(family, implementation, device):
    random = np.random.RandomState(1)
    x = torch.tensor(families(N)[family], device=device)
    gains, ignored = random.randint(0, 4, (N, N)), random.rand(N, N) < 0.3
    np.fill_diagonal(ignored, True)
    visible_gains = gains * ~ignored
    for ties in ("index", "optimistic", "pessimistic"):
        rank, gain, candidates = oracle(x.cpu(), x.cpu(), visible_gains, ignored, ties=ties)
        ranks = positive_ranks(
            x,
            torch.zeros(N, device=device),
            gains=torch.tensor(gains, device=device),
            ignore=torch.tensor(ignored, device=device),
            ties=ties,
        )
        assert nonzero_ranks(ranks.rank) == rank and ranks.candidates.tolist() == candidates
        assert [row[row > 0].tolist() for row in ranks.gain] == gain
        assert [row[row > 0].tolist() for row in ranks.ideal] == [sorted(row, reverse=True) for row in gain]


def test_positive_ranks_ties_bound_all_orders_of_equal_references(implementation, device):
    # One query, eight references at three distances; all orders within the groups of equal distance.
    reference = torch.tensor([[1.0], [2.0], [1.0], [3.0], [2.0], [1.0], [2.0], [2.0]], device=device)
    relevant = torch.tensor([1, 0, 0, 1, 1, 1, 0, 1], device=device)
    groups = [(0, 2, 5), (1, 4, 6, 7), (3,)]
    orders = [sum(parts, ()) for parts in itertools.product(*map(itertools.permutations, groups))]
    all_ranks = [[rank for rank, j in enumerate(order, 1) if relevant[j]] for order in orders]
    for ties, expected in (
        ("optimistic", np.min(all_ranks, 0)),
        ("pessimistic", np.max(all_ranks, 0)),
        ("index", [1, 3, 5, 7, 8]),
    ):
        ranks = positive_ranks(
            torch.zeros(1, 1, device=device), relevant[:1], reference, relevant, ties=ties, distance="sqeuclidean"
        )
        assert ranks.rank.tolist() == [list(expected)]


def make_near_ties(count, classes):
    """Return embeddings with integer distances, distances one float64 step apart, and exact ties, with labels."""
    x = torch.arange(count, dtype=torch.float64) // 3 + 1
    x[1::3] = torch.nextafter(x[1::3], x.new_tensor(torch.inf))
    order = torch.randperm(count)
    return x[order, None] * x.new_ones(1, 2), torch.arange(count)[order] % classes


@pytest.mark.parametrize("budget", [None, pytest.param(2**16, marks=pytest.mark.full)])
def test_positive_ranks_near_ties_equal_oracle(budget, implementation, device):
    x, labels = (tensor.to(device) for tensor in make_near_ties(300, 2))
    match = (labels[:, None] == labels).cpu().numpy() & ~np.eye(300, dtype=bool)
    for ties in ("index", "optimistic", "pessimistic"):
        expected = oracle(x.cpu().numpy(), x.cpu().numpy(), match, np.eye(300, dtype=bool), ties=ties)[0]
        assert nonzero_ranks(positive_ranks(x, labels, ties=ties, memory_budget=budget).rank) == expected


COLUMNS = torch.tensor([[4, 7, 2, 9, 5]])


def certify(values, k, error=1.0, complete=False, exact=True):
    """Call `certify_topk` with canonical distances in the reverse order of the values.

    Returns the nearest columns, whether they are proven, and the columns whose canonical distances were requested.
    """
    requested = []

    def deltas(row, column):
        requested.extend(column.tolist())
        position = (COLUMNS == column[:, None]).int().argmax(1)
        return -torch.tensor(values, dtype=torch.float64)[position]

    value_row = torch.tensor([values], dtype=torch.float64)
    error = torch.tensor([error], dtype=torch.float64)
    nearest, proven = certify_topk(value_row, COLUMNS[:, : len(values)].clone(), error, k, deltas, complete, exact)
    return nearest[0].tolist(), bool(proven), sorted(requested)


@pytest.mark.parametrize(
    ("values", "nearest", "requested"),
    [
        # Intervals [value - 1, value + 1]: a chain of overlapping intervals is ordered by canonical distances.
        ([0.0, 1.9, 3.8, 100.0, 200.0], [2, 7, 4], [2, 4, 7]),
        ([0.0, 2.0, 4.0, 100.0, 200.0], [2, 7, 4], [2, 4, 7]),  # they touch: the distances may be equal
        ([0.0, 2.1, 4.2, 100.0, 200.0], [4, 7, 2], []),  # apart: the values have the order
        ([0.0, 2.1, 4.0, 100.0, 200.0], [4, 2, 7], [2, 7]),
        ([0.0, 10.0, 20.0, 21.5, 200.0], [4, 7, 9], [2, 9]),  # the fourth may be the third
        ([0.0, 10.0, 20.0, 100.0, 101.0], [4, 7, 2], []),  # overlaps after the k-th do not matter
        ([0.5, 0.5, 0.5, 100.0, 200.0], [2, 4, 7], [2, 4, 7]),  # equal distances too: by column
    ],
)
def test_certify_topk_overlapping_intervals_get_canonical_order(values, nearest, requested):
    assert certify(values, 3) == (nearest, True, requested)


def test_certify_topk_proves_only_separated_results():
    assert certify([0.0, 10.0, 12.1, 14.0], 2)[1]  # excluded references are above 14 - 1, the second is below 10 + 1
    assert not certify([0.0, 10.0, 11.0, 12.0], 2)[1]  # 12 - 1 is not above 10 + 1
    assert not certify([0.0, 10.0, 11.0, 11.5], 2)[1]
    assert certify([0.0, 10.0, 11.0, 11.5], 2, complete=True)[1]
    assert certify([0.0, 1.0, 1.5, 2.0], 2, exact=False) == ([4, 7], True, [])
    assert (
        not certify([0.0, 10.0, 12.1, 14.0], 2, error=torch.nan)[1]
        and not certify([0.0, 1.0, 2.0, 3.0], 2, torch.inf)[1]
    )
    assert certify([0.0, torch.inf, torch.inf], 2) == ([4, -1], True, [])  # fewer than k finite values exist


@pytest.mark.skipif(not native.has_kernel("count_before", "cpu"), reason="built without native code")
@pytest.mark.parametrize("dim", [2, 3, 5, 8, 16])
@pytest.mark.parametrize("distance", ["ip", "l2", "cosine"])
def test_native_ranks_sums_use_no_fused_multiply_add(dim, distance):
    """The float64 distances differ only in the last bits, which a fused multiply-add would change."""
    generator = torch.Generator().manual_seed(dim)
    x = torch.randint(-2, 3, (60, dim), generator=generator, dtype=torch.float64)
    x = x * (1 + 2.0**-30 * torch.randint(0, 2, (60, dim), generator=generator))
    labels = torch.arange(60) % 3
    eye = np.eye(60, dtype=bool)
    match = (labels[:, None] == labels).numpy() & ~eye
    for ties in ("index", "optimistic", "pessimistic"):
        expected = oracle(x, x, match, eye, distance, ties)[0]
        assert nonzero_ranks(positive_ranks(x, labels, distance=distance, ties=ties).rank) == expected
