"""Claim: 1,000 replicates of a torchmetrics metric take BootStrapper more than 20 times as long as `Uncertain`, and
a thousand replicates of MAP@R at 10,000 x 128 add at most half of the time of the score.

Rivals use the same torchmetrics metrics and batches. `Uncertain` weights updates by Exp(1); BootStrapper resamples
within each. Asserted before anything is timed: equal values, to 1e-6; and for the first row, which has equal
updates, interval widths that agree within a half. The last row compares `compute` with `interval` of one metric, whose
value is bitwise that of `compute`. Rivals take turns in one process; times are medians.
"""

import functools
import statistics
import time
from collections.abc import Callable, Iterator

import torch
from _common import Table, arguments
from torch import Tensor
from torchmetrics import MeanSquaredError, Metric
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score
from torchmetrics.wrappers import BootStrapper

from tensormetrics.retrieval import AveragePrecisionAtR
from tensormetrics.uncertainty import Uncertain

NEEDS = ("torchmetrics",)
DEVICES = ("cpu",)
REPLICATES, CLASSES = 1000, 10
ENDS = torch.tensor([0.025, 0.975])
Batches = list[tuple[Tensor, Tensor]]


def batches(sizes: list[int]) -> Batches:
    result = []
    for size in sizes:
        target = torch.randint(CLASSES, (size,))
        result.append((torch.where(torch.rand(size) < 0.8, target, torch.randint(CLASSES, (size,))), target))
    return result


def ours(make: Callable[[], Metric], fed: Batches) -> tuple[Tensor, Tensor, Tensor]:
    metric = Uncertain(make(), replicates=REPLICATES)
    for preds, target in fed:
        metric.update(preds, target)
    return metric.interval()


def theirs(make: Callable[[], Metric], fed: Batches) -> dict[str, Tensor]:
    metric = BootStrapper(make(), num_bootstraps=REPLICATES, quantile=ENDS)
    for preds, target in fed:
        metric.update(preds, target)
    return metric.compute()


def turns(rivals: list[Callable[[], object]], rounds: int) -> list[float]:
    times: list[list[float]] = [[] for _ in rivals]
    for turn in range(rounds + 1):
        for spent, run in zip(times, rivals, strict=True):
            start = time.perf_counter()
            run()
            if turn:  # the first warms up
                spent.append(time.perf_counter() - start)
    return [statistics.median(spent) for spent in times]


def rows(quick: bool) -> Iterator[tuple[str, ...]]:
    updates, rounds = (8, 1) if quick else (16, 2)
    ragged = [1, 700, 3, 256, 40, 1024, 9, 128] * (updates // 8)
    accuracy = functools.partial(MulticlassAccuracy, CLASSES, average="micro")
    f1 = functools.partial(MulticlassF1Score, CLASSES)
    floats = [(preds.float(), target.float()) for preds, target in batches([256] * updates)]
    workloads = [
        (f"accuracy, {updates} updates of 256", accuracy, batches([256] * updates)),
        (f"accuracy, {updates} ragged updates of 1 to 1,024", accuracy, batches(ragged)),
        (f"macro F1, {updates} updates of 256", f1, batches([256] * updates)),
        (f"mean squared error, {updates} updates of 256", MeanSquaredError, floats),
    ]
    for index, (name, make, fed) in enumerate(workloads):
        value, low, high = ours(make, fed)
        metric = make()
        for batch in fed:
            metric.update(*batch)
        torch.testing.assert_close(value.float(), metric.compute(), rtol=1e-6, atol=1e-6)
        ends = theirs(make, fed)["quantile"]
        if not index and not quick:
            assert abs(float((high - low) / ends.diff()) - 1) < 0.5, "the widths of the intervals differ"
        mine, rival = turns([functools.partial(ours, make, fed), functools.partial(theirs, make, fed)], rounds)
        yield name, f"{1e3 * mine:.3g}", f"{1e3 * rival:.4g}", f"{rival / mine:.3g}x"


def map_at_r(quick: bool) -> Iterator[tuple[str, ...]]:
    count = 1000 if quick else 10_000
    labels = torch.arange(count) % (count // 10)
    embeddings = torch.randn(count // 10, 128)[labels] + torch.randn(count, 128)

    def score(interval: bool) -> Tensor:
        metric = AveragePrecisionAtR()
        metric.update(embeddings, labels)
        return metric.interval(replicates=REPLICATES)[0] if interval else metric.compute()

    assert torch.equal(score(True), score(False))
    mine, without = turns([functools.partial(score, True), functools.partial(score, False)], 3)
    yield (
        f"MAP@R of {count:,} x 128: interval, compute",
        f"{1e3 * mine:.4g}",
        f"{1e3 * without:.4g}",
        f"{without / mine:.3g}x",
    )


def main() -> None:
    options = arguments(__doc__, DEVICES)
    torch.manual_seed(0)
    columns = ("work", "ours ms", "rival ms", "rival / ours")
    notes = f"{REPLICATES:,} replicates; the rival is torchmetrics' BootStrapper, in the last row the score alone."
    table = Table(options, "Intervals of any metric", columns, notes, ("torchmetrics",))
    table.add(rows(options.quick))
    table.add(map_at_r(options.quick))
    table.finish()


if __name__ == "__main__":
    main()
