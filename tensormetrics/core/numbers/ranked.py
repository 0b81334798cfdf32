"""Terms of the scores of rankings: what a hit, or a part of one, at a rank adds."""

import torch
from torch import Tensor


def precision_term(hits: Tensor, rank: Tensor) -> Tensor:
    # hits: (...) sum of the hits up to this rank  rank: (...) from 1  ->  (...) float64
    """Return the precision at a rank, which average precision sums over the hits."""
    return hits.double() / rank


def discounted(gain: Tensor, rank: Tensor) -> Tensor:
    # gain: (...) float64  rank: (...) from 1  ->  (...)
    """Return the discounted gain at a rank, which nDCG sums in both of its orders."""
    return gain / torch.log2(1 + rank.double())
