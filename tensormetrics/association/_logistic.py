"""Logistic regression of two word sets, by Newton's method, every problem of a batch at once."""

import torch
from torch import Tensor

from ._sets import Words, join, times, weighted_sum

MOST_STEPS, TOLERANCE = 100, 1e-10
# Where no margin moves by more than r, the curvature grows by at most e^r, and a Newton step that long lowers the loss
# if e^r - r - 1 < r^2: up to 1.79. Steps cut to less therefore need no search, and near the minimum none is cut.
FARTHEST = 1.5


def logistic_regression(a: Words, b: Words, C: float, penalize_intercept: bool) -> tuple[Tensor, Tensor]:
    # a: the class +1  b: the class -1  ->  w (..., D), c (...), NaN where the gradient does not vanish
    """Minimise |v|^2 / 2 + C sum_i log(1 + exp(-y_i (w . x_i + c))), v = (w, c), or |w|^2 in place of |v|^2."""
    x, y, weight = _labelled(a, b, C)
    # w is a combination of the words: where they are no more than the dimensions, its weights are the unknowns.
    dual = x.shape[-2] <= x.shape[-1]
    columns = x @ x.mT if dual else x
    columns = torch.cat([columns, y.expand(columns.shape[:-1]).unsqueeze(-1)], -1)
    penalty = columns.new_ones(columns.shape[-1])
    penalty[-1] = penalize_intercept
    ridge = penalty.diag()
    unknowns = x.new_zeros(*torch.broadcast_shapes(x.shape[:-2], weight.shape[:-1]), columns.shape[-1])
    against = unknowns.new_zeros(*unknowns.shape[:-1], len(y))  # minus the margins, minus columns @ unknowns
    usable = (a.count.sum(-1) > 0) & (b.count.sum(-1) > 0)
    for _ in range(MOST_STEPS):
        wrong = torch.sigmoid(against)
        pull = weight * wrong
        descent = _back(pull.unsqueeze(-1), x, y, dual).squeeze(-1) - penalty * unknowns
        steepest = torch.linalg.vector_norm(_combined(descent, x, dual), ord=torch.inf, dim=-1)
        going = (steepest > TOLERANCE) & usable
        if x.device.type == "cpu" and not going.any():  # elsewhere, to look would be to wait
            break
        curvature = pull - pull * wrong
        system = _back(curvature.unsqueeze(-1) * columns, x, y, dual) + ridge
        step = torch.linalg.solve_ex(system, descent.unsqueeze(-1)).result.squeeze(-1)
        change = times(columns, step)
        farthest = torch.linalg.vector_norm(change, ord=torch.inf, dim=-1)
        length = (going / (farthest / FARTHEST).clamp(min=1)).unsqueeze(-1)
        unknowns, against = unknowns + length * step, against - length * change
    found = (steepest <= TOLERANCE) & usable
    solution = _combined(unknowns, x, dual).where(found.unsqueeze(-1), torch.nan)
    return solution[..., :-1], solution[..., -1]


def _back(pulls: Tensor, x: Tensor, y: Tensor, dual: bool) -> Tensor:
    # pulls: (..., n, k) at the words  ->  (..., n + 1 or D + 1, k) at the unknowns
    return torch.cat([pulls if dual else x.mT @ pulls, (y @ pulls).unsqueeze(-2)], -2)


def _combined(unknowns: Tensor, x: Tensor, dual: bool) -> Tensor:
    # ->  (..., D + 1), w and c
    return torch.cat([weighted_sum(unknowns[..., :-1], x), unknowns[..., -1:]], -1) if dual else unknowns


def _labelled(a: Words, b: Words, C: float) -> tuple[Tensor, Tensor, Tensor]:
    # ->  x (..., n, D), the words times their labels, y (n,), and what each adds to the loss (..., n)
    lead = torch.broadcast_shapes(a.vectors.shape[:-2], b.vectors.shape[:-2])
    x = torch.cat([s.expand(*lead, *s.shape[-2:]) for s in (a.vectors, -b.vectors)], -2)
    y = torch.cat([x.new_ones(a.vectors.shape[-2]), -x.new_ones(b.vectors.shape[-2])])
    return x, y, C * join(a.count, b.count)
