"""Clustering scores against scikit-learn and torchmetrics: equal values first, then times, interleaved."""

import os
import statistics
import time
from collections.abc import Callable, Iterator

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
import sklearn.metrics
import torch
import torchmetrics.functional.clustering as tm
from _common import Table, arguments

from tensormetrics.retrieval import functional

NEEDS = ("sklearn",)
DEVICES = ("cpu", "cuda")
# score: ours, scikit-learn's, torchmetrics'
SCORES = {
    "AMI": (
        functional.adjusted_mutual_info,
        sklearn.metrics.adjusted_mutual_info_score,
        tm.adjusted_mutual_info_score,
    ),
    "NMI": (
        functional.normalized_mutual_info,
        sklearn.metrics.normalized_mutual_info_score,
        tm.normalized_mutual_info_score,
    ),
    "ARI": (functional.adjusted_rand, sklearn.metrics.adjusted_rand_score, tm.adjusted_rand_score),
}
# items, classes, clusters, score, whether torchmetrics takes part (its AMI of 60,000 items takes more than 9 minutes)
CASES = (
    (60_000, 100, 100, "AMI", False),
    (60_000, 6_000, 6_000, "AMI", False),
    (600, 10, 10, "AMI", True),
    (600, 10, 10, "NMI", True),
    (600, 10, 10, "ARI", True),
    (60_000, 100, 100, "NMI", True),
    (60_000, 6_000, 6_000, "NMI", True),
    (60_000, 100, 100, "ARI", True),
    (60_000, 6_000, 6_000, "ARI", True),
)
RATIOS = "scikit-learn / tensormetrics", "fastest rival / tensormetrics"
COLUMNS = ("score, ms", "tensormetrics", "scikit-learn", "torchmetrics", *RATIOS)
ROUNDS, PATIENCE = 9, 10.0  # a rival that has used up its seconds is left out of later rounds


def partitions(items: int, classes: int, clusters: int) -> tuple[np.ndarray, np.ndarray]:
    """Return balanced classes, and clusters that contain about half of each class."""
    random = np.random.RandomState(0)
    labels = random.permutation(items) % classes
    return labels, np.where(random.rand(items) < 0.5, labels % clusters, random.randint(0, clusters, items))


def seconds(call: Callable[[], object], device: torch.device) -> float:
    start = time.perf_counter()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def measure(calls: dict[str, Callable[[], object]], device: torch.device) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            if sum(times[name]) < PATIENCE:
                times[name].append(seconds(call, device))
    return times


def shown(times: list[float] | None) -> str:
    return "" if times is None else f"{1e3 * statistics.median(times):,.1f} ({1e3 * min(times):,.1f}; {len(times)})"


def row(
    items: int, classes: int, clusters: int, score: str, with_torchmetrics: bool, device: torch.device
) -> Iterator[tuple[str, ...]]:
    ours, scikit, torchmetric = SCORES[score]
    labels, groups = partitions(items, classes, clusters)
    pair = torch.tensor(labels, device=device), torch.tensor(groups, device=device)
    calls = {"ours": lambda: ours(*pair), "scikit-learn": lambda: scikit(labels, groups)}
    if with_torchmetrics:
        calls["torchmetrics"] = lambda: torchmetric(*pair)
    values = {name: float(call()) for name, call in calls.items()}
    assert abs(values["ours"] - values["scikit-learn"]) < 1e-9, values
    assert abs(values["ours"] - values.get("torchmetrics", values["ours"])) < 1e-3, values  # float32 there
    times = measure(calls, device)
    medians = {name: statistics.median(spent) for name, spent in times.items()}
    ours_took = medians.pop("ours")
    ratios = (f"{took / ours_took:,.1f}x" for took in (medians["scikit-learn"], min(medians.values())))
    figures = (shown(times.get(name)) for name in ("ours", "scikit-learn", "torchmetrics"))
    yield f"{score}, {items:,} items, {classes:,} x {clusters:,}", *figures, *ratios


def main() -> None:
    options = arguments(__doc__, DEVICES)
    torch.sparse.check_sparse_tensor_invariants.disable()  # else torchmetrics triggers a warning
    notes = (
        "Milliseconds: median (least; runs), interleaved. Values agree to 1e-9 with scikit-learn (always on the CPU) "
        "and to 1e-3 with torchmetrics."
    )
    table = Table(options, "Clustering scores", COLUMNS, notes, ("scikit-learn", "torchmetrics", "numpy"))
    for case in CASES[2:5] if options.quick else CASES:
        table.add(row(*case, torch.device(options.device)))
    table.finish()


if __name__ == "__main__":
    main()
