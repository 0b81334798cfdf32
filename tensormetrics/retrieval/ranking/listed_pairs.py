"""Sorted lists of the pairs of each item of a batch, for sets so small that the lists of several fit in memory."""

import torch
from torch import Tensor

from ..search.distance import Distance
from .pairs import Condition, Threshold

MAX_PAIRS = {"cpu": 2**15}  # per item; for more, the bins of `ItemPairs` are faster than sorting
MAX_PAIRS_ON_GPU = 2**20  # kernel launches for each item take longer than sorting
PAIR = 160  # bytes per pair


class ListedPairs:
    """Pairs of queries and references of B items, or among each item's queries, with the results of `ItemPairs`.

    `total` (B, 2) int64: the numbers of pairs of the same label and of different labels.
    """

    def __init__(
        self,
        query: Tensor,  # (B, Q, D)
        query_labels: Tensor,  # (B, Q)
        reference: Tensor | None = None,  # (B, N, D)
        reference_labels: Tensor | None = None,  # (B, N)
        *,
        distance: Distance,
        memory: int,
    ) -> None:
        items, queries = query_labels.shape
        device = query.device
        if reference is None or reference_labels is None:
            reference, reference_labels = query, query_labels
            row, column = torch.triu_indices(queries, queries, 1, device=device)
        else:
            cell = torch.arange(queries * reference_labels.shape[1], device=device)
            row, column = cell // reference_labels.shape[1], cell % reference_labels.shape[1]
        first = torch.arange(items, device=device)[:, None]
        rows, columns = (
            (index + first * labels.shape[1]).flatten()
            for index, labels in ((row, query_labels), (column, reference_labels))
        )
        distances = distance.of_pairs(query.flatten(0, 1), reference.flatten(0, 1), rows, columns, memory)
        self.distances, order = distances.view(items, -1).sort(-1)
        same = (query_labels[:, row] == reference_labels[:, column]).gather(-1, order)
        counts = torch.stack([same, ~same], 1).long().cumsum(-1)
        before = torch.searchsorted(self.distances, self.distances)  # pairs at equal distance are accepted together
        after = torch.searchsorted(self.distances, self.distances, right=True)
        counts = torch.nn.functional.pad(counts, (1, 0))
        self.below, self.through = (
            counts.gather(-1, position[:, None].expand(-1, 2, -1)) for position in (before, after)
        )
        self.total, self._same = counts[..., -1], same

    def first(self, conditions: list[Condition]) -> list[Threshold]:
        """Return the first point (B, ...) at which each condition holds; from there on it keeps holding."""
        return [self._first(condition(*self.through.unbind(1))) for condition in conditions]

    def _first(self, holds: Tensor) -> Threshold:
        # holds: (B, P)
        position = (~holds).sum(-1, keepdim=True)
        exists = position < holds.shape[-1]
        position = position.clamp(max=holds.shape[-1] - 1)
        below, through = (
            counts.gather(-1, position[:, None].expand(-1, 2, -1))[..., 0].where(exists, self.total)
            for counts in (self.below, self.through)
        )
        return Threshold(self.distances.gather(-1, position).where(exists, torch.inf)[..., 0], below, through)

    def concordance(self) -> Tensor:
        # ->  (B,) float64, NaN where all pairs are of one kind
        """Return `ItemPairs.concordance` of each item."""
        nearer = (self.below[:, 0] + self.through[:, 0]).where(~self._same, 0).sum(-1)  # doubled; ties count once
        same, different = self.total.double().unbind(-1)
        return nearer / (2.0 * same * different)
