"""What only KeOps has; test_backends.py holds it to the protocol."""

import pytest
import torch

from tensormetrics.retrieval import KeOpsKNN, TorchKNN
from tensormetrics.retrieval.search.backends.keops_knn import _rounded


def test_k_is_rounded_up_to_few_values():
    assert [_rounded(k) for k in range(1, 12)] == [1, 2, 5, 5, 5, 10, 10, 10, 10, 10, 20]
    assert {_rounded(k) for k in range(1, 2049)} == {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000}
    assert all(_rounded(k) >= k for k in range(1, 2049))


@pytest.mark.slow  # compiles
def test_float64_stays(device):
    pytest.importorskip("pykeops")
    x = torch.tensor([0.0, 1.0, 1.0 + 1e-12, 3.0], dtype=torch.float64, device=device)[:, None].expand(4, 3)
    for result, wanted in zip(KeOpsKNN()(x, 3, x, True), TorchKNN()(x, 3, x, True), strict=True):
        torch.testing.assert_close(result, wanted)
