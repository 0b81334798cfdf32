"""Native operators and plain torch give the same integers, also where there is more than one tile."""

import pytest
import torch

from tensormetrics import _native
from tensormetrics.retrieval import TorchKNN, positive_ranks

pytestmark = pytest.mark.skipif(not _native.has_kernel("update_topk", "cpu"), reason="built without native code")


@pytest.fixture(params=["spread", "lattice", "collapsed", "two points"])
def x(request):
    random = torch.Generator().manual_seed(0)
    x = torch.randn(700, 12, generator=random)
    few = x[torch.arange(700) % 2]
    return {"spread": x, "lattice": x.round(), "collapsed": 1 + 1e-6 * x, "two points": few}[request.param]


def both(function, monkeypatch):
    native = function()
    monkeypatch.setattr(_native, "can_use_kernel", lambda name, device: False)
    return native, function()


@pytest.mark.parametrize("distance", ["l2", "ip", "cosine"])
@pytest.mark.parametrize("k", [5, 150])
def test_neighbours(x, k, distance, monkeypatch):
    native, plain = both(lambda: TorchKNN(distance)(x, k, x, True), monkeypatch)
    assert torch.equal(native[1], plain[1]) and torch.equal(native[0], plain[0])


def test_half_of_the_tiles_and_all_of_them(x):
    other = x.clone()  # not the same tensor: every tile is computed
    assert torch.equal(TorchKNN().indices(x, 9, x, True), TorchKNN().indices(other, 9, x, True))


@pytest.mark.parametrize("distance", ["l2", "ip", "cosine"])
@pytest.mark.parametrize("ties", ["index", "optimistic", "pessimistic"])
def test_ranks(x, ties, distance, monkeypatch):
    labels = torch.arange(700) % 35
    native, plain = both(lambda: positive_ranks(x, labels, ties=ties, distance=distance), monkeypatch)
    assert torch.equal(native.rank, plain.rank)


def test_without_certificate(x):
    labels = torch.arange(700) % 35
    exact = positive_ranks(x, labels, depth=9).rank
    fast = positive_ranks(x, labels, depth=9, exact=False).rank
    counted = positive_ranks(x, labels, exact=False).rank
    assert fast.shape == exact.shape and counted.shape == (700, 19)
    assert (counted[:, 1:] > counted[:, :-1]).all() and counted.max() < 700
