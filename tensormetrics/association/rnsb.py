"""Relative Negative Sentiment Bias."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import _checks
from . import _sets
from ._call import check_flag
from ._logistic import logistic_regression
from .base_metric import BaseMetric, by_word
from .query import IndexedQuery


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
    check_strength(C)
    t, a, b = _sets.read(t=(t, t_mask), a=(a, a_mask), b=(b, b_mask))
    w, c = logistic_regression(a, b, C, penalize_intercept)
    p = torch.sigmoid(-t.project(w) - c.unsqueeze(-1))
    q = p / (p * t.count).sum(-1, keepdim=True)
    size = t.size()
    score = (t.count * torch.xlogy(q, q * size.unsqueeze(-1))).sum(-1).where(size > 0, torch.nan)
    return (score, t.present(p)) if per_word else score


def check_strength(C: float) -> None:
    if not C > 0:
        raise ValueError(f"C: got {C!r}, wanted a number > 0")


def _without_a_fifth(keys: Tensor, mask: Tensor | None) -> Tensor:
    # keys: (I, W)  mask: (..., W)  ->  (..., I, W): the present words but for those with the smallest keys
    mask = torch.ones_like(keys, dtype=torch.bool) if mask is None else mask.unsqueeze(-2)
    rank = keys.masked_fill(~mask, torch.inf).argsort(-1).argsort(-1)
    return mask & (rank >= (2 * mask.sum(-1, keepdim=True) + 5) // 10)


class RNSB(BaseMetric):
    """See `rnsb`; a word of several target sets counts once.

    `holdout=True` leaves a fifth of the attribute words of either side out of the fit, others in each of
    `n_iterations`, by `random_state`; scores and probabilities are means over these.
    """

    metric_template = ("n", 2)
    metric_name = "Relative Negative Sentiment Bias"
    metric_short_name = "RNSB"
    forms = ("distinct", 2)
    by_position = False
    result_keys = {"rnsb": float, "negative_sentiment_probabilities": dict, "negative_sentiment_distribution": dict}

    def __init__(
        self,
        *,
        C: float = 1.0,
        penalize_intercept: bool = True,
        holdout: bool | None = None,
        random_state: int | None = None,
        n_iterations: int = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_strength(C)
        check_flag("penalize_intercept", penalize_intercept)
        if holdout is not None:
            check_flag("holdout", holdout)
        if random_state is not None:
            _checks.integer_at_least("random_state", random_state, 0)
        self.C = C
        self.penalize_intercept = penalize_intercept
        self.holdout = holdout
        self.random_state = random_state
        self.n_iterations = _checks.integer_at_least("n_iterations", n_iterations, 1)

    def measure(
        self,
        t: Tensor,
        a: Tensor,
        b: Tensor,
        *,
        t_mask: Tensor | None = None,
        a_mask: Tensor | None = None,
        b_mask: Tensor | None = None,
    ) -> dict[str, Tensor]:
        if self.holdout:
            keys = self._keys(a.shape[-2], b.shape[-2]).to(a.device).split([a.shape[-2], b.shape[-2]], -1)
            a_mask, b_mask = (_without_a_fifth(k, mask) for k, mask in zip(keys, (a_mask, b_mask), strict=True))
            t, a, b = (side.unsqueeze(-3) for side in (t, a, b))
            t_mask = None if t_mask is None else t_mask.unsqueeze(-2)
        score, p = rnsb(
            t, a, b, self.C, self.penalize_intercept, t_mask=t_mask, a_mask=a_mask, b_mask=b_mask, per_word=True
        )
        if self.holdout:
            score, p = score.mean(-1), p.mean(-2)
        return {"rnsb": score, "negative_sentiment_probabilities": p}

    def score_function(self) -> Callable[..., Tensor]:
        return functools.partial(rnsb, C=self.C, penalize_intercept=self.penalize_intercept)

    def _keys(self, a: int, b: int) -> Tensor:
        # ->  (n_iterations, a + b) random, the same on all devices
        seed = self.random_state or 0
        generators = (torch.Generator().manual_seed(seed + i) for i in range(self.n_iterations))
        return torch.stack([torch.rand(a + b, generator=generator) for generator in generators])

    def describe(self, values: dict[str, np.ndarray], index: IndexedQuery) -> dict[str, Any]:
        targets = index.row_words[0]
        of_set = values["negative_sentiment_probabilities"].reshape(len(targets), -1)
        probabilities: dict[str, np.float64] = {}
        for words, of_words in zip(targets, of_set, strict=True):  # NaN stands where a word was before
            new = by_word(words, of_words)
            probabilities |= {word: p for word, p in new.items() if word not in probabilities}
        total = sum(probabilities.values())
        return {
            "rnsb": np.float64(values["rnsb"]),
            "negative_sentiment_probabilities": probabilities,
            "negative_sentiment_distribution": {word: p / total for word, p in probabilities.items()},
        }
