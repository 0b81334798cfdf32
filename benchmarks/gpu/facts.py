"""Facts of a GPU, the most important first. Each fact imports its requirements itself."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import torch

from benchmarks.gpu.fact import FACTS, Different, Parts, check_same, fact, milliseconds
from benchmarks.gpu.start import STAND_IN
from tensormetrics._cli.machine import gpu_checks
from tensormetrics.core.native import gpu_kernels

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("TENSORMETRICS_PTX_CACHE", ROOT / "build" / "ptx"))
DEVICE = torch.device("cpu" if STAND_IN else "cuda")


def sized(full: tuple[int, ...], small: tuple[int, ...]) -> tuple[int, ...]:
    return small if STAND_IN else full


def native(name: str):
    """Return the operators of a .cu file."""
    if not STAND_IN:
        from tensormetrics import assignment, posterior  # noqa: F401  defines them

        operator = {"lsa": "lsa", "dirichlet": "dirichlet_sums"}[name]
        if not torch._C._dispatch_has_kernel_for_dispatch_key(f"tensormetrics::{operator}", "CUDA"):
            raise SystemExit("the CUDA library was not built")
        return torch.ops.tensormetrics
    sys.path[:0] = [str(ROOT / "tests" / "ptx")]
    import library

    native.library = library.loaded(library.built(name, CACHE), library.SCHEMAS[name])
    return native.library.ops


@contextlib.contextmanager
def on_the_card() -> Iterator[None]:
    """Run the Triton kernels of this context by Triton's interpreter if there is no GPU but Triton is installed."""
    original = gpu_kernels.can_use
    if STAND_IN and find_spec("triton"):
        os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported
        gpu_kernels.can_use = lambda name, device: True
    try:
        yield
    finally:
        gpu_kernels.can_use = original


# Neighbors, ranks, clusters.


def neighbors(*sizes: int) -> Parts:
    return gpu_checks.neighbors(DEVICE, *sizes)


def score(*arguments) -> Parts:
    return gpu_checks.score(DEVICE, *arguments)


AP, MAP_AT_R = "mean_average_precision", "mean_average_precision_at_r"
fact("knn 60k D128 k10")(lambda: neighbors(*sized((60_000, 128, 10), (300, 12, 3))))
fact("knn 60k D512 k10")(lambda: neighbors(*sized((60_502, 512, 10), (300, 24, 3))))
fact("AP 60k D512")(lambda: score(AP, None, *sized((60_502, 512, 11_316, 4000), (300, 12, 30, 100))))
fact("MAP@R 10 classes")(lambda: score(MAP_AT_R, "max_bin_count", *sized((60_000, 128, 10, 2000), (300, 12, 3, 100))))


# Assignment.


def assignments(*sizes: int) -> Parts:
    return gpu_checks.assignments(DEVICE, *sizes, operators=native("lsa"))


fact("lsa 208x300x300")(lambda: assignments(*sized((208, 300, 300), (1, 30, 140))))
fact("lsa 208x300x600")(lambda: assignments(*sized((208, 300, 600), (1, 10, 150))))
fact("lsa 208x300x100")(lambda: assignments(*sized((208, 300, 100), (1, 40, 12))))
fact("lsa 10000x30x30")(lambda: assignments(*sized((10_000, 30, 30), (20, 30, 30))))
fact("lsa 1000x100x100")(lambda: assignments(*sized((1000, 100, 100), (4, 60, 60))))


# Sampling.


def sampler(parts: Callable[..., Parts], sizes: tuple[int, ...]) -> Parts:
    return parts(DEVICE, *sizes, operators=native("dirichlet"))


sums = gpu_checks.confusion_sums
fact("sampler C100 S1e4")(lambda: sampler(sums, sized((100, 10**4), (49, 20))))
fact("sampler C10 S1e5")(lambda: sampler(sums, sized((10, 10**5), (10, 50))))
fact("sampler C1000 S1e4")(lambda: sampler(sums, sized((1000, 10**4), (257, 2))))
fact("item sums 1e5 S1e4")(lambda: sampler(gpu_checks.item_sums, sized((10**5, 10**4), (100, 130))))
fact("gammas 1e8")(lambda: sampler(gpu_checks.log_gammas, sized((100, 10**4), (3, 100))))


@fact("p-values 1e6 x 4096")
def permutations() -> Parts:
    check, call = gpu_checks.permutations(DEVICE, *sized((4096, 25, 10**6), (8, 25, 1000)))
    return on_the_card()(check), on_the_card()(call)


# The rest of the search: larger, or slower.

fact("knn 60k D128 k100")(lambda: neighbors(*sized((60_000, 128, 100), (400, 12, 30))))
fact("knn 60k D128 k1000")(lambda: neighbors(*sized((60_000, 128, 1000), (400, 12, 100))))
fact("k-means 60k x 11316")(lambda: gpu_checks.k_means(DEVICE, *sized((60_502, 512, 11_316, 3000), (300, 12, 7, 100))))


# Raw rates, for comparison with all others. Their times are those of one product, copy, draw.


def product(dtype: torch.dtype, multiply: Callable, operations: str) -> Parts:
    (size,) = sized((8192,), (64,))
    a, b = (torch.randint(-3, 4, (size, size)).to(dtype).to(DEVICE) for _ in range(2))

    def check() -> str:
        result = multiply(a[:64].contiguous(), b)
        check_same([result.float()], [a[:64].float().cpu() @ b.float().cpu()], rtol=1e-3)
        return f"{2 * size**3 / milliseconds(lambda: multiply(a, b), 1.0) / 1e9:.4g} {operations}"

    return check, lambda: multiply(a, b)


fact("probe float16")(lambda: product(torch.float16, torch.mm, "TFLOP/s"))
fact("probe int8")(lambda: product(torch.int8, torch._int_mm, "TOP/s"))


@fact("probe copy")
def copy() -> Parts:
    (size,) = sized((2**28,), (2**10,))
    x, y = torch.randn(2, size, device=DEVICE)

    def check() -> str:
        y.copy_(x)
        check_same([y], [x.cpu()])
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
    (size,) = sized((300,), (30,))
    cost = torch.rand(1, size, size, generator=torch.Generator().manual_seed(0))
    on_device = cost.to(DEVICE)

    def check() -> str:
        results = operators.lsa(on_device, False)
        check_same(results, torch.ops.tensormetrics.lsa(cost, False))
        scans = int(results[-1].sum())
        duration = 1e6 * milliseconds(lambda: operators.lsa(on_device, False), 1.0) / scans
        return f"{scans} row scans of {duration:.0f} ns, {duration * clock() / 1000:.0f} cycles at {clock()} MHz"

    return check, lambda: operators.lsa(on_device, False)


def clock() -> int:
    command = ["nvidia-smi", "--query-gpu=clocks.max.sm", "--format=csv,noheader,nounits"]
    output = subprocess.run(command, capture_output=True, text=True).stdout.split() if not STAND_IN else []
    return int(output[0]) if output and output[0].isdigit() else 0


@fact("probe tensor core")
def tensor_core() -> Parts:
    """Compare sums of products on the card with the model by which the bounds of the float16 filter are tested."""
    sys.path.append(str(ROOT / "tests" / "retrieval"))
    import numpy as np
    from tensor_cores import CARDS, products

    rows = (2.0 ** -np.random.default_rng(0).uniform(11, 13.5, (128, 64))).astype(np.float16)
    rows[:, 0] = 1
    on_device = torch.from_numpy(rows).to(DEVICE)

    def check() -> str:
        result = summed(on_device).double().cpu().numpy()
        models = {name: products(rows, rows, *card) for name, card in CARDS.items()}
        fractions = {name: (result == model).mean() for name, model in models.items()}
        exact = rows.astype(np.float64) @ rows.astype(np.float64).T
        text = ", ".join(f"{fraction:.1%} are {name}'s" for name, fraction in fractions.items())
        max_error = max(np.abs(model - exact).max() for model in models.values())
        if np.abs(result - exact).max() > 2 * max_error:
            raise Different(f"off by {np.abs(result - exact).max():.3g}, the models by {max_error:.3g}")
        return text

    return check, lambda: summed(on_device)


def summed(x: torch.Tensor) -> torch.Tensor:
    """Return products of float16 rows, summed in float32 by a kernel of the library, or by the model without a GPU."""
    if STAND_IN:
        from tensor_cores import CARDS, products

        return torch.from_numpy(products(x.numpy(), x.numpy(), *CARDS["Hopper"]))
    from benchmarks.gpu.products import products_of

    return products_of(x)


COMPILED = [name for name in FACTS if name.split()[0] in ("knn", "AP", "MAP@R", "k-means", "p-values")]  # by Triton
COMPILED.append("probe tensor core")
