"""Neighbors, ranks and k-means on a GPU against torch tiles and FAISS. Equality is asserted first.

Neighbors are compared with a float64 order for 1,000 queries, scores and clusters with the rival's. Contenders take
turns in one process; CUDA events measure the times. Torch uses its fastest tile size, in float32 without TF32.
"""

import importlib.util
import logging
import statistics
import time
from collections.abc import Callable, Iterator

import torch
from _common import Table, arguments
from torch import Tensor

from tensormetrics.retrieval import AccuracyCalculator, TorchKMeans, TorchKNN

DEVICES = ("cuda",)
TILES = (256, 1024, 4096)  # rows of a tile of torch's float32 product
# rows, D, k
SEARCHES = ((60_000, 128, 10), (60_000, 128, 100), (60_000, 128, 1000), (60_502, 512, 10), (1_000_000, 512, 10))
# score, k, rows, D, classes
SCORES = (
    ("mean_average_precision", None, 60_502, 512, 11_316),
    ("mean_average_precision_at_r", "max_bin_count", 60_000, 128, 10),
)
KMEANS = (60_502, 512, 11_316)  # rows, D, clusters
WARM_UPS, ROUNDS, PATIENCE = 3, 11, 5.0  # a contender that has used up its seconds is left out of later rounds
COLUMNS = ("case", "who", "median ms", "least ms", "runs", "times ours", "float16 products alone")


class Machine:
    """Device with a timer, and its rates of float16 products and copies."""

    def __init__(self, device: torch.device, quick: bool) -> None:
        self.device, self.quick = device, quick
        n, size = (64, 2**10) if quick else (8192, 2**28)
        a, b = (torch.randn(n, n, device=device, dtype=torch.float16) for _ in range(2))
        x, y = (torch.randn(size, device=device) for _ in range(2))
        times = self.times({"product": lambda: a @ b, "copy": lambda: y.copy_(x)})
        self.rate = 2 * n**3 / statistics.median(times["product"])  # operations a second
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
        for _ in range(1 if self.quick else WARM_UPS + ROUNDS):
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
    """Yield slices of x with float32 squared distances to y less |x|^2; that of a row to itself is infinite."""
    squares = y.square().sum(1)
    for start in range(0, len(x), rows):
        part = slice(start, min(start + rows, len(x)))
        tile = torch.addmm(squares, x[part], y.T, alpha=-2)
        if x is y:
            tile[:, part].fill_diagonal_(torch.inf)
        yield part, tile


def torch_search(x: Tensor, k: int, rows: int) -> Tensor:
    indices = torch.empty(len(x), k, dtype=torch.int64, device=x.device)
    for part, tile in tiles(x, x, rows):
        indices[part] = tile.topk(k, largest=False).indices
    return indices


def torch_score(x: Tensor, labels: Tensor, depth: int | None, rows: int) -> float:
    """Compute the mean average precision of all ranks, or of the first R (depth: the largest R)."""
    total, position = 0.0, torch.arange(1, (depth or len(x) - 1) + 1, device=x.device)
    relevant = torch.bincount(labels)[labels] - 1
    for part, tile in tiles(x, x, rows):
        order = tile.topk(depth, largest=False).indices if depth else tile.argsort(dim=1)[:, :-1]
        hit = labels[order] == labels[part, None]
        if depth:
            hit &= position <= relevant[part, None]
        total = total + (hit * hit.cumsum(1) / position).double().sum(1).div(relevant[part]).sum()
    return float(total) / len(x)


def torch_kmeans(x: Tensor, centroids: Tensor, rows: int) -> Tensor:
    """Assign rows to centroids before and after one update, and return the second assignment."""
    for update in (True, False):
        assignment = torch.cat([tile.argmin(1) for _, tile in tiles(x, centroids, rows)])
        if update:
            counts = torch.bincount(assignment, minlength=len(centroids)).clamp(min=1)
            centroids = torch.zeros_like(centroids).index_add_(0, assignment, x) / counts[:, None]
    return assignment


def faiss_search(x: Tensor, k: int) -> Callable[[], Tensor] | None:
    """Return a search by faiss, or None if faiss has no GPU support or k is too large."""
    if x.device.type == "cpu" or k >= 2048 or importlib.util.find_spec("faiss") is None:
        return None
    import faiss
    import faiss.contrib.torch_utils  # noqa: F401

    if not hasattr(faiss, "StandardGpuResources"):
        return None
    index = faiss.GpuIndexFlatL2(faiss.StandardGpuResources(), x.shape[1])
    index.add(x)

    def run() -> Tensor:
        indices = index.search(x, k + 1)[1]
        is_self = indices == torch.arange(len(x), device=x.device)[:, None]
        is_self[:, -1] |= ~is_self.any(1)
        return indices[~is_self].view(len(x), k)

    return run


def check_neighbors(x: Tensor, indices: Tensor) -> None:
    """Assert the order by float64 distances, for up to 1,000 queries; equal distances may be in any order."""
    wide = x.double()
    queries = torch.linspace(0, len(x) - 1, min(1000, len(x)), device=x.device).long()
    for part in queries.split(100):
        distance = torch.cdist(wide[part], wide, compute_mode="donot_use_mm_for_euclid_dist")
        distance[torch.arange(len(part), device=x.device), part] = torch.inf
        expected, order = distance.topk(indices.shape[1], largest=False)
        same = (indices[part] == order) | ((distance.gather(1, indices[part]) - expected).abs() <= 1e-14 * expected)
        assert same.all(), "neighbors differ from the float64 order"


def cells(machine: Machine, case: str, calls: dict[str, Callable], operations: float) -> Iterator[tuple[str, ...]]:
    times = machine.times(calls)
    ours = statistics.median(next(iter(times.values())))
    for name, spent in times.items():
        median = statistics.median(spent)
        figures = f"{1e3 * median:,.2f}", f"{1e3 * min(spent):,.2f}", f"{len(spent)}", f"{median / ours:.2f}"
        yield case, name, *figures, f"{operations / machine.rate / median:.0%}"


def search(machine: Machine, rows: int, dim: int, k: int) -> Iterator[tuple[str, ...]]:
    x, _ = clusters(rows, dim, max(rows // 10, 2), machine.device)
    trained = TorchKNN()
    trained.train(x)
    calls = {
        "TorchKNN": lambda: TorchKNN().indices(x, k, x, True),
        "TorchKNN, references kept": lambda: trained.indices(x, k, None, True),
    }
    for call in calls.values():
        check_neighbors(x, call())
    expected = calls["TorchKNN"]()
    sizes = TILES[1:2] if rows > 10**5 else TILES
    rivals = {f"torch, tiles of {size}": lambda size=size: torch_search(x, k, size) for size in sizes}
    best = machine.fastest(rivals)
    calls[best] = rivals[best]
    if faiss := faiss_search(x, k):
        calls["FAISS"] = faiss
    for name in list(calls)[2:]:
        agreement = (calls[name]() == expected).double().mean().item()
        assert agreement > 0.999, f"{name}: {agreement:.4%} of the neighbors agree"
    yield from cells(machine, f"{rows:,} x {dim}, k = {k}", calls, 2.0 * rows * rows * dim)


def score(machine: Machine, name: str, k: str | None, rows: int, dim: int, classes: int) -> Iterator[tuple[str, ...]]:
    x, labels = clusters(rows, dim, classes, machine.device)
    depth = int(torch.bincount(labels).max()) - 1 if k else None
    scorers = {"AccuracyCalculator": AccuracyCalculator((name,), k=k)}
    if k:
        scorers["AccuracyCalculator, exact=False"] = AccuracyCalculator((name,), k=k, exact=False)
    calls = {  # clones, since results for the same tensor are cached
        who: lambda scorer=scorer: scorer.get_accuracy(x.clone(), labels)[name] for who, scorer in scorers.items()
    }
    sizes = TILES[:2] if k else TILES[1:2]  # sorting all ranks takes seconds for any tile
    rivals = {f"torch, tiles of {size}": lambda size=size: torch_score(x, labels, depth, size) for size in sizes}
    best = machine.fastest(rivals)
    calls[best] = rivals[best]
    values = {who: call() for who, call in calls.items()}
    assert max(values.values()) - min(values.values()) < 1e-5, values
    yield from cells(machine, f"{name}, {rows:,} x {dim}, {classes:,} classes", calls, 2.0 * rows * rows * dim)


def kmeans(machine: Machine, rows: int, dim: int, num_clusters: int) -> Iterator[tuple[str, ...]]:
    x, _ = clusters(rows, dim, num_clusters, machine.device)
    first = x[:num_clusters].clone()
    calls = {"TorchKMeans": lambda: TorchKMeans(niter=1, init=first)(x, num_clusters)}
    rivals = {f"torch, tiles of {size}": lambda size=size: torch_kmeans(x, first, size) for size in TILES}
    best = machine.fastest(rivals)
    calls[best] = rivals[best]
    agreement = (calls["TorchKMeans"]() == calls[best]()).double().mean().item()
    assert agreement > 0.999, f"{agreement:.4%} of the clusters agree"
    case = f"k-means, {rows:,} x {dim}, {num_clusters:,} clusters, an update and two assignments"
    yield from cells(machine, case, calls, 4.0 * rows * num_clusters * dim)


def main() -> None:
    options = arguments(__doc__, DEVICES)
    logging.disable(logging.WARNING)
    torch.set_float32_matmul_precision("highest")
    machine = Machine(torch.device(options.device), options.quick)
    notes = (
        f"Measured in the same run: float16 products {machine.rate / 1e12:,.1f} TFLOP/s, copies "
        f"{machine.bandwidth / 1e12:.2f} TB/s read and written.\n"
        "Equality was asserted first. The last column is the time of the products at that rate over the median; where "
        "each product serves two rows it may exceed 100 %."
    )
    table = Table(options, "Neighbors, ranks and k-means on a GPU", COLUMNS, notes)
    *searches, large = ((400, 12, 3), (400, 12, 30)) if options.quick else SEARCHES
    for sizes in searches:
        table.add(search(machine, *sizes))
    for metric, k, *sizes in SCORES:
        table.add(score(machine, metric, k, *((300, 12, 10) if options.quick else sizes)))
    table.add(kmeans(machine, *((300, 12, 7) if options.quick else KMEANS)))
    table.add(search(machine, *large))  # takes longer than all others
    table.finish()


if __name__ == "__main__":
    main()
