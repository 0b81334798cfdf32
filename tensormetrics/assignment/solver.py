"""The linear sum assignment problem: match rows to columns, one to one, at the least total cost."""

from typing import NamedTuple

import torch
from torch import Tensor

from .. import _checks
from . import _op
from ._reference import INFEASIBLE


class Assignment(NamedTuple):
    """The solution of each problem. Pairs are -1 where nothing is matched and everywhere if `status` is not 0."""

    col_of_row: Tensor  # (..., R) int64: matched column of each row
    row_of_col: Tensor  # (..., C) int64: matched row of each column
    cost: Tensor  # (...) float64: sum of the chosen entries
    row_dual: Tensor  # (..., R): with col_dual the proof of optimality: cost - row_dual - col_dual >= 0 (<= 0 when
    col_dual: Tensor  # (..., C): maximising), 0 on matched pairs, and an unmatched row or column has dual 0
    status: Tensor  # (...) int8: 0 optimal, 1 infeasible, 2 NaN or -inf in the cost or lengths out of range


def linear_sum_assignment(
    cost: Tensor,  # (..., R, C)
    *,
    maximize: bool = False,
    row_lengths: Tensor | None = None,  # (...)
    col_lengths: Tensor | None = None,  # (...)
    check: bool = True,
) -> Assignment:
    """Match min(R, C) pairs of rows and columns so that the sum of their costs is least, for every problem of a batch.

    `cost` may have any strides; it is read in place. `row_lengths` and `col_lengths` (int64) say how many rows and
    columns of each problem count; what lies beyond never matters. An entry of +inf (-inf when maximising) forbids its
    pair. float32 and float64 are solved as they are, half types in float32, integers in float64. Equal input gives
    equal output, wherever a problem stands in the batch; which of several optimal matchings is chosen is not promised.
    `Assignment.cost` is differentiable with respect to `cost`.

    With `check` a ValueError names the first bad problem (this waits for the device once); without it look at `status`.

    D. F. Crouse, "On implementing 2D rectangular assignment algorithms", 2016, doi:10.1109/TAES.2016.140952

    >>> linear_sum_assignment(torch.tensor([[4.0, 1.0, 3.0], [2.0, 0.0, 5.0]])).col_of_row
    tensor([1, 0])
    """
    _checks.shape("cost", cost, "...", "R", "C")
    if cost.dtype == torch.bool or cost.dtype.is_complex:
        raise ValueError(f"cost: got {cost.dtype}, wanted a real dtype; write cost.float()")
    _checks.same_device(cost=cost, row_lengths=row_lengths, col_lengths=col_lengths)
    for name, lengths in (("row_lengths", row_lengths), ("col_lengths", col_lengths)):
        if lengths is not None:
            _checks.shape(name, lengths, *cost.shape[:-2])
            _checks.integral(name, lengths)
    if check and cost.dtype == torch.int64 and cost.numel():
        largest = max(abs(int(bound)) for bound in torch.aminmax(cost)) * min(cost.shape[-2:])
        if largest >= 2**53:
            raise ValueError(f"cost: int64 sums may reach {largest}, wanted below 2**53; scale or subtract a constant")

    working = torch.float32 if cost.dtype in (torch.float16, torch.bfloat16) else torch.float64
    costs = cost if cost.dtype in (torch.float32, torch.float64) else cost.to(working)
    rows, cols = (None if n is None else n.long().contiguous() for n in (row_lengths, col_lengths))
    col_of_row, row_of_col, row_dual, col_dual, chosen, status, _ = _op.lsa(costs.detach(), maximize, rows, cols)
    if check and status.numel() and bool(status.any()):
        _raise(status, cost, maximize, row_lengths, col_lengths)
    return Assignment(col_of_row, row_of_col, _chosen(costs, col_of_row), row_dual, col_dual, status)


def _chosen(cost: Tensor, col_of_row: Tensor) -> Tensor:
    # cost: (..., R, C), col_of_row: (..., R)  ->  (...)
    if cost.shape[-1] == 0:
        return cost.new_zeros(cost.shape[:-2], dtype=torch.float64)
    chosen = cost.gather(-1, col_of_row.clamp(min=0)[..., None])[..., 0]
    return chosen.where(col_of_row >= 0, 0).sum(-1, dtype=torch.float64)


def _raise(
    status: Tensor, cost: Tensor, maximize: bool, row_lengths: Tensor | None, col_lengths: Tensor | None
) -> None:
    problem = tuple(status.nonzero()[0].tolist())
    where = f"problem {problem}" if problem else "the problem"
    if status[problem] == INFEASIBLE:
        raise ValueError(f"cost: {where} has no complete matching, a row or column has too few allowed pairs")
    for name, lengths, most in (
        ("row_lengths", row_lengths, cost.shape[-2]),
        ("col_lengths", col_lengths, cost.shape[-1]),
    ):
        if lengths is not None and not 0 <= (length := int(lengths[problem])) <= most:
            raise ValueError(f"{name}: got {length} for {where}, wanted 0 to {most}")
    forbidden = "+inf" if maximize else "-inf"
    raise ValueError(f"cost: {where} contains NaN or {forbidden}; to forbid a pair write {'-' if maximize else '+'}inf")
