"""The Triton kernels give the integers of the plain path; without a GPU Triton's interpreter runs them."""

import os
import subprocess
import sys

import pytest
import torch
from ranks_oracle import families

from tensormetrics.retrieval import TorchKNN, _native, positive_ranks

N = 45
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


@pytest.mark.skipif(torch.cuda.is_available() or INTERPRETED, reason="the tests below run in this process")
def test_interpreted_kernels():
    # The setting holds for a whole process, in which torch could no longer compile anything.
    pytest.importorskip("triton")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", __file__]
    result = subprocess.run(command, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout


@pytest.fixture
def both(monkeypatch, device):
    """Runs a function by plain torch and by kernels."""
    if not (torch.cuda.is_available() or INTERPRETED):
        pytest.skip("needs a GPU or TRITON_INTERPRET=1")
    pytest.importorskip("triton")
    from tensormetrics.retrieval import _kernels

    def run(function):
        monkeypatch.setattr(_native, "BUILT", False)
        monkeypatch.setattr(_native, "kernels", lambda device: None)
        plain = function()
        monkeypatch.setattr(_native, "kernels", lambda device: _kernels)
        return plain, function()

    return run


@pytest.mark.parametrize("family", families(N))
def test_neighbours(family, both, device):
    x = torch.tensor(families(N)[family], dtype=torch.float32, device=device)
    for distance in ("l2", "ip", "cosine"):
        plain, found = both(lambda: TorchKNN(distance).indices(x, 3, x, True))  # noqa: B023
        assert torch.equal(found, plain)
        plain, found = both(lambda: TorchKNN(distance).indices(x[:7], 3, x, False))  # noqa: B023
        assert torch.equal(found, plain)


@pytest.mark.parametrize("ties", ["index", "optimistic", "pessimistic"])
@pytest.mark.parametrize("family", families(N))
def test_ranks(family, ties, both, device):
    x = torch.tensor(families(N)[family], dtype=torch.float32, device=device)
    labels = torch.arange(N, device=device) % 7
    plain, found = both(lambda: positive_ranks(x, labels, ties=ties))
    assert torch.equal(found.rank, plain.rank)


@pytest.mark.slow
def test_blocks_and_more_columns_than_one_tile(both, device):
    x = torch.randn(300, 20, device=device)
    labels = torch.arange(300, device=device) % 50
    for function in (lambda: TorchKNN().indices(x, 4, x, True), lambda: positive_ranks(x, labels).rank):
        plain, found = both(function)
        assert torch.equal(found, plain)


@pytest.mark.slow
def test_too_many_open_entries_are_counted_in_tiles(both, device):
    x = torch.zeros(N, 3, device=device)
    labels = torch.arange(N, device=device) % 7
    plain, found = both(lambda: positive_ranks(x, labels, memory_budget=20_000).rank)
    assert torch.equal(found, plain)
