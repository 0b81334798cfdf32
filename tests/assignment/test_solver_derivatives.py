"""Derivatives of optimal costs in every mode, and torch.vmap: the rules of the costs, never a silent 0."""

import numpy as np
import pytest
import scipy.optimize
import torch

from tensormetrics.assignment import linear_sum_assignment

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
    with pytest.raises(RuntimeError, match="data-dependent control flow"):
        torch.vmap(linear_sum_assignment)(torch.rand(2, 3, 3, generator=generator))
