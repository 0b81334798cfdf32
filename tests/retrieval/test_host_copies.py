"""Embeddings, distances and scores stay on the GPU; only sizes and results are copied to the host."""

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tensormetrics.retrieval import AccuracyCalculator, FaissKNN, TorchKNN, positive_ranks

LARGEST = 64  # elements that one copy may have, such as tile sizes and class limits


class HostCopies(TorchDispatchMode):
    """Recorder of the number of elements of each copy from another device to the CPU."""

    def __init__(self, origin: str) -> None:
        super().__init__()
        self.origin, self.sizes = origin, []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        if any(t.device.type == self.origin for t in inputs):
            self.sizes += [t.numel() for t in outputs if t.device.type == "cpu"]
        return result


def test_host_copies_mode_records_copy_sizes():
    with HostCopies("meta") as copies:
        torch.empty_like(torch.empty(5, 3, device="meta"), device="cpu")
    assert copies.sizes == [15]


@pytest.mark.parametrize(
    "call",
    [
        lambda x, y: AccuracyCalculator().get_accuracy(x, y),
        lambda x, y: AccuracyCalculator(k=10, include=("precision_at_1",)).get_accuracy(x, y),
        lambda x, y: TorchKNN()(x, 10, x, True),
        lambda x, y: FaissKNN()(x, 10, x, True),
        lambda x, y: positive_ranks(x, y),
    ],
    ids=["every default", "k", "TorchKNN", "FaissKNN", "positive_ranks"],
)
@pytest.mark.filterwarnings("ignore:FaissKNN")  # faiss without GPU support falls back to TorchKNN with a warning
def test_metrics_on_gpu_copy_only_small_tensors_to_host(call, generator, request):
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    if request.node.callspec.id == "FaissKNN":
        pytest.importorskip("faiss")
    labels = torch.randint(0, 20, (3000,), generator=generator).cuda()
    embeddings = torch.randn(3000, 32, generator=generator).cuda()
    with HostCopies("cuda") as copies:
        call(embeddings, labels)
    assert max(copies.sizes, default=0) <= LARGEST
