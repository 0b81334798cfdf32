"""Ranks of the positives: the integers from which every retrieval score is made."""

from typing import NamedTuple

import torch
from torch import Tensor


class PositiveRanks(NamedTuple):
    """Where the relevant references of each query stand among its neighbours.

    rank (..., Q, P) int64: 1-based ranks, ascending; 0 means no positive here and may stand anywhere.
    relevant (..., Q) int64: R, the number of relevant references, found or not.
    """

    rank: Tensor
    relevant: Tensor

    def within(self, depth: int | Tensor) -> Tensor:
        # depth: broadcasts against (..., Q, P)  ->  (..., Q, P) bool
        """Which entries are positives of rank <= depth."""
        return (self.rank > 0) & (self.rank <= depth)


def count_relevant(query_labels: Tensor, reference_labels: Tensor, ref_includes_query: bool = False) -> Tensor:
    # query_labels: (..., Q)  reference_labels: (..., N), of the same dtype  ->  (..., Q) int64
    """R: how many references share the query's label, the query itself not counted."""
    ordered, query_labels = reference_labels.sort(-1).values, query_labels.contiguous()
    through = torch.searchsorted(ordered, query_labels, right=True)
    return through - torch.searchsorted(ordered, query_labels) - int(ref_includes_query)


def ranks_of_neighbours(
    indices: Tensor, query_labels: Tensor, reference_labels: Tensor, relevant: Tensor
) -> PositiveRanks:
    # indices: (..., Q, K), -1 = no neighbour  query_labels: (..., Q)  reference_labels: (..., N)  relevant: (..., Q)
    """The ranks among the K nearest references, which `indices` lists nearest first; P = K."""
    labels = torch.take_along_dim(reference_labels.unsqueeze(-2), indices.clamp(min=0), -1)
    match = (labels == query_labels.unsqueeze(-1)) & (indices >= 0)
    return PositiveRanks(match * torch.arange(1, indices.shape[-1] + 1, device=indices.device), relevant)
