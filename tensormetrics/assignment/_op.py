"""The operator `tensormetrics::lsa`: schema, shapes and behavior under vmap; its kernels are in csrc/lsa/."""

import torch
from torch import Tensor

from ..core.native import native
from ..core.native.interruptible import interruptible
from . import _reference

# cost: (..., R, C) float32 | float64, and all other floating tensors have its dtype; row_lengths, col_lengths: (...)
# int64; mask: (..., R, C) bool; col_capacity: (..., C) int64; unmatched_cost: (...). Inputs must be contiguous, except
# cost and mask.
# -> col_of_row: (..., R), row_of_col: (..., C) int64; row_dual: (..., R), col_dual: (..., C); status: (...) int8,
#    see _reference.py; total: (...) float64, the matched costs added in the order of rows, NaN if status is not 0;
#    scans: (...) int64, how often a row of cost
#    was read, at most 2 n + n (n + 1) / 2 for n rows to match. A problem that needs more than `work_limit` scans ends
#    with status 3.
SCHEMA = (
    "(Tensor cost, bool maximize, Tensor? row_lengths=None, Tensor? col_lengths=None, Tensor? mask=None, "
    "Tensor? col_capacity=None, Tensor? unmatched_cost=None, int? work_limit=None) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)


def _fake(cost: Tensor, *options: bool | Tensor | int | None) -> _reference.Result:
    *batch_shape, rows, cols = cost.shape
    return (
        cost.new_empty((*batch_shape, rows), dtype=torch.int64),
        cost.new_empty((*batch_shape, cols), dtype=torch.int64),
        cost.new_empty((*batch_shape, rows)),
        cost.new_empty((*batch_shape, cols)),
        cost.new_empty(batch_shape, dtype=torch.int8),
        cost.new_empty(batch_shape, dtype=torch.float64),
        cost.new_empty(batch_shape, dtype=torch.int64),
    )


def _with_batch_first(cost: Tensor, maximize: bool, *options: Tensor | int | None) -> _reference.Result:
    contiguous_options = (option.contiguous() if isinstance(option, Tensor) else option for option in options)
    return lsa(cost, maximize, *contiguous_options)


def _estimated_nanoseconds(cost: Tensor, *options: bool | Tensor | int | None) -> float:
    # About what hard problems took on one core of a 2-core x86 machine; long calls can be interrupted.
    return cost.numel() * (20 + min(cost.shape[-2:]) / 5)


OPERATOR = native.define("lsa" + SCHEMA, _fake, native.Operator("lsa", used_by="linear_sum_assignment", slower=500))
native.reference("lsa")(_reference.lsa)
native.LIBRARY.impl("lsa", torch.library.fallthrough_kernel, "Autograd")  # no output is differentiable
native.batch_first("tensormetrics::lsa", _with_batch_first)
lsa = interruptible(OPERATOR, _estimated_nanoseconds)
