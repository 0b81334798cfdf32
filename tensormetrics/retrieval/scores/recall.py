"""Recall among the nearest neighbors, as defined in information retrieval and in metric learning."""

import torch
from torch import Tensor
from typing_extensions import Unpack  # torch brings it

from ...core.arguments import checks
from ...core.metric.base import AtK, K, Scores
from ..ranking.positive_ranks import PositiveRanks
from .depths import Depths, at_depths, scores_at, takes_ranks
from .query_metric import GradedOptions, QueryMetric


@takes_ranks
def recall(ranks: PositiveRanks, k: Depths) -> Tensor:
    """Compute the fraction of the relevant references that are among the k nearest: #{r_j <= k} / R.

    Shapes: rank: (..., Q, P); relevant: (..., Q) -> (..., Q) float64, for K values of k (..., Q, K).

    This is recall as in information retrieval; the Recall@K of papers on metric learning is `hit_rate`. In [0, 1],
    higher is better; NaN for a lone query (R = 0). ValueError for k < 1.

    >>> x, labels = torch.tensor([[0.0], [0.1], [5.0], [5.1], [0.3]]), torch.tensor([0, 0, 1, 1, 1])
    >>> ranks = positive_ranks(x, labels)
    >>> recall(ranks, k=1)
    tensor([1.0000, 1.0000, 0.5000, 0.5000, 0.0000], dtype=torch.float64)
    """
    return at_depths(k, lambda depth: ranks.within(depth).sum(-1).double() / ranks.relevant)


@takes_ranks
def hit_rate(ranks: PositiveRanks, k: Depths) -> Tensor:
    """Return 1 if a relevant reference is among the k nearest, else 0.

    Shapes: rank: (..., Q, P); relevant: (..., Q) -> (..., Q) float64, for K values of k (..., Q, K).

    This is the Recall@K of papers on metric learning and a point of the cumulative match curve; the fraction of all
    relevant references is `recall`. Higher is better; NaN for a lone query (R = 0). ValueError for k < 1.
    Jégou, Douze and Schmid, Product Quantization for Nearest Neighbor Search, 2011, DOI 10.1109/TPAMI.2010.57.

    >>> x, labels = torch.tensor([[0.0], [0.1], [5.0], [5.1], [0.3]]), torch.tensor([0, 0, 1, 1, 1])
    >>> ranks = positive_ranks(x, labels)
    >>> hit_rate(ranks, k=1)
    tensor([1., 1., 1., 1., 0.], dtype=torch.float64)
    >>> hit_rate(ranks, k=(1, 2, 3)).mean(0)
    tensor([0.8000, 0.8000, 1.0000], dtype=torch.float64)
    """
    return at_depths(k, lambda depth: ranks.within(depth).any(-1).double().masked_fill(ranks.relevant == 0, torch.nan))


@takes_ranks
def cmc(ranks: PositiveRanks, k: int) -> Tensor:
    # rank: (..., Q, P)  relevant: (..., Q)  ->  (..., Q, k) float64
    """Compute `hit_rate` at 1, 2, ..., k, (..., Q, k); its mean over queries is the cumulative match characteristic.

    Non-decreasing along the last dimension, 0 or 1, higher is better; NaN for a lone query (R = 0). ValueError for
    k < 1. Gray, Brennan and Tao, Evaluating Appearance Models for Recognition, Reacquisition, and Tracking, 2007.

    >>> cmc(PositiveRanks(torch.tensor([[2, 3], [1, 0]]), torch.tensor([2, 1])), 3).nanmean(0)
    tensor([0.5000, 1.0000, 1.0000], dtype=torch.float64)
    """
    k = checks.check_int("k", k, 1)
    first = torch.where(ranks.rank > 0, ranks.rank.double(), torch.inf)
    first = torch.nn.functional.pad(first, (0, 1), value=torch.inf).amin(-1, keepdim=True)
    hit = first <= torch.arange(1, k + 1, device=first.device)
    return hit.double().masked_fill((ranks.relevant == 0).unsqueeze(-1), torch.nan)


class RecallAtK(AtK[K], QueryMetric[Scores]):
    """Mean `recall` at k, the fraction of all relevant references that are found.

    The Recall@K of papers on metric learning, which requires only one of them, is `HitRate(k)`. With 50 relevant
    references to a query RecallAtK(1) is at most 0.02.

    Args:
        k: Number of nearest references, or several, such as (1, 5, 10), with a value for each by name.

    >>> x, labels = torch.tensor([[0.0], [0.1], [5.0], [5.1], [0.3]]), torch.tensor([0, 0, 1, 1, 1])
    >>> metric = RecallAtK(1)
    >>> metric.update(x, labels)
    >>> metric.compute()
    tensor(0.6000, dtype=torch.float64)
    """

    def __init__(self, k: K, **options: Unpack[GradedOptions]) -> None:
        super().__init__(*scores_at(k, recall), **options)


class HitRate(AtK[K], QueryMetric[Scores]):
    """Fraction of queries with a relevant reference among the k nearest: the Recall@K of papers on metric learning.

    In [0, 1]; see `hit_rate`.

    Args:
        k: Number of nearest references, or several, such as (1, 5, 10), with a value for each by name.

    >>> x, labels = torch.tensor([[0.0], [0.1], [5.0], [5.1], [0.3]]), torch.tensor([0, 0, 1, 1, 1])
    >>> metric = HitRate(1)
    >>> metric.update(x, labels)
    >>> metric.compute()
    tensor(0.8000, dtype=torch.float64)
    >>> HitRate((1, 3))(x, labels)
    {'hit_rate_at_1': tensor(0.8000, dtype=torch.float64), 'hit_rate_at_3': tensor(1., dtype=torch.float64)}
    """

    def __init__(self, k: K, **options: Unpack[GradedOptions]) -> None:
        super().__init__(*scores_at(k, hit_rate), **options)
