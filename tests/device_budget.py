"""Device use of a row of the table at two sizes: operators, host waits, bytes, and elements in the largest host copy.

`python tests/record.py` writes it to device_budget.json; test_device_budget.py checks that it never rises.
"""

from pathlib import Path

import torch
from cases import FunctionCase, MetricCase
from fake_device import DEVICE, Device
from test_conformance import on

FILE = Path(__file__).with_suffix(".json")
TORCH = ".".join(torch.__version__.split(".")[:2])  # other versions decompose operators differently
ITEMS, LEADING = (60, 240), ((3,), (24,))

Counts = dict[str, list[list[int]]]  # name of the call -> operators, waits, bytes and the largest copy at each size


def counts(case: MetricCase | FunctionCase) -> Counts:
    measure = metric_counts if isinstance(case, MetricCase) else function_counts
    sizes = ITEMS if isinstance(case, MetricCase) else LEADING
    for size in sizes:  # makes the tables that are kept for the device
        measure(case, size)
    counts_by_size = [measure(case, size) for size in sizes]
    return {call: [size_counts[call] for size_counts in counts_by_size] for call in counts_by_size[0]}


def metric_counts(case: MetricCase, items: int) -> dict[str, list[int]]:
    inputs, metric = case.inputs(torch.Generator().manual_seed(0), items), case.make()
    with Device() as device:
        metric.to(DEVICE)
        inputs = on(DEVICE, inputs)
        return {
            "update": count_device_use(device, lambda: metric.update(*inputs)),
            "compute": count_device_use(device, metric.compute),
            "forward": count_device_use(device, lambda: metric(*inputs)),
        }


def function_counts(case: FunctionCase, leading: tuple[int, ...]) -> dict[str, list[int]]:
    inputs = case.inputs(torch.Generator().manual_seed(0), leading)
    with Device() as device:
        inputs = on(DEVICE, inputs)
        return {"call": count_device_use(device, lambda: case.call(*inputs))}


def count_device_use(device: Device, call) -> list[int]:
    device.waits.clear()
    device.copied.clear()
    device.operators = device.bytes = 0
    call()
    return [device.operators, len(device.waits), device.bytes, max(device.copied, default=0)]
