"""Batched logistic regression of two word sets by Newton's method.

`predict_negative` uses classifiers of other libraries instead, and `report` formats the quality of predictions.
"""

import inspect
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...core.native.convergence import Convergence
from ..sets.word_sets import Words, dot, join, matvec, weighted_sum

MAX_ITERATIONS, TOLERANCE = 100, 1e-10
# The size of a step is the largest change of a margin. If it is r, the curvature grows by at most a factor of e^r, and
# a Newton step lowers the loss if e^r - r - 1 < r^2: up to 1.79. Steps up to FULL_STEP are therefore taken in full;
# longer ones are first shortened to LINE_SEARCH_STEP and then tried at 1/8, 1/4, ..., 8 times their size. An eighth is
# at most 14 / 8 < 1.79, so that one of them lowers the loss.
FULL_STEP, LINE_SEARCH_STEP = 1.5, 14.0


def logistic_regression(a: Words, b: Words, C: float, penalize_intercept: bool) -> tuple[Tensor, Tensor]:
    # a: the class +1  b: the class -1  ->  w (..., D), c (...), NaN if the gradient does not vanish
    """Minimize |v|^2 / 2 + C sum_i log(1 + exp(-y_i (w . x_i + c))) for words x_i of the classes y_i, 1 or -1.

    v = (w, c) if `penalize_intercept`, else v = w.
    """
    x = join(a.vectors, -b.vectors, dim=-2)
    y = x.new_ones(x.shape[-2])
    y[a.vectors.shape[-2] :].fill_(-1)
    return fit_margins(x, y, _weights(a, b, C), penalize_intercept)


def fit_margins(
    x: Tensor, y: Tensor, weight: Tensor, penalize_intercept: bool, tolerance: float = TOLERANCE
) -> tuple[Tensor, Tensor]:
    # x: (..., n, D), rows times labels  y: (..., n), labels 1 or -1  weight: (..., n), C times counts
    # ->  w (..., D), c (...), NaN if the gradient is longer than the tolerance
    dual = x.shape[-2] <= x.shape[-1]
    problem = (_Dual if dual else _Primal).of(x, y, penalize_intercept)
    negated_margins = x.new_zeros(torch.broadcast_shapes(x.shape[:-1], weight.shape))
    unknowns = x.new_zeros(*negated_margins.shape[:-1], x.shape[-2] if dual else x.shape[-1] + 1)
    on_host = x.device.type == "cpu"
    convergence = Convergence()
    for _ in range(MAX_ITERATIONS):
        wrong_probability = sigmoid(negated_margins)
        pull = weight * wrong_probability  # minus the derivative of the loss by each margin
        descent, products = problem.descent(unknowns, pull)
        square = dot(descent, products)
        is_active = square > tolerance**2
        if convergence.is_reached(is_active.any() if is_active.ndim else is_active):
            break
        step, change = problem.step(descent, torch.addcmul(pull, pull, wrong_probability, value=-1))
        length = _step_factor(problem, unknowns, negated_margins, weight, step, change)
        if length is None and on_host and square.ndim == 0:
            unknowns, negated_margins = unknowns + step, negated_margins - change
            continue
        length = (is_active.to(step.dtype) if length is None else is_active * length).unsqueeze(-1)
        unknowns = torch.addcmul(unknowns, length, step)
        negated_margins = torch.addcmul(negated_margins, length, change, value=-1)
    w, c = problem.solution(unknowns, negated_margins)
    failed = ~(square <= tolerance**2)  # true for NaN as well
    return w.masked_fill(failed.unsqueeze(-1), torch.nan), c.masked_fill(failed, torch.nan)


def _step_factor(
    problem: "_Primal | _Dual", unknowns: Tensor, negated_margins: Tensor, weight: Tensor, step: Tensor, change: Tensor
) -> Tensor | None:
    # ->  (...)
    """Return the factor of each step, where `change` is the change of the margins by the full step.

    None on a CPU if all factors are 1.
    """
    farthest = torch.linalg.vector_norm(change, ord=torch.inf, dim=-1)
    if change.device.type == "cpu" and not (
        farthest.item() > FULL_STEP if farthest.ndim == 0 else (farthest > FULL_STEP).any()
    ):
        return None
    powers = 2.0 ** torch.arange(-3, 4, device=change.device, dtype=change.dtype)
    lengths = powers / (farthest / LINE_SEARCH_STEP).clamp(min=1).unsqueeze(-1)  # (..., powers)
    losses = torch.nn.functional.softplus(negated_margins.unsqueeze(-2) - lengths.unsqueeze(-1) * change.unsqueeze(-2))
    products = problem.penalty_times_step(step, change)
    slope, bend = (dot(v, products).unsqueeze(-1) for v in (unknowns, step))
    total = dot(losses, weight.unsqueeze(-2)) + lengths * (slope + lengths * bend / 2)
    best = lengths.gather(-1, total.argmin(-1, keepdim=True)).squeeze(-1)
    return best.where(farthest > FULL_STEP, 1)


def sigmoid(x: Tensor) -> Tensor:
    # torch.sigmoid computes the last few entries of a tensor differently, so a score would depend on its batch
    return (1 + torch.exp(-x)).reciprocal()


class _Primal(NamedTuple):
    """Primal problem: the unknowns are v."""

    x: Tensor  # (..., n, D + 1), y in the last column
    penalty: Tensor  # (D + 1,)

    @classmethod
    def of(cls, x: Tensor, y: Tensor, penalize_intercept: bool) -> "_Primal":
        penalty = x.new_ones(x.shape[-1] + 1)
        penalty[-1:] = penalize_intercept  # a fill; a number assigned to one element would be copied from the host
        return cls(torch.cat([x, y.unsqueeze(-1).expand(*x.shape[:-1], 1)], -1), penalty)

    def descent(self, v: Tensor, pull: Tensor) -> tuple[Tensor, Tensor]:
        # ->  the negated gradient d in the unknowns, and M d, so that d . M d is the squared length of the gradient in
        # v; M is the identity, in the dual problem the Gram matrix
        descent = weighted_sum(pull, self.x) - self.penalty * v
        return descent, descent

    def step(self, descent: Tensor, curvature: Tensor) -> tuple[Tensor, Tensor]:
        # ->  steps of the unknowns and of the margins
        hessian = self.x.mT @ (curvature.unsqueeze(-1) * self.x)
        hessian.diagonal(dim1=-2, dim2=-1).add_(self.penalty)
        step = torch.linalg.solve_ex(hessian, descent.unsqueeze(-1)).result.squeeze(-1)
        return step, matvec(self.x, step)

    def penalty_times_step(self, step: Tensor, change: Tensor) -> Tensor:
        # ->  a vector p, so that unknowns . p is the penalized inner product of v and the step
        return self.penalty * step

    def solution(self, v: Tensor, negated_margins: Tensor) -> tuple[Tensor, Tensor]:
        # ->  w (..., D), c (...)
        return v[..., :-1], v[..., -1]


class _Dual(NamedTuple):
    """Dual problem, for no more words than dimensions: the unknowns are dual coefficients, one for each word.

    The solution is w = coefficients @ x.
    """

    x: Tensor  # (..., n, D)
    y: Tensor  # (..., n)
    gram: Tensor  # (..., n, n), products of words with labels
    identity: Tensor  # (n, n)
    penalize_intercept: bool

    @classmethod
    def of(cls, x: Tensor, y: Tensor, penalize_intercept: bool) -> "_Dual":
        identity = torch.eye(y.shape[-1], dtype=y.dtype, device=y.device)
        return cls(x, y, x @ x.mT + y.unsqueeze(-1) * y.unsqueeze(-2), identity, penalize_intercept)

    def descent(self, weights: Tensor, pull: Tensor) -> tuple[Tensor, Tensor]:
        descent = pull - weights
        return descent, matvec(self.gram, descent)

    def step(self, descent: Tensor, curvature: Tensor) -> tuple[Tensor, Tensor]:
        system = torch.addcmul(self.identity, curvature.unsqueeze(-1), self.gram)
        if self.penalize_intercept:
            step = torch.linalg.solve_ex(system, descent.unsqueeze(-1)).result.squeeze(-1)
            return step, matvec(self.gram, step)
        # With a free intercept, the sums of the dual coefficients of the two classes stay equal.
        right = torch.stack([descent, curvature * self.y], -1)
        step, answer = torch.linalg.solve_ex(system, right).result.unbind(-1)
        shift = (dot(step, self.y) / dot(answer, self.y)).unsqueeze(-1)
        step = step - shift * answer
        return step, matvec(self.gram, step) + shift * self.y

    def penalty_times_step(self, step: Tensor, change: Tensor) -> Tensor:
        return change  # no term for a free intercept, as the sums of the two classes are equal

    def solution(self, weights: Tensor, negated_margins: Tensor) -> tuple[Tensor, Tensor]:
        w, c = weighted_sum(weights, self.x), dot(weights, self.y)
        if not self.penalize_intercept:  # the margins contain it in addition to the part of the coefficients
            c = c - ((negated_margins + matvec(self.gram, weights)) * self.y).mean(-1)
        return w, c


def _weights(a: Words, b: Words, C: float) -> Tensor:
    # ->  (..., n), NaN if a class has no word
    if a.counts is None and b.counts is None:
        return a.vectors.new_full((a.vectors.shape[-2] + b.vectors.shape[-2],), C)
    counts = a.weights, b.weights
    has_words = torch.minimum(*(count.sum(-1) for count in counts)) > 0
    return C * join(*counts).where(has_words.unsqueeze(-1), torch.nan)


def check_estimator(estimator: Any, params: Any) -> None:
    if estimator is not None and not (
        isinstance(estimator, type) and hasattr(estimator, "fit") and hasattr(estimator, "predict_proba")
    ):
        raise TypeError(f"estimator: got {estimator!r}, wanted a class with the methods fit and predict_proba")
    if not isinstance(params, dict | None):
        raise TypeError(f"estimator_params: got a {type(params).__name__}, wanted a dict or None")
    if params and estimator is None:
        raise TypeError("estimator_params: got options without an estimator; write estimator=")


def predict_negative(t: Words, a: Words, b: Words, estimator: type, params: dict[str, Any]) -> Tensor:
    # ->  (..., T), NaN if a class has no word
    """Predict the probability of class -1 (words of b) with a classifier on the host, one for each batch entry."""
    batch_shape = torch.broadcast_shapes(
        *(s.shape[:-1] for words in (t, a, b) for s in (words.vectors[..., 0], words.weights))
    )
    queries = zip(*(_to_host(words, batch_shape) for words in (t, a, b)), strict=True)
    p = np.full((batch_shape.numel(), t.vectors.shape[-2]), np.nan)
    for i, ((words, _), (positive, a_count), (negative, b_count)) in enumerate(queries):
        if a_count.any() and b_count.any():
            model = estimator(**params)
            _fit(model, np.concatenate([positive, negative]), np.concatenate([a_count, -b_count]))
            p[i] = model.predict_proba(words)[:, list(model.classes_).index(-1)]
    return torch.from_numpy(p).view(*batch_shape, -1).to(t.vectors)


def _fit(model: Any, x: np.ndarray, counts: np.ndarray) -> None:
    # x: (N, D)  counts: (N,), negative for class -1
    """Fit a classifier to rows repeated by their counts; fractions, of words with several rows, are weights."""
    y = np.sign(counts).astype(int)
    if (counts == np.round(counts)).all():
        repeats = np.abs(counts).astype(int)
        model.fit(x.repeat(repeats, 0), y.repeat(repeats))
        return
    if "sample_weight" not in inspect.signature(model.fit).parameters:
        name = type(model).__name__
        raise ValueError(
            f"estimator: got {name} for words with several rows, wanted one with fit(sample_weight=...); or write "
            "unit='row'"
        )
    model.fit(x[y != 0], y[y != 0], sample_weight=np.abs(counts[y != 0]))


def _to_host(words: Words, batch_shape: torch.Size) -> list[tuple[np.ndarray, np.ndarray]]:
    # ->  per query (W, D) and (W,)
    vectors = words.vectors.expand(*batch_shape, *words.vectors.shape[-2:]).reshape(-1, *words.vectors.shape[-2:])
    count = words.weights.expand(*batch_shape, words.weights.shape[-1]).reshape(-1, words.weights.shape[-1])
    return list(zip(vectors.cpu().numpy(), count.cpu().numpy(), strict=True))


def report(predicted: Sequence[bool], truth: Sequence[bool]) -> str:
    """Format precision, recall and F1 of both classes; True is negative sentiment."""
    lines = [f"{'':>10}{'precision':>10}{'recall':>10}{'F1':>10}{'words':>10}"]
    for name, label in ("positive", False), ("negative", True):
        correct = sum(p == t == label for p, t in zip(predicted, truth, strict=True))
        precision, recall = correct / max(predicted.count(label), 1), correct / max(truth.count(label), 1)
        f1 = 2 * correct / max(predicted.count(label) + truth.count(label), 1)
        lines.append(f"{name:>10}{precision:>10.3f}{recall:>10.3f}{f1:>10.3f}{truth.count(label):>10}")
    return "\n".join(lines)
