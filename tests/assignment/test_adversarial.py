"""Families that are hard for some method: long paths, long auctions, ties, scales. Each must end with its proof."""

from collections.abc import Callable

import pytest
import torch
from oracle import KERNELS, LANES, Problem, certify
from torch import Tensor


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def product(n: int) -> Tensor:
    index = torch.arange(1.0, n + 1, dtype=torch.float64)
    return index.outer(index)


def machol_wien(n: int) -> Tensor:
    index = torch.arange(n, dtype=torch.float64)
    return index.outer(index)


def geometric(n: int) -> Tensor:
    points = torch.rand(2, n, 2, generator=rng(), dtype=torch.float64)
    return (points[0, :, None] - points[1]).norm(dim=-1)


def low_rank(n: int) -> Tensor:
    left, right = torch.randn(2, n, 2, generator=rng(), dtype=torch.float64)
    return left @ right.T


def identical_rows(n: int) -> Tensor:
    return torch.rand(n, generator=rng(), dtype=torch.float64).expand(n, n)


def scales(n: int) -> Tensor:
    return 2.0 ** -torch.randint(0, 40, (n, n), generator=rng()).double()


def blocks(n: int) -> Tensor:
    index = torch.arange(n) // 3
    return torch.where(index[:, None] == index, torch.rand(n, n, generator=rng(), dtype=torch.float64), 100.0)


def price_war(n: int) -> Tensor:
    """Let three rows compete for two columns while all others cost far more: prices rise by the smallest steps."""
    cost = torch.full((n, n), 1e6, dtype=torch.float64)
    cost[:3, :2] = torch.tensor([[0, 1e-3], [1e-3, 0], [0, 0]])
    return cost


def near_ties(n: int) -> Tensor:
    """Make the best and the second best differ by less than a price can express."""
    return 1e8 + 1e-9 * torch.rand(n, n, generator=rng(), dtype=torch.float64)


def constant(n: int) -> Tensor:
    return torch.full((n, n), 0.1, dtype=torch.float64)


def band(n: int) -> Tensor:
    index = torch.arange(n)
    is_near = (index[:, None] - index).abs() <= 3
    return torch.where(is_near, torch.rand(n, n, generator=rng(), dtype=torch.float64), torch.inf)


FAMILIES = [
    product,
    machol_wien,
    geometric,
    low_rank,
    identical_rows,
    scales,
    blocks,
    price_war,
    near_ties,
    constant,
    band,
]


def solve_and_prove(cost: Tensor) -> None:
    n = min(cost.shape)
    for maximize in [False, True]:
        problem = Problem(-cost if maximize else cost, maximize)
        result = problem.solve("op")
        certify(problem, result)
        assert result.scans <= 2 * n + n * (n + 1) // 2
        for lanes in LANES:
            for left, right in zip(result, problem.solve(lanes), strict=True):
                assert torch.equal(left, right)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("family", FAMILIES)
def test_solver_hard_family_proves_its_result(family: Callable[[int], Tensor], dtype: torch.dtype) -> None:
    for n in [5, 32, 37]:  # fewer than the 32 lanes, exactly 32, and more
        cost = family(n).to(dtype)
        solve_and_prove(cost)
        solve_and_prove(cost[: n // 2 + 1] if family is not band else cost)
        solve_and_prove(cost.T)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("family", FAMILIES)
def test_solver_large_hard_family_proves_its_result(family: Callable[[int], Tensor], dtype: torch.dtype) -> None:
    solve_and_prove(family(300).to(dtype))


def test_solver_missing_pairs_report_infeasible() -> None:
    for n in [3, 20, 50]:
        cost = torch.rand(n, n, generator=rng(), dtype=torch.float64)
        cost[:3, 2:] = torch.inf  # three rows share two columns
        for kernel in KERNELS:
            assert Problem(cost).solve(kernel).status == 1
            assert Problem(cost.T).solve(kernel).status == 1
            certify(Problem(cost, unmatched=5.0), Problem(cost, unmatched=5.0).solve(kernel))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_solver_largest_entries_do_not_overflow(dtype):
    """Paths of few allowed pairs are long, and their lengths come close to the largest finite number."""
    n, largest = 17, torch.finfo(dtype).max / 17
    index = torch.arange(n)
    allowed = torch.eye(n, dtype=torch.bool) | torch.eye(n, dtype=torch.bool).roll(1, 1)
    for seed in range(200):
        cost = (torch.rand(n, n, generator=rng(seed), dtype=torch.float64) - 0.5).where(allowed, torch.inf)
        cost = cost[torch.randperm(n, generator=rng(seed))]
        expected = KERNELS["op"](cost, False)
        result = KERNELS["op"]((cost * largest).to(dtype), False)
        assert result[4] == 0
        best, value = (cost[index, solution[0]].sum() for solution in (expected, result))
        assert abs(best - value) < 1e-5
