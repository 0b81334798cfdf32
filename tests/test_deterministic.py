"""Under `torch.use_deterministic_algorithms(True)` CUDA refuses operators: none of them is on a path of ours."""

import re

import pytest
import torch
from cases import FUNCTIONS, METRICS, FunctionCase, MetricCase
from fake_device import DEVICE, REFUSED, Device
from test_conformance import N, on, rows


@rows(METRICS)
def test_metrics_ask_for_nothing_that_is_refused(case: MetricCase, generator):
    inputs, metric = case.inputs(generator, N), case.make()
    with Device() as device:
        metric.to(DEVICE)
        inputs = on(DEVICE, inputs)
        metric.update(*inputs)
        metric.compute()
        metric(*inputs)
        assert device.refused == []


@rows(FUNCTIONS)
def test_functions_ask_for_nothing_that_is_refused(case: FunctionCase, generator):
    with Device() as device:
        case.call(*on(DEVICE, case.inputs(generator, (2, 3))))
        assert device.refused == []


@pytest.mark.parametrize(
    "refused",
    [lambda x: x.cumsum(0), lambda x: x.median(0), lambda x: x.kthvalue(1), lambda x: x.long().bincount(x)],
)
def test_the_pretended_device_notices_what_is_refused(refused):
    with Device() as device:
        x = torch.ones(3).to(DEVICE)
        x.long().cumsum(0), x.median(), x.long().bincount()
        assert device.refused == []
        refused(x)
        assert len(device.refused) == 1


# Of torch's list what no forward path of metrics calls: layers, losses, gradients, and writing into new memory.
ELSEWHERE = "torch.nn. grid_sample resize_ gather index_add embedding quantized_batch_norm".split()


def test_the_list_is_that_of_torch():
    text = torch.use_deterministic_algorithms.__doc__.rpartition("will throw a")[2]
    named = re.findall(r":(?:func|class|meth):`(torch[\w.]+)`(?! is)", text.partition("In addition")[0])
    here = {name.rpartition(".")[2] for name in named if not any(word in name for word in ELSEWHERE)}
    known = {"cumsum", "median", "bincount", "scatter_reduce", *REFUSED}
    assert here - known - {"use_deterministic_algorithms", "RuntimeError"} == set()
