"""The overlap of two sequences: the heaviest relation that preserves their order."""

import torch
from torch import Tensor

from ...core.arguments.checks import takes_arrays
from ...core.native import native
from ...core.native.interruptible import interruptible
from ...core.native.native import needs_derivative
from .constraints import Constraint
from .overlap import without_padding

# similarity: (B, N, M) contiguous, float32 or float64, N, M > 0  ->  (B,) float64, NaN if an entry is NaN or +inf.
# by_row, by_column: whether a pair advances its chain to the next predicted, to the next reference item.
OPERATOR = native.define(
    "heaviest_chain(Tensor similarity, bool by_row, bool by_column) -> Tensor",
    lambda similarity, by_row, by_column: similarity.new_empty(len(similarity), dtype=torch.float64),
    native.Operator("sequence", "sequence_overlap and SequenceMatch", 10),
)
heaviest_chain = interruptible(OPERATOR, lambda similarity, *_: 2 * similarity.numel())
# The operator has no derivative; `antidiagonals` has.
native.LIBRARY.impl("heaviest_chain", torch.library.fallthrough_kernel, "Autograd")


def _batched(similarity: Tensor, by_row: bool, by_column: bool) -> Tensor:
    # similarity: (V, B, N, M)  ->  (V, B)
    value = heaviest_chain(similarity.flatten(0, 1).contiguous(), by_row, by_column)
    return value.unflatten(0, similarity.shape[:2])


native.batch_first("tensormetrics::heaviest_chain", _batched)


@takes_arrays
def sequence_overlap(
    similarity: Tensor,
    n_pred: Tensor | None = None,
    n_ref: Tensor | None = None,
    constraint: str | Constraint = "<->",
) -> Tensor:
    """Compute the largest sum of similarities over a chain of pairs along which no index decreases, in float64.

    Shapes: similarity: (..., N, M); n_pred: (...); n_ref: (...) -> (...).

    Both indices increase at each step under `<->` (with equality as similarity, the longest common subsequence), the
    predicted one under `->`, the reference one under `<-`; under `~` pairs are not repeated. Lengths, NaN and pairs of
    similarity <= 0 are treated as in `set_overlap`. Differentiable; O(N M) work.

    >>> sequence_overlap(torch.eye(3).flip(0))
    tensor(1., dtype=torch.float64)
    """
    constraint = Constraint.parse(constraint)
    similarity, _, _ = without_padding(similarity, n_pred, n_ref)
    *batch, n, m = similarity.shape
    if n == 0 or m == 0:
        return similarity.sum((-2, -1), dtype=torch.float64)
    documents = similarity.reshape(-1, n, m)
    if similarity.device.type == "cpu" and not needs_derivative(similarity):
        return heaviest_chain(documents.contiguous(), *constraint.once).reshape(batch)
    return _without_infinity(antidiagonals(documents, *constraint.once)).reshape(batch)


@native.reference("heaviest_chain")
def _heaviest_chain(similarity: Tensor, by_row: bool, by_column: bool) -> Tensor:
    if not len(similarity):  # no documents, of any size
        return similarity.new_empty(0, dtype=torch.float64)
    return _without_infinity(antidiagonals(similarity, by_row, by_column))


def _without_infinity(value: Tensor) -> Tensor:
    return value.where(value < torch.inf, torch.nan)  # NaN and infinity propagate through every maximum


def antidiagonals(similarity: Tensor, by_row: bool, by_column: bool) -> Tensor:
    # similarity: (B, N, M)  ->  (B,) float64
    """Compute the operator in plain torch, except for NaN: one step per antidiagonal for the full batch."""
    batch, n, m = similarity.shape
    # Documents are the innermost dimension, so every step reads contiguous memory.
    gain = similarity.clamp(min=0).reshape(batch, n * m).mT.contiguous()  # (N M, B)
    border = torch.zeros_like(gain[:1], dtype=torch.float64)
    # The best chains within the first i predicted and j reference items; i + j is constant along an antidiagonal.
    before, last = border, torch.cat([border, border])  # (cells, B) in order of i
    for total in range(2, n + m + 1):
        first, stop = max(1, total - m), min(n + 1, total)
        start, end = ((i - 1) * m + total - i - 1 for i in (first, stop))  # cell (i, total - i), counted from 1
        pair_gain = gain[start : max(end, start + 1) : max(m - 1, 1)]
        crossed = before[int(total > m + 1) :][: stop - first]
        best = _step(by_row, by_column, last[:-1], last[1:], crossed, pair_gain)
        before, last = last, torch.cat([border] * (total <= m) + [best] + [border] * (total <= n))
    return last[0]


def _step(by_row: bool, by_column: bool, up: Tensor, left: Tensor, crossed: Tensor, gain: Tensor) -> Tensor:
    # (cells, B) each: the best chains without the last predicted item, the last reference item, and both; the pair
    if by_row and by_column:
        return torch.maximum(torch.maximum(up, left), crossed + gain)
    if by_row or by_column:
        return torch.maximum(up + gain, left) if by_row else torch.maximum(up, left + gain)
    return torch.maximum(up, left) + gain
