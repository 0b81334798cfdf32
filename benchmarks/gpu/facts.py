"""The facts that are asked for, the most wanted first. What a fact needs is imported within it."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import torch

from benchmarks.gpu.fact import FACTS, Different, Parts, fact, milliseconds, same
from benchmarks.gpu.start import STAND_IN

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("TENSORMETRICS_PTX_CACHE", ROOT / "build" / "ptx"))
DEVICE = "cpu" if STAND_IN else "cuda"


def sized(full: tuple[int, ...], small: tuple[int, ...]) -> tuple[int, ...]:
    return small if STAND_IN else full


def native(name: str):
    """The operators of a .cu file."""
    if not STAND_IN:
        from tensormetrics import assignment, posterior  # noqa: F401  defines them

        operator = {"lsa": "lsa", "dirichlet": "dirichlet_sums"}[name]
        if not torch._C._dispatch_has_kernel_for_dispatch_key(f"tensormetrics::{operator}", "CUDA"):
            raise SystemExit("the CUDA library was not built")
        return torch.ops.tensormetrics
    sys.path[:0] = [str(ROOT / "tests" / "ptx")]
    import library

    native.kept = library.loaded(library.built(name, CACHE), library.SCHEMAS[name])
    return native.kept.ops


def retrieval() -> ModuleType:
    import tensormetrics.retrieval as domain
    from tensormetrics import _triton

    if "TENSORMETRICS_PLAIN" in os.environ:
        _triton.usable = lambda device: False
    return domain


@contextlib.contextmanager
def on_the_card() -> Iterator[None]:
    """On a stand-in Triton's interpreter runs the kernels that are launched within, if Triton is there."""
    from tensormetrics import _triton

    usable = _triton.usable
    if STAND_IN and find_spec("triton"):
        os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported
        _triton.usable = lambda device: True
    try:
        yield
    finally:
        _triton.usable = usable


def points(rows: int, dim: int, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Clusters, on the CPU."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(rows) % classes
    return torch.randn(rows, dim, generator=generator) + torch.randn(classes, dim, generator=generator)[labels], labels


# Neighbours, ranks, clusters.


def neighbours(rows: int, dim: int, k: int) -> Parts:
    domain = retrieval()
    x = points(rows, dim, max(rows // 10, 2))[0]
    there = x.to(DEVICE)
    some = torch.linspace(0, rows - 1, min(rows, 100)).long()

    def check() -> None:
        found = domain.TorchKNN().indices(there, k, there, True)[some.to(DEVICE)]
        same([found], [domain.TorchKNN().indices(x[some], k, x, self_index=some)])

    return check, lambda: domain.TorchKNN().indices(there, k, there, True)


fact("knn 60k D128 k10")(lambda: neighbours(*sized((60_000, 128, 10), (300, 12, 3))))
fact("knn 60k D512 k10")(lambda: neighbours(*sized((60_502, 512, 10), (300, 24, 3))))


def score(name: str, k: str | None, rows: int, dim: int, classes: int, small: int) -> Parts:
    domain = retrieval()
    scorer = domain.AccuracyCalculator((name,), k=k)
    x, labels = points(rows, dim, classes)
    there, marks = x.to(DEVICE), labels.to(DEVICE)

    def check() -> None:
        few, of_few = x[:small], labels[:small] % max(small * classes // rows, 2)
        values = (scorer.get_accuracy(few.to(to), of_few.to(to))[name] for to in (DEVICE, "cpu"))
        found, wanted = (torch.tensor([value]) for value in values)
        same([found], [wanted], rtol=1e-12)

    return check, lambda: scorer.get_accuracy(there.clone(), marks)


AP, MAP_AT_R = "mean_average_precision", "mean_average_precision_at_r"
fact("AP 60k D512")(lambda: score(AP, None, *sized((60_502, 512, 11_316, 4000), (300, 12, 30, 100))))
fact("MAP@R 10 classes")(lambda: score(MAP_AT_R, "max_bin_count", *sized((60_000, 128, 10, 2000), (300, 12, 3, 100))))


# Assignment.


def assignments(problems: int, rows: int, cols: int) -> Parts:
    operators = native("lsa")
    cost = torch.rand(problems, rows, cols, generator=torch.Generator().manual_seed(0))
    there = cost.to(DEVICE)
    few = max(min(problems, 10**7 // (rows * cols)), 1)

    def check() -> None:
        found = operators.lsa(there, False)
        same([part[:few] for part in found], torch.ops.tensormetrics.lsa(cost[:few], False))

    return check, lambda: operators.lsa(there, False)


fact("lsa 208x300x300")(lambda: assignments(*sized((208, 300, 300), (1, 30, 140))))
fact("lsa 208x300x600")(lambda: assignments(*sized((208, 300, 600), (1, 10, 150))))
fact("lsa 208x300x100")(lambda: assignments(*sized((208, 300, 100), (1, 40, 12))))
fact("lsa 10000x30x30")(lambda: assignments(*sized((10_000, 30, 30), (20, 30, 30))))
fact("lsa 1000x100x100")(lambda: assignments(*sized((1000, 100, 100), (4, 60, 60))))


# Sampling.


def key(*shape: int) -> torch.Tensor:
    return torch.randint(0, 2**32, (*shape, 2), generator=torch.Generator().manual_seed(1))


def drawn(operator: str, shape: tuple[int, ...], few: int, dtype: torch.dtype, *given: object) -> Parts:
    """The first samples are those of the CPU: a sample is the same in every call."""
    operators = native("dirichlet")
    there = [x.to(DEVICE) if isinstance(x, torch.Tensor) else x for x in given]
    out = torch.empty(shape, dtype=dtype, device=DEVICE)

    def check() -> None:
        found, wanted = (torch.full((*shape[:-1], few), torch.nan, dtype=dtype) for _ in range(2))
        found = found.to(DEVICE)
        getattr(operators, operator)(found, *there)
        getattr(torch.ops.tensormetrics, operator)(wanted, *given)
        same([found], [wanted], *((1e-11, 1.0) if dtype == torch.float64 else (1e-5, 0.95)))

    return check, lambda: getattr(operators, operator)(out, *there)


def sums(classes: int, samples: int) -> Parts:
    cells = torch.randint(0, 30, (1, classes, classes), generator=torch.Generator().manual_seed(0)).double() + 1
    shape = 1, 4 * classes, samples
    return drawn("dirichlet_sums", shape, min(samples, 50), torch.float32, cells.sum(-1), cells, None, key(1, 3), 0)


fact("sampler C100 S1e4")(lambda: sums(*sized((100, 10**4), (49, 20))))
fact("sampler C10 S1e5")(lambda: sums(*sized((10, 10**5), (10, 50))))
fact("sampler C1000 S1e4")(lambda: sums(*sized((1000, 10**4), (257, 2))))


@fact("item sums 1e5 S1e4")
def item_sums() -> Parts:
    items, samples = sized((10**5, 10**4), (100, 130))
    cells = torch.randint(0, 9, (1, items), generator=torch.Generator().manual_seed(0))
    return drawn("item_sums", (1, 9, samples), min(samples, 130), torch.float64, cells, key(1)[0], 0)


@fact("gammas 1e8")
def gammas() -> Parts:
    rows, samples = sized((100, 10**4), (3, 100))
    alpha = torch.rand(1, rows, rows, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 5
    return drawn("log_gamma", (1, rows, rows, samples), min(samples, 100), torch.float32, alpha, key(1), 0)


@fact("p-values 1e6 x 4096")
def permutations() -> Parts:
    from tensormetrics.association import permutation_p_value

    tests, iterations = sized((4096, 10**6), (8, 1000))
    u, v = torch.randn(2, tests, 25, generator=torch.Generator().manual_seed(0))
    sides = u.to(DEVICE), v.to(DEVICE)

    def of(u: torch.Tensor, v: torch.Tensor, number: int) -> torch.Tensor:
        return permutation_p_value(u, v, method="approximate", replicates=number)

    def there(some: slice, number: int) -> torch.Tensor:
        with on_the_card():
            return of(*(x[some] for x in sides), number)

    def check() -> None:
        few, number = slice(0, 64), min(iterations, 20_000)
        same([there(few, number)], [of(u[few], v[few], number)])

    return check, lambda: there(slice(None), iterations)


# The rest of the search: larger, or slower.

fact("knn 60k D128 k100")(lambda: neighbours(*sized((60_000, 128, 100), (400, 12, 30))))
fact("knn 60k D128 k1000")(lambda: neighbours(*sized((60_000, 128, 1000), (400, 12, 100))))


@fact("k-means 60k x 11316")
def clusters() -> Parts:
    domain = retrieval()
    rows, dim, number, small = sized((60_502, 512, 11_316, 3000), (300, 12, 7, 100))
    x = points(rows, dim, number)[0]
    there = x.to(DEVICE)

    def step(x: torch.Tensor, number: int) -> torch.Tensor:
        return domain.TorchKMeans(niter=1, init=x[:number].clone())(x, number)

    def check() -> None:
        some = max(small * number // rows, 2)
        same([step(there[:small], some)], [step(x[:small], some)], share=0.999)

    return check, lambda: step(there, number)


# Raw rates: the yardsticks of all others. Their times are of one product, copy, draw.


def product(dtype: torch.dtype, multiply: Callable, operations: str) -> Parts:
    (side,) = sized((8192,), (64,))
    a, b = (torch.randint(-3, 4, (side, side)).to(dtype).to(DEVICE) for _ in range(2))

    def check() -> str:
        found = multiply(a[:64].contiguous(), b)
        same([found.float()], [a[:64].float().cpu() @ b.float().cpu()], rtol=1e-3)
        return f"{2 * side**3 / milliseconds(lambda: multiply(a, b), 1.0) / 1e9:.4g} {operations}"

    return check, lambda: multiply(a, b)


fact("probe float16")(lambda: product(torch.float16, torch.mm, "TFLOP/s"))
fact("probe int8")(lambda: product(torch.int8, torch._int_mm, "TOP/s"))


@fact("probe copy")
def copy() -> Parts:
    (size,) = sized((2**28,), (2**10,))
    x, y = torch.randn(2, size, device=DEVICE)

    def check() -> str:
        y.copy_(x)
        same([y], [x.cpu()])
        return f"{8 * size / milliseconds(lambda: y.copy_(x), 1.0) / 1e9:.4g} TB/s read and written"

    return check, lambda: y.copy_(x)


@fact("probe torch gammas")
def torch_gammas() -> Parts:
    (size,) = sized((10**8,), (1000,))
    alpha = torch.full((size,), 2.5, device=DEVICE)

    def check() -> str:
        mean = torch._standard_gamma(alpha).double().mean().item()
        if abs(mean - 2.5) > 10 * (2.5 / size) ** 0.5:
            raise Different(f"their mean is {mean}, wanted 2.5")
        return f"{size / milliseconds(lambda: torch._standard_gamma(alpha), 1.0) / 1e6:.4g} 1e9 a second"

    return check, lambda: torch._standard_gamma(alpha)


@fact("probe row scan")
def row_scan() -> Parts:
    operators = native("lsa")
    (side,) = sized((300,), (30,))
    cost = torch.rand(1, side, side, generator=torch.Generator().manual_seed(0))
    there = cost.to(DEVICE)

    def check() -> str:
        found = operators.lsa(there, False)
        same(found, torch.ops.tensormetrics.lsa(cost, False))
        scans = int(found[-1].sum())
        each = 1e6 * milliseconds(lambda: operators.lsa(there, False), 1.0) / scans
        return f"{scans} row scans of {each:.0f} ns, {each * clock() / 1000:.0f} cycles at {clock()} MHz"

    return check, lambda: operators.lsa(there, False)


def clock() -> int:
    command = ["nvidia-smi", "--query-gpu=clocks.max.sm", "--format=csv,noheader,nounits"]
    said = subprocess.run(command, capture_output=True, text=True).stdout.split() if not STAND_IN else []
    return int(said[0]) if said and said[0].isdigit() else 0


@fact("probe tensor core")
def tensor_core() -> Parts:
    """Sums of products on the card against the model that the bounds of the float16 filter are tested with."""
    sys.path.append(str(ROOT / "tests" / "retrieval"))
    import numpy as np
    from tensor_cores import CARDS, products

    rows = (2.0 ** -np.random.default_rng(0).uniform(11, 13.5, (128, 64))).astype(np.float16)
    rows[:, 0] = 1
    there = torch.from_numpy(rows).to(DEVICE)

    def check() -> str:
        found = summed(there).double().cpu().numpy()
        models = {name: products(rows, rows, *card) for name, card in CARDS.items()}
        shares = {name: (found == model).mean() for name, model in models.items()}
        exact = rows.astype(np.float64) @ rows.astype(np.float64).T
        text = ", ".join(f"{share:.1%} are {name}'s" for name, share in shares.items())
        most = max(np.abs(model - exact).max() for model in models.values())
        if np.abs(found - exact).max() > 2 * most:
            raise Different(f"off by {np.abs(found - exact).max():.3g}, the models by {most:.3g}")
        return text

    return check, lambda: summed(there)


def summed(x: torch.Tensor) -> torch.Tensor:
    """Products of float16 rows, summed in float32 by a kernel of ours; by the model on a stand-in."""
    if STAND_IN:
        from tensor_cores import CARDS, products

        return torch.from_numpy(products(x.numpy(), x.numpy(), *CARDS["Hopper"]))
    from benchmarks.gpu.products import products_of

    return products_of(x)


COMPILED = [name for name in FACTS if name.split()[0] in ("knn", "AP", "MAP@R", "k-means", "p-values")]  # by Triton
COMPILED.append("probe tensor core")
