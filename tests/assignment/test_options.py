"""Every option, single and combined, against brute force and the certificate, for every kernel."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import KERNELS, Problem, brute_force, certify, value

from tensormetrics.assignment import linear_sum_assignment

SETTINGS = settings(deadline=None, derandomize=True, max_examples=150)
ENTRIES = {
    "ties": st.sampled_from([0.0, 1.0]),
    "integers": st.integers(-3, 3).map(float),
    "reals": st.floats(-10, 10, width=32),
    "signed zeros": st.sampled_from([0.0, -0.0]),
    "scales": st.sampled_from([1e30, -1e30, 1.0, 1e-30]),
    "subnormal": st.sampled_from([0.0, 1e-310, 5e-324, 3e-312]),
    "offset": st.integers(0, 5).map(lambda k: 1e9 + k),
    "above 2^24": st.integers(2**24, 2**24 + 9).map(float),
}


@st.composite
def problems(draw: st.DrawFn, largest: int = 4) -> Problem:
    rows, cols = draw(st.integers(0, largest)), draw(st.integers(0, largest))
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    entry = ENTRIES[draw(st.sampled_from(sorted(ENTRIES)))]
    maximize = draw(st.booleans())
    forbidden = st.just(-math.inf if maximize else math.inf)
    entries = draw(st.sampled_from([entry, st.one_of(entry, entry, forbidden)]))
    cost = torch.tensor(draw(st.lists(entries, min_size=rows * cols, max_size=rows * cols)), dtype=dtype)
    masks = st.lists(st.sampled_from([True, True, False]), min_size=rows * cols, max_size=rows * cols)
    mask = draw(st.one_of(st.none(), masks))
    capacity = draw(st.one_of(st.none(), st.lists(st.integers(0, 3), min_size=cols, max_size=cols)))
    return Problem(
        cost.reshape(rows, cols),
        maximize,
        None if mask is None else torch.tensor(mask, dtype=torch.bool).reshape(rows, cols),
        None if capacity is None else torch.tensor(capacity, dtype=torch.int64),
        draw(st.one_of(st.none(), st.none(), entry)),
    )


@pytest.mark.parametrize("kernel", KERNELS)
@settings(SETTINGS, max_examples=40)
@given(problem=problems())
def test_solver_random_options_equal_brute_force(kernel: str, problem: Problem) -> None:
    result, best = problem.solve(kernel), brute_force(problem)
    if best == math.inf:
        assert result.status == 1
        assert (result.col_of_row == -1).all() and (result.row_of_col == -1).all()
        assert not result.row_dual.any() and not result.col_dual.any() and result.cost.isnan()
        return
    certify(problem, result)
    cost, _, unmatched = problem.minimized()
    scale = max([0.0, *cost[cost.isfinite()].abs().tolist(), abs(unmatched) if unmatched < math.inf else 0])
    assert value(problem, result) == pytest.approx(best, rel=0, abs=32 * torch.finfo(problem.cost.dtype).eps * scale)


@pytest.mark.parametrize("kernel", [name for name in KERNELS if name != "reference"])
def test_kernels_work_limit_stops_early(kernel: str) -> None:
    cost = torch.arange(1.0, 31).outer(torch.arange(1.0, 31))
    done = KERNELS[kernel](cost, False)
    assert done[4] == 0
    for limit in [0, 1, 29, int(done[6]) - 1]:
        stopped = KERNELS[kernel](cost, False, work_limit=limit)
        assert stopped[4] == 3 and (stopped[0] == -1).all() and stopped[6] <= limit
    assert KERNELS[kernel](cost, False, work_limit=int(done[6]))[4] == 0


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("bad", [math.nan, -math.inf])
@pytest.mark.parametrize(
    "options", [{}, {"col_capacity": [2, 2, 2]}, {"col_capacity": [0, 1, 1]}, {"unmatched_cost": 0.0}]
)
def test_kernels_nan_or_minus_infinity_reports_invalid(kernel: str, bad: float, options: dict) -> None:
    options = {
        name: torch.tensor(option).expand(9, *torch.tensor(option).shape).contiguous()
        for name, option in options.items()
    }
    cost = torch.ones(9, 3, 3)
    cost.reshape(9, 9).fill_diagonal_(bad)
    assert (KERNELS[kernel](cost, False, **options)[4] == 2).all()
    cost[:, 0] = math.inf  # invalid goes before infeasible
    cost[:, 1, 2] = bad
    assert (KERNELS[kernel](cost, False, **options)[4] == 2).all()
    allowed = ~(cost.isnan() | (cost == -math.inf))  # masked entries are not read
    allowed[:, :, 0] = True
    cost[:, :, 0] = 1
    assert (KERNELS[kernel](cost[:, 1:], False, mask=allowed[:, 1:], unmatched_cost=torch.ones(9))[4] == 0).all()


def test_options_worked_example_matches_by_hand() -> None:
    cost = torch.tensor([[1.0, 5.0], [2.0, 9.0], [4.0, 3.0]])
    assert linear_sum_assignment(cost).col_of_row.tolist() == [0, -1, 1]
    shared = linear_sum_assignment(cost, col_capacity=torch.tensor([2, 1]))
    assert shared.col_of_row.tolist() == [0, 0, 1] and shared.row_of_col.tolist() == [0, 2] and shared.cost == 6
    selective = linear_sum_assignment(cost, unmatched_cost=1.5)
    assert selective.col_of_row.tolist() == [0, -1, -1] and selective.cost == 1
    mask = torch.tensor([[False, True], [True, True], [True, True]])
    assert linear_sum_assignment(cost, mask=mask).cost == 5
    best = linear_sum_assignment(cost, maximize=True, unmatched_cost=4.5)
    assert best.col_of_row.tolist() == [-1, 1, -1] and best.cost == 9


def test_unmatched_cost_tensor_or_scalar_is_supported() -> None:
    cost = torch.tensor([[1.0, 4.0], [4.0, 4.0]]).expand(3, 2, 2)
    assignment = linear_sum_assignment(cost, unmatched_cost=torch.tensor([0.5, 2.0, torch.inf]))
    assert assignment.col_of_row.tolist() == [[-1, -1], [0, -1], [0, 1]] and assignment.cost.tolist() == [0, 1, 5]
    assert linear_sum_assignment(cost, unmatched_cost=2).col_of_row.tolist() == [[0, -1]] * 3


def test_options_with_lengths_ignore_the_padding() -> None:
    torch.manual_seed(0)
    cost, mask = torch.rand(6, 5, 7, dtype=torch.float64), torch.rand(6, 5, 7) < 0.8
    capacity = torch.randint(0, 3, (6, 7))
    rows, cols = torch.tensor([5, 3, 4, 0, 5, 2]), torch.tensor([7, 7, 3, 4, 0, 6])
    valid = (torch.arange(5) < rows[:, None])[:, :, None] & (torch.arange(7) < cols[:, None])[:, None]
    options = {"row_lengths": rows, "col_lengths": cols, "unmatched_cost": 0.4}
    clean = linear_sum_assignment(cost, mask=mask, col_capacity=capacity, **options)
    garbage = cost.where(valid, torch.nan), mask | ~valid, capacity.where(torch.arange(7) < cols[:, None], -5)
    dirty = linear_sum_assignment(garbage[0], mask=garbage[1], col_capacity=garbage[2], **options)
    for left, right in zip(clean, dirty, strict=True):
        assert torch.equal(left, right)
    for k in range(6):
        r, c = int(rows[k]), int(cols[k])
        problem = Problem(cost[k, :r, :c], False, mask[k, :r, :c], capacity[k, :c], 0.4)
        certify(problem, problem.solve("op"))
        assert torch.equal(problem.solve("op").col_of_row, clean.col_of_row[k, :r])


def test_gradient_with_options_selects_matched_entries() -> None:
    for options in ({}, {"unmatched_cost": 0.2}):
        cost = torch.rand(3, 4, 5, dtype=torch.float64, requires_grad=True)
        result = linear_sum_assignment(cost, **options)
        result.cost.sum().backward()
        expected = torch.nn.functional.one_hot(result.col_of_row + 1, 6)[..., 1:].double()
        assert torch.equal(cost.grad, expected)
