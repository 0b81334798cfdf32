"""Average precision."""

import torch
from torch import Tensor

from ._order import halving_sum
from .ranks import PositiveRanks


def average_precision_at_r(ranks: PositiveRanks) -> Tensor:
    # rank: (..., Q, P)  relevant: (..., Q)  ->  (..., Q) float64
    """Average precision cut at the number of relevant references: (1/R) sum of j / r_j over r_j <= R.

    In [0, 1], higher is better; NaN for a lone query (R = 0). Musgrave, Belongie and Lim, A Metric Learning Reality
    Check, 2020, DOI 10.1007/978-3-030-58595-2_41; the mean over queries is MAP@R.
    """
    found = ranks.within(ranks.relevant.unsqueeze(-1))
    order = found.cumsum(-1)
    terms = torch.where(found, order.double() / ranks.rank, 0.0)
    # Term j goes to place j, so that neither padding nor the device decides how the sum is rounded.
    terms = torch.zeros_like(terms).scatter_add_(-1, (order - 1).clamp(min=0), terms)
    return halving_sum(terms) / ranks.relevant
