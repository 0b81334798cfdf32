"""Reciprocal rank."""

import torch
from torch import Tensor
from typing_extensions import Unpack  # torch brings it

from ...core.metric.base import AtK, K, Scores
from ..ranking.positive_ranks import PositiveRanks
from .depths import Depths, at_depths, scores_at, takes_ranks
from .position import first_rank
from .query_metric import GradedOptions, QueryMetric


@takes_ranks
def reciprocal_rank(ranks: PositiveRanks, k: Depths | None = None) -> Tensor:
    """Compute 1 / r_1, the reciprocal rank of the nearest relevant reference; 0 if the rank is above k.

    Shapes: rank: (..., Q, P); relevant: (..., Q) -> (..., Q) float64, for K values of k (..., Q, K).

    In [0, 1], higher is better; NaN for a lone query (R = 0). ValueError for k < 1. Voorhees, The TREC-8 Question
    Answering Track Report, 1999, DOI 10.6028/NIST.SP.500-246.qa-overview.

    >>> x, labels = torch.tensor([[0.0], [0.1], [5.0], [5.1], [0.3]]), torch.tensor([0, 0, 1, 1, 1])
    >>> ranks = positive_ranks(x, labels)
    >>> reciprocal_rank(ranks)
    tensor([1.0000, 1.0000, 1.0000, 1.0000, 0.3333], dtype=torch.float64)
    """
    first = first_rank(ranks)
    if k is None or (isinstance(k, int) and ranks.depth is not None and ranks.depth <= k):  # nothing is deeper
        return first.reciprocal()
    return at_depths(k, lambda depth: first.masked_fill(first > depth, torch.inf).reciprocal())


class ReciprocalRank(AtK[K], QueryMetric[Scores]):
    """Mean reciprocal rank (MRR): mean over queries of 1 / rank of the nearest relevant reference.

    In [0, 1], higher is better; see `reciprocal_rank`.

    Args:
        k: Rank above which a query counts as 0, or several, with values by name ("reciprocal_rank_at_5", ...); by
            default none.

    >>> ReciprocalRank()(torch.tensor([[0.0], [0.1], [5.0], [5.1], [0.3]]), torch.tensor([0, 0, 1, 1, 1]))
    tensor(0.8667, dtype=torch.float64)
    """

    def __init__(self, k: K = None, **options: Unpack[GradedOptions]) -> None:  # type: ignore[assignment]
        super().__init__(*scores_at(k, reciprocal_rank), **options)
