"""Batched logistic regression of two word sets by Newton's method.

Also classifiers of other libraries, and a report of the quality of predictions.
"""

import inspect
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..._convergence import Convergence
from ..sets.word_sets import Words, dot, join, matvec, weighted_sum

MAX_STEPS, TOLERANCE = 100, 1e-10
# If no margin moves by more than r, the curvature grows by at most e^r, and a Newton step of that length lowers the
# loss if e^r - r - 1 < r^2: up to 1.79. Steps up to FULL_STEP are therefore taken in full; longer steps are multiplied
# by the power of two that lowers the loss most. An eighth lowers it if the full step moves no margin by more than
# MAX_STEP.
FULL_STEP, MAX_STEP = 1.5, 14.0


def logistic_regression(a: Words, b: Words, C: float, penalize_intercept: bool) -> tuple[Tensor, Tensor]:
    # a: the class +1  b: the class -1  ->  w (..., D), c (...), NaN if the gradient does not vanish
    """Minimize |v|^2 / 2 + C sum_i log(1 + exp(-y_i (w . x_i + c))), v = (w, c), or |w|^2 instead of |v|^2."""
    return fit_margins(*_labelled(a, b), _weights(a, b, C), penalize_intercept)


def fit_margins(
    x: Tensor, y: Tensor, weight: Tensor, penalize_intercept: bool, tolerance: float = TOLERANCE
) -> tuple[Tensor, Tensor]:
    # x: (..., n, D), rows times labels  y: (..., n), labels 1 or -1  weight: (..., n), C times counts
    # ->  w (..., D), c (...), NaN if the gradient is longer than the tolerance
    dual = x.shape[-2] <= x.shape[-1]
    problem = (_Dual if dual else _Primal).of(x, y, penalize_intercept)
    against = x.new_zeros(torch.broadcast_shapes(x.shape[:-1], weight.shape))  # minus the margins
    unknowns = x.new_zeros(*against.shape[:-1], x.shape[-2] if dual else x.shape[-1] + 1)
    on_host = x.device.type == "cpu"
    convergence = Convergence()
    for _ in range(MAX_STEPS):
        wrong = sigmoid(against)
        pull = weight * wrong
        descent, products = problem.descent(unknowns, pull)
        square = dot(descent, products)
        is_active = square > tolerance**2
        if convergence.is_reached(is_active.any() if is_active.ndim else is_active):
            break
        step, change = problem.step(descent, torch.addcmul(pull, pull, wrong, value=-1))
        length = _length(problem, unknowns, against, weight, step, change)
        if length is None and on_host and square.ndim == 0:
            unknowns, against = unknowns + step, against - change
            continue
        length = (is_active.to(step.dtype) if length is None else is_active * length).unsqueeze(-1)
        unknowns = torch.addcmul(unknowns, length, step)
        against = torch.addcmul(against, length, change, value=-1)
    w, c = problem.solution(unknowns, against)
    converged = square <= tolerance**2  # false for NaN as well
    return w.where(converged.unsqueeze(-1), torch.nan), c.where(converged, torch.nan)


def _length(
    problem: "_Primal | _Dual", unknowns: Tensor, against: Tensor, weight: Tensor, step: Tensor, change: Tensor
) -> Tensor | None:
    # ->  (...)
    """Return the length of the step, which changes the negated margins by -change; None for full steps only."""
    farthest = torch.linalg.vector_norm(change, ord=torch.inf, dim=-1)
    if change.device.type == "cpu" and not (
        farthest.item() > FULL_STEP if farthest.ndim == 0 else (farthest > FULL_STEP).any()
    ):
        return None
    powers = 2.0 ** torch.arange(-3, 4, device=change.device, dtype=change.dtype)
    lengths = powers / (farthest / MAX_STEP).clamp(min=1).unsqueeze(-1)  # (..., powers)
    losses = torch.nn.functional.softplus(against.unsqueeze(-2) - lengths.unsqueeze(-1) * change.unsqueeze(-2))
    products = problem.metric(step, change)
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
        penalty[-1] = penalize_intercept
        return cls(torch.cat([x, y.unsqueeze(-1).expand(*x.shape[:-1], 1)], -1), penalty)

    def descent(self, v: Tensor, pull: Tensor) -> tuple[Tensor, Tensor]:
        # ->  the negated gradient, and the vector whose product with it is its squared length
        descent = weighted_sum(pull, self.x) - self.penalty * v
        return descent, descent

    def step(self, descent: Tensor, curvature: Tensor) -> tuple[Tensor, Tensor]:
        # ->  steps of the unknowns and of the margins
        hessian = self.x.mT @ (curvature.unsqueeze(-1) * self.x)
        hessian.diagonal(dim1=-2, dim2=-1).add_(self.penalty)
        step = torch.linalg.solve_ex(hessian, descent.unsqueeze(-1)).result.squeeze(-1)
        return step, matvec(self.x, step)

    def metric(self, step: Tensor, change: Tensor) -> Tensor:
        # ->  the vector whose product with unknowns is the penalized product of v with the step
        return self.penalty * step

    def solution(self, v: Tensor, against: Tensor) -> tuple[Tensor, Tensor]:
        # ->  w (..., D), c (...)
        return v[..., :-1], v[..., -1]


class _Dual(NamedTuple):
    """Dual problem, for no more words than dimensions: the unknowns are weights of words that combine to v."""

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
        # The step of a free intercept keeps the weights of the two classes equal.
        right = torch.stack([descent, curvature * self.y], -1)
        step, answer = torch.linalg.solve_ex(system, right).result.unbind(-1)
        shift = (dot(step, self.y) / dot(answer, self.y)).unsqueeze(-1)
        step = step - shift * answer
        return step, matvec(self.gram, step) + shift * self.y

    def metric(self, step: Tensor, change: Tensor) -> Tensor:
        return change  # no term for a free intercept, as the weights of the two classes are equal

    def solution(self, weights: Tensor, against: Tensor) -> tuple[Tensor, Tensor]:
        w, c = weighted_sum(weights, self.x), dot(weights, self.y)
        if not self.penalize_intercept:  # the margins contain it in addition to the part of the weights
            c = c - ((against + matvec(self.gram, weights)) * self.y).mean(-1)
        return w, c


def _labelled(a: Words, b: Words) -> tuple[Tensor, Tensor]:
    # ->  x (..., n, D), words times labels, and labels y (n,)
    x = join(a.vectors, -b.vectors, dim=-2)
    y = torch.cat([x.new_ones(a.vectors.shape[-2]), x.new_full(b.vectors.shape[-2:-1], -1)])
    return x, y


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


def estimated(t: Words, a: Words, b: Words, estimator: type, params: dict[str, Any]) -> Tensor:
    # ->  (..., T), NaN if a class has no word
    """Predict the probability of class -1 (words of b) with a classifier on the host, query by query."""
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
    """Fit a classifier to rows with counts, or with weights if words have several rows."""
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
        correct = sum(g == w == label for g, w in zip(predicted, truth, strict=True))
        precision, recall = correct / max(predicted.count(label), 1), correct / max(truth.count(label), 1)
        f1 = 2 * correct / max(predicted.count(label) + truth.count(label), 1)
        lines.append(f"{name:>10}{precision:>10.3f}{recall:>10.3f}{f1:>10.3f}{truth.count(label):>10}")
    return "\n".join(lines)
