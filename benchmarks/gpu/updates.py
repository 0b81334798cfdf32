"""`update` of 1,024 items: the host's time, launches and waits; and the time of `compute` on a fresh state."""

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torchmetrics import classification, retrieval

from benchmarks.gpu.facts import DEVICE, ROOT, sized, synchronize
from benchmarks.gpu.profile import by_kernel

sys.path.insert(0, str(ROOT / "tests"))
from cases import METRICS  # noqa: E402
from test_conformance import on  # noqa: E402

ITEMS, RUNS = sized((1024, 10), (32, 1))


def seconds(call: Callable[[], object], end: Callable[[], object] = lambda: None) -> float:
    synchronize()
    start = time.perf_counter()
    call()
    end()
    return time.perf_counter() - start


def line(make: Callable[[], Any], inputs: Callable[[torch.Generator, int], tuple]) -> str:
    arguments = on(DEVICE, inputs(torch.Generator().manual_seed(0), ITEMS))
    computes = []
    for _ in range(1 + RUNS // 2):  # the first compiles and loads what it needs
        metric = make().to(DEVICE)
        metric.update(*arguments)
        computes.append(seconds(metric.compute, synchronize))
    update = partial(metric.update, *arguments)
    host = 1e6 * statistics.median(seconds(update) for _ in range(RUNS))
    kernels, waits = by_kernel(update)
    launches = sum(count for count, _ in kernels.values())
    compute = 1e3 * statistics.median(computes[1:] or computes)
    return f"update {host:8.0f} us host, {launches:5d} launches, {waits:3d} waits; compute {compute:9.2f} ms"


def classes(generator: torch.Generator, items: int) -> tuple:
    return tuple(torch.randint(10, (2, items), generator=generator))


def scores(generator: torch.Generator, items: int) -> tuple:
    return torch.rand(items, generator=generator), *torch.randint(2, (2, items), generator=generator)


PEERS = {
    "confusion matrix": (partial(classification.MulticlassConfusionMatrix, 10), classes),
    "accuracy": (partial(classification.MulticlassAccuracy, 10), classes),
    "AUROC": (classification.BinaryAUROC, lambda *sizes: scores(*sizes)[:2]),
    "calibration error": (classification.BinaryCalibrationError, lambda *sizes: scores(*sizes)[:2]),
    "retrieval MAP": (retrieval.RetrievalMAP, scores),
}
CASES = {name: partial(line, case.make, case.inputs) for name, case in METRICS.items()}
CASES |= {f"torchmetrics {name}": partial(line, *peer) for name, peer in PEERS.items()}
