"""linear_sum_assignment against every assignment solver that is installed, on one thread of this machine's CPU.

All solvers get the same values, as float64 and, if they support it, as float32. Solvers with a batched call get the
batch; others, and ragged problems, need a loop. Every total cost is compared with scipy's before anything is timed. The
solvers take turns within a case, and a figure is the median of its turns. lap and lapx share the module name `lap`: run
the benchmark once with each, into separate tables; scipy and tensormetrics are the common columns. With `--device cuda`
the solvers of tensors get them on the GPU, and their times end when the totals are back on the CPU; tensormetrics then
does not synchronize to check its input.
"""

import importlib
import statistics
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import scipy.optimize
import torch
from _common import Table, arguments
from torch import Tensor

from tensormetrics.assignment import _op, linear_sum_assignment

NEEDS = ("scipy",)
DEVICES = ("cpu", "cuda")


class Costs(NamedTuple):
    """Cost matrices (B, R, C); for ragged problems only the upper left corners count."""

    arrays: dict[int, np.ndarray]  # by the bits of a number
    tensors: dict[int, Tensor]
    sizes: np.ndarray | None  # (B, 2)
    lengths: dict[str, Tensor]  # the same for ours

    def matrices(self, bits: int) -> list[np.ndarray]:
        array = self.arrays[bits]
        return list(array) if self.sizes is None else [c[:r, :k] for c, (r, k) in zip(array, self.sizes, strict=True)]


Solver = Callable[[Costs], np.ndarray]  # -> (B,) totals


def prepared(cost: np.ndarray, sizes: np.ndarray | None, device: str) -> Costs:
    arrays = {64: cost, 32: cost.astype(np.float32)}
    tensors = {bits: torch.from_numpy(array).to(device) for bits, array in arrays.items()}
    names = ("row_lengths", "col_lengths") if sizes is not None else ()
    lengths = {name: torch.from_numpy(sizes[:, k].copy()).to(device) for k, name in enumerate(names)}
    return Costs(arrays, tensors, sizes, lengths)


def cases(quick: bool, device: str) -> Iterator[tuple[str, np.ndarray, np.ndarray | None]]:
    generator = np.random.default_rng(0)
    divisor = 10 if quick else 1
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
        batch = max(batch // divisor, 2)
        yield f"uniform {batch} x {rows} x {cols}", generator.random((batch, rows, cols)), None
    for batch, n in [(10000, 8), (10000, 16), (10000, 30), (1000, 100), (20, 300)]:
        batch = max(batch // divisor, 2)
        yield f"ties {batch} x {n} x {n}", (generator.random((batch, n, n)) < 0.5).astype(np.float64), None
    for batch, n in [(10000, 8), (10000, 16), (1000, 100)]:
        batch = max(batch // divisor, 2)
        yield (
            f"ragged {batch} x 1..{n} x 1..{n}",
            generator.random((batch, n, n)),
            generator.integers(1, n + 1, (batch, 2)),
        )
    for n in [300] if quick else [300, 1000]:
        left, right = generator.random((2, n, 1, 2))
        yield f"geometric 1 x {n} x {n}", np.linalg.norm(left - right.swapaxes(0, 1), axis=-1)[None], None
        index = np.arange(1.0, n + 1)
        yield f"i*j 1 x {n} x {n}", np.outer(index, index)[None], None
    if not quick:
        yield "uniform 1 x 2000 x 2000", generator.random((1, 2000, 2000)), None


def scipy_loop(costs: Costs) -> np.ndarray:
    def total(c: np.ndarray) -> float:
        return c[scipy.optimize.linear_sum_assignment(c)].sum()

    return np.array([total(c) for c in costs.matrices(64)])


def ours(bits: int, device: str) -> Solver:
    def solve(costs: Costs) -> np.ndarray:
        return linear_sum_assignment(costs.tensors[bits], check=device == "cpu", **costs.lengths).cost.cpu().numpy()

    return solve


def batched(module: str, name: str, bits: int) -> Solver:
    package = importlib.import_module(module)
    solve_batch, solve_one = getattr(package, f"{name}_batch"), getattr(package, name)

    def solve(costs: Costs) -> np.ndarray:
        if costs.sizes is None:
            return solve_batch(costs.arrays[bits], extend_cost=True, n_threads=1)[0]
        return np.array([solve_one(c, extend_cost=True)[0] for c in costs.matrices(bits)])

    return solve


def lap_loop() -> Solver:
    lap = importlib.import_module("lap")
    return lambda costs: np.array([lap.lapjv(c, extend_cost=True)[0] for c in costs.matrices(64)])


def torch_linear_assignment(bits: int) -> Solver:
    function = importlib.import_module("torch_linear_assignment").batch_linear_assignment

    def solve(costs: Costs) -> np.ndarray:
        cost = costs.tensors[bits]
        column = function(cost)
        selected = cost.gather(2, column.clamp(min=0)[..., None])[..., 0].where(column >= 0, 0)
        return selected.sum(1, dtype=torch.float64).cpu().numpy()

    return solve


PEERS = {"lapx lapjvh": ("lap", "lapjvh"), "laprust": ("laprust", "lapjv"), "lapcpp": ("lapcpp", "lapjv")}
RIVALS: dict[str, Callable[[], Solver]] = {
    f"{name} {bits}": lambda where=where, bits=bits: batched(*where, bits)
    for name, where in PEERS.items()
    for bits in (64, 32)
}
RIVALS |= {
    "lapx lapjv 64": lambda: batched("lap", "lapjvx", 64),
    "lap lapjv 64": lap_loop,
    "torch-linear-assignment 64": lambda: torch_linear_assignment(64),
    "torch-linear-assignment 32": lambda: torch_linear_assignment(32),
}


def installed(device: str) -> tuple[dict[str, Solver], list[str]]:
    solvers = {"scipy": scipy_loop, "ours 64": ours(64, device), "ours 32": ours(32, device)}
    missing = []
    for name, make in RIVALS.items():
        if name == "torch-linear-assignment 32" and device == "cpu":  # on CPUs it calls scipy for both dtypes
            continue
        try:
            solvers[name] = make()
        except (ImportError, AttributeError):
            missing.append(name)
    if "lapx lapjv 64" in solvers:
        solvers.pop("lap lapjv 64", None)
        missing.append("lap lapjv 64")
    return solvers, missing


def seconds(solvers: dict[str, Solver], costs: Costs, budget: float) -> dict[str, float]:
    """Return the median time of each solver, over 3 to 30 turns within the budget."""
    times: dict[str, list[float]] = {name: [] for name in solvers}
    first = time.perf_counter()
    while len(times["scipy"]) < 3 or (time.perf_counter() - first < budget and len(times["scipy"]) < 30):
        for name, solve in solvers.items():
            start = time.perf_counter()
            solve(costs)
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def row(name: str, costs: Costs, solvers: dict[str, Solver], budget: float) -> Iterator[list[str]]:
    if costs.sizes is not None:
        solvers = {name: solve for name, solve in solvers.items() if not name.startswith("torch-")}
    expected = scipy_loop(costs)
    for solver, solve in solvers.items():
        tolerance = 1e-5 if solver.endswith("32") else 1e-9
        np.testing.assert_allclose(solve(costs), expected, rtol=tolerance, atol=tolerance, err_msg=f"{solver} {name}")
    took = seconds(solvers, costs, budget)
    scans = _op.lsa(costs.tensors[64], False, *costs.lengths.values())[6].double().mean()
    ratios = [f"{took['scipy'] / took[f'ours {bits}']:.2f}x" for bits in (64, 32)]
    for bits in (64, 32):
        peers = [took[f"{peer} {bits}"] for peer in PEERS if f"{peer} {bits}" in took]
        ratios += [f"{min(peers) / took[f'ours {bits}']:.2f}x"] if peers else []
    ratios += [
        f"{took[rival] / took[f'ours {rival[-2:]}']:.2f}x" if rival in took else "" for rival in tensor_rivals(solvers)
    ]
    yield [name, *(f"{1e3 * took[name]:.2f}" if name in took else "" for name in solvers), f"{scans:.0f}", *ratios]


def tensor_rivals(solvers: dict[str, Solver]) -> list[str]:
    return [name for name in solvers if name.startswith("torch-")]


def main() -> None:
    options = arguments(__doc__, DEVICES)
    torch.set_num_threads(1)
    solvers, missing = installed(options.device)
    columns = ["case", *(f"{name} ms" for name in solvers), "row scans", "scipy / 64", "scipy / 32"]
    columns += ["best peer / 64", "best peer / 32"] if any(f"{peer} 64" in solvers for peer in PEERS) else []
    columns += [f"torch-l-a / {rival[-2:]}" for rival in tensor_rivals(solvers)]
    where = "One thread" if options.device == "cpu" else "Tensors on the GPU, arrays on one thread of the CPU"
    notes = (
        f"{where}, medians; 64, 32: the bits of a number; x / 64: how many times longer x takes than ours in float64.\n"
        f"Best peer: of {', '.join(PEERS)}, in the same numbers. Not installed: {', '.join(missing) or 'none'}."
    )
    table = Table(options, "Assignment", columns, notes, ("scipy", "numpy"))
    budget = 1.0 if options.quick else 10.0 if options.device == "cpu" else 2.0
    for name, cost, sizes in cases(options.quick, options.device):
        table.add(row(name, prepared(cost, sizes, options.device), solvers, budget))
    table.finish()


if __name__ == "__main__":
    main()
