"""Questions to a GPU: whether it answers as the CPU does, and how long it takes, by one function for each operation.

Each takes a device and sizes and returns a check, which raises `Different` or returns a note, and the call to time.
"""

import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
from torch import Tensor

from ... import assignment, posterior, structured  # noqa: F401  they define the operators and register kernels
from ...association.functional import permutation_p_value
from ...retrieval import AccuracyCalculator, TorchKMeans, TorchKNN

Parts = tuple[Callable[[], str | None], Callable[[], object]]


class Different(Exception):
    """The device does not answer as the CPU does."""


def check_same(results: Iterable[Tensor], expected: Iterable[Tensor], rtol: float = 0.0, fraction: float = 1.0) -> None:
    """Raise `Different` unless a fraction of the entries agree, bit for bit or within `rtol`."""
    for result, value in zip(results, expected, strict=True):
        result = result.cpu()
        is_equal = torch.isclose(result, value, rtol=rtol, atol=1e-37, equal_nan=True) if rtol else result == value
        if is_equal.numel() and is_equal.double().mean().item() < fraction:
            raise Different(f"{(~is_equal).sum().item()} of {is_equal.numel()} entries")


def milliseconds(call: Callable[[], object], patience: float = 4.0, runs: int = 10) -> float:
    """Return the median time of up to `runs` calls after two, or of fewer where `patience` seconds have passed."""
    spent: list[float] = []
    end = time.perf_counter() + patience
    while len(spent) < runs + 2 and (not spent or time.perf_counter() < end):
        spent.append(_once(call))
    return statistics.median(spent[2:] or spent)


def _once(call: Callable[[], object]) -> float:
    if not torch.cuda.is_available():
        start = time.perf_counter()
        call()
        return 1000 * (time.perf_counter() - start)
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    call()
    stop.record()
    torch.cuda.synchronize()
    return start.elapsed_time(stop)


def points(rows: int, dim: int, classes: int) -> tuple[Tensor, Tensor]:
    # ->  (rows, dim) clusters, (rows,) their labels
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(rows, device="cpu") % classes
    centres = torch.randn(classes, dim, generator=generator, device="cpu")
    return torch.randn(rows, dim, generator=generator, device="cpu") + centres[labels], labels


def neighbors(device: torch.device, rows: int, dim: int, k: int) -> Parts:
    x = points(rows, dim, max(rows // 10, 2))[0]
    on_device = x.to(device)
    queries = torch.linspace(0, rows - 1, min(rows, 100)).long()

    def check() -> None:
        indices = TorchKNN().indices(on_device, k, on_device, True)[queries.to(device)]
        check_same([indices], [TorchKNN().indices(x[queries], k, x, self_index=queries)])

    return check, lambda: TorchKNN().indices(on_device, k, on_device, True)


def score(
    device: torch.device, name: str, k: Literal["max_bin_count"] | None, rows: int, dim: int, classes: int, small: int
) -> Parts:
    calculator = AccuracyCalculator((name,), k=k)
    x, labels = points(rows, dim, classes)
    on_device, labels_on_device = x.to(device), labels.to(device)

    def check() -> None:
        part, part_labels = x[:small], labels[:small] % max(small * classes // rows, 2)
        values = (
            calculator.get_accuracy(part.to(to), part_labels.to(to))[name] for to in (device, torch.device("cpu"))
        )
        result, expected = (torch.tensor([value]) for value in values)
        check_same([result], [expected], rtol=1e-12)

    return check, lambda: calculator.get_accuracy(on_device.clone(), labels_on_device)


def assignments(device: torch.device, problems: int, rows: int, cols: int, operators: Any = None) -> Parts:
    operators = operators or torch.ops.tensormetrics
    cost = torch.rand(problems, rows, cols, generator=torch.Generator().manual_seed(0), device="cpu")
    on_device = cost.to(device)
    checked = max(min(problems, 10**7 // (rows * cols)), 1)

    def check() -> None:
        results = operators.lsa(on_device, False)
        check_same([part[:checked] for part in results], torch.ops.tensormetrics.lsa(cost[:checked], False))

    return check, lambda: operators.lsa(on_device, False)


def _key(*shape: int) -> Tensor:
    return torch.randint(0, 2**32, (*shape, 2), generator=torch.Generator().manual_seed(1), device="cpu")


def _sampler(
    device: torch.device,
    operators: Any,
    name: str,
    shape: tuple[int, ...],
    checked: int,
    dtype: torch.dtype,
    *inputs: Any,
) -> Parts:
    """Compare the first samples with those of the CPU; a sample does not depend on the number of samples."""
    operators = operators or torch.ops.tensormetrics
    on_device = [x.to(device) if isinstance(x, Tensor) else x for x in inputs]
    out = torch.empty(shape, dtype=dtype, device=device)

    def check() -> None:
        results, expected = (torch.full((*shape[:-1], checked), torch.nan, dtype=dtype, device="cpu") for _ in range(2))
        results = results.to(device)
        getattr(operators, name)(results, *on_device)
        getattr(torch.ops.tensormetrics, name)(expected, *inputs)
        check_same([results], [expected], *((1e-11, 1.0) if dtype == torch.float64 else (1e-5, 0.95)))

    return check, lambda: getattr(operators, name)(out, *on_device)


def confusion_sums(device: torch.device, classes: int, samples: int, operators: Any = None) -> Parts:
    generator = torch.Generator().manual_seed(0)
    cells = torch.randint(0, 30, (1, classes, classes), generator=generator, device="cpu").double() + 1
    shape = 1, 4 * classes, samples
    inputs = cells.sum(-1), cells, None, _key(1, 3), 0
    return _sampler(device, operators, "dirichlet_sums", shape, min(samples, 50), torch.float32, *inputs)


def item_sums(device: torch.device, items: int, samples: int, operators: Any = None) -> Parts:
    cells = torch.randint(0, 9, (1, items), generator=torch.Generator().manual_seed(0), device="cpu")
    shape = 1, 9, samples
    return _sampler(device, operators, "item_sums", shape, min(samples, 130), torch.float64, cells, _key(1)[0], 0)


def log_gammas(device: torch.device, rows: int, samples: int, operators: Any = None) -> Parts:
    generator = torch.Generator().manual_seed(0)
    alpha = torch.rand(1, rows, rows, generator=generator, dtype=torch.float64, device="cpu") * 5
    shape = 1, rows, rows, samples
    return _sampler(device, operators, "log_gamma", shape, min(samples, 100), torch.float32, alpha, _key(1), 0)


def permutations(device: torch.device, tests: int, size: int, replicates: int) -> Parts:
    u, v = torch.randn(2, tests, size, generator=torch.Generator().manual_seed(0), device="cpu")
    on_device = u.to(device), v.to(device)

    def p_values(u: Tensor, v: Tensor, count: int) -> Tensor:
        return permutation_p_value(u, v, method="approximate", replicates=count)

    def check() -> None:
        part, count = slice(0, 64), min(replicates, 20_000)
        results = p_values(on_device[0][part], on_device[1][part], count)
        check_same([results], [p_values(u[part], v[part], count)])

    return check, lambda: p_values(on_device[0], on_device[1], replicates)


def k_means(device: torch.device, rows: int, dim: int, clusters: int, small: int) -> Parts:
    x = points(rows, dim, clusters)[0]
    on_device = x.to(device)

    def step(x: Tensor, count: int) -> Tensor:
        return TorchKMeans(niter=1, init=x[:count].clone())(x, count)

    def check() -> None:
        num_clusters = max(small * clusters // rows, 2)
        check_same([step(on_device[:small], num_clusters)], [step(x[:small], num_clusters)], fraction=0.999)

    return check, lambda: step(on_device, clusters)


# The checks of `info --gpu`, with sizes at which the CPU answers in a second.
SMALL: dict[str, Callable[[torch.device], Parts]] = {
    "nearest neighbors, D 128, k 10": lambda device: neighbors(device, 3000, 128, 10),
    "nearest neighbors, D 24, k 200": lambda device: neighbors(device, 1000, 24, 200),
    "average precision": lambda device: score(device, "mean_average_precision", None, 1000, 64, 50, 1000),
    "MAP@R": lambda device: score(device, "mean_average_precision_at_r", "max_bin_count", 1000, 64, 10, 1000),
    "k-means": lambda device: k_means(device, 2000, 32, 20, 2000),
    "assignments, 30 x 30": lambda device: assignments(device, 500, 30, 30),
    "assignments, 200 x 300": lambda device: assignments(device, 4, 200, 300),
    "posterior of 10 classes": lambda device: confusion_sums(device, 10, 200),
    "posterior of 100 classes": lambda device: confusion_sums(device, 100, 50),
    "weights of items": lambda device: item_sums(device, 1000, 130),
    "gamma variates": lambda device: log_gammas(device, 20, 100),
    "permutations": lambda device: permutations(device, 64, 25, 5000),
}

_MAP_AT_R: tuple[str, Literal["max_bin_count"]] = "mean_average_precision_at_r", "max_bin_count"
# Timed by `info --gpu`: with the library's kernels, and without them.
TIMED: dict[str, tuple[Callable[[torch.device], Parts], Callable[[torch.device], Parts]]] = {
    name: (parts, parts)
    for name, parts in {
        "10 nearest neighbors, 60,000 x 60,000, D 128": lambda device: neighbors(device, 60_000, 128, 10),
        "100 nearest neighbors, the same rows": lambda device: neighbors(device, 60_000, 128, 100),
        "1,000 nearest neighbors, the same rows": lambda device: neighbors(device, 60_000, 128, 1000),
        "10 nearest neighbors, 5,000 x 5,000, D 64": lambda device: neighbors(device, 5000, 64, 10),
        "10 nearest neighbors, 1,000 x 1,000, D 128": lambda device: neighbors(device, 1000, 128, 10),
        "MAP@R, 60,000 x 128, 10 classes": lambda device: score(device, *_MAP_AT_R, 60_000, 128, 10, 1000),
        "MAP@R, 60,000 x 128, 600 classes": lambda device: score(device, *_MAP_AT_R, 60_000, 128, 600, 1000),
        "k-means, 20,000 x 128 to 100 clusters": lambda device: k_means(device, 20_000, 128, 100, 2000),
        "10,000 permutations of 25 + 25 words": lambda device: permutations(device, 1, 25, 10_000),
        "10,000 samples of a 100-class posterior": lambda device: confusion_sums(device, 100, 10_000),
    }.items()
}
# Without a kernel the reference takes the problems' rows one after the other.
TIMED["1,000 assignments of 100 x 100 (plain torch: 20)"] = (
    lambda device: assignments(device, 1000, 100, 100),
    lambda device: assignments(device, 20, 100, 100),
)
