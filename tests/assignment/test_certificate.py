"""Larger and harder problems: results have a proof and are reproducible in all layouts, dtypes and kernels."""

import numpy as np
import pytest
import scipy.optimize
import torch
from oracle import HARD, KERNELS, LANES, Problem, Result, certify, costs, equal, value
from raising import raises
from torch import Tensor

from tensormetrics.assignment import _op, linear_sum_assignment

SHAPES = [(1, 1), (1, 9), (9, 1), (8, 8), (17, 17), (30, 31), (31, 30), (64, 64), (33, 100), (100, 33), (90, 90)]
DTYPES = [torch.float32, torch.float64]


@pytest.mark.parametrize("kernel", ["op", *LANES])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", ["uniform", "ties", "sparse", "integers"])
@pytest.mark.parametrize("shape", SHAPES)
def test_solver_random_costs_match_scipy_and_certificate(
    kernel: str, dtype: torch.dtype, family: str, shape: tuple[int, int]
) -> None:
    for maximize in [False, True]:
        problem = Problem(costs(family, *shape, dtype=dtype), maximize)
        result = problem.solve(kernel)
        certify(problem, result)
        table = problem.minimized()[0].numpy()
        expected = table[scipy.optimize.linear_sum_assignment(table)].sum()
        eps = torch.finfo(dtype).eps
        assert value(problem, result) == pytest.approx(expected, abs=eps * 100 * min(shape), rel=eps)
        assignment = linear_sum_assignment(problem.cost, maximize=maximize)
        assert assignment.cost == pytest.approx(value(problem, result) * (-1 if maximize else 1), rel=1e-15)


@pytest.mark.parametrize("options", ["capacity", "unmatched", "both", "mask"])
@pytest.mark.parametrize("family", ["uniform", "ties", "integers"])
@pytest.mark.parametrize("shape", [(40, 10), (10, 40), (30, 30), (70, 50)])
def test_solver_options_satisfy_certificate(options: str, family: str, shape: tuple[int, int]) -> None:
    cost = costs(family, *shape)
    generator = torch.Generator().manual_seed(0)
    for limit in [2, 4, 9]:
        capacity = torch.randint(0, limit, shape[1:], generator=generator) if options in ["capacity", "both"] else None
        unmatched = float(cost.mean()) / limit if options in ["unmatched", "both"] else None
        mask = torch.rand(shape, generator=generator) < 0.7 if options == "mask" else None
        problem = Problem(cost, limit == 4, mask, capacity, unmatched)
        values = []
        for kernel in KERNELS:
            result = problem.solve(kernel)
            certify(problem, result)
            values.append(value(problem, result))
        assert values == pytest.approx([values[0]] * len(values), rel=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", ["uniform", "ties"])
def test_solver_batch_and_threads_keep_bits(dtype: torch.dtype, family: str) -> None:
    cost = costs(family, 40, 33, 35, dtype=dtype)
    batched = _op.lsa(cost, False)
    one_by_one = [_op.lsa(matrix, False) for matrix in cost]
    flipped = _op.lsa(cost.flip(0), False)
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if threads > 1 else 2)
    other_threads = _op.lsa(cost, False)
    torch.set_num_threads(threads)
    assert equal(batched, other_threads) and equal(batched, _op.lsa(cost, False))
    assert equal(batched, [torch.stack(field) for field in zip(*one_by_one, strict=True)])
    assert equal(batched, [field.flip(0) for field in flipped])


def test_solver_strided_layouts_equal_contiguous() -> None:
    cost = costs("uniform", 4, 6, 20, 24)
    expected = linear_sum_assignment(cost)
    large = torch.full((4, 6, 41, 50), torch.nan, dtype=torch.float64)
    large[:, :, 1::2, 2:] = cost.repeat(1, 1, 1, 2)[..., :48]
    layouts = [
        cost.permute(2, 3, 0, 1).contiguous().permute(2, 3, 0, 1),
        cost.mT.contiguous().mT,
        large[:, :, 1::2, 2:26],
        cost.transpose(0, 1).contiguous().transpose(0, 1),
    ]
    for layout in layouts:
        assert equal(expected, linear_sum_assignment(layout))
    matrix = cost[0, 0]
    assert equal(linear_sum_assignment(matrix.expand(3, 20, 24)), linear_sum_assignment(matrix.repeat(3, 1, 1)))
    torch.testing.assert_close(linear_sum_assignment(cost.mT).cost, expected.cost)
    mask = costs("uniform", 20, 24) < 0.7
    assert equal(linear_sum_assignment(matrix, mask=mask), linear_sum_assignment(matrix.where(mask, torch.inf)))
    assert equal(linear_sum_assignment(matrix, mask=mask.T.contiguous().T), linear_sum_assignment(matrix, mask=mask))


@pytest.mark.parametrize("name", ["int64", "uint64"])
def test_solver_huge_integers_in_padding_are_ignored(name: str) -> None:
    cost = torch.ones(2, 3, 3, dtype=torch.int64)
    cost[:, 2] = 2**62
    cost = cost.to(getattr(torch, name))
    assert linear_sum_assignment(cost, row_lengths=torch.tensor([2, 1])).cost.tolist() == [2, 1]
    with raises(
        ValueError, f"cost: {name} sums may reach {3 * 2**62}, wanted below 2**53; scale or subtract a constant"
    ):
        linear_sum_assignment(cost)


@pytest.mark.parametrize("shape", [(0, 0), (0, 5), (5, 0), (3, 0, 5), (0, 3, 4), (2, 3, 4, 0)])
def test_solver_empty_problems_match_nothing(shape: tuple[int, ...]) -> None:
    for kernel in KERNELS.values():
        result = Result(*kernel(torch.zeros(shape), False))
        assert result.col_of_row.shape == shape[:-1] and result.row_of_col.shape == (*shape[:-2], shape[-1])
        assert (result.col_of_row == -1).all() and (result.row_of_col == -1).all() and (result.status == 0).all()
    assert linear_sum_assignment(torch.zeros(shape)).cost.tolist() == np.zeros(shape[:-2]).tolist()


def solve_and_prove(cost: Tensor, maximize: bool = False) -> None:
    problem = Problem(-cost if maximize else cost, maximize)
    n = min(cost.shape)
    result, *others = (problem.solve(kernel) for kernel in ["op", *LANES])
    certify(problem, result)
    assert result.scans <= 2 * n + n * (n + 1) // 2
    assert all(torch.equal(left, right) for other in others for left, right in zip(result, other, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("family", HARD)
def test_solver_hard_family_proves_its_result(family: str, dtype: torch.dtype) -> None:
    for n in [5, 32, 37]:  # fewer than the 32 lanes, exactly 32, and more
        cost = costs(family, n, n, dtype=dtype)
        solve_and_prove(cost)
        solve_and_prove(cost[: n // 2 + 1] if family != "band" else cost, maximize=True)
        solve_and_prove(cost.T, maximize=n == 5)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("family", HARD)
def test_solver_large_hard_family_proves_its_result(family: str, dtype: torch.dtype) -> None:
    solve_and_prove(costs(family, 300, 300, dtype=dtype), maximize=dtype == torch.float32)


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
        assert abs(best - value) <= (8 + 4 * n) * torch.finfo(dtype).eps  # as in `certify`, of entries below 1
