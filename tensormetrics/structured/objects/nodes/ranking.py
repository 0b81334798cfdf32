"""Rankings of objects: predictions in order of rank against a collection of references, as tensors."""

import math
from collections.abc import Sequence, Set
from itertools import chain
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from ....assignment import linear_sum_assignment
from ....core.arguments import checks
from ...tensors._pairs import join_once
from ..columns import as_list, check_collection, rows_of_both
from ..metric import StructuredMetric
from .set import Collection, RaggedRows, length_groups


class EncodedRankings(NamedTuple):
    """Rankings of all queries as tensors, concatenated."""

    hits: Tensor  # (predictions,) float64: the overlap of the query's first 1, 2, ... predictions with its references
    gained: Tensor  # (predictions,) float64
    gain: Tensor  # (references,) float64
    n_pred: Tensor  # (B,)
    n_ref: Tensor  # (B,)


class ObjectRanking(nn.Module):
    """Lists of objects in order of rank against collections of references; made by `dsl.ranking[max_k](inner)`.

    Predictions beyond max_k are ignored. `items` is the metric of a collection of items.
    """

    def __init__(self, items: StructuredMetric, max_k: int) -> None:
        super().__init__()
        self.items, self.max_k = items, checks.check_int("max_k", max_k, 1)

    def forward(
        self, preds: Sequence[Sequence[Any]], refs: Sequence[Any], gains: Sequence[Sequence[float]] | None = None
    ) -> EncodedRankings:
        """Encode B queries as one batch; gains are in the order of the references, default 1."""
        checks.check_consistent_length(preds=preds, refs=refs)
        size, node, device = len(preds), cast(Collection, self.items.node()), self.items.device
        if gains is not None and not node.inner.equality:
            raise ValueError(
                "gains: got gains with an inner metric that is no equality, for which fractions of a gain are not "
                "defined; leave them out, or write dsl.discrete[...]"
            )
        check_collection(preds, "preds[{}]".format)
        for query, pred in enumerate(preds):
            if isinstance(pred, Set):
                raise TypeError(f"preds[{query}]: got a {type(pred).__name__}, wanted a list, best first")
        truncated = [as_list(pred)[: self.max_k] for pred in preds]
        rows = node.encode([*truncated, *refs], size, rows_of_both(size), device)
        n_pred, n_ref = rows.count[:size], rows.count[size:]
        gain = _flat_gains(gains, n_ref)
        before = n_pred.cumsum(0) - n_pred
        if node.inner.equality:
            hit, gained = _equal_hits(rows, size, gain)
            hits = nn.functional.pad(hit.cumsum(0), (1, 0))
            return EncodedRankings(hits[1:] - hits[before].repeat_interleave(n_pred), gained, gain, n_pred, n_ref)
        hits = _prefix_overlaps(node, rows, size)
        gained = hits.diff(prepend=hits[:0].new_zeros(1))
        first = before[n_pred > 0]
        gained[first] = hits[first]
        return EncodedRankings(hits, gained, gain, n_pred, n_ref)


def _flat_gains(gains: Sequence[Sequence[float]] | None, n_ref: Tensor) -> Tensor:
    # n_ref: (B,)  ->  (n_ref.sum(),) float64
    if gains is None:
        return torch.ones(int(n_ref.sum()), dtype=torch.float64, device=n_ref.device)
    checks.check_consistent_length(gains=gains, refs=n_ref)
    for query, (query_gains, count) in enumerate(zip(gains, n_ref.tolist(), strict=True)):
        if len(query_gains) != count:
            raise ValueError(
                f"gains[{query}]: got {len(query_gains)} numbers, wanted one for each of {count} references"
            )
        for index, gain in enumerate(query_gains):
            checks.check_number(f"gains[{query}][{index}]", gain, "a finite number", math.isfinite)
    return torch.tensor(list(chain.from_iterable(gains)), dtype=torch.float64, device=n_ref.device)


def _equal_hits(rows: RaggedRows, size: int, gain: Tensor) -> tuple[Tensor, Tensor]:
    # gain: (references,)  ->  hit, gained (predictions,) float64
    """Match equal items, the n-th prediction with the n-th reference."""
    assert rows.key is not None  # items that are compared by equality have a key
    row = torch.repeat_interleave(rows.count)
    n = int(rows.count[:size].sum())
    block = row % max(size, 1) * rows.key.size + rows.key.ids
    a, b = join_once(*block.split([n, len(row) - n]))
    hit = gain.new_zeros(n)
    return hit.index_put((a,), torch.ones_like(gain[b])), hit.index_put((a,), gain[b])


def _prefix_overlaps(node: Collection, rows: RaggedRows, size: int) -> Tensor:
    # ->  (predictions,) float64
    i = torch.arange(size, device=rows.count.device)
    n, m = rows.count[:size], rows.count[size:]
    value = torch.zeros(int(n.sum()), dtype=torch.float64, device=i.device)
    for part in length_groups(n, m):
        part = i[part]
        pair = part, part + size
        gain = node.dense(rows, *pair).clamp(min=0)  # (P, N', M')
        height = gain.shape[-2]
        problems = gain[:, None].expand(-1, height, -1, -1)  # a view
        prefix = torch.arange(1, height + 1, device=i.device).expand(len(part), height)
        lengths = torch.minimum(prefix, n[part, None])
        solution = linear_sum_assignment(
            problems, maximize=True, row_lengths=lengths, col_lengths=m[part, None].expand_as(lengths), check=False
        )
        valid = prefix <= n[part, None]
        value[(rows.start[part, None] + prefix - 1)[valid]] = solution.cost[valid]
    return value
