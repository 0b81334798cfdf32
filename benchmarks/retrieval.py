"""k-NN search and ranks of positives on a CPU against faiss and pytorch-metric-learning.

Equality is asserted before anything is timed: neighbors and ranks with a float64 brute force on 1,000 queries, scores
with the peer. Difficult rows are a thousand tight clusters of uneven lengths with one row a thousand times as long as
the others. Times are interleaved in one process; the CPU seconds of all threads depend less on the load of the machine
than the wall time. Peak memory is that of a child process that does nothing else.
"""

import contextlib
import logging
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
import torch
from _common import Table, arguments
from _machine import Machine, measured
from torch import Tensor

from tensormetrics.retrieval import AccuracyCalculator, TorchKNN
from tensormetrics.retrieval.ranking.positive_ranks import RankingInputs, rank_tiles
from tensormetrics.retrieval.ranking.ranking import RankingOptions

NEEDS = ("faiss", "pytorch_metric_learning")
METRICS = ("mean_average_precision_at_r", "precision_at_1", "r_precision")
FIVE = (*METRICS, "mean_average_precision", "mean_reciprocal_rank")


def clusters(n: int, dim: int, classes: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(n) % classes
    centres = torch.nn.functional.normalize(torch.randn(classes, dim, generator=generator), dim=1)
    noise = torch.randn(n, dim, generator=generator) * 2.5 / dim**0.5
    return torch.nn.functional.normalize(centres[labels] + noise, dim=1), labels


def uneven(n: int, dim: int) -> Tensor:
    """Return rows of lengths from 1 to 1,000 in tight clusters, and one that is a thousand times as long."""
    x, _ = clusters(n, dim, 1000)
    centres, _ = clusters(1000, dim, 1000)
    x = centres[torch.arange(n) % 1000] + 1e-3 * x
    x *= torch.logspace(0, 3, 1000)[torch.arange(n) % 1000, None]
    x[n // 2] *= 1000
    return x


def search(x: Tensor, k: int, reference: Tensor | None = None) -> Callable[[], np.ndarray]:
    references = x if reference is None else reference
    return lambda: TorchKNN().indices(x, k, references, reference is None).numpy()


def faiss_search(x: Tensor, k: int, reference: Tensor | None = None) -> Callable[[], np.ndarray]:
    import faiss

    def run() -> np.ndarray:
        index = faiss.IndexFlatL2(x.shape[1])
        index.add((x if reference is None else reference).numpy())
        if reference is not None:
            return index.search(x.numpy(), k)[1]
        indices = index.search(x.numpy(), k + 1)[1]
        is_self = indices == np.arange(len(x))[:, None]
        is_self[:, -1] |= ~is_self.any(1)
        return indices[~is_self].reshape(len(x), k)

    return run


def calculator(x: Tensor, labels: Tensor, k: int | None, metrics=METRICS, **options) -> Callable[[], dict]:
    scores = AccuracyCalculator(metrics, k=k, **options)
    return lambda: scores.get_accuracy(x.clone(), labels)  # a clone, since results for the same tensor are cached


def peer_calculator(
    x: Tensor, labels: Tensor, k: int | None, backend: str, metrics=METRICS, **options
) -> Callable[[], dict]:
    from pytorch_metric_learning.distances import LpDistance
    from pytorch_metric_learning.utils import accuracy_calculator, inference

    knn = inference.FaissKNN() if backend == "faiss" else inference.CustomKNN(LpDistance(normalize_embeddings=False))
    scores = accuracy_calculator.AccuracyCalculator(
        include=metrics, k=k, knn_func=knn, kmeans_func=len, device=torch.device("cpu"), **options
    )
    return lambda: scores.get_accuracy(x, labels)


def check(x: Tensor, labels: Tensor, k: int) -> str:
    """Assert equality, and return the fraction of entries in which faiss's float32 order differs."""
    wide = x.double().numpy()
    order = np.empty((1000, len(x) - 1), dtype=np.int64)
    for i in range(1000):
        squared = ((wide - wide[i]) ** 2).sum(1)
        squared[i] = np.inf
        order[i] = np.argsort(squared, kind="stable")[:-1]
    ours = search(x, k)()
    assert np.array_equal(ours[:1000], order[:, :k])
    tile, ranks = next(rank_tiles(RankingInputs(x, labels).checked(), RankingOptions()))
    for i in range(min(1000, tile.stop)):
        expected = np.nonzero(labels.numpy()[order[i]] == labels[i].item())[0] + 1
        assert np.array_equal(ranks.rank[i][ranks.rank[i] > 0].numpy(), expected)
    scores = calculator(x, labels, k)()
    for backend in ("faiss", "torch"):
        peer = peer_calculator(x, labels, k, backend, METRICS[:2])()  # its R-precision differs if k < R
        assert all(abs(scores[name] - value) < 1e-5 for name, value in peer.items())
    fraction = (faiss_search(x, k)() != ours).mean()
    assert fraction < 1e-3
    return f"{fraction:.1e}"


def check_search(x: Tensor, k: int, reference: Tensor | None = None, queries: int = 300) -> None:
    """Assert that neighbors of some queries are those of a stable float64 brute force."""
    sample = torch.arange(0, len(x), -(-len(x) // queries))
    references = x if reference is None else reference
    deltas = torch.stack([(references.double() - x[i].double()).square().sum(1) for i in sample])
    if reference is None:
        deltas[torch.arange(len(sample)), sample] = torch.inf
    assert np.array_equal(search(x, k, reference)()[sample], deltas.argsort(stable=True)[:, :k].numpy())


def measure(calls: dict[str, Callable], repeats: int) -> dict[str, tuple[float, float]]:
    """Return the median wall and CPU seconds of each call by name."""
    spent: dict[str, list] = {name: [] for name in calls}
    for round_ in range(repeats + (repeats > 1)):
        for name, call in calls.items():
            wall, cpu = time.perf_counter(), time.process_time()
            with contextlib.redirect_stdout(None):  # the peer prints warnings
                call()
            if round_ or repeats == 1:  # the first one warms up
                spent[name].append((time.perf_counter() - wall, time.process_time() - cpu))
    return {name: tuple(map(statistics.median, zip(*times, strict=True))) for name, times in spent.items()}


def peak_memory(task: str, n: int, dim: int, classes: int, k: int | None) -> int:
    command = [sys.executable, __file__, "--child", task, *map(str, (n, dim, classes, k or 0))]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def child(task: str, *sizes: str) -> None:
    n, dim, classes, k = map(int, sizes)
    x, labels = clusters(n, dim, classes)
    tasks = {
        "nothing": lambda: None,
        "search": lambda: search(x, k)(),
        "faiss": lambda: faiss_search(x, k)(),
        "scores": lambda: calculator(x, labels, k)(),
        "peer, faiss": lambda: peer_calculator(x, labels, k, "faiss")(),
        "all ranks": lambda: calculator(x, labels, None, FIVE)(),
    }
    tasks[task]()
    # ru_maxrss would start at the size of the parent process.
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(int(peak.split()[1]) // 1024)


def cells(
    case: str,
    calls: dict[str, Callable],
    repeats: int,
    memory: dict[str, tuple] | None = None,
    fraction: Callable[[float], float] | None = None,
) -> Iterator[tuple[str, ...]]:
    best = measure(calls, repeats)
    ours = next(iter(best.values()))
    for name, (wall, cpu) in best.items():
        peak = peak_memory(*memory[name]) if memory and name in memory else ""
        limit = f"{fraction(wall):.0%}" if fraction and name == "ours" else ""
        ratios = f"{wall / ours[0]:.2f}", f"{cpu / ours[1]:.2f}"
        yield case, name, f"{wall:.3f}", f"{cpu:.3f}", *ratios, limit, str(peak)


def fraction_of(machine: Machine, queries: int, dim: int, references: int, k: int) -> Callable[[float], float]:
    """Return the limit as a function of seconds; `queries` is halved if products count for both rows."""
    return lambda seconds: machine.fraction_of_search(seconds, queries * references, dim, references, k)


def searches(machine: Machine) -> Iterator[tuple[str, ...]]:
    for dim, k in ((64, 10), (128, 10), (128, 99), (512, 10), (512, 100)):
        x, labels = clusters(10_000, dim, 100)
        differs = check(x, labels, k)
        case = f"search, 10,000 x {dim}, k = {k} (faiss differs in {differs} of the entries)"
        sizes = (10_000, dim, 100, k)
        memory = {"ours": ("search", *sizes), "faiss": ("faiss", *sizes)}
        yield from cells(
            case,
            {"ours": search(x, k), "faiss": faiss_search(x, k)},
            5,
            memory,
            fraction_of(machine, 5_000, dim, 10_000, k),
        )


def other_queries(machine: Machine) -> Iterator[tuple[str, ...]]:
    for dim in (64, 128, 512):
        rows, _ = clusters(40_000, dim, 100)
        x, reference = rows[::2].contiguous(), rows[1::2].contiguous()
        check_search(x, 10, reference)
        fraction = fraction_of(machine, 20_000, dim, 20_000, 10)
        calls = {"ours": search(x, 10, reference), "faiss": faiss_search(x, 10, reference)}
        yield from cells(f"20,000 other queries of 20,000 x {dim}, k = 10", calls, 3, None, fraction)


def ugly(machine: Machine) -> Iterator[tuple[str, ...]]:
    for dim, k in ((128, 10), (512, 100)):
        x = uneven(10_000, dim)
        check_search(x, k)
        case = f"tight clusters of uneven lengths, one row far out, 10,000 x {dim}, k = {k}"
        fraction = fraction_of(machine, 5_000, dim, 10_000, k)
        yield from cells(case, {"ours": search(x, k), "faiss": faiss_search(x, k)}, 3, None, fraction)


def scores(_: Machine) -> Iterator[tuple[str, ...]]:
    x, labels = clusters(10_000, 128, 100)
    for k in (10, 99):
        sizes = (10_000, 128, 100, k)
        calls = {"ours": calculator(x, labels, k)}
        calls |= {f"peer, {b}": peer_calculator(x, labels, k, b) for b in ("faiss", "torch")}
        memory = {"ours": ("scores", *sizes), "peer, faiss": ("peer, faiss", *sizes)}
        yield from cells(f"three scores, 10,000 x 128, 100 classes, k = {k}", calls, 5, memory)


def deep(_: Machine) -> Iterator[tuple[str, ...]]:
    x, labels = clusters(10_000, 128, 100)
    ours, peer = calculator(x, labels, None, FIVE), peer_calculator(x, labels, None, "faiss", FIVE)
    with contextlib.redirect_stdout(None):
        scores, expected = ours(), peer()
    assert all(abs(scores[name] - value) < 1e-5 for name, value in expected.items())
    case = "five scores, 10,000 x 128, 100 classes, k = None"
    yield from cells(case, {"ours": ours, "peer, faiss": peer}, 1, {"ours": ("all ranks", 10_000, 128, 100, None)})


def large_searches(machine: Machine) -> Iterator[tuple[str, ...]]:
    for dim in (64, 128, 512):
        x, _ = clusters(60_000, dim, 6_000)
        calls = {"ours": search(x, 10), "faiss": faiss_search(x, 10)}
        memory = {"ours": ("search", 60_000, dim, 6_000, 10)} if dim == 128 else None
        fraction = fraction_of(machine, 30_000, dim, 60_000, 10)
        yield from cells(f"search, 60,000 x {dim}, k = 10", calls, 1, memory, fraction)


def large(_: Machine) -> Iterator[tuple[str, ...]]:
    x, labels = clusters(60_000, 128, 6_000)
    sizes = (60_000, 128, 6_000, 10)
    calls = {"ours": calculator(x, labels, 10), "peer, faiss": peer_calculator(x, labels, 10, "faiss")}
    memory = {"ours": ("scores", *sizes), "peer, faiss": ("peer, faiss", *sizes)}
    yield from cells("three scores, 60,000 x 128, 6,000 classes, k = 10", calls, 1, memory)
    macro = {"metrics": METRICS[:1], "avg_of_avgs": True}
    calls = {
        "ours": calculator(x, labels, "max_bin_count", **macro),
        "peer, faiss": peer_calculator(x, labels, "max_bin_count", "faiss", **macro),
    }
    yield from cells("MAP@R, average of averages, 60,000 x 128, 6,000 classes, k = max_bin_count", calls, 1)
    memory = {"ours": ("all ranks", *sizes)}
    case = "five scores, 60,000 x 128, 6,000 classes, k = None"
    yield from cells(case, {"ours": calculator(x, labels, None, FIVE)}, 1, memory)


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        return child(*sys.argv[2:])
    options = arguments(__doc__, ("cpu",))
    logging.disable(logging.WARNING)
    machine = measured()
    notes = (
        "Medians of interleaved repeats (one run for the large cases). A process that only makes the data takes "
        f"{peak_memory('nothing', 10_000, 128, 100, None)} MB. Share of the limit: fraction of our "
        "time that products of rows take at the rate of torch's products of this type; a product of int16 codes counts "
        "as two of int8. "
        f"{machine.description()}"
    )
    packages = ("faiss-cpu", "pytorch-metric-learning", "numpy")
    columns = ("case", "who", "wall s", "CPU s", "wall / ours", "CPU / ours", "share of the limit", "peak MB")
    table = Table(options, "k-NN search and ranks of positives on a CPU", columns, notes, packages)
    for part in (scores,) if options.quick else (searches, other_queries, ugly, scores, deep, large_searches, large):
        table.add(part(machine))
    table.finish()


if __name__ == "__main__":
    main()
