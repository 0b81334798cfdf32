"""Normalised discounted cumulative gain."""

from typing import Literal, get_args

import torch
from torch import Tensor
from typing_extensions import Unpack  # torch brings it

from ... import _checks
from ..._checks import takes_arrays
from ..deterministic import halving_sum, sum_by_position
from ..ranking.positive_ranks import PositiveRanks
from ..relevance import Gains
from .depths import Depths, at_depths, scores_at
from .query_metric import QueryMetric, RankOptions

Gain = Literal["linear", "exp2"]
GAINS: tuple[Gain, ...] = get_args(Gain)


@takes_arrays
def ndcg(ranks: PositiveRanks, k: Depths | None = None, gain: Gain = "linear") -> Tensor:
    """Sum of g / log2(1 + r) over r <= k, divided by the same for the gains in the best order.

    Shapes: rank: (..., Q, P); relevant: (..., Q); gain, ideal: (..., Q, P) or None -> (..., Q) float64, for K
    values of k (..., Q, K).

    `gain="exp2"` takes 2^g - 1 for g; ranks without gains have g = 1. No k: as deep as the ranks go. In [0, 1],
    higher is better; NaN for a lone query (R = 0). ValueError for k < 1 or another gain. Järvelin and Kekäläinen,
    2002, DOI 10.1145/582415.582418; exp2: Burges et al., 2005, DOI 10.1145/1102351.1102363.

    >>> x, labels = torch.tensor([[0.0], [0.1], [5.0], [5.1], [0.3]]), torch.tensor([0, 0, 1, 1, 1])
    >>> ranks = positive_ranks(x, labels)
    >>> ndcg(ranks, k=3)
    tensor([1.0000, 1.0000, 1.0000, 1.0000, 0.3066], dtype=torch.float64)
    """
    _checks.check_choice("gain", gain, GAINS)
    if k is None:
        return _ndcg(ranks, ranks.depth, gain)
    return at_depths(k, lambda depth: _ndcg(ranks, depth, gain))


def _ndcg(ranks: PositiveRanks, k: int | None, gain: Gain) -> Tensor:
    # ->  (..., Q)
    found = ranks.rank > 0 if k is None else ranks.within(k)
    gains = found.double() if ranks.gain is None else torch.where(found, _scaled(ranks.gain, gain), 0.0)
    order = found.cumsum(-1)
    terms = torch.where(found, gains / torch.log2(1 + ranks.rank.double()), 0.0)
    reached = sum_by_position(terms, order)
    place = torch.arange(1, 1 + (ranks.rank.shape[-1] if k is None else k), device=ranks.rank.device)
    if ranks.ideal is None:
        best = (place <= ranks.relevant.unsqueeze(-1)).double()
    else:
        best = _scaled(ranks.ideal, gain)[..., : len(place)]
        place = place[: best.shape[-1]]
    score = reached / halving_sum(best / torch.log2(1 + place.double()))
    return score.masked_fill(ranks.relevant == 0, torch.nan)


def _scaled(gains: Tensor, gain: Gain) -> Tensor:
    return gains if gain == "linear" else torch.exp2(gains) - 1


class NDCG(QueryMetric):
    """Mean `ndcg`, cut at k or not; options as in `PrecisionAtK`.

    Args:
        gains: graded relevance as a function of pairs of labels, (n,) and (n,) -> (n,), or for each pair, (Q, N), or
            a tuple of queries, references and gains, (n,) each, of the pairs that have some;
            default 1 for equal labels.
    """

    def __init__(
        self,
        k: Depths | None = None,
        gain: Gain = "linear",
        gains: Gains | None = None,
        **options: Unpack[RankOptions],
    ) -> None:
        _checks.check_choice("gain", gain, GAINS)
        super().__init__(*scores_at(k, ndcg, gain=gain), gains=gains, **options)
