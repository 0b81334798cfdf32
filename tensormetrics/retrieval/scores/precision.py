"""Precision among the nearest neighbors."""

import torch
from torch import Tensor
from typing_extensions import Unpack  # torch brings it

from ...core.metric.base import AtK, K, Scores
from ..ranking.positive_ranks import PositiveRanks
from .depths import Depths, at_depths, scores_at, takes_ranks
from .query_metric import GradedOptions, QueryMetric


@takes_ranks
def precision(ranks: PositiveRanks, k: Depths) -> Tensor:
    """Compute the fraction of the k nearest references that are relevant: #{r_j <= k} / k, even if fewer than k exist.

    Shapes: rank: (..., Q, P); relevant: (..., Q) -> (..., Q) float64, for K values of k (..., Q, K).

    In [0, 1], higher is better; NaN for a lone query (R = 0). ValueError for k < 1.

    >>> x, labels = torch.tensor([[0.0], [0.1], [5.0], [5.1], [0.3]]), torch.tensor([0, 0, 1, 1, 1])
    >>> ranks = positive_ranks(x, labels)
    >>> precision(ranks, k=1)
    tensor([1., 1., 1., 1., 0.], dtype=torch.float64)
    """

    def fraction(depth: int) -> Tensor:
        return (ranks.within(depth).sum(-1).double() / depth).masked_fill(ranks.relevant == 0, torch.nan)

    return at_depths(k, fraction)


@takes_ranks
def r_precision(ranks: PositiveRanks) -> Tensor:
    """Compute the precision at the number of relevant references: #{r_j <= R} / R.

    Shapes: rank: (..., Q, P); relevant: (..., Q) -> (..., Q) float64.

    In [0, 1], higher is better; NaN for a lone query (R = 0). Manning, Raghavan and Schütze, Introduction to
    Information Retrieval, chapter 8, DOI 10.1017/CBO9780511809071.

    >>> x, labels = torch.tensor([[0.0], [0.1], [5.0], [5.1], [0.3]]), torch.tensor([0, 0, 1, 1, 1])
    >>> ranks = positive_ranks(x, labels)
    >>> r_precision(ranks)
    tensor([1., 1., 1., 1., 0.], dtype=torch.float64)
    """
    return ranks.within(ranks.relevant.unsqueeze(-1)).sum(-1).double() / ranks.relevant


class PrecisionAtK(AtK[K], QueryMetric[Scores]):
    """Mean over queries of `precision` at k: `update(embeddings, labels)`, (n, D) and (n,), then `compute()`.

    Args:
        k: Number of nearest references. Several, (1, 5, 10), are scored from the same ranks: `compute` then returns a
            value for each, by name ("precision_at_1", ...).

    >>> x, labels = torch.tensor([[0.0], [0.1], [5.0], [5.1], [0.3]]), torch.tensor([0, 0, 1, 1, 1])
    >>> metric = PrecisionAtK(1)
    >>> metric.update(x, labels)
    >>> metric.compute()
    tensor(0.8000, dtype=torch.float64)
    """

    def __init__(self, k: K, **options: Unpack[GradedOptions]) -> None:
        super().__init__(*scores_at(k, precision), **options)


class RPrecision(QueryMetric):
    """Mean over queries of the precision at R, their number of relevant references; see `r_precision`.

    In [0, 1].

    >>> RPrecision()(torch.tensor([[0.0], [0.1], [5.0], [5.1], [0.3]]), torch.tensor([0, 0, 1, 1, 1]))
    tensor(0.8000, dtype=torch.float64)
    """

    def __init__(self, **options: Unpack[GradedOptions]) -> None:
        super().__init__(r_precision, "relevant", **options)
