"""Facts of a GPU, the most important first: a comparison with the CPU, a time and the memory that the call takes.

If TENSORMETRICS_STAND_IN is set, sizes are small. Kernels of assignment and posterior are nvcc's PTX on the CPU, those
of p-values run in Triton's interpreter if that is installed, all others are plain torch.
"""

import os
import sys
from collections.abc import Callable
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

import torch

from benchmarks.gpu.start import STAND_IN
from tensormetrics._cli.machine import gpu_checks
from tensormetrics._cli.machine.gpu_checks import Different, Parts, check_same
from tensormetrics.core.native import gpu_kernels
from tensormetrics.core.native import native as operators

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("TENSORMETRICS_PTX_CACHE", ROOT / "build" / "ptx"))
DEVICE = torch.device("cpu" if STAND_IN else "cuda")


def synchronize() -> None:
    torch.cuda.synchronize() if DEVICE.type == "cuda" else None


def milliseconds(call: Callable[[], object]) -> float:
    """Return the median time of up to ten runs, after one that compiles and loads what it needs; one without a GPU."""
    if not STAND_IN:
        call()
    return gpu_checks.milliseconds(call, 0.0 if STAND_IN else 1.5)


def line(make: Callable[[], Parts]) -> str:
    check, call = make()
    note = check() or ""
    before = torch.cuda.memory_allocated()  # 0 without a GPU
    torch.cuda.reset_peak_memory_stats() if not STAND_IN else None
    time, peak = milliseconds(call), torch.cuda.max_memory_allocated() - before
    return f"equal    {time:10.3f} ms  {peak / 2**20:8.1f} MiB  {note}".rstrip()


def sized(full: tuple[int, ...], small: tuple[int, ...]) -> tuple[int, ...]:
    return small if STAND_IN else full


def native(name: str):
    """Return the operators of a .cu file."""
    if STAND_IN:
        return emulated(name).ops
    if not operators.has_kernel({"lsa": "lsa", "dirichlet": "dirichlet_sums"}[name], "cuda"):
        raise ImportError("the CUDA library was not built: call the step build")
    return torch.ops.tensormetrics


@cache
def emulated(name: str):
    sys.path[:0] = [str(ROOT / "tests" / "ptx"), str(ROOT / "tests")]
    import library

    CACHE.mkdir(parents=True, exist_ok=True)
    return library.loaded(library.built(name, CACHE), library.SCHEMAS[name])


def assignments(*sizes: int) -> Parts:
    return gpu_checks.assignments(DEVICE, *sizes, operators=native("lsa"))


def sampler(parts: Callable[..., Parts], *sizes: int) -> Parts:
    return parts(DEVICE, *sizes, operators=native("dirichlet"))


def permutations(*sizes: int) -> Parts:
    check, call = gpu_checks.permutations(DEVICE, *sizes)
    if STAND_IN and find_spec("triton"):
        os.environ["TRITON_INTERPRET"] = "1"  # before the kernels are imported
        interpreted = mock.patch.object(gpu_kernels, "can_use", lambda name, device: True)(call)
        return lambda: check_same([interpreted()], [call()]), interpreted
    return check, call


def product(dtype: torch.dtype, multiply: Callable, size: int) -> Parts:
    a, b = (torch.randint(-3, 4, (size, size)).to(dtype).to(DEVICE) for _ in range(2))
    call = partial(multiply, a, b)

    def check() -> str:
        check_same([call()[:64].float()], [a[:64].float().cpu() @ b.float().cpu()], rtol=1e-3)
        return f"{2 * size**3 / milliseconds(call) / 1e9:.4g} T operations/s"

    return check, call


def copy(size: int) -> Parts:
    x, y = torch.randn(2, size, device=DEVICE)

    def check() -> str:
        y.copy_(x)
        check_same([y], [x.cpu()])
        return f"{8 * size / milliseconds(lambda: y.copy_(x)) / 1e9:.4g} TB/s read and written"

    return check, lambda: y.copy_(x)


def tensor_core() -> Parts:
    """Compare sums of products on the card with the model by which the bounds of the float16 filter are tested."""
    sys.path += [str(ROOT / "tests"), str(ROOT / "tests" / "retrieval")]
    import numpy as np
    from test_tensor_cores import CARDS, products

    from benchmarks.gpu.products import products_of

    rows = (2.0 ** -np.random.default_rng(0).uniform(11, 13.5, (128, 64))).astype(np.float16)
    rows[:, 0] = 1
    call = partial(products_of, torch.from_numpy(rows).to(DEVICE))

    def check() -> str:
        result, exact = call().double().cpu().numpy(), rows.astype(np.float64) @ rows.astype(np.float64).T
        models = {name: products(rows, rows, *card) for name, card in CARDS.items()}
        max_error = max(np.abs(model - exact).max() for model in models.values())
        if np.abs(result - exact).max() > 2 * max_error:
            raise Different(f"off by {np.abs(result - exact).max():.3g}, the models by {max_error:.3g}")
        return ", ".join(f"{(result == model).mean():.1%} are {name}'s" for name, model in models.items())

    return check, call


score, AP = gpu_checks.score, ("mean_average_precision", None)
MAP_AT_R = "mean_average_precision_at_r", "max_bin_count"
sums, items, gammas = gpu_checks.confusion_sums, gpu_checks.item_sums, gpu_checks.log_gammas
FACTS: dict[str, Callable[[], Parts]] = {
    "knn 60k D128 k10": partial(gpu_checks.neighbors, DEVICE, *sized((60_000, 128, 10), (300, 12, 3))),
    "knn 60k D512 k10": partial(gpu_checks.neighbors, DEVICE, *sized((60_502, 512, 10), (300, 24, 3))),
    "AP 60k D512": partial(score, DEVICE, *AP, *sized((60_502, 512, 11_316, 4000), (300, 12, 30, 100))),
    "MAP@R 10 classes": partial(score, DEVICE, *MAP_AT_R, *sized((60_000, 128, 10, 2000), (300, 12, 3, 100))),
    "MAP@R 600 classes": partial(score, DEVICE, *MAP_AT_R, *sized((60_000, 128, 600, 2000), (300, 12, 30, 100))),
    "knn 5k D64 k10": partial(gpu_checks.neighbors, DEVICE, *sized((5000, 64, 10), (200, 12, 3))),
    "knn 1k D128 k10": partial(gpu_checks.neighbors, DEVICE, *sized((1000, 128, 10), (100, 12, 3))),
    "lsa 208x300x300": partial(assignments, *sized((208, 300, 300), (1, 30, 140))),
    "lsa 208x300x600": partial(assignments, *sized((208, 300, 600), (1, 10, 150))),
    "lsa 208x300x100": partial(assignments, *sized((208, 300, 100), (1, 40, 12))),
    "lsa 10000x30x30": partial(assignments, *sized((10_000, 30, 30), (20, 30, 30))),
    "lsa 1000x100x100": partial(assignments, *sized((1000, 100, 100), (4, 60, 60))),
    "sampler C100 S1e4": partial(sampler, sums, *sized((100, 10**4), (49, 20))),
    "sampler C10 S1e5": partial(sampler, sums, *sized((10, 10**5), (10, 50))),
    "sampler C1000 S1e4": partial(sampler, sums, *sized((1000, 10**4), (257, 2))),
    "item sums 1e5 S1e4": partial(sampler, items, *sized((10**5, 10**4), (100, 130))),
    "gammas 1e8": partial(sampler, gammas, *sized((100, 10**4), (3, 100))),
    "p-values 1e6 x 4096": partial(permutations, *sized((4096, 25, 10**6), (8, 25, 1000))),
    "knn 60k D128 k100": partial(gpu_checks.neighbors, DEVICE, *sized((60_000, 128, 100), (400, 12, 30))),
    "knn 60k D128 k1000": partial(gpu_checks.neighbors, DEVICE, *sized((60_000, 128, 1000), (400, 12, 100))),
    "k-means 60k x 11316": partial(gpu_checks.k_means, DEVICE, *sized((60_502, 512, 11_316, 3000), (300, 12, 7, 100))),
    "probe float16": partial(product, torch.float16, torch.mm, *sized((8192,), (64,))),
    "probe int8": partial(product, torch.int8, torch._int_mm, *sized((8192,), (64,))),
    "probe copy": partial(copy, *sized((2**28,), (2**10,))),
}
if not STAND_IN:  # on a CPU there is nothing but the model
    FACTS["probe tensor core"] = tensor_core
CASES = {name: partial(line, make) for name, make in FACTS.items()}
