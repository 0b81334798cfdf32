"""Kernels of each operation in one warm call: their time, launches and waits, and the nine that take longest."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu.facts import DEVICE, FACTS, Parts, sized, synchronize
from tensormetrics._cli.machine import gpu_checks
from tensormetrics.retrieval import AccuracyCalculator

WAITS = "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize"


def by_kernel(call: Callable[[], object]) -> tuple[dict[str, tuple[int, float]], int]:
    """Return the launches and milliseconds of each kernel, the longest first, and how often the host waits."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as record:
        call()
    kernels: dict[str, tuple[int, float]] = {}
    for event in record.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            count, spent = kernels.get(event.name, (0, 0.0))
            kernels[event.name] = count + 1, spent + event.device_time / 1000
    waits = sum(event.name in WAITS for event in record.events())
    return dict(sorted(kernels.items(), key=lambda item: -item[1][1])), waits


def line(make: Callable[[], Parts]) -> str:
    _, call = make()
    for _ in range(2):  # the first compiles and loads what it needs
        synchronize()
        start = time.perf_counter()
        call()
        synchronize()
        wall = 1000 * (time.perf_counter() - start)
    kernels, waits = by_kernel(call)
    launches, spent = sum(count for count, _ in kernels.values()), sum(ms for _, ms in kernels.values())
    rows = [f"{ms:12.3f} ms {count:6d} x {name:.70}" for name, (count, ms) in [*kernels.items()][:9]]
    return "\n".join([f"wall {wall:.3f} ms, kernels {spent:.3f} ms in {launches}, {waits} waits", *rows])


def calculator(k: Any, *sizes: int) -> Parts:
    x, labels = (part.to(DEVICE) for part in gpu_checks.points(*sizes))
    return lambda: None, lambda: AccuracyCalculator(k=k).get_accuracy(x, labels)


OPERATIONS = {name: make for name, make in FACTS.items() if not name.startswith("probe")} | {
    "calculator 60k k10": lambda: calculator(10, *sized((60_000, 128, 6000), (300, 12, 30))),
    "calculator 10k all ranks": lambda: calculator(None, *sized((10_000, 128, 100), (300, 12, 10))),
    "knn 5k D64 k10": lambda: gpu_checks.neighbors(DEVICE, *sized((5000, 64, 10), (300, 12, 3))),
    "p-values 1e4 x 1": lambda: gpu_checks.permutations(DEVICE, 1, 25, 10_000),
}
CASES = {name: partial(line, make) for name, make in OPERATIONS.items()}
