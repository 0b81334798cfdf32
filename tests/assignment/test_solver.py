"""The solver on small and ragged problems, its errors, its derivatives in every mode, and torch.vmap."""

import math

import numpy as np
import pytest
import scipy.optimize
import torch
from oracle import KERNELS, Problem, Result, certify, equal
from raising import raises
from torch import Tensor

from tensormetrics.assignment import Assignment, _reference, linear_sum_assignment


def without_padding(assignment: Assignment, index: tuple[int, ...], rows: int, cols: int) -> Assignment:
    """Return one problem of a batch, without its padding."""
    a = Assignment(*(field[index] for field in assignment))
    return a._replace(
        col_of_row=a.col_of_row[:rows],
        row_of_col=a.row_of_col[:cols],
        row_dual=a.row_dual[:rows],
        col_dual=a.col_dual[:cols],
    )


def assert_optimal(cost: Tensor, a: Assignment, maximize: bool = False) -> None:
    cost, a = cost.cpu(), Assignment(*(field.cpu() for field in a))
    fields = {name: getattr(a, name) for name in Result._fields if hasattr(a, name)}
    certify(Problem(cost, maximize), Result(**fields, scans=torch.tensor(0)))


def test_solver_ragged_batch_equals_scipy(device):
    cost = torch.rand(300, 12, 15, dtype=torch.float64)
    cost[::2] = (4 * cost[::2]).floor()  # every other one full of ties
    r, c = torch.randint(0, 13, (300,)), torch.randint(0, 16, (300,))
    assignment = linear_sum_assignment(cost.to(device), row_lengths=r.to(device), col_lengths=c.to(device))
    for i in range(300):
        matrix = cost[i, : r[i], : c[i]]
        rows, columns = scipy.optimize.linear_sum_assignment(matrix.numpy())
        assert float(assignment.cost[i]) == pytest.approx(float(matrix[rows, columns].sum()), rel=1e-12)
        assert_optimal(matrix.to(device), without_padding(assignment, (i,), int(r[i]), int(c[i])))
        assert (assignment.col_of_row[i, r[i] :] == -1).all() and (assignment.row_of_col[i, c[i] :] == -1).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "shape", [(40, 9, 9), (40, 5, 40), (40, 40, 5), (2, 40, 41), (2, 3, 8, 6), (0, 3, 3), (2, 0, 3)]
)
def test_solver_emulated_lanes_equal_kernel_bit_for_bit(shape, dtype):
    *batch_shape, rows, cols = shape
    lengths = torch.randint(0, rows + 1, batch_shape), torch.randint(0, cols + 1, batch_shape)
    for cost in (torch.randn(shape, dtype=dtype), torch.randint(0, 3, shape).to(dtype)):
        forbidden = cost.masked_fill(cost > 1.5, torch.inf)
        for arguments in ((forbidden, False), (-forbidden, True), (forbidden, False, *lengths)):
            op, *lanes, reference = (Result(*kernel(*arguments)) for kernel in KERNELS.values())
            assert all(equal(op, team) for team in lanes)
            assert all(a.shape == b.shape and a.dtype == b.dtype for a, b in zip(op, reference, strict=True))
            assert torch.equal(op.status, reference.status)
            tolerance = max(rows, cols) * torch.finfo(dtype).eps  # of the sum of a problem
            torch.testing.assert_close(op.cost, reference.cost, rtol=tolerance, atol=tolerance, equal_nan=True)


def test_solver_worked_example_matches_by_hand(device):
    cost = torch.tensor([[4, 1, 3], [2, 0, 5], [3, 2, 2]], device=device)
    a = linear_sum_assignment(cost)
    assert a.col_of_row.tolist() == [1, 0, 2] and a.row_of_col.tolist() == [1, 0, 2]
    assert float(a.cost) == 5.0 and a.cost.dtype == torch.float64 and int(a.status) == 0
    assert float(linear_sum_assignment(cost, maximize=True).cost) == 4 + 5 + 2


@pytest.mark.parametrize(
    "dtype",
    [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint64, torch.float16, torch.bfloat16],
)
def test_solver_other_dtypes_are_widened(dtype, device):
    cost = torch.randint(0, 50, (20, 6, 7), device=device)
    expected = linear_sum_assignment(cost.double())
    a = linear_sum_assignment(cost.to(dtype))
    assert torch.equal(a.cost, expected.cost) and torch.equal(a.col_of_row, expected.col_of_row)
    for table, total in zip(cost.cpu().numpy(), a.cost.tolist(), strict=True):
        assert total == table[scipy.optimize.linear_sum_assignment(table)].sum()
    assert a.row_dual.dtype == (torch.float32 if dtype.is_floating_point else torch.float64)


def test_integers_above_2_24_do_not_collide(device):
    cost = torch.tensor([[2**24 + 1, 2**24], [2**24, 2**24]], device=device)
    assert float(linear_sum_assignment(cost, maximize=True).cost) == 2**25 + 1


def test_solver_failed_problems_do_not_affect_others(device):
    cost = torch.rand(5, 3, 4, device=device)
    cost[1, 2] = torch.inf
    cost[2, 0, 3] = torch.nan
    cost[3, 1, 1] = -torch.inf
    rows = torch.tensor([3, 3, 3, 3, 4], device=device)
    a = linear_sum_assignment(cost, row_lengths=rows, check=False)
    assert a.status.tolist() == [0, 1, 2, 2, 2]
    assert (a.col_of_row[1:] == -1).all() and (a.row_of_col[1:] == -1).all() and a.cost[1:].isnan().all()
    assert torch.equal(a.col_of_row[0], linear_sum_assignment(cost[0]).col_of_row)


ONES = torch.ones(2, 3, 4)


FEW_PAIRS = "has no complete matching, a row or column has too few allowed pairs"
TOO_LARGE = "wanted below 2**53; scale or subtract a constant"
INVALID = {  # message -> arguments of which the others are right, with ONES as costs
    "cost: got shape (3,), wanted (..., R, C)": {"cost": torch.zeros(3)},
    "cost: got torch.bool, wanted a real dtype; write cost.float()": {"cost": ONES.bool()},
    "cost: got torch.complex64, wanted a real dtype; write cost.float()": {"cost": ONES + 0j},
    "row_lengths: got shape (3,), wanted (2,)": {"row_lengths": torch.zeros(3, dtype=torch.int64)},
    "col_lengths: got torch.float32, wanted an integer dtype; write col_lengths.long()": {"col_lengths": ONES[:, 0, 0]},
    "row_lengths: got 4 for problem (1,), wanted 0 to 3": {"row_lengths": torch.tensor([2, 4])},
    "col_lengths: got -1 for problem (0,), wanted 0 to 4": {"col_lengths": torch.tensor([-1, 2])},
    "cost: the problem contains NaN or -inf; to forbid a pair write +inf": {"cost": torch.tensor([[1.0, torch.nan]])},
    "cost: problem (1,) contains NaN or +inf; to forbid a pair write -inf": {
        "cost": torch.tensor([[[1.0]], [[torch.inf]]]),
        "maximize": True,
    },
    f"cost: problem (0,) {FEW_PAIRS}": {"cost": torch.full((1, 2, 2), torch.inf)},
    f"cost: problem (1,) {FEW_PAIRS}": {"mask": torch.stack((torch.ones(3, 4), torch.zeros(3, 4))).bool()},
    f"cost: int64 sums may reach {2**53}, {TOO_LARGE}": {"cost": torch.tensor([[2**52, 0], [0, 0]])},
    f"cost: uint64 sums may reach {2**64 - 1}, {TOO_LARGE}": {
        "cost": torch.tensor([[0, 2**64 - 1]], dtype=torch.uint64)
    },
    "mask: got shape (3, 4), wanted (2, 3, 4)": {"mask": ONES[0].bool()},
    "mask: got torch.float32, wanted torch.bool; write mask.bool()": {"mask": ONES},
    "col_capacity: got shape (2, 3), wanted (2, 4)": {"col_capacity": ONES[:, 0, :3].long()},
    "col_capacity: got torch.float32, wanted an integer dtype; write col_capacity.long()": {"col_capacity": ONES[:, 0]},
    "col_capacity: got -2 for problem (1,), wanted >= 0": {"col_capacity": torch.tensor([[1] * 4, [1, -2, 1, 1]])},
    "unmatched_cost: got shape (3,), wanted (2,)": {"unmatched_cost": torch.ones(3)},
    "unmatched_cost: got nan, wanted a finite number, or None where not allowed": {"unmatched_cost": math.nan},
    "unmatched_cost: got nan for problem (1,), wanted a number, or +inf where not allowed": {
        "unmatched_cost": torch.tensor([0.0, math.nan])
    },
    "devices differ: cost on cpu, mask on meta; move them with .to(device)": {"mask": ONES.bool().to("meta")},
}


@pytest.mark.parametrize("message", INVALID)
def test_solver_invalid_input_raises(message):
    with raises(ValueError, message):
        linear_sum_assignment(**{"cost": ONES, **INVALID[message]})


def test_solver_overflowing_sum_raises():
    cost = torch.full((2, 3, 3), 1e308, dtype=torch.float64)
    cost[0] = 1
    assignment = linear_sum_assignment(cost, check=False)
    assert assignment.cost.tolist() == [3, math.inf]
    with pytest.raises(ValueError, match="cost: got entries whose sum is beyond the largest float64; divide them"):
        linear_sum_assignment(cost)
    cost.fill_(5e307)  # only the sum of both problems is infinite
    assert linear_sum_assignment(cost).cost.isfinite().all()


def test_reference_equal_costs_need_one_scan_per_row():
    """With equal costs each row finds a free column in one scan, although the lowest column is matched already."""
    for rows, columns in ((6, 6), (3, 7)):
        col_of_row, *_, scans = _reference.lsa(torch.zeros(2, rows, columns), False)
        assert scans.tolist() == [rows, rows] and col_of_row.tolist() == [list(range(rows))] * 2


def test_lsa_operator_passes_opcheck(device):
    cost, lengths = torch.rand(2, 4, 3, device=device).mT, torch.tensor([3, 2], device=device)
    options = lengths, lengths, cost < 0.9, torch.ones(2, 4, dtype=torch.int64, device=device), cost.new_zeros(2)
    with_grad = torch.rand(2, 3, 4, device=device, requires_grad=True)
    for arguments in ((with_grad.detach(), False), (with_grad, False), (cost, True, *options)):
        torch.library.opcheck(torch.ops.tensormetrics.lsa.default, arguments)


def test_solver_more_than_eight_batch_dimensions_raise(generator):
    cost = torch.rand(2, 3, 4, generator=generator)
    col_of_row = linear_sum_assignment(cost.view(*[1] * 7, 2, 3, 4)).col_of_row
    assert torch.equal(col_of_row.view(2, -1), linear_sum_assignment(cost).col_of_row)
    with pytest.raises(RuntimeError, match="cost: got 11 dimensions, wanted at most 10"):
        linear_sum_assignment(cost.view(*[1] * 8, 2, 3, 4))


# torch's own forward mode is written with it.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script. is deprecated:DeprecationWarning")


def optimal_cost(cost, **options):
    return linear_sum_assignment(cost, check=False, **options).cost


def finite_difference(cost, direction, step=1e-6):
    """Compute central differences of scipy's optimum."""
    optima = []
    for sign in (1, -1):
        matrix = (cost + sign * step * direction).numpy()
        optima.append(matrix[scipy.optimize.linear_sum_assignment(matrix)].sum())
    return (optima[0] - optima[1]) / (2 * step)


@pytest.fixture
def problem(generator):
    return (torch.rand(4, 6, generator=generator, dtype=torch.float64) for _ in range(2))


def test_forward_mode_equals_finite_differences(problem):
    cost, direction = problem
    expected = finite_difference(cost, direction)
    assert abs(expected) > 0.1
    value, tangent = torch.func.jvp(optimal_cost, (cost,), (direction,))
    np.testing.assert_allclose(tangent.item(), expected, rtol=1e-6)
    torch.testing.assert_close(value, optimal_cost(cost))
    jacobian = torch.func.jacfwd(optimal_cost)(cost)
    np.testing.assert_allclose((jacobian * direction).sum().item(), expected, rtol=1e-6)
    assert torch.equal(jacobian, torch.func.jacrev(optimal_cost)(cost))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(cost, direction)
        unpacked = torch.autograd.forward_ad.unpack_dual(linear_sum_assignment(dual).cost)
    np.testing.assert_allclose(unpacked.tangent.item(), expected, rtol=1e-6)


def test_nested_forward_and_backward_modes_agree(problem):
    cost, _ = problem
    jacobian = torch.func.jacrev(optimal_cost)(cost)

    def scaled(inner):  # the derivative of y * optimal_cost(cost) by y, at one
        one = torch.ones((), dtype=torch.float64)
        if inner == "backward":
            return lambda x: torch.func.grad(lambda y: y * optimal_cost(x))(one)
        return lambda x: torch.func.jvp(lambda y: y * optimal_cost(x), (one,), (one,))[1]

    for inner in ("backward", "forward"):
        for outer in (torch.func.jacrev, torch.func.jacfwd):
            assert torch.equal(outer(scaled(inner))(cost), jacobian)


def test_jvp_float32_batch_with_nan_keeps_other_problem(generator):
    cost = torch.rand(2, 3, 3, generator=generator)
    cost[1, 0, 0] = torch.nan
    value, tangent = torch.func.jvp(optimal_cost, (cost,), (torch.ones_like(cost),))
    assert tangent[0] == 3 and value.isnan().tolist() == [False, True]
    assert optimal_cost(cost.requires_grad_()).isnan().tolist() == [False, True]


@pytest.fixture
def no_vmap_fallback():
    """Make torch.vmap raise an error for operators without a rule, instead of looping over them."""
    was_enabled = torch._C._functorch._is_vmap_fallback_enabled()
    torch._C._functorch._set_vmap_fallback_enabled(False)
    yield
    torch._C._functorch._set_vmap_fallback_enabled(was_enabled)


def test_vmap_of_solver_equals_batch(generator, no_vmap_fallback):
    cost = torch.rand(5, 3, 4, 6, generator=generator)
    rows, columns = (torch.randint(1, n + 1, (5, 3), generator=generator) for n in (4, 6))
    mask = torch.rand(4, 6, generator=generator) < 0.9

    def solve(cost, rows, columns):
        options = {"row_lengths": rows, "col_lengths": columns, "mask": mask, "unmatched_cost": 2.0}
        return linear_sum_assignment(cost, check=False, **options)

    expected = linear_sum_assignment(
        cost, row_lengths=rows, col_lengths=columns, mask=mask.expand_as(cost), unmatched_cost=2.0
    )
    for assignment in (
        torch.vmap(torch.vmap(solve))(cost, rows, columns),
        torch.vmap(torch.vmap(solve), in_dims=(3, 1, 1), out_dims=0)(cost.permute(1, 2, 3, 0), rows.mT, columns.mT),
    ):
        assert all(torch.equal(a, b) for a, b in zip(assignment, expected, strict=True))


def test_vmap_with_check_raises_error(generator):
    with pytest.raises(RuntimeError, match="vmap"):
        torch.vmap(linear_sum_assignment)(torch.rand(2, 3, 3, generator=generator))
