"""Claim: exact rates of verification (EER, TAR at FAR, area under the ROC curve) are counted over all pairs without a
list of them. The aim is the time that scikit-learn takes with such a list.

Values are asserted to be equal before anything is timed. scikit-learn gets the squared distances of all pairs in
float64, from one matrix product, and computes its curve once for all three rates. Calls of both take turns in one
process; times are medians. Memory is that of scikit-learn's list of distances, and our memory budget.
"""

import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from _common import Table, arguments
from sklearn.metrics import auc, roc_curve
from torch import Tensor

from tensormetrics.retrieval.functional import equal_error_rate, pairwise_auroc, tar_at_far

NEEDS = ("sklearn",)
FAR = 1e-3
ROUNDS = 3
BUDGET = 2**26
Values = dict[str, float]


def rows(sizes: Tensor, dim: int, ties: bool) -> tuple[Tensor, Tensor]:
    """Return items of classes of these sizes; with ties their coordinates are small integers."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(len(sizes)).repeat_interleave(sizes)
    centres = torch.randn(len(sizes), dim, generator=generator)
    x = 2 * torch.randn(len(labels), dim, generator=generator) + centres[labels]
    order = torch.randperm(len(labels), generator=generator)
    return (x.round() if ties else x)[order], labels[order]


def ours(x: Tensor, labels: Tensor) -> Values:
    options = {"distance": "sqeuclidean", "memory_budget": BUDGET}
    return {
        "EER": float(equal_error_rate(x, labels, **options)),
        "TAR": float(tar_at_far(x, labels, far=FAR, **options)),
        "area": float(pairwise_auroc(x, labels, **options)),
    }


def theirs(x: Tensor, labels: Tensor) -> Values:
    i, j = torch.triu_indices(len(x), len(x), 1)
    x = x.double()
    length = x.square().sum(1)
    distances = (length[:, None] + length - 2 * x @ x.T)[i, j]
    far, tar, _ = roc_curve((labels[i] == labels[j]).numpy(), -distances.numpy(), drop_intermediate=False)
    after = int(np.flatnonzero(far + tar >= 1)[0])
    gap, left = 1 - far[after - 1] - tar[after - 1], far[after] + tar[after] - 1
    rate = far[after - 1] + gap / (gap + left) * (far[after] - far[after - 1])
    return {"EER": float(rate), "TAR": float(tar[far <= FAR].max()), "area": float(auc(far, tar))}


def measured(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def row(name: str, x: Tensor, labels: Tensor) -> list[str]:
    expected, result = theirs(x, labels), ours(x, labels)
    for value, reference in expected.items():
        np.testing.assert_allclose(result[value], reference, rtol=1e-9, err_msg=value)
    times = [(measured(lambda: ours(x, labels)), measured(lambda: theirs(x, labels))) for _ in range(ROUNDS)]
    mine, rival = (statistics.median(column) for column in zip(*times, strict=True))
    pairs = len(x) * (len(x) - 1) // 2
    memory = f"{8 * pairs / 2**20:.0f} / {BUDGET / 2**20:.0f}"
    return [name, f"{pairs:,}", f"{1000 * mine:.0f}", f"{1000 * rival:.0f}", f"{rival / mine:.2f}", memory, "1"]


def main() -> None:
    options = arguments(__doc__, ("cpu",))
    columns = ("items", "pairs", "ours ms", "sklearn ms", "theirs / ours", "theirs / ours MiB", "wanted")
    table = Table(options, "Verification over all pairs", columns, packages=("scikit-learn",))
    classes, dim = (20, 16) if options.quick else (200, 128)
    even = torch.full((classes,), 20)
    ragged = torch.cat([torch.tensor([8 * classes]), torch.full((6 * classes,), 2)])
    table.add([row(f"{classes} classes of 20", *rows(even, dim, False))])
    table.add([row("the same, with ties", *rows(even, dim, True))])
    table.add([row(f"a class of {8 * classes}, {6 * classes} of 2", *rows(ragged, dim, False))])
    table.finish()


if __name__ == "__main__":
    main()
