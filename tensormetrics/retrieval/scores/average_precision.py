"""Average precision."""

from typing import Literal, get_args

import torch
from torch import Tensor
from typing_extensions import Unpack  # torch brings it

from ...core.arguments import checks
from ...core.metric.base import AtK, K, Scores
from ...core.numbers import ranked
from ..deterministic import sum_by_position
from ..ranking.positive_ranks import PositiveRanks
from .depths import Depths, at_depths, score_kernels, scores_at, takes_ranks
from .query_metric import GradedOptions, QueryMetric

Denominator = Literal["relevant", "min", "found"]
DENOMINATORS: tuple[Denominator, ...] = get_args(Denominator)


@takes_ranks
def average_precision(ranks: PositiveRanks, k: Depths | None = None, denominator: Denominator = "relevant") -> Tensor:
    """Average the precision at the rank of each relevant reference: (1/R) sum of j / r_j over r_j <= k.

    Shapes: rank: (..., Q, P); relevant: (..., Q) -> (..., Q) float64, for K values of k (..., Q, K).

    `denominator="relevant"` divides by R, the number of relevant references, as trec_eval's `map_cut_k`; "min" by
    min(R, k), so that k relevant neighbors score 1; "found" by the number of relevant references among the k
    nearest, as torchmetrics' `RetrievalMAP(top_k=k)`, so that missed references are not penalized. In [0, 1], higher is
    better; NaN for a lone query (R = 0). ValueError for k < 1, for an unknown denominator and for "min" or "found"
    without k.
    Manning, Raghavan and Schütze, Introduction to Information Retrieval, chapter 8, DOI 10.1017/CBO9780511809071.

    >>> x, labels = torch.tensor([[0.0], [0.1], [5.0], [5.1], [0.3]]), torch.tensor([0, 0, 1, 1, 1])
    >>> ranks = positive_ranks(x, labels)
    >>> average_precision(ranks)
    tensor([1.0000, 1.0000, 1.0000, 1.0000, 0.4167], dtype=torch.float64)
    """
    _check_denominator(k, denominator)
    if k is None:
        return _precision_mean(ranks, None, ranks.relevant)

    def score_at(depth: int) -> Tensor:
        divisor = ranks.relevant
        if denominator == "min":
            divisor = divisor.clamp(max=depth)
        elif denominator == "found":
            divisor = torch.minimum(ranks.within(depth).sum(-1).clamp(min=1), divisor)  # a lone query stays undefined
        return _precision_mean(ranks, depth, divisor)

    return at_depths(k, score_at)


@takes_ranks
def average_precision_at_r(ranks: PositiveRanks) -> Tensor:
    """Compute average precision cut off at the number of relevant references: (1/R) sum of j / r_j over r_j <= R.

    Shapes: rank: (..., Q, P); relevant: (..., Q) -> (..., Q) float64.

    In [0, 1], higher is better; NaN for a lone query (R = 0). Musgrave, Belongie and Lim, A Metric Learning Reality
    Check, 2020, DOI 10.1007/978-3-030-58595-2_41; the mean over queries is MAP@R.

    >>> x, labels = torch.tensor([[0.0], [0.1], [5.0], [5.1], [0.3]]), torch.tensor([0, 0, 1, 1, 1])
    >>> ranks = positive_ranks(x, labels)
    >>> average_precision_at_r(ranks)
    tensor([1., 1., 1., 1., 0.], dtype=torch.float64)
    """
    return _precision_mean(ranks, ranks.relevant.unsqueeze(-1), ranks.relevant)


def _check_denominator(k: Depths | None, denominator: Denominator) -> None:
    checks.check_choice("denominator", denominator, DENOMINATORS)
    if k is None and denominator != "relevant":
        raise ValueError(f"k: got None with denominator={denominator!r}, wanted an integer >= 1")


def _precision_mean(ranks: PositiveRanks, depth: int | Tensor | None, divisor: Tensor) -> Tensor:
    # depth: (..., Q, 1) if it is a tensor  divisor: (..., Q)  ->  (..., Q), the sum of j / r_j, divided
    if not isinstance(depth, Tensor) and (kernels := score_kernels(ranks.rank)):
        return kernels.rank_scores(ranks.rank, divisor, depth)
    is_hit = ranks.rank > 0 if depth is None else ranks.within(depth)
    order = is_hit.cumsum(-1)
    return sum_by_position(ranked.precision_term(order, ranks.rank), order * is_hit) / divisor


class AveragePrecision(AtK[K], QueryMetric[Scores]):
    """Mean average precision (MAP) over queries, optionally cut off at k, in [0, 1]; formula: `average_precision`.

    Args:
        k: Cut-off, or several with a value for each by name; by default all references.
        denominator: Divisor of the sum of precisions: "relevant", all relevant references R; "min", min(R, k); or
            "found", those among the k nearest.

    >>> AveragePrecision()(torch.tensor([[0.0], [0.1], [5.0], [5.1], [0.3]]), torch.tensor([0, 0, 1, 1, 1]))
    tensor(0.8833, dtype=torch.float64)
    """

    def __init__(
        self,
        k: K = None,  # type: ignore[assignment]
        denominator: Denominator = "relevant",
        **options: Unpack[GradedOptions],
    ) -> None:
        _check_denominator(k, denominator)
        super().__init__(*scores_at(k, average_precision, denominator=denominator), **options)


class AveragePrecisionAtR(QueryMetric):
    """MAP@R: mean over queries of the average precision cut off at R, their number of relevant references.

    In [0, 1]; formula: `average_precision_at_r`.

    >>> AveragePrecisionAtR()(torch.tensor([[0.0], [0.1], [5.0], [5.1], [0.3]]), torch.tensor([0, 0, 1, 1, 1]))
    tensor(0.8000, dtype=torch.float64)
    """

    def __init__(self, **options: Unpack[GradedOptions]) -> None:
        super().__init__(average_precision_at_r, "relevant", **options)
