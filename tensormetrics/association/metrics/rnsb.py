"""Relative Negative Sentiment Bias."""

import math
from typing import Any, Literal, overload

import torch
from torch import Tensor
from typing_extensions import Unpack  # torch brings it

from ...core.arguments import checks
from ...core.results.estimates import Estimate
from ..embeddings.query import IndexedQuery
from ..sets import marks, word_sets
from ..sets.word_sets import Vectors, WordSet
from ._logistic import check_estimator, logistic_regression, predict_negative, report, sigmoid
from .base import AssociationOptions, BaseMetric, by_set, by_word


@overload
def rnsb(
    t: Vectors,
    a: Vectors,
    b: Vectors,
    C: float = ...,
    penalize_intercept: bool = ...,
    *,
    per_word: Literal[False] = ...,
) -> Tensor: ...
@overload
def rnsb(
    t: Vectors, a: Vectors, b: Vectors, C: float = ..., penalize_intercept: bool = ..., *, per_word: Literal[True]
) -> tuple[Tensor, Tensor]: ...
@marks.score(range=(0, math.inf))
@torch.no_grad()
def rnsb(
    t: Vectors, a: Vectors, b: Vectors, C: float = 1.0, penalize_intercept: bool = True, *, per_word: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """Measure how unevenly a sentiment classifier distributes negative sentiment over the target words, in nats.

    Shapes: t: (..., T, D); a: (..., A, D); b: (..., B, D), tensors or `WordSet`s -> (...) float64.

    Logistic regression separates the positive words a from the negative words b: v = (w, c) minimizes
    |v|^2 / 2 + C sum_i log(1 + exp(-y_i (w . x_i + c))), with c outside the penalty if `penalize_intercept=False`. A
    Newton step launches about 50 operators on a GPU; the host polls for convergence without synchronization. With
    p(t) = 1 / (1 + exp(w . t + c)) and q = p / sum p, the score is the divergence from uniform, sum q ln(q T): 0 is no
    bias, ln T the maximum. `per_word=True` also returns p (..., T). NaN if 100 Newton steps do not reduce the length
    of the gradient to 1e-10, for an empty set, and for non-finite vectors. No gradient. Errors as in `weat`;
    ValueError for C <= 0. Sweeney & Najafian 2019, doi:10.18653/v1/P19-1162.

    >>> x, y = torch.tensor([[2.0, 1.0], [3.0, 1.0]]), torch.tensor([[1.0, 2.0], [1.0, 3.0]])
    >>> a, b = torch.tensor([[1.0, 0.0], [2.0, 1.0]]), torch.tensor([[0.0, 1.0], [1.0, 1.0]])
    >>> rnsb(torch.cat([x, y]), a, b)
    tensor(0.0878, dtype=torch.float64)
    """
    check_strength(C)
    score, p = _score(t, a, b, C, penalize_intercept)
    return (score, p) if per_word else score


@marks.in_chunks
def _score(t: Vectors, a: Vectors, b: Vectors, C: float, penalize_intercept: bool) -> tuple[Tensor, Tensor]:
    # ->  score (...), p (..., T)
    t, a, b = word_sets.read(t=t, a=a, b=b)
    w, c = logistic_regression(a, b, C, penalize_intercept)
    projections = t.project(w)
    p = t.mask_absent(sigmoid(-projections - c.unsqueeze(-1)) + 0 * projections)  # NaN for infinite projections
    return divergence(p, t), p


def divergence(p: Tensor, t: word_sets.Words) -> Tensor:
    # p: (..., T), any value for masked words  ->  (...)
    p = t.by_word(p if t.counts is None else p.where(t.weights > 0, 0))
    if t.counts is None:
        q = p / p.sum(-1, keepdim=True)
        return torch.xlogy(q, q * float(p.shape[-1])).sum(-1)
    q = p / (p * t.weights).sum(-1, keepdim=True)
    size = t.weights.sum(-1)
    return (t.weights * torch.xlogy(q, q * size.unsqueeze(-1))).sum(-1).where(size > 0, torch.nan)


def check_strength(C: float) -> None:
    checks.check_number("C", C, "a number > 0", lambda x: x > 0)


def _hold_out_fifth(keys: Tensor, mask: Tensor | None) -> Tensor:
    # keys: (I, W)  mask: (..., 1, W)  ->  (..., I, W), False for the fifth of valid words with the smallest keys
    mask = torch.ones_like(keys, dtype=torch.bool) if mask is None else mask
    rank = keys.masked_fill(~mask, torch.inf).argsort(-1).argsort(-1)
    return mask & (rank >= (2 * mask.sum(-1, keepdim=True) + 5) // 10)


class RNSB(BaseMetric):
    """Relative negative sentiment bias; see `rnsb`. A word of several target sets counts once.

    Args:
        C: Inverse strength of the penalty of the logistic regression.
        penalize_intercept: Whether the penalty includes the intercept.
        holdout: True excludes a fifth of the words of each attribute set from the fit, others in each iteration.
        random_state: Seed of these words, None is 0.
        n_iterations: Number of fits, over which scores and probabilities are means.
        print_model_evaluation: Whether run_query prints the quality on held-out words, if need be of a separate fit.
        estimator: Class with fit, predict_proba and classes_ in place of logistic regression; runs on the host.
        estimator_params: Arguments of its constructor.

    >>> vectors = torch.tensor([[2.0, 1], [3, 1], [1, 2], [1, 3], [1, 0], [0, 1]])
    >>> model = WordEmbeddingModel.from_tensor(vectors, ["he", "him", "she", "her", "work", "home"])
    >>> query = Query([["he", "him"], ["she", "her"]], [["work"], ["home"]])  # targets; positive and negative words
    >>> round(float(RNSB().run_query(query, model)), 3)
    0.047
    """

    is_differentiable = False
    metric_template = ("n", 2)
    metric_name = "Relative Negative Sentiment Bias"
    metric_short_name = "RNSB"
    function = staticmethod(rnsb)
    function_options = ("C", "penalize_intercept")
    forms = ("distinct", 2)
    no_score = "100 Newton steps did not fit the classifier, or a vector is not finite"

    def __init__(
        self,
        *,
        C: float = 1.0,
        penalize_intercept: bool = True,
        holdout: bool | None = None,
        random_state: int | None = None,
        n_iterations: int = 1,
        print_model_evaluation: bool = False,
        estimator: type | None = None,
        estimator_params: dict[str, Any] | None = None,
        **kwargs: Unpack[AssociationOptions],
    ) -> None:
        super().__init__(**kwargs)
        check_strength(C)
        checks.check_flag("penalize_intercept", penalize_intercept)
        checks.check_flag("print_model_evaluation", print_model_evaluation)
        if holdout is not None:
            checks.check_flag("holdout", holdout)
        if random_state is not None:
            checks.check_int("random_state", random_state, 0)
        check_estimator(estimator, estimator_params)
        if self.replicates and (holdout or estimator):
            got = "holdout=True" if holdout else "an estimator"
            raise ValueError(f"replicates: got {self.replicates} with {got}, wanted 0")
        self.C, self.penalize_intercept = C, penalize_intercept
        self.holdout, self.random_state = holdout, random_state
        self.n_iterations = checks.check_int("n_iterations", n_iterations, 1)
        self.print_model_evaluation, self.estimator = print_model_evaluation, estimator
        self.estimator_params = dict(estimator_params) if estimator_params else None

    @property
    def batched(self) -> bool:
        return not (self.holdout or self.estimator or self.print_model_evaluation)

    def measure(self, t: Vectors, a: Vectors, b: Vectors) -> dict[str, Tensor]:
        if not self.holdout:
            score, p = self._fit_and_score(t, a, b)
        else:
            t, a, b = (WordSet.of(word_set).repeated() for word_set in (t, a, b))
            masks = self._fit_masks(a, b, self.n_iterations)
            score, p = self._fit_and_score(t, *(s._replace(mask=m) for s, m in zip((a, b), masks, strict=True)))
            score, p = score.mean(-1), p.mean(-2)
        return {"rnsb": score, "negative_sentiment_probabilities": p}

    def evaluate(self, *sets: Vectors) -> Estimate:
        if self.print_model_evaluation:
            print(self._evaluation(*map(WordSet.of, sets[1:])))
        return super().evaluate(*sets)

    def score(self, *sets: Any) -> Tensor:
        return self.measure(*sets)["rnsb"]  # by the options of the fit

    @torch.no_grad()
    def _fit_and_score(self, t: Vectors, a: Vectors, b: Vectors) -> tuple[Tensor, Tensor]:
        # ->  score (...), p (..., T)
        if not self.estimator:
            return _score(t, a, b, self.C, self.penalize_intercept)
        t, a, b = word_sets.read(t=t, a=a, b=b)
        p = t.mask_absent(predict_negative(t, a, b, self.estimator, self.estimator_params or {}))
        return divergence(p, t), p

    def _evaluation(self, a: WordSet, b: WordSet) -> str:
        # a: (A, D)  b: (B, D)
        if self.holdout is False:
            return "RNSB: no words are set aside to evaluate the classifier (holdout=False)"
        sets = a.repeated(), b.repeated()
        masks = self._fit_masks(*sets, self.n_iterations if self.holdout else 1)
        fitted = (s._replace(mask=m) for s, m in zip(sets, masks, strict=True))
        _, p = self._fit_and_score(torch.cat([a.values, b.values])[None], *fitted)
        is_held_out = torch.cat([~m if s.mask is None else s.mask & ~m for s, m in zip(sets, masks, strict=True)], -1)
        negative = torch.arange(p.shape[-1], device=p.device) >= len(a.values)
        return report((p > 0.5)[is_held_out].tolist(), negative.expand_as(is_held_out)[is_held_out].tolist())

    def _fit_masks(self, a: WordSet, b: WordSet, iterations: int) -> tuple[Tensor, Tensor]:
        # a: (..., 1, A, D)  b: (..., 1, B, D)  ->  (..., iterations, A), (..., iterations, B)
        """Return masks of the attribute words for the fits, the same on all devices."""
        sizes = a.values.shape[-2], b.values.shape[-2]
        seeds = range(self.random_state or 0, (self.random_state or 0) + iterations)
        draws = [torch.Generator().manual_seed(seed) for seed in seeds]
        keys = [torch.rand(sum(sizes), generator=draw, dtype=torch.float32, device="cpu") for draw in draws]
        a_keys, b_keys = torch.stack(keys).to(a.values.device).split(sizes, -1)
        return _hold_out_fifth(a_keys, a.mask), _hold_out_fifth(b_keys, b.mask)

    def describe(self, values: dict[str, Tensor], index: IndexedQuery) -> dict[str, Any]:
        probabilities: dict[str, float] = {}
        for words, word_values in by_set(index.row_words[0], values["negative_sentiment_probabilities"]):
            new = by_word(words, word_values)  # NaN for a word of an earlier set
            probabilities |= {word: p for word, p in new.items() if word not in probabilities}
        total = sum(probabilities.values())
        return {
            **values,
            "negative_sentiment_probabilities": probabilities,
            "negative_sentiment_distribution": {word: p / total for word, p in probabilities.items()},
        }
