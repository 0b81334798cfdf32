"""The linear sum assignment problem: match rows to columns one-to-one at minimal total cost."""

import math
from typing import NamedTuple, TypedDict

import torch
from torch import Tensor, nn
from typing_extensions import Unpack  # torch brings it

from ..core.arguments import checks
from ..core.arguments.checks import takes_arrays
from ..core.arguments.repr import RecordedArguments
from ..core.native.compiling import break_graph
from ..core.native.native import needs_derivative
from . import _op
from ._reference import INFEASIBLE, OPTIMAL


class Assignment(NamedTuple):
    """Solution of each problem. Indices are -1 for unmatched rows and columns, and everywhere if `status` is not 0.

    Args:
        col_of_row: Matched column of each row, (..., R) int64.
        row_of_col: Matched row of each column, the lowest of several, (..., C) int64.
        cost: Sum of the matched entries, (...) float64; NaN if `status` is not 0.
        row_dual: With `col_dual` a certificate of optimality, see `linear_sum_assignment`, (..., R).
        col_dual: See `row_dual`, (..., C).
        status: 0 optimal, 1 infeasible, 2 NaN or -inf (maximizing: +inf), or an option out of range, (...) int8.
    """

    col_of_row: Tensor
    row_of_col: Tensor
    cost: Tensor
    row_dual: Tensor
    col_dual: Tensor
    status: Tensor


@takes_arrays
def linear_sum_assignment(
    cost: Tensor,
    *,
    maximize: bool = False,
    row_lengths: Tensor | None = None,
    col_lengths: Tensor | None = None,
    mask: Tensor | None = None,
    col_capacity: Tensor | None = None,
    unmatched_cost: float | Tensor | None = None,
    check: bool = True,
) -> Assignment:
    """Match min(R, C) pairs of rows and columns with minimal sum of costs, for each problem of a batch.

    float32 and float64 are solved in their dtype, half types in float32, integers in float64, which is exact for sums
    below 2**53: without `check` larger ones are rounded, and a matching of status 0 need not be optimal. Entries of a
    problem must differ by less than the largest number of the dtype, and if pairs are forbidden by less than that
    number divided by min(R, C); otherwise their sums overflow.

    Args:
        cost: Costs with any strides; +inf (-inf when maximizing) forbids a pair.
        maximize: Whether the sum is maximized.
        row_lengths: Numbers of valid rows, int64, by default all; other entries never matter.
        col_lengths: Numbers of valid columns, likewise.
        mask: False forbids a pair.
        col_capacity: Number of rows that a column may be matched to, by default 1: min(R, sum of capacities) pairs.
        unmatched_cost: Cost at which a row may stay unmatched; `Assignment.cost` does not include it.
        check: Whether invalid problems are a ValueError, which waits for the device once; else, see `status`.

    Shape:
        - cost, mask: ``(..., R, C)``
        - row_lengths, col_lengths, unmatched_cost: ``(...)``
        - col_capacity: ``(..., C)``

    Returns:
        An `Assignment`; its ``cost`` is differentiable in backward and forward mode, other fields are constants.

    Raises:
        ValueError: If shapes or dtypes do not match; with `check`, the first problem that is infeasible, holds NaN or
            integers with sums of 2**53 or more.

    Duals: sign * (cost - row_dual - col_dual) is >= 0 where allowed and 0 on pairs, sign = -1 when maximizing. Columns
    with remaining capacity and unmatched rows have dual 0, with `unmatched_cost` unmatched rows have that value.
    Columns of capacity 0 have dual 0; pairs in them count as forbidden.

    Equal problems have equal solutions, independent of their index in the batch; the choice among several optimal
    matchings is unspecified. torch.vmap requires `check=False`.

    R. Jonker, A. Volgenant, 1987, doi:10.1007/BF02278710; D. F. Crouse, 2016, doi:10.1109/TAES.2016.140952

    >>> solution = linear_sum_assignment(torch.tensor([[4.0, 1.0, 3.0], [2.0, 0.0, 5.0]]))
    >>> solution.col_of_row
    tensor([1, 0])
    >>> row, col = pairs(solution)  # of one problem: row_ind, col_ind of scipy
    >>> row, col
    (tensor([0, 1]), tensor([1, 0]))
    """
    if check:
        break_graph("linear_sum_assignment reads costs and solutions with check=True; write check=False for one graph")
    counts = {"row_lengths": row_lengths, "col_lengths": col_lengths, "col_capacity": col_capacity}
    _check_arguments(cost, maximize, mask, unmatched_cost, **counts)

    working = torch.float32 if cost.dtype in (torch.float16, torch.bfloat16) else torch.float64
    costs = cost if cost.dtype in (torch.float32, torch.float64) else cost.to(working)
    if unmatched_cost is not None:
        unmatched_cost = torch.as_tensor(unmatched_cost, dtype=costs.dtype, device=cost.device)
        unmatched_cost = unmatched_cost.detach().expand(cost.shape[:-2]).contiguous()
    rows, cols, capacity = (None if count is None else count.long().contiguous() for count in counts.values())
    if check and cost.dtype in (torch.int64, torch.uint64):
        _check_exact(cost, rows, cols, mask, min(cost.shape[-2:]) if capacity is None else cost.shape[-2])
    result = _op.lsa(costs.detach(), bool(maximize), rows, cols, mask, capacity, unmatched_cost)
    col_of_row, row_of_col, row_dual, col_dual, status, total, _ = result
    if needs_derivative(costs) and costs.shape[-1]:
        pair_costs = costs.gather(-1, col_of_row.clamp(min=0)[..., None])[..., 0].where(col_of_row >= 0, 0)
        total = pair_costs.sum(-1, dtype=torch.float64).masked_fill(status != OPTIMAL, torch.nan)
    if check and not math.isfinite(total.detach().sum()):  # not finite where one total is not, and where it overflows
        _raise(status, total, cost, maximize, unmatched_cost, **counts)
    return Assignment(col_of_row, row_of_col, total, row_dual, col_dual, status)


def _check_arguments(
    cost: Tensor, maximize: bool, mask: Tensor | None, unmatched_cost: float | Tensor | None, **counts: Tensor | None
) -> None:
    """Raise an error if a type, dtype, device or shape is wrong; no entry of a tensor is read."""
    checks.shape("cost", cost, "...", "R", "C")
    if cost.dtype == torch.bool or cost.dtype.is_complex:
        raise ValueError(f"cost: got {cost.dtype}, wanted a real dtype; write cost.float()")
    reals = {"unmatched_cost": unmatched_cost if isinstance(unmatched_cost, Tensor) else None}
    checks.same_device(cost=cost, mask=mask, **counts, **reals)
    for name, tensor in (counts | reals).items():
        if tensor is not None:
            checks.shape(name, tensor, *cost.shape[:-2], *(cost.shape[-1:] if name == "col_capacity" else ()))
    for name, count in counts.items():
        if count is not None:
            checks.integral(name, count)
    if mask is not None:
        checks.shape("mask", mask, *cost.shape)
        if mask.dtype != torch.bool:
            raise ValueError(f"mask: got {mask.dtype}, wanted torch.bool; write mask.bool()")
    if unmatched_cost is not None and not isinstance(unmatched_cost, Tensor):
        checks.check_number(
            "unmatched_cost", unmatched_cost, "a finite number, or None where not allowed", math.isfinite
        )
    checks.check_choice("maximize", maximize, (False, True))


def _check_exact(
    cost: Tensor, row_lengths: Tensor | None, col_lengths: Tensor | None, mask: Tensor | None, pairs: int
) -> None:
    """Raise a ValueError if sums may exceed the exact integers of float64. Padding and masked pairs do not count."""
    for axis, lengths in ((-2, row_lengths), (-1, col_lengths)):
        if lengths is not None:
            valid = torch.arange(cost.shape[axis], device=cost.device) < lengths[..., None]
            cost = cost.where(valid.unsqueeze(-1 if axis == -2 else -2), 0)
    cost = cost if mask is None else cost.where(mask, 0)
    if not cost.numel():
        return
    if cost.dtype == torch.uint64:  # torch has no max of uint64; flipping the sign bit gives int64 of the same order
        largest = int((cost.view(torch.int64) ^ -(2**63)).max()) + 2**63
    else:
        largest = max(abs(int(bound)) for bound in torch.aminmax(cost))
    if (max_sum := largest * pairs) >= 2**53:
        name = str(cost.dtype).removeprefix("torch.")
        raise ValueError(f"cost: {name} sums may reach {max_sum}, wanted below 2**53; scale or subtract a constant")


def _raise(
    status: Tensor, total: Tensor, cost: Tensor, maximize: bool, unmatched_cost: Tensor | None, **counts: Tensor | None
) -> None:
    failed = status != OPTIMAL
    if not failed.any():
        if total.isfinite().all():
            return
        raise ValueError("cost: got entries whose sum is beyond the largest float64; divide them by a constant")
    problem = tuple(failed.nonzero()[0].tolist())
    where = f"problem {problem}" if problem else "the problem"
    if status[problem] == INFEASIBLE:
        raise ValueError(f"cost: {where} has no complete matching, a row or column has too few allowed pairs")
    sizes = {"row_lengths": cost.shape[-2], "col_lengths": cost.shape[-1]}
    for name, count in counts.items():
        if count is None:
            continue
        max_count = sizes.get(name)
        low, high = (int(bound) for bound in torch.aminmax(count[problem])) if count[problem].numel() else (0, 0)
        if low < 0 or (max_count is not None and high > max_count):
            expected = ">= 0" if max_count is None else f"0 to {max_count}"
            raise ValueError(f"{name}: got {low if low < 0 else high} for {where}, wanted {expected}")
    forbidden = "+inf" if maximize else "-inf"
    allowed = "-inf" if maximize else "+inf"
    left_out = math.inf if unmatched_cost is None else float(unmatched_cost[problem])
    if math.isnan(left_out) or (unmatched_cost is not None and left_out == float(forbidden)):
        raise ValueError(f"unmatched_cost: got {left_out} for {where}, wanted a number, or {allowed} where not allowed")
    raise ValueError(f"cost: {where} contains NaN or {forbidden}; to forbid a pair write {allowed}")


def pairs(assignment: Assignment) -> tuple[Tensor, Tensor]:
    """Return the matched rows of one problem, ascending, and their columns, as scipy.optimize.linear_sum_assignment.

    Args:
        assignment: Solution of one problem, without leading dimensions.

    Returns:
        Rows (M,) and columns (M,), int64.

    Raises:
        ValueError: If the solution is of a batch.

    >>> pairs(linear_sum_assignment(torch.tensor([[4.0, 1.0, 3.0], [2.0, 0.0, 5.0]])))
    (tensor([0, 1]), tensor([1, 0]))
    """
    if not isinstance(assignment, Assignment):
        expected = "the result of linear_sum_assignment; write pairs(linear_sum_assignment(cost))"
        raise TypeError(f"assignment: got a {type(assignment).__name__}, wanted {expected}")
    checks.shape("assignment", assignment.col_of_row, "R")
    rows = (assignment.col_of_row >= 0).nonzero()[:, 0]
    return rows, assignment.col_of_row[rows]


class Sizes(TypedDict, total=False):
    """Arguments of a `LinearAssignment` other than the cost; see `linear_sum_assignment`."""

    row_lengths: Tensor | None
    col_lengths: Tensor | None
    mask: Tensor | None
    col_capacity: Tensor | None


class LinearAssignment(RecordedArguments, nn.Module):
    """Module of `linear_sum_assignment` with fixed options: `LinearAssignment(maximize=True)(cost, row_lengths=...)`.

    Args:
        maximize: Whether the sum is maximized.
        unmatched_cost: Cost at which a row may stay unmatched, a number or one for each problem, (...).
        check: Whether invalid problems are a ValueError, which waits for the device once.

    Raises:
        ValueError: If shapes or dtypes do not match; with `check`, if a problem is invalid.

    >>> LinearAssignment(maximize=True)(torch.tensor([[4.0, 1.0, 3.0], [2.0, 0.0, 5.0]])).cost
    tensor(9., dtype=torch.float64)
    """

    def __init__(
        self, *, maximize: bool = False, unmatched_cost: float | Tensor | None = None, check: bool = True
    ) -> None:
        super().__init__()
        self.maximize, self.unmatched_cost, self.check = maximize, unmatched_cost, check

    def forward(self, cost: Tensor, **sizes: Unpack[Sizes]) -> Assignment:
        """Solve problems of cost (..., R, C); see `linear_sum_assignment`."""
        return linear_sum_assignment(
            cost, maximize=self.maximize, unmatched_cost=self.unmatched_cost, check=self.check, **sizes
        )
