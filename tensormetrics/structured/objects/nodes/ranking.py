"""Rankings of objects: predictions in order of rank against a collection of references, as numbers."""

import math
from collections.abc import Sequence, Set
from itertools import chain
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from .... import _checks
from ....assignment import linear_sum_assignment
from ...tensors._pairs import join, places
from ..metric import StructuredMetric
from ..values.columns import as_list, check_collection
from .set import Collection, RaggedRows, alike


class Queries(NamedTuple):
    """Rankings as numbers, those of one query after those of another."""

    hits: Tensor  # (predictions,) float64: the overlap of the query's first 1, 2, ... predictions with its references
    gained: Tensor  # (predictions,) float64
    gain: Tensor  # (references,) float64
    n_pred: Tensor  # (B,)
    n_ref: Tensor  # (B,)


class Ranking(nn.Module):
    """Lists of objects in order of rank against collections of references; made by `dsl.ranking[max_k](inner)`.

    Predictions beyond max_k are not looked at. `items` is the metric of a collection of items.
    """

    def __init__(self, items: StructuredMetric, max_k: int) -> None:
        super().__init__()
        self.items, self.max_k = items, _checks.check_int("max_k", max_k, 1)

    def forward(
        self, preds: Sequence[Sequence[Any]], refs: Sequence[Any], gains: Sequence[Sequence[float]] | None = None
    ) -> Queries:
        """B queries, read together; gains stand in the order of the references, default 1."""
        _checks.check_consistent_length(preds=preds, refs=refs)
        size, node, device = len(preds), cast(Collection, self.items.node()), self.items.device
        if gains is not None and not node.inner.equality:
            raise ValueError(
                "gains: got some with an inner metric that is no equality, and so does not say what a part of a gain "
                "is worth; leave them out, or write dsl.discrete[...]"
            )
        check_collection(preds, "preds[{}]".format)
        for number, pred in enumerate(preds):
            if isinstance(pred, Set):
                raise TypeError(f"preds[{number}]: got a {type(pred).__name__}, wanted a list, best first")
        cut = [as_list(pred)[: self.max_k] for pred in preds]

        def where(row: int) -> str:
            return f"preds[{row}]" if row < size else f"refs[{row - size}]"

        rows = node.encode([*cut, *refs], size, where, device)
        n_pred, n_ref = rows.count[:size], rows.count[size:]
        gain = _flat_gains(gains, n_ref)
        before = n_pred.cumsum(0) - n_pred
        if node.inner.equality:
            hit, gained = _equal_hits(rows, size, gain)
            hits = nn.functional.pad(hit.cumsum(0), (1, 0))
            return Queries(hits[1:] - hits[before].repeat_interleave(n_pred), gained, gain, n_pred, n_ref)
        hits = _prefix_overlaps(node, rows, size)
        gained = hits.diff(prepend=hits[:0].new_zeros(1))
        first = before[n_pred > 0]
        gained[first] = hits[first]
        return Queries(hits, gained, gain, n_pred, n_ref)


def _flat_gains(gains: Sequence[Sequence[float]] | None, n_ref: Tensor) -> Tensor:
    # n_ref: (B,)  ->  (n_ref.sum(),) float64
    if gains is None:
        return torch.ones(int(n_ref.sum()), dtype=torch.float64, device=n_ref.device)
    _checks.check_consistent_length(gains=gains, refs=n_ref)
    for number, (own, wanted) in enumerate(zip(gains, n_ref.tolist(), strict=True)):
        if len(own) != wanted:
            raise ValueError(f"gains[{number}]: got {len(own)} numbers, wanted one for each of {wanted} references")
        for place, gain in enumerate(own):
            _checks.check_number(f"gains[{number}][{place}]", gain, "a finite number", math.isfinite)
    return torch.tensor(list(chain.from_iterable(gains)), dtype=torch.float64, device=n_ref.device)


def _equal_hits(rows: RaggedRows, size: int, gain: Tensor) -> tuple[Tensor, Tensor]:
    # gain: (references,)  ->  hit, gained (predictions,) float64
    """Of equal items the n-th prediction stands for the n-th reference."""
    assert rows.key is not None  # items of an equality have one
    row = torch.repeat_interleave(rows.count)
    n = int(rows.count[:size].sum())
    _, block = (row % max(size, 1) * rows.key.size + rows.key.ids).unique(return_inverse=True)
    sides = block.split([n, len(row) - n])
    times = [places(side, torch.arange(len(side), device=row.device))[0] for side in sides]
    a, b = join(*(side * len(row) + before for side, before in zip(sides, times, strict=True)))
    hit = gain.new_zeros(n)
    return hit.index_put((a,), torch.ones_like(gain[b])), hit.index_put((a,), gain[b])


def _prefix_overlaps(node: Collection, rows: RaggedRows, size: int) -> Tensor:
    # ->  (predictions,) float64
    i = torch.arange(size, device=rows.count.device)
    n, m = rows.count[:size], rows.count[size:]
    value = torch.zeros(int(n.sum()), dtype=torch.float64, device=i.device)
    for part in alike(n, m):
        part = i[part]
        sides = part, part + size
        gain = node.dense(rows, *sides).clamp(min=0)  # (P, N', M')
        height = gain.shape[-2]
        problems = gain[:, None].expand(-1, height, -1, -1)  # read in place, not copied
        prefix = torch.arange(1, height + 1, device=i.device).expand(len(part), height)
        lengths = torch.minimum(prefix, n[part, None])
        solution = linear_sum_assignment(
            problems, maximize=True, row_lengths=lengths, col_lengths=m[part, None].expand_as(lengths), check=False
        )
        inside = prefix <= n[part, None]
        value[(rows.start[part, None] + prefix - 1)[inside]] = solution.cost[inside]
    return value
