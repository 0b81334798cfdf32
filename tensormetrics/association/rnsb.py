"""Relative Negative Sentiment Bias."""

import torch
from torch import Tensor

from . import _sets
from ._logistic import logistic_regression


@torch.no_grad()
def rnsb(
    t: Tensor,
    a: Tensor,
    b: Tensor,
    C: float = 1.0,
    penalize_intercept: bool = True,
    *,
    t_mask: Tensor | None = None,
    a_mask: Tensor | None = None,
    b_mask: Tensor | None = None,
    per_word: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    # t: (..., T, D)  a: (..., A, D)  b: (..., B, D)  masks: (..., T), (..., A), (..., B)  ->  (...) float64
    """How unevenly a classifier of sentiment spreads negative sentiment over the target words, in nats.

    Logistic regression tells the positive words a from the negative words b: v = (w, c) minimises
    |v|^2 / 2 + C sum_i log(1 + exp(-y_i (w . x_i + c))), with c outside the penalty if `penalize_intercept=False`.
    With p(t) = 1 / (1 + exp(w . t + c)) and q = p / sum p, the score is the divergence from uniform, sum q ln(q T):
    0 is no bias, ln T the most. `per_word=True` also returns p (..., T). NaN where 100 Newton steps do not bring the
    largest gradient to 1e-10, and for an empty set. No gradient. Masks and errors as in `weat`; ValueError for
    C <= 0. Sweeney & Najafian 2019, doi:10.18653/v1/P19-1162.
    """
    if not C > 0:
        raise ValueError(f"C: got {C!r}, wanted a number > 0")
    t, a, b = _sets.read(t=(t, t_mask), a=(a, a_mask), b=(b, b_mask))
    w, c = logistic_regression(a, b, C, penalize_intercept)
    p = torch.sigmoid(-t.project(w) - c.unsqueeze(-1))
    q = p / (p * t.count).sum(-1, keepdim=True)
    size = t.size()
    score = (t.count * torch.xlogy(q, q * size.unsqueeze(-1))).sum(-1).where(size > 0, torch.nan)
    return (score, t.present(p)) if per_word else score
