"""Native operators of the search on a CPU, and its Triton kernels on a GPU, if available.

The operators fuse, in one pass over a tile in the cache, computations for which torch has no operator; the rest are
matrix products. The reference implementations in torch are: canonical_pairs in distance.py, update_topk and
finalize_topk in topk.py, count_before in ranking/rank_counts.py.
"""

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from ...core.native import gpu_kernels, native
from ...core.native.interruptible import interruptible
from ...core.native.native import Operator, define


def _pairs(query: Tensor, reference: Tensor, row: Tensor, column: Tensor, distance: int) -> Tensor:
    return query.new_empty(len(row))


def _sorted(keys: Tensor, count: Tensor, limit: Tensor, k: int) -> tuple[Tensor, Tensor]:
    shape = len(limit), k
    return limit.new_empty(shape, dtype=torch.float64), limit.new_empty(shape, dtype=torch.int64)


def _reranked(query: Tensor, reference: Tensor, list_index: Tensor, *options: Any) -> tuple[Tensor, Tensor, Tensor]:
    shape = len(query), options[-2]
    return list_index.new_empty(shape), query.new_empty(shape), list_index.new_empty(len(query), dtype=torch.bool)


def _nothing(*arguments: object) -> None:
    pass


# query: (Q, D) float64, reference: (R, D) from `as_embeddings`; row, column: (n,) int64  ->  (n,) float64
_canonical_pairs = define(
    "canonical_pairs(Tensor query, Tensor reference, Tensor row, Tensor column, int distance) -> Tensor",
    _pairs,
    Operator("nearest", "exact distances of listed pairs, in TorchKNN and positive_ranks", 60),
)
# x: (Q, D), rows: (C, D) of references first, first + 1, ..., and bias: (R,) give the filter values; self_index: (Q,),
# the reference to exclude, ignored: (Q, R) bool. State of each query: keys (Q, capacity, 2), an entry packed into two
# numbers of the dtype of the values; count (Q,) int32, of entries; limit (Q,) of that dtype. With start >= 0, there are
# keys of all references, query q is reference start + q, and a value is also an entry of its reference if that follows
# the queries.
_update_topk = define(
    "update_topk(Tensor x, Tensor rows, Tensor bias, int first, Tensor self_index, Tensor? ignored, Tensor(a!) keys, "
    "Tensor(b!) count, Tensor(c!) limit, int k, int start) -> ()",
    _nothing,
    Operator("nearest", "TorchKNN and its users", 4.5),
)
# ->  (Q, k) float64 ascending, (Q, k) int64
_finalize_topk = define(
    "finalize_topk(Tensor(a!) keys, Tensor count, Tensor limit, int k) -> (Tensor, Tensor)",
    _sorted,
    Operator("nearest", "TorchKNN and its users", 4.5),
)
# x, ..., ignored: as above; query, reference: as in canonical_pairs; equal: (R,) int64, from `equal_rows`; delta,
# index: (Q, P), sorted positives; relevant, factor, shift, error: (Q,); before: (Q, P + 1) int64.
_count_before = define(
    "count_before(Tensor x, Tensor rows, Tensor bias, int first, Tensor self_index, Tensor? ignored, Tensor query, "
    "Tensor reference, Tensor equal, Tensor delta, Tensor index, Tensor relevant, Tensor factor, Tensor shift, "
    "Tensor error, int distance, int ties, Tensor(a!) before) -> ()",
    _nothing,
    Operator("nearest", "positive_ranks and scores with k=None", 8),
)

# rows: (N, D), order: (M,) int64, rows to read, -1 if none, center: (D,) float64; written to positions first,
# first + 1, ... of panels: (P, D', 64, 2) int16, scale: (64 P,) float32, sizes: (3, 64 P) float64; see
# `QuantizedRows` in int16/quantize.py
_quantize_rows = define(
    "quantize_rows(Tensor rows, Tensor? order, Tensor center, float factor, Tensor(a!) panels, Tensor(b!) scale, "
    "Tensor(c!) sizes, int first) -> ()",
    _nothing,
    Operator("nearest", "TorchKNN and its users", 5),
)
supports_int16 = define(
    "supports_int16(Tensor like) -> Tensor",
    lambda like: like.new_empty((), dtype=torch.bool),
    Operator("nearest", "TorchKNN and its users", 1),
)
# x, panels: queries and references in the layout of `QuantizedRows`; x_scale, scale, bias, coefficient, bias_error:
# (64 P,) float32; width, rounding_error, self_index: (Q,); bounds to limit: candidates of each query, see
# `CandidateLists` in int16/quantize.py. If symmetric, the queries are the first references, and a product of two of
# them updates the lists of both.
_int16_candidates = define(
    "int16_candidates(Tensor x, Tensor x_scale, Tensor panels, Tensor scale, Tensor bias, Tensor coefficient, "
    "Tensor bias_error, Tensor width, Tensor rounding_error, Tensor self_index, Tensor(a!) bounds, "
    "Tensor(b!) column, Tensor(c!) list_size, Tensor(d!) limit, int k, bool is_symmetric) -> ()",
    _nothing,
    Operator("nearest", "TorchKNN and its users", 20),
)
# query: (Q, D) float64, reference: (R, D), distance: as in canonical_pairs; list_index: (Q,) int64, the list of each
# query; order: (R,) int64, the reference of each column; the others as above
# ->  (Q, k) int64, (Q, k) float64, (Q,) bool, the queries whose list is complete
_rerank_candidates = define(
    "rerank_candidates(Tensor query, Tensor reference, Tensor list_index, Tensor order, Tensor rounding_error, "
    "Tensor(a!) bounds, Tensor(b!) column, Tensor(c!) list_size, Tensor(d!) limit, int k, int distance) "
    "-> (Tensor, Tensor, Tensor)",
    _reranked,
    Operator("nearest", "TorchKNN and its users", 20),
)
quantize_rows = interruptible(_quantize_rows, lambda rows, *_: 2 * rows.numel())
int16_candidates = interruptible(_int16_candidates, lambda x, _, panels, *__: x.shape[0] * panels.numel() / 2)
rerank_candidates = interruptible(_rerank_candidates, lambda query, *_: 50 * query.numel())
canonical_pairs = interruptible(_canonical_pairs, lambda query, _, row, *__: len(row) * query.shape[1] / 2)
update_topk = interruptible(_update_topk, lambda x, rows, *_: len(x) * rows.numel() / 20)
finalize_topk = interruptible(_finalize_topk, lambda keys, *_: 5 * keys.numel())
count_before = interruptible(_count_before, lambda x, rows, *_: len(x) * (rows.numel() / 20 + len(rows)))


def selects(device: torch.device) -> bool:
    """Return whether the top-k operators can be used."""
    return native.can_use_kernel("update_topk", device)


def counts(device: torch.device) -> bool:
    """Return whether the operator that counts the references before each positive can be used."""
    return native.can_use_kernel("count_before", device)


def kernels(rows: Tensor, family: str) -> ModuleType | None:
    # rows: (N, D)
    """Return the module of the Triton kernels if those of a family run on a device, for rows of this length."""
    if not gpu_kernels.can_use(family, rows.device):
        return None
    from .kernels import canonical, nearest

    return nearest if rows.shape[1] <= canonical.WIDEST else None


def preparing(rows: Tensor) -> ModuleType | None:
    """Return the module of the Triton kernels that prepare rows for products if they can run."""
    if not gpu_kernels.can_use("preparation", rows.device):
        return None
    from .kernels import prepare

    return prepare if rows.shape[1] <= prepare.WIDEST else None
