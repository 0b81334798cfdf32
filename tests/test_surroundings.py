"""Training loops change torch for the whole process: autocast, the default dtype, the default device, deterministic
algorithms. Values, their dtype and their device stay those of the input."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from cases import FUNCTIONS, METRICS, FunctionCase, MetricCase
from test_conformance import N, assert_same, on, rows
from torch import Tensor
from torch.utils._pytree import tree_leaves


@contextmanager
def changed(device: torch.device) -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    torch.set_default_dtype(torch.float16)
    try:
        # What is made without a device is on one that computes nothing.
        with torch.device("meta"), torch.autocast(device.type, dtype=torch.bfloat16):
            yield
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_default_dtype(torch.float32)


def single(tensors: tuple[Any, ...]) -> tuple[Any, ...]:
    """Autocast leaves float64 alone."""
    return tuple(t.float() if isinstance(t, Tensor) and t.is_floating_point() else t for t in tensors)


def assert_unchanged(found: Any, wanted: Any) -> None:
    assert_same(found, wanted)
    described = [[(leaf.dtype, leaf.device) for leaf in tree_leaves(each)] for each in (found, wanted)]
    assert described[0] == described[1]


@rows(METRICS)
def test_metrics(case: MetricCase, generator, device):
    inputs = single(on(device, case.inputs(generator, N)))
    plain, metric = case.make().to(device), case.make().to(device)
    plain.update(*inputs)
    with changed(device):
        metric.update(*inputs)
        found = metric.compute()
    assert_unchanged(found, plain.compute())


@rows(FUNCTIONS)
def test_functions(case: FunctionCase, generator, device):
    inputs = single(on(device, case.inputs(generator, (4,))))
    wanted = case.call(*inputs)
    with changed(device):
        found = case.call(*inputs)
    assert_unchanged(found, wanted)
