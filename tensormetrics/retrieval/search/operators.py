"""The native operators of the search on a CPU, and its Triton kernels on a GPU, where they are to be had.

The operators do what torch has no operator for in one pass over a tile that is in the cache; everything else is made of
matrix products. Where they were not built, and on other devices, plain torch gives the same integers.
"""

from types import ModuleType

import torch

from ... import _triton
from ..._interruptible import interruptible
from ..._native import LIBRARY

# query: (Q, D) float64, reference: (R, D) from `as_embeddings`; row, column: (n,) int64  ->  (n,) float64
LIBRARY.define("canonical_pairs(Tensor query, Tensor reference, Tensor row, Tensor column, int distance) -> Tensor")
# x: (Q, D), rows: (C, D), of references first, first + 1, ..., bias: (R,), together the filter's values; own: (Q,)
# references that are no neighbours, ignored: (Q, R) bool. What is kept of each query: keys (Q, capacity) int64, twice
# as many for float64, number (Q,) int32, limit (Q,) of the rows' dtype. With start >= 0 there are keys of all
# references, query q is reference start + q, and a value also serves its reference, if that is behind.
LIBRARY.define(
    "keep_least(Tensor x, Tensor rows, Tensor bias, int first, Tensor own, Tensor? ignored, Tensor(a!) keys, "
    "Tensor(b!) number, Tensor(c!) limit, int kept, int start) -> ()"
)
# ->  (Q, kept) float64, (Q, kept) int64
LIBRARY.define("sorted_least(Tensor(a!) keys, Tensor number, Tensor limit, int kept) -> (Tensor, Tensor)")
# x to ignored: as above; query, reference: as in canonical_pairs; equal: (R,) int64, from `equal_rows`; delta, index:
# (Q, P), positives in order; relevant, factor, shift, error: (Q,); before: (Q, P + 1) int64.
LIBRARY.define(
    "count_before(Tensor x, Tensor rows, Tensor bias, int first, Tensor own, Tensor? ignored, Tensor query, "
    "Tensor reference, Tensor equal, Tensor delta, Tensor index, Tensor relevant, Tensor factor, Tensor shift, "
    "Tensor error, int distance, int ties, Tensor(a!) before) -> ()"
)

OPERATORS = torch.ops.tensormetrics
canonical_pairs = interruptible(OPERATORS.canonical_pairs, lambda query, _, row, *__: len(row) * query.shape[1] / 2)
keep_least = interruptible(OPERATORS.keep_least, lambda x, rows, *_: len(x) * rows.numel() / 20)
sorted_least = interruptible(OPERATORS.sorted_least, lambda keys, *_: 5 * keys.numel())
count_before = interruptible(OPERATORS.count_before, lambda x, rows, *_: len(x) * (rows.numel() / 20 + len(rows)))

BUILT = torch._C._dispatch_has_kernel_for_dispatch_key("tensormetrics::keep_least", "CPU")


def kernels(device: torch.device) -> ModuleType | None:
    """The Triton kernels, where they can run."""
    if not _triton.usable(device):
        return None
    from .kernels import nearest

    return nearest
