"""The same work by other packages on the same card, in turns, medians; equality is asserted first.

The first call of a case is ours. A rival that is not installed or that fails is left out of its line, with the reason;
one whose answer is another makes the case differ. Torch uses float32 without TF32.
"""

import logging
import statistics
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.gpu.facts import DEVICE, STAND_IN, sized
from tensormetrics._cli.machine import gpu_checks
from tensormetrics._cli.machine.gpu_checks import Different
from tensormetrics.assignment import linear_sum_assignment
from tensormetrics.posterior.functional import sample_sums
from tensormetrics.retrieval import AccuracyCalculator, TorchKMeans, TorchKNN

ROUNDS, PATIENCE = (1, 0.0) if STAND_IN else (11, 2500.0)  # a call that has used up its milliseconds is left out
SCORES = "precision_at_1", "r_precision", "mean_average_precision_at_r"

Calls = dict[str, Callable[[], Any]]
Check = Callable[[Any], bool]  # of the answer of each call


def line(case: Callable[..., tuple[Calls, Check]], *arguments: Any) -> str:
    logging.disable(logging.WARNING)
    torch.set_float32_matmul_precision("highest")
    calls, check = case(*arguments)
    left_out = []
    for who, call in [*calls.items()]:
        try:
            answer = call()
        except Exception as error:
            if who == "ours":
                raise
            left_out.append(f"; no {who}: {type(error).__name__}: {error}".splitlines()[0][:90])
            del calls[who]
            continue
        if not check(answer):
            raise Different(f"{who} answers otherwise")
        del answer
    times: dict[str, list[float]] = {who: [] for who in calls}
    for _ in range(ROUNDS):
        for who, call in calls.items():
            if not times[who] or sum(times[who]) < PATIENCE:
                times[who].append(gpu_checks.milliseconds(call, 0.0))
    medians = {who: statistics.median(spent) for who, spent in times.items()}
    figures = (f"{who} {time:.3f} ms ({time / medians['ours']:.2f}x)" for who, time in medians.items())
    return ", ".join(figures) + "".join(left_out)


def tiles(x: Tensor, y: Tensor, rows: int = 4096) -> Iterator[tuple[slice, Tensor]]:
    """Yield slices of x with float32 squared distances to y less |x|^2; that of a row to itself is infinite."""
    squares = y.square().sum(1)
    for start in range(0, len(x), rows):
        part = slice(start, min(start + rows, len(x)))
        tile = torch.addmm(squares, x[part], y.T, alpha=-2)
        if x is y:
            tile[:, part].fill_diagonal_(torch.inf)
        yield part, tile


def search(rows: int, dim: int, k: int) -> tuple[Calls, Check]:
    x = gpu_checks.points(rows, dim, max(rows // 10, 2))[0].to(DEVICE)
    queries = torch.linspace(0, rows - 1, min(100, rows), device=DEVICE).long()
    distances = torch.cdist(x[queries].double(), x.double(), compute_mode="donot_use_mm_for_euclid_dist")
    distances[torch.arange(len(queries)), queries] = torch.inf
    expected = distances.topk(k, largest=False).values

    def by_torch() -> Tensor:
        return torch.cat([tile.topk(k, largest=False).indices for _, tile in tiles(x, x)])

    def by_faiss() -> Tensor:
        import faiss
        import faiss.contrib.torch_utils  # noqa: F401

        index = faiss.IndexFlatL2(dim) if STAND_IN else faiss.GpuIndexFlatL2(faiss.StandardGpuResources(), dim)
        index.add(x)
        return index.search(x, k + 1)[1][:, 1:]  # the first is the row itself

    # Equal distances may be in any order, and float32 exchanges those that are nearly equal.
    calls = {"ours": lambda: TorchKNN().indices(x, k, x, True), "torch": by_torch, "FAISS": by_faiss}
    return calls, lambda ids: torch.allclose(distances.gather(1, ids[queries]), expected, rtol=1e-5, atol=0)


def ranking(name: str, k: Any, rows: int, dim: int, classes: int) -> tuple[Calls, Check]:
    x, labels = (part.to(DEVICE) for part in gpu_checks.points(rows, dim, classes))
    relevant = torch.bincount(labels)[labels, None] - 1
    depth = int(relevant.max()) if k else rows - 1
    position = torch.arange(1, depth + 1, device=DEVICE)

    def by_torch() -> float:
        total = torch.zeros((), device=DEVICE, dtype=torch.float64)
        for part, tile in tiles(x, x, 1024):
            order = tile.topk(depth, largest=False).indices if k else tile.argsort(dim=1)[:, :-1]
            hit = (labels[order] == labels[part, None]) & (position <= (relevant[part] if k else depth))
            total += (hit * hit.cumsum(1) / position / relevant[part]).double().sum()
        return float(total) / rows

    ours = lambda: AccuracyCalculator((name,), k=k).get_accuracy(x, labels)[name]  # noqa: E731
    value = ours()
    return {"ours": ours, "torch": by_torch}, lambda answer: abs(answer - value) < 1e-5


def calculator(names: tuple[str, ...], k: Any, rows: int, dim: int, classes: int) -> tuple[Calls, Check]:
    x, labels = (part.to(DEVICE) for part in gpu_checks.points(rows, dim, classes))
    x = torch.nn.functional.normalize(x)

    def peer() -> dict[str, float]:
        from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator as Peer

        return Peer(include=names, k=k, device=DEVICE).get_accuracy(x, labels)

    ours = lambda: AccuracyCalculator(names, k=k).get_accuracy(x, labels)  # noqa: E731
    values = ours()
    # Other clusters give other NMI and AMI, and the peer's R-precision is another where k < R.
    compared = names or SCORES[::2]
    is_near = lambda answer: all(abs(answer[name] - values[name]) < 1e-4 for name in compared)  # noqa: E731
    return {"ours": ours, "pytorch-metric-learning": peer}, is_near


def assigned(x: Tensor, centroids: Tensor) -> Tensor:
    return torch.cat([tile.argmin(1) for _, tile in tiles(x, centroids)])


def clusters(rows: int, dim: int, count: int) -> tuple[Calls, Check]:
    x = gpu_checks.points(rows, dim, count)[0].to(DEVICE)
    first = x[:count].clone()

    def by_torch() -> Tensor:
        ids = assigned(x, first)
        sizes = torch.bincount(ids, minlength=count).clamp(min=1)[:, None]
        return assigned(x, torch.zeros_like(first).index_add_(0, ids, x) / sizes)

    expected = by_torch()
    calls = {"ours": lambda: TorchKMeans(niter=1, init=first)(x, count), "torch": by_torch}
    return calls, lambda ids: (ids == expected).double().mean().item() > 0.999


def nearest_centroids(rows: int, dim: int, count: int) -> tuple[Calls, Check]:
    x = gpu_checks.points(rows, dim, count)[0].to(DEVICE)
    centroids, squares = x[:count].clone(), x.square().sum(1)[None]
    halves = x.half()[None], centroids.half()[None]
    expected = assigned(x, centroids)

    def flash() -> Tensor:
        from flash_kmeans.assign_euclid_triton import euclid_assign_triton

        return euclid_assign_triton(*halves, squares)[0]

    calls = {"ours": lambda: TorchKNN().indices(x, 1, centroids)[:, 0], "flash-kmeans, float16": flash}
    return calls, lambda ids: (ids == expected).double().mean().item() > 0.99


def assignments(problems: int, rows: int, cols: int) -> tuple[Calls, Check]:
    cost = torch.rand(problems, rows, cols, generator=torch.Generator().manual_seed(0)).to(DEVICE)

    def peer() -> Tensor:
        from torch_linear_assignment import batch_linear_assignment

        return batch_linear_assignment(cost)

    def total(columns: Tensor) -> Tensor:
        chosen = cost.gather(2, columns.clamp(min=0)[..., None])[..., 0]
        return torch.where(columns >= 0, chosen, 0).double().sum(1)

    expected = linear_sum_assignment(cost).cost.double()
    ours = lambda: linear_sum_assignment(cost, check=False).col_of_row  # noqa: E731
    return {"ours": ours, "torch-linear-assignment": peer}, lambda ids: torch.allclose(total(ids), expected, rtol=1e-5)


def matrices(classes: int, samples: int) -> tuple[Calls, Check]:
    counts = torch.randint(0, 30, (classes, classes), generator=torch.Generator().manual_seed(0)).to(DEVICE)
    alpha = counts.float() + 1

    def ours() -> Tensor:
        sums = sample_sums(counts, samples, confusion_prior=1.0)
        return (sums.tp / (sums.tp + sums.fn))[:, 0]

    def by_torch() -> Tensor:
        gammas = torch._standard_gamma(alpha.expand(samples, classes, classes))
        return (gammas / gammas.sum(-1, keepdim=True)).diagonal(dim1=-2, dim2=-1)

    recall = (alpha.diagonal() / alpha.sum(-1)).double()
    is_near = lambda answer: bool(((answer.double().mean(0) - recall).abs() < samples**-0.5).all())  # noqa: E731
    return {"ours": ours, "torch's gammas and a division": by_torch}, is_near


def gammas(rows: int, samples: int) -> tuple[Calls, Check]:
    alpha = 0.5 + 5 * torch.rand(1, rows, rows, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    alpha, key = alpha.to(DEVICE), torch.zeros(1, 2, dtype=torch.int64, device=DEVICE)
    out = torch.empty(1, rows, rows, samples, device=DEVICE)

    def ours() -> Tensor:
        torch.ops.tensormetrics.log_gamma(out, alpha, key, 0)
        return out

    def is_near(answer: Tensor) -> bool:
        return bool(((answer.exp().mean(-1) - alpha).abs() < 10 * (alpha / samples).sqrt()).all())

    concentrations = alpha.float()[..., None].expand_as(out)
    return {"ours": ours, "torch": lambda: torch._standard_gamma(concentrations).log()}, is_near


AP, MAP_AT_R = "mean_average_precision", "mean_average_precision_at_r"
ROWS: dict[str, tuple] = {  # case, its arguments
    "knn 60k D128 k10": (search, *sized((60_000, 128, 10), (300, 12, 3))),
    "knn 60k D128 k100": (search, *sized((60_000, 128, 100), (300, 12, 30))),
    "knn 60k D128 k1000": (search, *sized((60_000, 128, 1000), (300, 12, 100))),
    "knn 60k D512 k10": (search, *sized((60_502, 512, 10), (300, 24, 3))),
    "knn 5k D64 k10": (search, *sized((5000, 64, 10), (200, 12, 3))),
    "knn 1k D128 k10": (search, *sized((1000, 128, 10), (100, 12, 3))),
    "AP 60k D512": (ranking, AP, None, *sized((60_502, 512, 11_316), (300, 12, 30))),
    "MAP@R 10 classes": (ranking, MAP_AT_R, "max_bin_count", *sized((60_000, 128, 10), (300, 12, 3))),
    "MAP@R 600 classes": (ranking, MAP_AT_R, "max_bin_count", *sized((60_000, 128, 600), (300, 12, 30))),
    "calculator 60k R neighbors": (calculator, SCORES, "max_bin_count", *sized((60_000, 128, 6000), (300, 12, 30))),
    "calculator 60k k10": (calculator, SCORES, 10, *sized((60_000, 128, 6000), (300, 12, 30))),
    "calculator 10k all ranks": (calculator, SCORES, None, *sized((10_000, 128, 100), (300, 12, 10))),
    "calculator 20k 5 scores": (calculator, (), 10, *sized((20_000, 128, 100), (300, 12, 10))),
    "k-means 60k x 11316": (clusters, *sized((60_502, 512, 11_316), (300, 12, 7))),
    "centroids 60k x 11316": (nearest_centroids, *sized((60_502, 512, 11_316), (300, 12, 7))),
    "lsa 208x300x300": (assignments, *sized((208, 300, 300), (3, 30, 30))),
    "lsa 208x300x600": (assignments, *sized((208, 300, 600), (3, 30, 60))),
    "lsa 208x300x100": (assignments, *sized((208, 300, 100), (3, 30, 10))),
    "lsa 10000x30x30": (assignments, *sized((10_000, 30, 30), (3, 5, 5))),
    "lsa 1000x100x100": (assignments, *sized((1000, 100, 100), (3, 10, 10))),
    "lsa 64x100x20": (assignments, *sized((64, 100, 20), (3, 10, 2))),
    "lsa 1x1000x1000": (assignments, *sized((1, 1000, 1000), (1, 90, 90))),
    "sampler C100 S1e4": (matrices, *sized((100, 10**4), (4, 2000))),
    "sampler C10 S1e5": (matrices, *sized((10, 10**5), (3, 2000))),
    "gammas 1e8": (gammas, *sized((100, 10**4), (3, 2000))),
}
CASES = {name: partial(line, *row) for name, row in ROWS.items()}
