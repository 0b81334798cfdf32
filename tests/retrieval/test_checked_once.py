"""Public functions check every input exactly once; internal functions do not repeat the check."""

import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tensormetrics.retrieval import (
    AccuracyCalculator,
    AveragePrecision,
    FaissKNN,
    TorchKMeans,
    TorchKNN,
    positive_ranks,
)
from tensormetrics.retrieval import inputs as checks

CHECKS = ("as_tensor", "as_embeddings", "check_finite", "check_squares", "labelled")
FILE = str(Path(checks.__file__))


def count_checks(call, *tensors):
    """Count calls of each check that receive the memory of a tensor, by (check, index of the tensor)."""
    counts, pointers = Counter(), [tensor.data_ptr() for tensor in tensors]

    def record_call(frame, event, _):
        if event == "call" and frame.f_code.co_filename == FILE and frame.f_code.co_name in CHECKS:
            arguments = [
                argument
                for value in frame.f_locals.values()
                for argument in (value.values() if type(value) is dict else [value])
            ]
            for index, pointer in enumerate(pointers):
                if any(
                    isinstance(argument, torch.Tensor) and argument.numel() and argument.data_ptr() == pointer
                    for argument in arguments
                ):
                    counts[frame.f_code.co_name, index] += 1

    sys.setprofile(record_call)
    try:
        call()
    finally:
        sys.setprofile(None)
    return counts


@pytest.fixture
def inputs(device):
    x, y = torch.randn(70, 4, device=device), torch.randn(90, 4, device=device)
    return x, torch.arange(70, device=device) % 5, y, torch.arange(90, device=device) % 5


NAMES = (
    "mean_average_precision", "precision_at_1", "nearest_centroid_accuracy", "AMI", "NMI", "mean_auroc", "ndcg_at_5",
)  # fmt: skip


def test_public_functions_check_every_input_once(inputs):
    x, labels, y, _ = inputs
    calculators = [
        AccuracyCalculator(NAMES, **options)
        for options in ({}, {"k": 3, "exclude": ["mean_auroc"]}, {"k": "max_bin_count"})
    ]
    for call in (
        *(partial(calculator.get_accuracy, *inputs[:n]) for calculator in calculators for n in (2, 4)),
        lambda: positive_ranks(x, labels),
        lambda: positive_ranks(x, labels, depth=3),
        lambda: positive_ranks(*inputs),
        lambda: TorchKNN()(x, 3, y, False),
        lambda: TorchKMeans()(x, 5),
    ):
        counts = count_checks(call, x, y)
        assert counts["as_embeddings", 0] == counts["check_squares", 0] == 1 == max(counts.values())
        assert not isinstance(call, partial) or counts["check_finite", 0] == 1


def test_metric_compute_checks_stored_embeddings_once(inputs):
    metric = AveragePrecision()
    metric.update(*inputs[:2])
    counts = count_checks(metric.compute, metric.embeddings)
    assert counts == {("check_finite", 0): 1, ("check_squares", 0): 1}


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
def test_metrics_on_gpu_copy_only_small_tensors_to_host(call, generator):
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    labels = torch.randint(0, 20, (3000,), generator=generator).cuda()
    embeddings = torch.randn(3000, 32, generator=generator).cuda()
    with HostCopies("cuda") as copies:
        call(embeddings, labels)
    assert max(copies.sizes, default=0) <= LARGEST
