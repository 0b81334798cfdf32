"""Counting, neighbours and brute force give the same ranks, on inputs that make the order hard to get right."""

import itertools

import numpy as np
import pytest
import torch
from fake_device import DEVICE, Device
from ranks_oracle import families
from ranks_oracle import ranks as oracle

from tensormetrics import _native
from tensormetrics.retrieval import positive_ranks

N = 45


@pytest.fixture(params=["native", "torch"])
def way(request, monkeypatch):
    if request.param == "torch":
        monkeypatch.setattr(_native, "can_use_kernel", lambda name, device: False)


def found(rank):
    return [row[row > 0].tolist() for row in rank]


@pytest.mark.parametrize("family", families(N))
@pytest.mark.parametrize(
    ("distance", "dtype"),
    [("l2", torch.float16), ("l2", torch.float64), ("ip", torch.float64), ("cosine", torch.float32)],
    ids=str,
)
def test_three_ways_agree(dtype, family, distance, way, device):
    x = torch.tensor(families(N)[family], dtype=dtype, device=device)
    wide, eye = x.double().cpu().numpy(), np.eye(N, dtype=bool)
    for classes in (2, 7, N // 2):
        labels = torch.arange(N, device=device) % classes
        match = (labels[:, None] == labels).cpu().numpy() & ~eye
        for ties in ("index", "optimistic", "pessimistic"):
            expected = oracle(wide, wide, match, eye, distance, ties)[0]
            for budget in (None, 20_000) if classes == 7 else (None,):
                ranks = positive_ranks(x, labels, distance=distance, ties=ties, memory_budget=budget)
                assert found(ranks.rank) == expected
            if ties == "index":
                neighbours = positive_ranks(x, labels, distance=distance, depth=N)
                assert torch.equal(neighbours.rank, ranks.rank)


@pytest.mark.parametrize("family", families(N))
def test_gains_and_ignored_references(family, way, device):
    random = np.random.RandomState(1)
    x = torch.tensor(families(N)[family], device=device)
    gains, hidden = random.randint(0, 4, (N, N)), random.rand(N, N) < 0.3
    np.fill_diagonal(hidden, True)
    shown = gains * ~hidden
    for ties in ("index", "optimistic", "pessimistic"):
        rank, gain, candidates = oracle(x.cpu(), x.cpu(), shown, hidden, ties=ties)
        ranks = positive_ranks(
            x,
            torch.zeros(N, device=device),
            gains=torch.tensor(gains, device=device),
            ignore=torch.tensor(hidden, device=device),
            ties=ties,
        )
        assert found(ranks.rank) == rank and ranks.candidates.tolist() == candidates
        assert [row[row > 0].tolist() for row in ranks.gain] == gain
        assert [row[row > 0].tolist() for row in ranks.ideal] == [sorted(row, reverse=True) for row in gain]


def test_ties_bound_every_order_of_equal_references(way, device):
    # One query, eight references at three distances; every order within the groups of equal distance.
    reference = torch.tensor([[1.0], [2.0], [1.0], [3.0], [2.0], [1.0], [2.0], [2.0]], device=device)
    relevant = torch.tensor([1, 0, 0, 1, 1, 1, 0, 1], device=device)
    groups = [(0, 2, 5), (1, 4, 6, 7), (3,)]
    orders = [sum(parts, ()) for parts in itertools.product(*map(itertools.permutations, groups))]
    possible = [[rank for rank, j in enumerate(order, 1) if relevant[j]] for order in orders]
    for ties, expected in (
        ("optimistic", np.min(possible, 0)),
        ("pessimistic", np.max(possible, 0)),
        ("index", [1, 3, 5, 7, 8]),
    ):
        ranks = positive_ranks(
            torch.zeros(1, 1, device=device), relevant[:1], reference, relevant, ties=ties, distance="sqeuclidean"
        )
        assert ranks.rank.tolist() == [list(expected)]


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gaussian", "every point five times", "integer lattice", "outliers"])
@pytest.mark.parametrize("classes", [10, 300])
def test_thousands_of_references(family, classes, way, device):
    x = torch.tensor(families(3000, 24)[family], dtype=torch.float16, device=device).clamp(-500, 500)
    labels = torch.arange(3000, device=device) % classes
    wide, chosen = x.double().cpu().numpy(), slice(0, 3000, 75)
    eye = np.eye(3000, dtype=bool)[chosen]
    match = (labels[chosen, None] == labels).cpu().numpy() & ~eye
    for ties, budget in (("index", None), ("pessimistic", 2**23)):
        expected = oracle(wide[chosen], wide, match, eye, ties=ties)[0]
        assert found(positive_ranks(x, labels, ties=ties, memory_budget=budget).rank[chosen]) == expected
    expected = oracle(wide[chosen], wide, match, eye, depth=90)[0]
    assert found(positive_ranks(x, labels, depth=90).rank[chosen]) == expected


def nearly_tied(count, classes):
    """Values at whole distances apart, next to each other in float64, and the same: all sorts of near-ties."""
    x = torch.arange(count, dtype=torch.float64) // 3 + 1
    x[1::3] = torch.nextafter(x[1::3], x.new_tensor(torch.inf))
    order = torch.randperm(count)
    return x[order, None] * x.new_ones(1, 2), torch.arange(count)[order] % classes


@pytest.mark.parametrize("budget", [None, 2**16])
def test_near_ties_of_many_positives(budget, way, device):
    x, labels = (side.to(device) for side in nearly_tied(300, 2))
    match = (labels[:, None] == labels).cpu().numpy() & ~np.eye(300, dtype=bool)
    for ties in ("index", "optimistic", "pessimistic"):
        expected = oracle(x.cpu().numpy(), x.cpu().numpy(), match, np.eye(300, dtype=bool), ties=ties)[0]
        assert found(positive_ranks(x, labels, ties=ties, memory_budget=budget).rank) == expected


def test_many_positives_ask_little_of_a_device():
    x, labels = torch.randn(1300, 16), torch.arange(1300) % 2
    with Device() as pretended:
        sides = x.to(DEVICE), labels.to(DEVICE)
        pretended.waits.clear()
        pretended.operators = pretended.bytes = 0
        positive_ranks(*sides)
        assert pretended.operators <= 300 and len(pretended.waits) <= 12
