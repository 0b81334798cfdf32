"""linear_sum_assignment against every assignment solver that is installed, on one thread of this machine's CPU.

All get the same float64 values; tensormetrics once as float64 (the fair column) and once as float32. Solvers with a
batched call get the batch, the others a loop. Every total cost is compared with scipy's before anything is timed. The
solvers take turns within a case, and a figure is the median of its turns. lap and lapx share the module name `lap`:
run once with each, into a table of its own; scipy and tensormetrics are the common columns. With `--device cuda` the
solvers that take tensors get them there, and their times end when the totals are back on the CPU; tensormetrics then
does not wait to look for bad input.
"""

import importlib
import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np
import scipy.optimize
import torch
from _common import Table, arguments
from torch import Tensor

from tensormetrics.assignment import _op, linear_sum_assignment

NEEDS = ("scipy",)
DEVICES = ("cpu", "cuda")
Solver = Callable[[np.ndarray, Tensor, Tensor], np.ndarray]  # (B, R, C) as float64, as tensors of 64, 32 -> (B,) totals


def cases(quick: bool, device: str) -> Iterator[tuple[str, np.ndarray]]:
    generator = np.random.default_rng(0)
    many = 10 if quick else 1
    matchers = [(208, 300, 100), (208, 300, 300), (208, 300, 600)] if device == "cuda" else []
    for batch, rows, cols in [
        *matchers,
        (10000, 8, 8),
        (10000, 16, 16),
        (10000, 30, 30),
        (1000, 100, 100),
        (208, 100, 300),
        (20, 300, 300),
        (20, 300, 600),
        (20, 600, 300),
    ]:
        batch = max(batch // many, 2)
        yield f"uniform {batch} x {rows} x {cols}", generator.random((batch, rows, cols))
    for batch, n in [(10000, 8), (10000, 16), (10000, 30), (1000, 100), (20, 300)]:
        batch = max(batch // many, 2)
        yield f"ties {batch} x {n} x {n}", (generator.random((batch, n, n)) < 0.5).astype(np.float64)
    for n in [300] if quick else [300, 1000]:
        left, right = generator.random((2, n, 1, 2))
        yield f"geometric 1 x {n} x {n}", np.linalg.norm(left - right.swapaxes(0, 1), axis=-1)[None]
        index = np.arange(1.0, n + 1)
        yield f"i*j 1 x {n} x {n}", np.outer(index, index)[None]
    if not quick:
        yield "uniform 1 x 2000 x 2000", generator.random((1, 2000, 2000))


def scipy_loop(cost: np.ndarray, *_: Tensor) -> np.ndarray:
    def total(c: np.ndarray) -> float:
        return c[scipy.optimize.linear_sum_assignment(c)].sum()

    return np.array([total(c) for c in cost])


def ours(which: int, device: str) -> Solver:
    def solve(*inputs: np.ndarray | Tensor) -> np.ndarray:
        return linear_sum_assignment(inputs[which], check=device == "cpu").cost.cpu().numpy()

    return solve


def batched(module: str, name: str) -> Solver:
    function = getattr(importlib.import_module(module), name)
    return lambda cost, *_: function(cost, extend_cost=True, n_threads=1)[0]


def lap_loop() -> Solver:
    lap = importlib.import_module("lap")
    return lambda cost, *_: np.array([lap.lapjv(c, extend_cost=True)[0] for c in cost])


def torch_linear_assignment(which: int) -> Solver:
    function = importlib.import_module("torch_linear_assignment").batch_linear_assignment

    def solve(*inputs: np.ndarray | Tensor) -> np.ndarray:
        cost, column = inputs[which], function(inputs[which])
        chosen = cost.gather(2, column.clamp(min=0)[..., None])[..., 0].where(column >= 0, 0)
        return chosen.sum(1, dtype=torch.float64).cpu().numpy()

    return solve


RIVALS: dict[str, Callable[[], Solver]] = {
    "lapx lapjv": lambda: batched("lap", "lapjvx_batch"),
    "lapx lapjvh": lambda: batched("lap", "lapjvh_batch"),
    "laprust": lambda: batched("laprust", "lapjv_batch"),
    "lapcpp": lambda: batched("lapcpp", "lapjv_batch"),
    "lap lapjv": lap_loop,
    "torch-linear-assignment": lambda: torch_linear_assignment(1),
    "torch-linear-assignment float32": lambda: torch_linear_assignment(2),
}
BEST_OF = ("lapx lapjvh", "laprust", "lapcpp")


def installed(device: str) -> tuple[dict[str, Solver], list[str]]:
    solvers = {"scipy": scipy_loop, "ours float64": ours(1, device), "ours float32": ours(2, device)}
    missing = []
    for name, make in RIVALS.items():
        if name.endswith("float32") and device == "cpu":  # it hands both to scipy there
            continue
        try:
            solvers[name] = make()
        except (ImportError, AttributeError):
            missing.append(name)
    if "lapx lapjv" in solvers:
        solvers.pop("lap lapjv", None)
        missing.append("lap lapjv")
    return solvers, missing


def seconds(solvers: dict[str, Solver], inputs: tuple, budget: float) -> dict[str, float]:
    """The median time of each solver, over as many turns (3 to 30) as the budget allows."""
    times: dict[str, list[float]] = {name: [] for name in solvers}
    begin = time.perf_counter()
    while len(times["scipy"]) < 3 or (time.perf_counter() - begin < budget and len(times["scipy"]) < 30):
        for name, solve in solvers.items():
            start = time.perf_counter()
            solve(*inputs)
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def row(name: str, cost: np.ndarray, solvers: dict[str, Solver], device: str, budget: float) -> Iterator[list[str]]:
    doubles = torch.from_numpy(cost)
    inputs = (cost, doubles.to(device), doubles.float().to(device))
    wanted = scipy_loop(*inputs)
    for solver, solve in solvers.items():
        tolerance = 1e-5 if solver.endswith("float32") else 1e-9
        np.testing.assert_allclose(solve(*inputs), wanted, rtol=tolerance, atol=tolerance, err_msg=f"{solver} {name}")
    took = seconds(solvers, inputs, budget)
    fair, peers = took["ours float64"], [took[peer] for peer in BEST_OF if peer in took]
    mine = [fair, took["ours float32"]]
    ratios = [rival / own for rival in (took["scipy"], *([min(peers)] if peers else [])) for own in mine]
    ratios += [took[rival] / took[f"ours float{bits}"] for rival, bits in tensor_rivals(solvers).items()]
    scans = _op.lsa(doubles, False)[6].double().mean()
    yield [name, *(f"{1e3 * t:.2f}" for t in took.values()), f"{scans:.0f}", *(f"{ratio:.2f}x" for ratio in ratios)]


def tensor_rivals(solvers: dict[str, Solver]) -> dict[str, str]:
    return {name: "32" if name.endswith("32") else "64" for name in solvers if name.startswith("torch-")}


def main() -> None:
    options = arguments(__doc__, DEVICES)
    torch.set_num_threads(1)
    solvers, missing = installed(options.device)
    columns = ["case", *(f"{name} ms" for name in solvers), "row scans", "scipy / 64", "scipy / 32"]
    columns += ["best peer / 64", "best peer / 32"] if any(peer in solvers for peer in BEST_OF) else []
    columns += [f"torch-l-a / {bits}" for bits in tensor_rivals(solvers).values()]
    where = "One thread" if options.device == "cpu" else "Tensors on the GPU, arrays on one thread of the CPU"
    notes = (
        f"{where}, medians; x / 64: how many times longer x takes than ours in float64.\n"
        f"Best peer: of {', '.join(BEST_OF)}. Not installed: {', '.join(missing) or 'none'}."
    )
    table = Table(options, "Assignment", columns, notes, ("scipy", "numpy"))
    budget = 1.0 if options.quick else 10.0 if options.device == "cpu" else 2.0
    for name, cost in cases(options.quick, options.device):
        table.add(row(name, cost, solvers, options.device, budget))
    table.finish()


if __name__ == "__main__":
    main()
