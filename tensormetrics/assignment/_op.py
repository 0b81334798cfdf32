"""The operator `tensormetrics::lsa`: schema and shapes. There are kernels for CPU and CUDA."""

import torch
from torch import Tensor

from .. import _native
from .._interruptible import interruptible
from . import _reference

# cost: (..., R, C) float32 | float64, the reals of the same dtype; lengths: (...) int64; mask: (..., R, C) bool;
# col_capacity: (..., C) int64; unmatched_cost: (...). All but cost and mask are contiguous.
# -> col_of_row: (..., R), row_of_col: (..., C) int64; row_dual: (..., R), col_dual: (..., C); status: (...) int8;
#    pair_costs: (..., R), 0 for unmatched rows; scans: (...) int64, number of row scans, at most 2 n + n (n + 1) / 2
#    for n rows to match; `work_limit` ends the search sooner, with status 3.
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
        cost.new_empty((*batch_shape, rows)),
        cost.new_empty(batch_shape, dtype=torch.int64),
    )


def _batched(cost: Tensor, maximize: bool, *options: Tensor | int | None) -> _reference.Result:
    dense = (option.contiguous() if isinstance(option, Tensor) else option for option in options)
    return lsa(cost, maximize, *dense)


def _nanoseconds(cost: Tensor, *options: bool | Tensor | int | None) -> float:
    return cost.numel() * (20 + min(cost.shape[-2:]) / 5)


OPERATOR = _native.define("lsa" + SCHEMA, _fake, _native.Operator("lsa", "linear_sum_assignment", 500))
_native.reference("lsa")(_reference.lsa)
_native.LIBRARY.impl("lsa", torch.library.fallthrough_kernel, "Autograd")  # no output is differentiable
_native.batch_first("tensormetrics::lsa", _batched)
lsa = interruptible(OPERATOR, _nanoseconds)
