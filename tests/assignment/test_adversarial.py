"""Families that are hard for some method: long paths, long auctions, ties, scales. Each must end with its proof."""

import pytest
import torch
from oracle import COSTS, KERNELS, LANES, Problem, certify, costs
from torch import Tensor

FAMILIES = [kind for kind in COSTS if kind != "forbidden"]  # which has problems without a solution


def solve_and_prove(cost: Tensor, maximize: bool = False) -> None:
    problem = Problem(-cost if maximize else cost, maximize)
    n = min(cost.shape)
    result, *others = (problem.solve(kernel) for kernel in ["op", *LANES])
    certify(problem, result)
    assert result.scans <= 2 * n + n * (n + 1) // 2
    assert all(torch.equal(left, right) for other in others for left, right in zip(result, other, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("family", FAMILIES)
def test_solver_hard_family_proves_its_result(family: str, dtype: torch.dtype) -> None:
    for n in [5, 32, 37]:  # fewer than the 32 lanes, exactly 32, and more
        cost = costs(family, n, n, dtype=dtype)
        solve_and_prove(cost)
        solve_and_prove(cost[: n // 2 + 1] if family != "band" else cost, maximize=True)
        solve_and_prove(cost.T, maximize=n == 5)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("family", FAMILIES)
def test_solver_large_hard_family_proves_its_result(family: str, dtype: torch.dtype) -> None:
    solve_and_prove(costs(family, 300, 300, dtype=dtype), maximize=dtype == torch.float32)


def test_solver_missing_pairs_report_infeasible() -> None:
    for n in [3, 20, 50]:
        cost = costs("uniform", n, n)
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
        cost = (costs("uniform", n, n, seed=seed) - 0.5).where(allowed, torch.inf)
        cost = cost[torch.randperm(n, generator=torch.Generator().manual_seed(seed))]
        expected = KERNELS["op"](cost, False)
        result = KERNELS["op"]((cost * largest).to(dtype), False)
        assert result[4] == 0
        best, value = (cost[index, solution[0]].sum() for solution in (expected, result))
        assert abs(best - value) < 1e-5
