"""What every row of the table asks of a device: operators launched, host waits, and bytes read and written.

    python tests/device_budget.py [NAME ...]

writes the counts at two sizes, of all rows or of the named ones, to device_budget.json; test_device_budget.py holds
that they never rise.
"""

import json
import sys
from pathlib import Path

import torch
from cases import FUNCTIONS, METRICS, FunctionCase, MetricCase
from fake_device import DEVICE, Device
from test_conformance import on

FILE = Path(__file__).with_suffix(".json")
TORCH = ".".join(torch.__version__.split(".")[:2])  # another torch makes its operators of others
ITEMS, LEADING = (60, 240), ((3,), (24,))

Counts = dict[str, list[list[int]]]  # what is called -> operators, waits and bytes at each size


def counts(case: MetricCase | FunctionCase) -> Counts:
    measure = of_metric if isinstance(case, MetricCase) else of_function
    sizes = ITEMS if isinstance(case, MetricCase) else LEADING
    each = [measure(case, size) for size in sizes]
    return {call: [counted[call] for counted in each] for call in each[0]}


def of_metric(case: MetricCase, items: int) -> dict[str, list[int]]:
    inputs, metric = case.inputs(torch.Generator().manual_seed(0), items), case.make()
    with Device() as device:
        metric.to(DEVICE)
        inputs = on(DEVICE, inputs)
        return {
            "update": counted(device, lambda: metric.update(*inputs)),
            "compute": counted(device, metric.compute),
            "forward": counted(device, lambda: metric(*inputs)),
        }


def of_function(case: FunctionCase, leading: tuple[int, ...]) -> dict[str, list[int]]:
    inputs = case.inputs(torch.Generator().manual_seed(0), leading)
    with Device() as device:
        inputs = on(DEVICE, inputs)
        return {"call": counted(device, lambda: case.call(*inputs))}


def counted(device: Device, call) -> list[int]:
    device.waits.clear()
    device.operators = device.bytes = 0
    call()
    return [device.operators, len(device.waits), device.bytes]


if __name__ == "__main__":  # of the names that are given, or of all
    table = json.loads(FILE.read_text())["rows"] if sys.argv[1:] else {}
    cases = METRICS | FUNCTIONS
    table |= {name: counts(cases[name]) for name in sys.argv[1:] or cases}
    table = {name: table[name] for name in sorted(cases) if name in table}
    rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in table.items())
    FILE.write_text(f'{{"torch": "{TORCH}", "rows": {{\n{rows}\n}}}}\n')
