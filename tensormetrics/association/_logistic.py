"""Logistic regression of two word sets, by Newton's method, every problem of a batch at once."""

from typing import NamedTuple

import torch
from torch import Tensor

from ._sets import Words, dot, join, times, weighted_sum

MOST_STEPS, TOLERANCE = 100, 1e-10
# Multiples of a Newton step, of which the one with the least loss is taken. Where no margin moves by more than r, the
# curvature grows by at most e^r, and a step that long lowers the loss if e^r - r - 1 < r^2: up to 1.79. So the shortest
# does so if the whole step moves no margin by more than FARTHEST; and NEAR the minimum the whole step is as it should.
LENGTHS = (1.0, 2.0, 4.0, 8.0, 0.5, 0.25, 0.125)
NEAR, FARTHEST = 0.5, 14.0


def logistic_regression(a: Words, b: Words, C: float, penalize_intercept: bool) -> tuple[Tensor, Tensor]:
    # a: the class +1  b: the class -1  ->  w (..., D), c (...), NaN where the gradient does not vanish
    """Minimise |v|^2 / 2 + C sum_i log(1 + exp(-y_i (w . x_i + c))), v = (w, c), or |w|^2 in place of |v|^2."""
    x, y = _labelled(a, b)
    counts = a.count, b.count
    usable = torch.minimum(*(count.sum(-1) for count in counts)) > 0
    weight = C * join(*counts).where(usable.unsqueeze(-1), torch.nan)
    dual = x.shape[-2] < x.shape[-1]
    form = (_Dual if dual else _Primal).of(x, y, penalize_intercept)
    against = x.new_zeros(torch.broadcast_shapes(x.shape[:-1], weight.shape))  # minus the margins
    unknowns = x.new_zeros(*against.shape[:-1], x.shape[-2] if dual else x.shape[-1])
    for _ in range(MOST_STEPS):
        wrong = torch.sigmoid(against)
        pull = weight * wrong
        descent, products = form.descent(unknowns, pull)
        going = dot(descent, products) > TOLERANCE**2
        if x.device.type == "cpu" and not going.any():  # elsewhere, to look would be to wait
            break
        step, change = form.step(descent, torch.addcmul(pull, pull, wrong, value=-1))
        length = (going * _length(form, unknowns, against, weight, step, change)).unsqueeze(-1)
        unknowns = torch.addcmul(unknowns, length, step)
        against = torch.addcmul(against, length, change, value=-1)
    solution = form.solution(unknowns, against).where(~going.unsqueeze(-1), torch.nan)
    return solution[..., :-1], solution[..., -1]


def _length(
    form: "_Primal | _Dual", unknowns: Tensor, against: Tensor, weight: Tensor, step: Tensor, change: Tensor
) -> Tensor:
    # ->  (...)
    """How far to go along the step, by which minus the margins change by -change."""
    farthest = torch.linalg.vector_norm(change, ord=torch.inf, dim=-1)
    if change.device.type == "cpu" and not (farthest > NEAR).any():
        return torch.ones_like(farthest)
    lengths = change.new_tensor(LENGTHS) * (FARTHEST / farthest).clamp(max=1).unsqueeze(-1)  # (..., lengths)
    losses = torch.nn.functional.softplus(against.unsqueeze(-2) - lengths.unsqueeze(-1) * change.unsqueeze(-2))
    products = form.metric(step, change)
    slope, bend = (dot(v, products).unsqueeze(-1) for v in (unknowns, step))
    total = dot(losses, weight.unsqueeze(-2)) + lengths * (slope + lengths * bend / 2)
    best = lengths.take_along_dim(total.argmin(-1, keepdim=True), -1).squeeze(-1)
    return best.where(farthest > NEAR, 1)


class _Primal(NamedTuple):
    """The unknowns are v."""

    x: Tensor  # (..., n, D + 1)
    penalty: Tensor  # (D + 1,)

    @classmethod
    def of(cls, x: Tensor, y: Tensor, penalize_intercept: bool) -> "_Primal":
        penalty = x.new_ones(x.shape[-1])
        penalty[-1] = penalize_intercept
        return cls(x, penalty)

    def descent(self, v: Tensor, pull: Tensor) -> tuple[Tensor, Tensor]:
        # ->  minus the gradient, and that whose product with it is its squared length
        descent = weighted_sum(pull, self.x) - self.penalty * v
        return descent, descent

    def step(self, descent: Tensor, curvature: Tensor) -> tuple[Tensor, Tensor]:
        # ->  of the unknowns, of the margins
        hessian = self.x.mT @ (curvature.unsqueeze(-1) * self.x)
        step = _solved(hessian, self.penalty, descent.unsqueeze(-1)).squeeze(-1)
        return step, times(self.x, step)

    def metric(self, step: Tensor, change: Tensor) -> Tensor:
        # ->  that whose product with unknowns is the product of v with the step, as the penalty counts it
        return self.penalty * step

    def solution(self, v: Tensor, against: Tensor) -> Tensor:
        # ->  (..., D + 1), v
        return v


class _Dual(NamedTuple):
    """The unknowns are weights of the words, whose combination v is, for fewer words than dimensions."""

    x: Tensor  # (..., n, D + 1)
    y: Tensor  # (n,)
    gram: Tensor  # (..., n, n)
    penalize_intercept: bool

    @classmethod
    def of(cls, x: Tensor, y: Tensor, penalize_intercept: bool) -> "_Dual":
        return cls(x, y, x @ x.mT, penalize_intercept)

    def descent(self, weights: Tensor, pull: Tensor) -> tuple[Tensor, Tensor]:
        descent = pull - weights
        return descent, times(self.gram, descent)

    def step(self, descent: Tensor, curvature: Tensor) -> tuple[Tensor, Tensor]:
        system, one = curvature.unsqueeze(-1) * self.gram, torch.ones_like(self.y)
        if self.penalize_intercept:
            step = _solved(system, one, descent.unsqueeze(-1)).squeeze(-1)
            return step, times(self.gram, step)
        # A free intercept moves as far as keeps the weights of the two classes equal.
        step, answer = _solved(system, one, torch.stack([descent, curvature * self.y], -1)).unbind(-1)
        shift = (dot(step, self.y) / dot(answer, self.y)).unsqueeze(-1)
        step = step - shift * answer
        return step, times(self.gram, step) + shift * self.y

    def metric(self, step: Tensor, change: Tensor) -> Tensor:
        return change  # a free intercept has no part in it, as the weights of the two classes are equal

    def solution(self, weights: Tensor, against: Tensor) -> Tensor:
        v = weighted_sum(weights, self.x)
        if not self.penalize_intercept:  # the margins have it beside what v gives them
            v[..., -1] -= ((against + times(self.gram, weights)) * self.y).mean(-1)
        return v


def _labelled(a: Words, b: Words) -> tuple[Tensor, Tensor]:
    # ->  x (..., n, D + 1), the words with a 1 for the intercept, times their labels y (n,)
    lead = torch.broadcast_shapes(a.vectors.shape[:-2], b.vectors.shape[:-2])
    x = torch.cat([s.expand(*lead, *s.shape[-2:]) for s in (a.vectors, -b.vectors)], -2)
    y = torch.cat([x.new_ones(a.vectors.shape[-2]), x.new_full(b.vectors.shape[-2:-1], -1)])
    return torch.cat([x, y.unsqueeze(-1).expand(*x.shape[:-1], 1)], -1), y


def _solved(matrix: Tensor, diagonal: Tensor, right: Tensor) -> Tensor:
    # matrix: (..., k, k), changed  diagonal: (k,), to be added to it  right: (..., k, m)  ->  (..., k, m)
    matrix.diagonal(dim1=-2, dim2=-1).add_(diagonal)
    return torch.linalg.solve_ex(matrix, right).result
