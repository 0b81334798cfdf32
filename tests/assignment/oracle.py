"""Shared by the tests of the solver: its kernels by name, the certificate of optimality, and brute force."""

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from emulated_operators import lanes
from torch import Tensor

from tensormetrics.assignment import _reference

HARD = {  # of entries x in [0, 1), indices i and j from 1, and points p and q; each is hard for some method
    "products": lambda x, i, j, p, q: i * j,
    "machol_wien": lambda x, i, j, p, q: (i - 1) * (j - 1),
    "geometric": lambda x, i, j, p, q: (p[..., None, :] - q[..., None, :, :]).norm(dim=-1),
    "low_rank": lambda x, i, j, p, q: (p - 0.5) @ (q - 0.5).mT,
    "identical_rows": lambda x, i, j, p, q: x[..., :1, :],
    "scales": lambda x, i, j, p, q: 2.0 ** -(60 * x).floor(),
    "blocks": lambda x, i, j, p, q: x.where((i - 1) // 3 == (j - 1) // 3, 100.0),
    # Three rows compete for two columns while all others cost far more: prices rise by the smallest steps.
    "price_war": lambda x, i, j, p, q: (1e-3 * (i - j).abs() * (i < 3)).where((i <= 3) & (j <= 2), 1e6),
    "near_ties": lambda x, i, j, p, q: 1e8 + 1e-9 * x,  # the best two differ by less than a price can express
    "constant": lambda x, i, j, p, q: 0.1 + 0 * x,
    "band": lambda x, i, j, p, q: x.where((i - j).abs() <= 3, torch.inf),
}
COSTS = HARD | {
    "uniform": lambda x, i, j, p, q: x,
    "ties": lambda x, i, j, p, q: x < 0.5,
    "sparse": lambda x, i, j, p, q: x < 0.9,
    "rare": lambda x, i, j, p, q: x < 0.02,
    "integers": lambda x, i, j, p, q: (10 * x).floor() - 2,
    "sizes": lambda x, i, j, p, q: x * 10.0 ** (12 * p[..., :1, :1] - 6).round(),
    "shifted": lambda x, i, j, p, q: x + 1e6,  # float32 rounds prices up and down
    "forbidden": lambda x, i, j, p, q: x.where(x < 0.1, torch.inf),
}
LANES = {"warp": lanes("lsa_warp"), "block": lanes("lsa_block")}
KERNELS = {"op": torch.ops.tensormetrics.lsa, **LANES, "reference": _reference.lsa}


def costs(kind: str, *shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    """Return costs of a kind, (..., R, C)."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(shape, generator=generator, dtype=torch.float64)
    points = (torch.rand(*shape[:-2], n, 2, generator=generator, dtype=torch.float64) for n in shape[-2:])
    i, j = torch.arange(1.0, shape[-2] + 1)[:, None], torch.arange(1.0, shape[-1] + 1)
    return COSTS[kind](x, i, j, *points).expand(shape).to(dtype)


class Result(NamedTuple):
    col_of_row: Tensor
    row_of_col: Tensor
    row_dual: Tensor
    col_dual: Tensor
    status: Tensor
    cost: Tensor
    scans: Tensor


def equal(left: tuple[Tensor, ...], right: tuple[Tensor, ...]) -> bool:
    return all(a.shape == b.shape and torch.allclose(a, b, 0, 0, True) for a, b in zip(left, right, strict=True))


class Problem(NamedTuple):
    """Assignment problem with the arguments of a kernel."""

    cost: Tensor  # (R, C)
    maximize: bool = False
    mask: Tensor | None = None  # (R, C)
    capacity: Tensor | None = None  # (C,)
    unmatched: float | None = None

    def solve(self, kernel: str) -> Result:
        unmatched = None if self.unmatched is None else self.cost.new_tensor(self.unmatched)
        arguments = (self.cost, self.maximize, None, None, self.mask, self.capacity, unmatched)
        return Result(*KERNELS[kernel](*arguments))

    def minimized(self) -> tuple[Tensor, Tensor, float]:
        """Return the float64 cost to minimize (+inf: forbidden), the capacities and the cost of an unmatched row."""
        sign = -1 if self.maximize else 1
        cost = sign * self.cost.double()
        if self.mask is not None:
            cost = cost.where(self.mask, math.inf)
        capacity = torch.ones(cost.shape[1], dtype=torch.int64) if self.capacity is None else self.capacity
        return (
            cost,
            capacity,
            math.inf if self.unmatched is None else sign * float(self.cost.new_tensor(self.unmatched)),
        )


def value(problem: Problem, result: Result) -> float:
    """Sum the costs of the selected entries, and of the unmatched rows where these have a cost."""
    cost, _, unmatched = problem.minimized()
    rows = (result.col_of_row >= 0).nonzero()[:, 0]
    num_unmatched = len(result.col_of_row) - len(rows)
    return math.fsum(cost[rows, result.col_of_row[rows]].tolist()) + (
        num_unmatched * unmatched if unmatched < math.inf else 0
    )


def certify(problem: Problem, result: Result) -> None:
    """Assert in float64 that the result is a matching and that its duals prove it optimal. Needs no other solver."""
    cost, capacity, unmatched = problem.minimized()
    sign = -1 if problem.maximize else 1
    match, u, v = result.col_of_row, sign * result.row_dual.double(), sign * result.col_dual.double()
    assert result.status == 0
    rows = (match >= 0).nonzero()[:, 0]
    num_matched = torch.bincount(match[rows], minlength=len(capacity))
    assert (num_matched <= capacity).all()
    if unmatched == math.inf:
        assert len(rows) == min(len(match), int(capacity.clamp(max=max(len(match), 1)).sum()))
    for column in range(len(capacity)):
        holders = (match == column).nonzero()[:, 0].tolist()
        assert result.row_of_col[column] == (holders[0] if holders else -1)

    cost[:, capacity == 0] = math.inf
    finite = cost[cost.isfinite()].abs()
    scale = max([1e-300, *finite.tolist(), abs(unmatched) if unmatched < math.inf else 0])
    tolerance = torch.finfo(problem.cost.dtype).eps * (8 + 2 * sum(cost.shape)) * scale
    selected_costs = cost[rows, match[rows]]
    assert selected_costs.isfinite().all()
    rounding = 1e-14 * len(cost) * float(selected_costs.abs().sum())
    assert math.isclose(sign * result.cost, math.fsum(selected_costs.tolist()), rel_tol=0, abs_tol=rounding)
    assert (cost - u[:, None] - v >= -tolerance).all()
    assert ((selected_costs - u[rows] - v[match[rows]]).abs() <= tolerance).all()
    # Complementary slackness: unmatched rows and free columns have dual 0 (or the unmatched cost); signs of duals hold.
    assert (v[num_matched < capacity].abs() <= tolerance).all()
    if unmatched < math.inf:
        assert (u <= unmatched + tolerance).all() and (v <= tolerance).all()
        assert ((u[match < 0] - unmatched).abs() <= tolerance).all()
    else:
        assert (u[match < 0].abs() <= tolerance).all()
        if len(rows) < len(match):
            assert (u <= tolerance).all()
        if (num_matched < capacity).any():
            assert (v <= tolerance).all()


def choices(problem: Problem) -> Iterator[float]:
    """Yield the value of each matching that the options allow."""
    cost, capacity, unmatched = problem.minimized()
    rows, total = cost.shape[0], int(capacity.sum())
    matched = min(rows, total)
    table = cost.tolist()
    for columns in itertools.product(range(-1, cost.shape[1]), repeat=rows):
        if unmatched == math.inf and rows - columns.count(-1) != matched:
            continue
        if all(columns.count(j) <= capacity[j] for j in set(columns) - {-1}):
            yield math.fsum(
                table[i][j] if j >= 0 else 0 if unmatched == math.inf else unmatched for i, j in enumerate(columns)
            )


def brute_force(problem: Problem) -> float:
    """Compute the minimum over all matchings, inf if each of them has a forbidden pair."""
    return min(choices(problem))
