"""Normalised discounted cumulative gain."""

from typing import Literal, get_args

import torch
from torch import Tensor
from typing_extensions import Unpack  # torch brings it

from ...core.arguments import checks
from ...core.metric.base import AtK, K, Scores
from ...core.native.device_cache import cached_per_device
from ...core.numbers import ranked
from ..deterministic import halving_sum, power_of_two, sum_by_position
from ..ranking.positive_ranks import PositiveRanks
from ..relevance import Gains
from .depths import Depths, at_depths, score_kernels, scores_at, takes_ranks
from .query_metric import QueryMetric, RankOptions

Gain = Literal["linear", "exp2"]
GAINS: tuple[Gain, ...] = get_args(Gain)
TABULATED = 1024  # the largest depth whose discounts are kept


@takes_ranks
def ndcg(ranks: PositiveRanks, k: Depths | None = None, gain: Gain = "linear") -> Tensor:
    """Compute the sum of g / log2(1 + r) over r <= k, divided by that of the gains in the ideal order.

    Shapes: rank: (..., Q, P); relevant: (..., Q); gain, ideal: (..., Q, P) or None -> (..., Q) float64, for K
    values of k (..., Q, K).

    `gain="exp2"` uses 2^g - 1 for g; ranks without gains have g = 1. Without k all ranks count, up to `ranks.depth`. In
    [0, 1], higher is better; NaN for a lone query (R = 0). ValueError for k < 1 or another gain. Järvelin and
    Kekäläinen, 2002, DOI 10.1145/582415.582418; exp2: Burges et al., 2005, DOI 10.1145/1102351.1102363.

    >>> x, labels = torch.tensor([[0.0], [0.1], [5.0], [5.1], [0.3]]), torch.tensor([0, 0, 1, 1, 1])
    >>> ranks = positive_ranks(x, labels)
    >>> ndcg(ranks, k=3)
    tensor([1.0000, 1.0000, 1.0000, 1.0000, 0.3066], dtype=torch.float64)
    """
    checks.check_choice("gain", gain, GAINS)
    if k is None:
        return _ndcg(ranks, ranks.depth, gain)
    return at_depths(k, lambda depth: _ndcg(ranks, depth, gain))


@cached_per_device
def _discounts(device: torch.device, k: int) -> tuple[Tensor, Tensor]:
    # ->  (k + 1,) float64, of ranks 0 to k, (k + 1,), the ideal sums of 0 to k relevant references
    position = torch.arange(1, k + 1, device="cpu")
    terms = ranked.discounted(torch.ones((), dtype=torch.float64, device="cpu"), position)
    ideal = halving_sum((position <= torch.arange(k + 1, device="cpu")[:, None]).double() * terms)
    ideal[0] = torch.nan
    return torch.nn.functional.pad(terms, (1, 0)).to(device), ideal.to(device)


def _ndcg(ranks: PositiveRanks, k: int | None, gain: Gain) -> Tensor:
    # ->  (..., Q)
    has_ideal = ranks.gain is None or ranks.ideal is not None
    if has_ideal and k is not None and k <= TABULATED and not torch.compiler.is_compiling():
        terms, ideal = _discounts(ranks.rank, k)
        if kernels := score_kernels(ranks.rank):
            gains = [_scaled(x, gain) for x in (ranks.gain, ranks.ideal) if x is not None]
            return kernels.rank_scores(ranks.rank, ranks.relevant, k, (terms, ideal), gains)
        rank = ranks.rank if ranks.depth is not None and ranks.depth <= k else ranks.rank * (ranks.rank <= k)
        order = (rank > 0).cumsum(-1)
        if ranks.gain is None or ranks.ideal is None:
            return sum_by_position(terms[rank], order) / ideal[ranks.relevant.clamp(max=k)]
        best = _scaled(ranks.ideal, gain)[..., :k]
        depth = best.shape[-1]  # the most hits of distinct ranks up to k
        table = best.new_zeros(2, *best.shape[:-1], 1 + power_of_two(depth))
        table[0].scatter_add_(-1, order.clamp(max=depth), _scaled(ranks.gain, gain) * terms[rank])
        torch.mul(best, terms[1 : 1 + depth], out=table[1, ..., 1 : 1 + depth])
        reached, ideal = halving_sum(table[..., 1:])
        return reached / ideal  # 0 / 0 for a lone query
    is_hit = ranks.rank > 0 if k is None else ranks.within(k)
    gains = is_hit.double() if ranks.gain is None else _scaled(ranks.gain, gain)
    order = is_hit.cumsum(-1)
    terms = torch.where(is_hit, ranked.discounted(gains, ranks.rank), 0.0)
    reached = sum_by_position(terms, order)
    position = torch.arange(1, 1 + (ranks.rank.shape[-1] if k is None else k), device=ranks.rank.device)
    if ranks.ideal is None:
        ideal = (position <= ranks.relevant.unsqueeze(-1)).double()
    else:
        ideal = _scaled(ranks.ideal, gain)[..., : len(position)]
        position = position[: ideal.shape[-1]]
    return reached / halving_sum(ranked.discounted(ideal, position))  # 0 / 0 for a lone query


def _scaled(gains: Tensor, gain: Gain) -> Tensor:
    return gains if gain == "linear" else torch.exp2(gains) - 1


class NDCG(AtK[K], QueryMetric[Scores]):
    """Mean `ndcg`, optionally cut off at k.

    Args:
        k: Cut-off, or several with a value for each by name; by default all references.
        gain: What a graded relevance g adds before the discount: "linear", g, or "exp2", 2^g - 1.

    >>> NDCG()(torch.tensor([[0.0], [0.1], [5.0], [5.1], [0.3]]), torch.tensor([0, 0, 1, 1, 1]))
    tensor(0.9141, dtype=torch.float64)
    """

    def __init__(
        self,
        k: K = None,  # type: ignore[assignment]
        gain: Gain = "linear",
        gains: Gains | None = None,
        **options: Unpack[RankOptions],
    ) -> None:
        checks.check_choice("gain", gain, GAINS)
        super().__init__(*scores_at(k, ndcg, gain=gain), gains=gains, **options)
