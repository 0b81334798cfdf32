"""Native operators and the torch fallback return equal results, also for more than one tile."""

import pytest
import torch

from tensormetrics.core.native import native
from tensormetrics.retrieval import TorchKNN, positive_ranks

pytestmark = pytest.mark.skipif(not native.has_kernel("update_topk", "cpu"), reason="built without native code")


@pytest.fixture(params=["spread", "lattice", "collapsed", "two points"])
def x(request):
    random = torch.Generator().manual_seed(0)
    x = torch.randn(700, 12, generator=random)
    two_points = x[torch.arange(700) % 2]
    return {"spread": x, "lattice": x.round(), "collapsed": 1 + 1e-6 * x, "two points": two_points}[request.param]


def native_and_fallback(function, monkeypatch):
    compiled = function()
    monkeypatch.setattr(native, "can_use_kernel", lambda name, device: False)
    return compiled, function()


@pytest.mark.parametrize("distance", ["l2", "ip", "cosine"])
@pytest.mark.parametrize("k", [5, 150])
def test_knn_native_and_torch_results_are_equal(x, k, distance, monkeypatch):
    compiled, fallback = native_and_fallback(lambda: TorchKNN(distance)(x, k, x, True), monkeypatch)
    assert torch.equal(compiled[1], fallback[1]) and torch.equal(compiled[0], fallback[0])


def test_self_search_symmetric_and_full_tiles_agree(x):
    other = x.clone()  # not the same tensor: every tile is computed
    assert torch.equal(TorchKNN().indices(x, 9, x, True), TorchKNN().indices(other, 9, x, True))


@pytest.mark.parametrize("distance", ["l2", "ip", "cosine"])
@pytest.mark.parametrize("ties", ["index", "optimistic", "pessimistic"])
def test_ranks_native_and_torch_results_are_equal(x, ties, distance, monkeypatch):
    labels = torch.arange(700) % 35
    compiled, fallback = native_and_fallback(
        lambda: positive_ranks(x, labels, ties=ties, distance=distance), monkeypatch
    )
    assert torch.equal(compiled.rank, fallback.rank)


def test_inexact_ranks_are_distinct_and_in_range(x):
    labels = torch.arange(700) % 35
    exact = positive_ranks(x, labels, depth=9).rank
    fast = positive_ranks(x, labels, depth=9, exact=False).rank
    unlimited = positive_ranks(x, labels, exact=False).rank
    assert fast.shape == exact.shape and unlimited.shape == (700, 19)
    assert (unlimited[:, 1:] > unlimited[:, :-1]).all() and unlimited.max() < 700
