"""Equal calls give equal bits, and no operator is used that CUDA refuses in deterministic mode.

That is `torch.use_deterministic_algorithms(True)`. Results are compared where an operator adds floats in any order.
"""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from cases import FUNCTIONS, METRICS, FunctionCase, MetricCase
from fake_device import DEVICE, REFUSED, Device
from test_conformance import N, assert_same, on, rows
from torch.utils._pytree import tree_map

NUM_CALLS = 20


def check_calls(call: Callable[[], Any]) -> None:
    with Device() as device:
        first = call()
        assert device.refused == []
        for _ in range(NUM_CALLS - 1 if device.unordered else 0):
            assert_same(on_cpu(call()), on_cpu(first))


def on_cpu(results: Any) -> Any:
    return tree_map(lambda x: x.cpu(), results)


@pytest.mark.full  # twenty calls each
@rows(METRICS)
def test_metric_gives_equal_results_in_equal_calls(case: MetricCase, generator):
    inputs = case.inputs(generator, N)

    def call() -> Any:
        metric = case.make().to(DEVICE)
        metric.update(*on(DEVICE, inputs))
        return metric.compute(), metric(*on(DEVICE, inputs))

    check_calls(call)


@pytest.mark.full
@rows(FUNCTIONS)
def test_function_gives_equal_results_in_equal_calls(case: FunctionCase, generator):
    inputs = case.inputs(generator, (2, 3))
    check_calls(lambda: case.call(*on(DEVICE, inputs)))


@pytest.mark.parametrize(
    "refused",
    [lambda x: x.cumsum(0), lambda x: x.median(0), lambda x: x.kthvalue(1), lambda x: x.long().bincount(x)],
)
def test_fake_device_records_refused_operators(refused):
    with Device() as device:
        x = torch.ones(3).to(DEVICE)
        x.long().cumsum(0), x.median(), x.long().bincount()
        assert device.refused == []
        refused(x)
        assert len(device.refused) == 1


# Operators of torch's list that no forward pass of a metric calls: layers, losses, gradients, writes to new memory.
UNUSED = "torch.nn. grid_sample resize_ gather index_add embedding quantized_batch_norm".split()


def test_refused_operators_cover_list_of_torch():
    text = torch.use_deterministic_algorithms.__doc__.rpartition("will throw a")[2]
    named = re.findall(r":(?:func|class|meth):`(torch[\w.]+)`(?! is)", text.partition("In addition")[0])
    refused_names = {name.rpartition(".")[2] for name in named if not any(part in name for part in UNUSED)}
    detected = {"cumsum", "median", "bincount", "scatter_reduce", *REFUSED}
    assert refused_names - detected - {"use_deterministic_algorithms", "RuntimeError"} == set()
