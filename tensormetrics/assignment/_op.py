"""The operator `tensormetrics::lsa`: schema, shapes, and which kernel answers where.

The native libraries register CPU and CUDA kernels. Where they were not built the reference answers, on any device.
"""

import torch
from torch import Tensor

from .._interruptible import interruptible
from .._native import LIBRARY, batch_first, say_once
from . import _reference

# cost: (..., R, C) float32 | float64, the reals of the same dtype; lengths: (...) int64; mask: (..., R, C) bool;
# col_capacity: (..., C) int64; unmatched_cost: (...). All but cost and mask are contiguous.
# -> col_of_row: (..., R), row_of_col: (..., C) int64; row_dual: (..., R), col_dual: (..., C); status: (...) int8;
#    chosen: (..., R), the costs of the pairs, 0 where there is none; scans: (...) int64, the row scans spent. They end
#    by themselves after 2 n + n (n + 1) / 2 for n rows to match; `work_limit` ends them sooner, with status 3.
SCHEMA = (
    "(Tensor cost, bool maximize, Tensor? row_lengths=None, Tensor? col_lengths=None, Tensor? mask=None, "
    "Tensor? col_capacity=None, Tensor? unmatched_cost=None, int? work_limit=None) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)
LIBRARY.define("lsa" + SCHEMA, tags=torch.Tag.pt2_compliant_tag)
for _team in ("lsa_warp", "lsa_block"):  # what the lanes of CUDA do, emulated on the CPU: for tests
    LIBRARY.define(_team + SCHEMA)


def _fallback(cost: Tensor, *options: bool | Tensor | int | None) -> _reference.Result:
    say_once(cost.device.type, "solver")
    return _reference.lsa(cost, *options)


LIBRARY.impl("lsa", _fallback, "CompositeExplicitAutograd")
LIBRARY.impl("lsa", torch.library.fallthrough_kernel, "Autograd")  # nothing that it gives is differentiable


@torch.library.register_fake("tensormetrics::lsa")
def _fake(cost: Tensor, *options: bool | Tensor | int | None) -> _reference.Result:
    *lead, rows, cols = cost.shape
    return (
        cost.new_empty((*lead, rows), dtype=torch.int64),
        cost.new_empty((*lead, cols), dtype=torch.int64),
        cost.new_empty((*lead, rows)),
        cost.new_empty((*lead, cols)),
        cost.new_empty(lead, dtype=torch.int8),
        cost.new_empty((*lead, rows)),
        cost.new_empty(lead, dtype=torch.int64),
    )


def _batched(cost: Tensor, maximize: bool, *options: Tensor | int | None) -> _reference.Result:
    dense = (option.contiguous() if isinstance(option, Tensor) else option for option in options)
    return lsa(cost, maximize, *dense)


batch_first("tensormetrics::lsa", _batched)


def _nanoseconds(cost: Tensor, *options: bool | Tensor | int | None) -> float:
    return cost.numel() * (20 + min(cost.shape[-2:]) / 5)


lsa = interruptible(torch.ops.tensormetrics.lsa, _nanoseconds)
lsa_warp = torch.ops.tensormetrics.lsa_warp
lsa_block = torch.ops.tensormetrics.lsa_block
