"""Neighbours, ranks and k-means on a GPU against torch tiles and FAISS. Equality comes first.

    python benchmarks/retrieval_gpu.py [--tiny] [--output benchmarks/results/<name>.md]

Neighbours are compared with a float64 order for 1,000 queries, scores and clusters with the rival's. Contenders take
turns in one process; CUDA events measure. Torch has its best tile, in float32 without TF32. `--tiny` runs every line of
code on a few rows, also on a CPU.
"""

import argparse
import datetime
import importlib.util
import logging
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from tensormetrics.retrieval import AccuracyCalculator, TorchKMeans, TorchKNN

TILES = (256, 1024, 4096)  # rows of a tile of torch's float32 product
# rows, D, k
SEARCHES = ((60_000, 128, 10), (60_000, 128, 100), (60_000, 128, 1000), (60_502, 512, 10), (1_000_000, 512, 10))
# score, k, rows, D, classes
SCORES = (
    ("mean_average_precision", None, 60_502, 512, 11_316),
    ("mean_average_precision_at_r", "max_bin_count", 60_000, 128, 10),
)
KMEANS = (60_502, 512, 11_316)  # rows, D, clusters
WARM_UPS, ROUNDS, PATIENCE = 3, 11, 20.0  # a contender that has used up its seconds is left out of later rounds
HEADER = (
    "| case | who | median ms | least ms | runs | times ours | float16 products alone |",
    "|---|---|---|---|---|---|---|",
)


class Machine:
    """A device, how time is taken on it, and how fast it multiplies float16 and copies."""

    def __init__(self, device: torch.device, tiny: bool) -> None:
        self.device, self.tiny = device, tiny
        side, size = (64, 2**10) if tiny else (8192, 2**28)
        a, b = (torch.randn(side, side, device=device, dtype=torch.float16) for _ in range(2))
        x, y = (torch.randn(size, device=device) for _ in range(2))
        times = self.times({"product": lambda: a @ b, "copy": lambda: y.copy_(x)})
        self.rate = 2 * side**3 / statistics.median(times["product"])  # operations a second
        self.bandwidth = 8 * size / statistics.median(times["copy"])  # bytes read and written a second

    def seconds(self, call: Callable[[], object]) -> float:
        if self.device.type == "cpu":
            start = time.perf_counter()
            call()
            return time.perf_counter() - start
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        call()
        stop.record()
        torch.cuda.synchronize()
        return start.elapsed_time(stop) / 1000

    def times(self, calls: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
        times: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(1 if self.tiny else WARM_UPS + ROUNDS):
            for name, call in calls.items():
                if sum(times[name]) < PATIENCE:
                    times[name].append(self.seconds(call))
        return {name: spent[min(WARM_UPS, len(spent) - 1) :] for name, spent in times.items()}

    def fastest(self, calls: dict[str, Callable[[], object]]) -> str:
        if len(calls) > 1:
            for call in calls.values():
                call()
        return min(calls, key=lambda name: self.seconds(calls[name]) if len(calls) > 1 else 0.0)


def clusters(rows: int, dim: int, classes: int, device: torch.device) -> tuple[Tensor, Tensor]:
    generator = torch.Generator(device).manual_seed(0)
    labels = torch.arange(rows, device=device) % classes
    centres = torch.nn.functional.normalize(torch.randn(classes, dim, generator=generator, device=device))
    noise = torch.randn(rows, dim, generator=generator, device=device) * 2.5 / dim**0.5
    return torch.nn.functional.normalize(centres[labels] + noise), labels


def tiles(x: Tensor, y: Tensor, rows: int):
    """Slices of x with their squared distances to y, but for |x|^2, in float32; a row itself is infinitely far."""
    squares = y.square().sum(1)
    for start in range(0, len(x), rows):
        part = slice(start, min(start + rows, len(x)))
        tile = torch.addmm(squares, x[part], y.T, alpha=-2)
        if x is y:
            tile[:, part].fill_diagonal_(torch.inf)
        yield part, tile


def torch_search(x: Tensor, k: int, rows: int) -> Tensor:
    found = torch.empty(len(x), k, dtype=torch.int64, device=x.device)
    for part, tile in tiles(x, x, rows):
        found[part] = tile.topk(k, largest=False).indices
    return found


def torch_score(x: Tensor, labels: Tensor, depth: int | None, rows: int) -> float:
    """Mean average precision, of all ranks or (depth: the largest R) of the first R."""
    total, place = 0.0, torch.arange(1, (depth or len(x) - 1) + 1, device=x.device)
    relevant = torch.bincount(labels)[labels] - 1
    for part, tile in tiles(x, x, rows):
        order = tile.topk(depth, largest=False).indices if depth else tile.argsort(dim=1)[:, :-1]
        hit = labels[order] == labels[part, None]
        if depth:
            hit &= place <= relevant[part, None]
        total = total + (hit * hit.cumsum(1) / place).double().sum(1).div(relevant[part]).sum()
    return float(total) / len(x)


def torch_kmeans(x: Tensor, centroids: Tensor, rows: int) -> Tensor:
    """One update between two assignments."""
    for update in (True, False):
        found = torch.cat([tile.argmin(1) for _, tile in tiles(x, centroids, rows)])
        if update:
            number = torch.bincount(found, minlength=len(centroids)).clamp(min=1)
            centroids = torch.zeros_like(centroids).index_add_(0, found, x) / number[:, None]
    return found


def faiss_search(x: Tensor, k: int) -> Callable[[], Tensor] | None:
    """None where faiss has no GPU part or not so many neighbours."""
    if x.device.type == "cpu" or k >= 2048 or importlib.util.find_spec("faiss") is None:
        return None
    import faiss
    import faiss.contrib.torch_utils  # noqa: F401

    if not hasattr(faiss, "StandardGpuResources"):
        return None
    index = faiss.GpuIndexFlatL2(faiss.StandardGpuResources(), x.shape[1])
    index.add(x)

    def run() -> Tensor:
        found = index.search(x, k + 1)[1]
        own = found == torch.arange(len(x), device=x.device)[:, None]
        own[:, -1] |= ~own.any(1)
        return found[~own].view(len(x), k)

    return run


def check_neighbours(x: Tensor, found: Tensor) -> None:
    """The order by float64 distances, for up to 1,000 queries; equal distances may be in any order."""
    wide = x.double()
    some = torch.linspace(0, len(x) - 1, min(1000, len(x)), device=x.device).long()
    for part in some.split(100):
        distance = torch.cdist(wide[part], wide, compute_mode="donot_use_mm_for_euclid_dist")
        distance[torch.arange(len(part), device=x.device), part] = torch.inf
        wanted, order = distance.topk(found.shape[1], largest=False)
        same = (found[part] == order) | ((distance.gather(1, found[part]) - wanted).abs() <= 1e-14 * wanted)
        assert same.all(), "neighbours differ from the float64 order"


def add(table: list[str], machine: Machine, case: str, calls: dict[str, Callable], operations: float) -> None:
    times = machine.times(calls)
    ours = statistics.median(next(iter(times.values())))
    for name, spent in times.items():
        median = statistics.median(spent)
        figures = f"{1e3 * median:,.2f} | {1e3 * min(spent):,.2f} | {len(spent)} | {median / ours:.2f}"
        table.append(f"| {case} | {name} | {figures} | {operations / machine.rate / median:.0%} |")
        print(table[-1], flush=True)


def search(table: list[str], machine: Machine, rows: int, dim: int, k: int) -> None:
    x, _ = clusters(rows, dim, max(rows // 10, 2), machine.device)
    kept = TorchKNN()
    kept.train(x)
    calls = {
        "TorchKNN": lambda: TorchKNN().indices(x, k, x, True),
        "TorchKNN, references kept": lambda: kept.indices(x, k, None, True),
    }
    for call in calls.values():
        check_neighbours(x, call())
    wanted = calls["TorchKNN"]()
    sizes = TILES[1:2] if rows > 10**5 else TILES
    rivals = {f"torch, tiles of {size}": lambda size=size: torch_search(x, k, size) for size in sizes}
    best = machine.fastest(rivals)
    calls[best] = rivals[best]
    if faiss := faiss_search(x, k):
        calls["FAISS"] = faiss
    for name in list(calls)[2:]:
        agreement = (calls[name]() == wanted).double().mean().item()
        assert agreement > 0.999, f"{name}: {agreement:.4%} of the neighbours agree"
    add(table, machine, f"{rows:,} x {dim}, k = {k}", calls, 2.0 * rows * rows * dim)


def score(table: list[str], machine: Machine, name: str, k: str | None, rows: int, dim: int, classes: int) -> None:
    x, labels = clusters(rows, dim, classes, machine.device)
    depth = int(torch.bincount(labels).max()) - 1 if k else None
    scorers = {"AccuracyCalculator": AccuracyCalculator((name,), k=k)}
    if k:
        scorers["AccuracyCalculator, exact=False"] = AccuracyCalculator((name,), k=k, exact=False)
    calls = {  # of the same tensor it would remember the neighbours
        who: lambda scorer=scorer: scorer.get_accuracy(x.clone(), labels)[name] for who, scorer in scorers.items()
    }
    rivals = {f"torch, tiles of {size}": lambda size=size: torch_score(x, labels, depth, size) for size in TILES[:2]}
    best = machine.fastest(rivals)
    calls[best] = rivals[best]
    values = {who: call() for who, call in calls.items()}
    assert max(values.values()) - min(values.values()) < 1e-5, values
    add(table, machine, f"{name}, {rows:,} x {dim}, {classes:,} classes", calls, 2.0 * rows * rows * dim)


def kmeans(table: list[str], machine: Machine, rows: int, dim: int, number: int) -> None:
    x, _ = clusters(rows, dim, number, machine.device)
    first = x[:number].clone()
    calls = {"TorchKMeans": lambda: TorchKMeans(niter=1, init=first)(x, number)}
    rivals = {f"torch, tiles of {size}": lambda size=size: torch_kmeans(x, first, size) for size in TILES}
    best = machine.fastest(rivals)
    calls[best] = rivals[best]
    agreement = (calls["TorchKMeans"]() == calls[best]()).double().mean().item()
    assert agreement > 0.999, f"{agreement:.4%} of the clusters agree"
    case = f"k-means, {rows:,} x {dim}, {number:,} clusters, an update and two assignments"
    add(table, machine, case, calls, 4.0 * rows * number * dim)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="a few rows, once; also on a CPU")
    parser.add_argument("--output", type=Path, help="file for the table")
    options = parser.parse_args()
    if not (options.tiny or torch.cuda.is_available()):
        sys.exit("retrieval_gpu.py: torch sees no GPU here; --tiny tries the code on a CPU")
    logging.disable(logging.WARNING)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("highest")
    machine = Machine(device, options.tiny)
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    table = [
        "# Neighbours, ranks and k-means on a GPU",
        "",
        f"{datetime.date.today()}, {name}, torch {torch.__version__}; measured in the same run: float16 products "
        f"{machine.rate / 1e12:,.1f} TFLOP/s, copies {machine.bandwidth / 1e12:.2f} TB/s read and written.",
        "Equality was asserted first. The last column is the time of the products at that rate over the median; where "
        "each product serves two rows it may exceed 100 %.",
        "",
        *HEADER,
    ]
    print("\n".join(table), flush=True)
    for rows, dim, k in ((400, 12, 3), (400, 12, 30)) if options.tiny else SEARCHES:
        search(table, machine, rows, dim, k)
    for metric, k, *sizes in SCORES:
        score(table, machine, metric, k, *((300, 12, 10) if options.tiny else sizes))
    kmeans(table, machine, *((300, 12, 7) if options.tiny else KMEANS))
    if options.output:
        options.output.write_text("\n".join(table) + "\n")


if __name__ == "__main__":
    main()
