"""The library uses no operator that CUDA refuses under `torch.use_deterministic_algorithms(True)`."""

import re

import pytest
import torch
from cases import FUNCTIONS, METRICS, FunctionCase, MetricCase
from fake_device import DEVICE, REFUSED, Device
from test_conformance import N, on, rows


@rows(METRICS)
def test_metric_uses_no_nondeterministic_operator(case: MetricCase, generator):
    inputs, metric = case.inputs(generator, N), case.make()
    with Device() as device:
        metric.to(DEVICE)
        inputs = on(DEVICE, inputs)
        metric.update(*inputs)
        metric.compute()
        metric(*inputs)
        assert device.refused == []


@rows(FUNCTIONS)
def test_function_uses_no_nondeterministic_operator(case: FunctionCase, generator):
    with Device() as device:
        case.call(*on(DEVICE, case.inputs(generator, (2, 3))))
        assert device.refused == []


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
