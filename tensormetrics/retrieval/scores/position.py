"""Scores of the ranks of positives: the first, the last, and all of them against the negatives."""

import torch
from torch import Tensor
from torch.nn.functional import pad
from typing_extensions import Unpack  # torch brings it

from ...core.arguments import checks
from ..ranking.positive_ranks import PositiveRanks
from .depths import takes_ranks
from .query_metric import STATISTICS, GradedOptions, QueryMetric, Statistic


@takes_ranks
def first_rank(ranks: PositiveRanks) -> Tensor:
    """Return r_1, the rank of the nearest relevant reference; inf if it was not found, NaN for a lone query (R = 0).

    Shapes: rank: (..., Q, P); relevant: (..., Q) -> (..., Q) float64.

    At least 1, lower is better.

    >>> x, labels = torch.tensor([[0.0], [0.1], [5.0], [5.1], [0.3]]), torch.tensor([0, 0, 1, 1, 1])
    >>> ranks = positive_ranks(x, labels)
    >>> first_rank(ranks)
    tensor([1., 1., 1., 1., 3.], dtype=torch.float64)
    """
    rank = ranks.rank.double().masked_fill(ranks.rank <= 0, torch.inf)
    rank = rank if rank.shape[-1] else pad(rank, (0, 1), value=torch.inf)
    return rank.amin(-1).masked_fill(ranks.relevant == 0, torch.nan)


@takes_ranks
def inverse_negative_penalty(ranks: PositiveRanks) -> Tensor:
    """Compute R / r_R, the precision at the rank of the last relevant reference; 0 if it was not found.

    Shapes: rank: (..., Q, P); relevant: (..., Q) -> (..., Q) float64.

    In [0, 1], higher is better; NaN for a lone query (R = 0). Ye et al., Deep Learning for Person Re-identification:
    A Survey and Outlook, 2022, DOI 10.1109/TPAMI.2021.3054775.

    >>> x, labels = torch.tensor([[0.0], [0.1], [5.0], [5.1], [0.3]]), torch.tensor([0, 0, 1, 1, 1])
    >>> ranks = positive_ranks(x, labels)
    >>> inverse_negative_penalty(ranks)
    tensor([1.0000, 1.0000, 1.0000, 1.0000, 0.5000], dtype=torch.float64)
    """
    last = pad(ranks.rank, (0, 1)).amax(-1)
    score = ranks.relevant.double() / last
    missing = (ranks.rank > 0).sum(-1) < ranks.relevant
    return score.masked_fill(missing, 0.0)


@takes_ranks
def ranking_auroc(ranks: PositiveRanks) -> Tensor:
    """Compute the probability that a relevant reference is nearer than an irrelevant one.

    Shapes: rank: (..., Q, P); relevant, candidates: (..., Q) -> (..., Q) float64.

    It is 1 - sum of (r_j - j) / (R (C - R)). Relevant references that were not found count as farther than all others.
    In [0, 1], 1/2 by chance, higher is better; NaN without pairs to compare (R = 0 or R = C). ValueError for ranks
    without candidates. Hanley and McNeil, 1982, DOI 10.1148/radiology.143.1.7063747.

    >>> x, labels = torch.tensor([[0.0], [0.1], [5.0], [5.1], [0.3]]), torch.tensor([0, 0, 1, 1, 1])
    >>> ranks = positive_ranks(x, labels)
    >>> ranking_auroc(ranks)
    tensor([1., 1., 1., 1., 0.], dtype=torch.float64)
    """
    if ranks.candidates is None:
        raise ValueError("ranks: got candidates=None, wanted the number of candidates of every query")
    is_hit = ranks.rank > 0
    negatives = ranks.candidates - ranks.relevant
    before = torch.where(is_hit, ranks.rank - is_hit.cumsum(-1), 0).sum(-1)
    before = before + (ranks.relevant - is_hit.sum(-1)) * negatives
    return 1 - before.double() / (ranks.relevant * negatives)


class FirstRank(QueryMetric):
    """Median or mean rank of the nearest relevant reference, at least 1, lower is better; see `first_rank`.

    Args:
        statistic: "median" or "mean" over queries.
        on_lone: "exclude" (default) leaves lone queries out, "error" raises a ValueError for them; "zero" has no sense.

    >>> FirstRank("mean")(torch.tensor([[0.0], [0.1], [5.0], [5.1], [0.3]]), torch.tensor([0, 0, 1, 1, 1]))
    tensor(1.4000, dtype=torch.float64)
    """

    higher_is_better = False
    plot_lower_bound: float | None = 1.0
    plot_upper_bound: float | None = None

    def __init__(self, statistic: Statistic = "median", **options: Unpack[GradedOptions]) -> None:
        checks.check_choice("statistic", statistic, STATISTICS)
        if options.get("on_lone") == "zero":
            raise ValueError("on_lone: got 'zero', which is better than any rank; wanted 'exclude' or 'error'")
        super().__init__(first_rank, None, statistic, **options)


class InverseNegativePenalty(QueryMetric):
    """mINP: mean precision at the rank of the last relevant reference, in [0, 1]; see `inverse_negative_penalty`.

    >>> InverseNegativePenalty()(torch.tensor([[0.0], [0.1], [5.0], [5.1], [0.3]]), torch.tensor([0, 0, 1, 1, 1]))
    tensor(0.9000, dtype=torch.float64)
    """

    def __init__(self, **options: Unpack[GradedOptions]) -> None:
        super().__init__(inverse_negative_penalty, None, **options)


class RankingAUROC(QueryMetric):
    """Mean probability that a relevant reference is nearer than an irrelevant one; see `ranking_auroc`.

    Queries without an irrelevant reference have no value, and are always left out.

    >>> RankingAUROC()(torch.tensor([[0.0], [0.1], [5.0], [5.1], [0.3]]), torch.tensor([0, 0, 1, 1, 1]))
    tensor(0.8000, dtype=torch.float64)
    """

    def __init__(self, **options: Unpack[GradedOptions]) -> None:
        super().__init__(ranking_auroc, None, **options)
