"""Behavior specific to KeOpsKNN; test_backends.py tests the protocol of all backends."""

import pytest
import torch

from tensormetrics.retrieval import KeOpsKNN, TorchKNN
from tensormetrics.retrieval.search.backends.keops_knn import _rounded


def test_rounded_k_takes_a_limited_set_of_values():
    assert [_rounded(k) for k in range(1, 12)] == [1, 2, 5, 5, 5, 10, 10, 10, 10, 10, 20]
    assert {_rounded(k) for k in range(1, 2049)} == {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000}
    assert all(_rounded(k) >= k for k in range(1, 2049))


@pytest.mark.slow  # KeOps compiles a kernel
def test_keops_knn_float64_input_equals_torch(device):
    pytest.importorskip("pykeops")
    x = torch.tensor([0.0, 1.0, 1.0 + 1e-12, 3.0], dtype=torch.float64, device=device)[:, None].expand(4, 3)
    for result, expected in zip(KeOpsKNN()(x, 3, x, True), TorchKNN()(x, 3, x, True), strict=True):
        torch.testing.assert_close(result, expected)
