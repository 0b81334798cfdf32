"""The native operators of the search on a CPU, and its Triton kernels on a GPU, where they are to be had.

The operators do what torch has no operator for in one pass over a tile that is in the cache; everything else is made of
matrix products. Where they were not built, and on other devices, plain torch gives the same integers.
"""

import importlib.util
from types import ModuleType

import torch

from .._native import LIBRARY

# query: (Q, D), reference: (R, D), of the same dtype; row, column: (n,) int64  ->  (n,) float64
LIBRARY.define("canonical_pairs(Tensor query, Tensor reference, Tensor row, Tensor column, int distance) -> Tensor")
# tile: (Q, C), bias: (C,), together the filter's values for references first, first + 1, ...; what is kept of each
# query: keys (Q, capacity) int64, twice as many for float64, number (Q,) int32, limit (Q,) of the tile's dtype.
LIBRARY.define(
    "keep_least(Tensor tile, Tensor bias, int first, Tensor(a!) keys, Tensor(b!) number, Tensor(c!) limit, int kept) "
    "-> ()"
)
# ->  (Q, kept) float64, (Q, kept) int64
LIBRARY.define("sorted_least(Tensor(a!) keys, Tensor number, Tensor limit, int kept) -> (Tensor, Tensor)")
# own, relevant, factor, shift, error: (Q,); equal: (R,) int64, from `equal_rows`; delta, index: (Q, P), positives in
# order; before: (Q, P + 1) int64.
LIBRARY.define(
    "count_before(Tensor(a!) tile, Tensor bias, int first, Tensor own, Tensor query, Tensor reference, Tensor equal, "
    "Tensor delta, Tensor index, Tensor relevant, Tensor factor, Tensor shift, Tensor error, int distance, int ties, "
    "Tensor(b!) before) -> ()"
)

canonical_pairs = torch.ops.tensormetrics.canonical_pairs
keep_least = torch.ops.tensormetrics.keep_least
sorted_least = torch.ops.tensormetrics.sorted_least
count_before = torch.ops.tensormetrics.count_before

BUILT = torch._C._dispatch_has_kernel_for_dispatch_key("tensormetrics::keep_least", "CPU")


def kernels(device: torch.device) -> ModuleType | None:
    """The Triton kernels, where they can run."""
    if device.type != "cuda" or importlib.util.find_spec("triton") is None:
        return None
    from . import _kernels

    return _kernels
