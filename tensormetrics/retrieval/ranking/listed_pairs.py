"""The pairs of each item of a batch, listed and sorted: for sets so small that the lists of several fit in memory."""

import torch
from torch import Tensor

from ..search.distance import Distance
from .pairs import Condition, Found

MOST = {"cpu": 2**15}  # pairs of an item; for more, the bins of `Pairs` are faster than sorting
MOST_ON_GPU = 2**20  # where launches for each item take longer than to sort
PAIR = 160  # bytes of a pair


def number_of_pairs(queries: int, references: int | None) -> int:
    """Return how many pairs an item has; None: those of its queries."""
    return queries * (queries - 1) // 2 if references is None else queries * references


def may_be_listed(pairs: int, device: torch.device) -> bool:
    """Return whether items with this number of pairs are listed."""
    return pairs <= MOST.get(device.type, MOST_ON_GPU)


class ListedPairs:
    """The pairs of queries and references of B items, or of each item's queries; answers are those of `Pairs`.

    `total` (B, 2) int64: how many pairs of the same label there are, and of different labels.
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
        self.below, self.through = (counts.gather(-1, at[:, None].expand(-1, 2, -1)) for at in (before, after))
        self.total, self._same = counts[..., -1], same

    def first(self, conditions: list[Condition]) -> list[Found]:
        """Return where each condition first holds, of conditions that hold on from there: (B, ...) of each item."""
        return [self._first(condition(*self.through.unbind(1))) for condition in conditions]

    def _first(self, holds: Tensor) -> Found:
        # holds: (B, P)
        at = (~holds).sum(-1, keepdim=True)
        exists = at < holds.shape[-1]
        at = at.clamp(max=holds.shape[-1] - 1)
        below, through = (
            counts.gather(-1, at[:, None].expand(-1, 2, -1))[..., 0].where(exists, self.total)
            for counts in (self.below, self.through)
        )
        return Found(self.distances.gather(-1, at).where(exists, torch.inf)[..., 0], below, through)

    def concordance(self) -> Tensor:
        # ->  (B,) float64, NaN where a kind has no pair
        """Return the shares of `Pairs.concordance`."""
        nearer = (self.below[:, 0] + self.through[:, 0]).where(~self._same, 0).sum(-1)  # doubled, equal ones once
        same, different = self.total.double().unbind(-1)
        return nearer / (2.0 * same * different)
