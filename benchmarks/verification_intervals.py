"""Claim: an interval of a score of all pairs, from 1,000 replicates, takes at most ten times its score.

The interval is asserted to contain the score, and to report it as its value, before anything is timed. Calls of both
take turns in one process; times are medians.
"""

import statistics
import time
from collections.abc import Callable

import torch
from _common import Table, arguments
from torch import Tensor

from tensormetrics.retrieval import EqualErrorRate, PairwiseAUROC, TARAtFAR

ROUNDS = 3
METRICS: dict[str, Callable[[], torch.nn.Module]] = {
    "area": PairwiseAUROC,
    "equal error rate": EqualErrorRate,
    "TAR at FAR .001": lambda: TARAtFAR(1e-3),
}


def embeddings(sizes: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Return items of classes of these sizes, in random order."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(len(sizes)).repeat_interleave(sizes)
    centers = torch.randn(len(sizes), dim, generator=generator)
    x = 2 * torch.randn(len(labels), dim, generator=generator) + centers[labels]
    order = torch.randperm(len(labels), generator=generator)
    return x[order], labels[order]


def measured(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def row(name: str, case: str, x: Tensor, labels: Tensor) -> list[str]:
    def updated() -> torch.nn.Module:
        metric = METRICS[name]()
        metric.update(x, labels)
        return metric

    value, estimate = updated().compute(), updated().interval()
    assert torch.equal(estimate.value, value) and estimate.low <= value <= estimate.high
    times = []
    for _ in range(ROUNDS):
        metric = updated()
        times.append((measured(metric.compute), measured(metric.interval)))  # `interval` reuses the computed value
    score, interval = (statistics.median(column) for column in zip(*times, strict=True))
    return [name, case, f"{1000 * score:.0f}", f"{1000 * interval:.0f}", f"{interval / score:.1f}", "10"]


def main() -> None:
    options = arguments(__doc__, ("cpu",))
    columns = ("score", "items", "score ms", "interval ms", "interval / score", "wanted at most")
    table = Table(options, "Intervals of scores of all pairs", columns)
    classes, dim = (20, 16) if options.quick else (100, 128)
    cases = {
        f"{classes} classes of 100": torch.full((classes,), 100),
        f"a class of {10 * classes}, {45 * classes} of 2": torch.tensor([10 * classes, *[2] * (45 * classes)]),
    }
    for case, sizes in cases.items():
        for name in METRICS:
            table.add([row(name, case, *embeddings(sizes, dim))])
    table.finish()


if __name__ == "__main__":
    main()
