"""Logistic regression of two word sets, by Newton's method with step halving, every problem of a batch at once."""

import torch
from torch import Tensor

from ._sets import Words, join, times, weighted_sum

MOST_STEPS, MOST_HALVINGS, TOLERANCE = 100, 12, 1e-10


def logistic_regression(a: Words, b: Words, C: float, penalize_intercept: bool) -> tuple[Tensor, Tensor]:
    # a: the class +1  b: the class -1  ->  w (..., D), c (...), NaN where the gradient does not vanish
    """Minimise |v|^2 / 2 + C sum_i log(1 + exp(-y_i (w . x_i + c))), v = (w, c), or |w|^2 in place of |v|^2."""
    x, y, count = _labelled(a, b)
    # w is a combination of the words: where they are no more than the dimensions, its weights are the unknowns. Either
    # way margins are forward @ v, and at the minimum the penalised v equals _back(C y sigmoid(-y margin)).
    dual = x.shape[-2] <= x.shape[-1]
    forward = torch.cat([x @ x.mT if dual else x, x.new_ones(*x.shape[:-1], 1)], -1)
    penalty = torch.cat([x.new_ones(forward.shape[-1] - 1), x.new_full((1,), float(penalize_intercept))])
    lead = torch.broadcast_shapes(x.shape[:-2], count.shape[:-1])
    v = x.new_zeros(*lead, forward.shape[-1])
    margin = x.new_zeros(*lead, len(y))
    for _ in range(MOST_STEPS):
        wrong = torch.sigmoid(-y * margin)
        residual = penalty * v - _back((C * count * y * wrong).unsqueeze(-1), x, dual).squeeze(-1)
        steepest = _weights(residual, x, dual).abs().amax(-1)
        if x.device.type == "cpu" and not (steepest > TOLERANCE).any():  # elsewhere, to look would be to wait
            break
        curvature = C * count * wrong * (1 - wrong)
        system = _back(curvature.unsqueeze(-1) * forward, x, dual) + penalty.diag()
        step = -torch.linalg.solve_ex(system, residual.unsqueeze(-1)).result.squeeze(-1)
        step = step.where((steepest > TOLERANCE).unsqueeze(-1), 0)
        change = times(forward, step)
        # The penalty of v + length * step is quadratic in the length.
        conjugate = penalty * (torch.cat([change - step[..., -1:], step[..., -1:]], -1) if dual else step)
        length = _step_length(y, count * C, margin, change, (v * conjugate).sum(-1), (step * conjugate).sum(-1))
        v, margin = v + length * step, margin + length * change
    found = (steepest <= TOLERANCE) & (a.size() > 0) & (b.size() > 0)
    solution = _weights(v, x, dual).where(found.unsqueeze(-1), torch.nan)
    return solution[..., :-1], solution[..., -1]


def _step_length(y: Tensor, weight: Tensor, margin: Tensor, change: Tensor, slant: Tensor, bend: Tensor) -> Tensor:
    # margin, change: (..., n)  slant, bend: (...)  ->  (..., 1), the first of 1, 1/2, 1/4, ... that descends enough
    length = 0.5 ** torch.arange(MOST_HALVINGS, dtype=y.dtype, device=y.device)
    loss = torch.nn.functional.softplus(-y * margin)
    slope = slant - (weight * y * torch.sigmoid(-y * margin) * change).sum(-1)
    losses = torch.nn.functional.softplus(-y * (margin.unsqueeze(-2) + length.unsqueeze(-1) * change.unsqueeze(-2)))
    gain = (weight.unsqueeze(-2) * (losses - loss.unsqueeze(-2))).sum(-1)
    gain = gain + length * slant.unsqueeze(-1) + length.square() * bend.unsqueeze(-1) / 2
    rounding = 1e-13 * (1 + (weight * loss).sum(-1, keepdim=True))
    enough = gain <= 1e-4 * length * slope.unsqueeze(-1) + rounding
    return length[enough.byte().argmax(-1, keepdim=True)]


def _back(pulls: Tensor, x: Tensor, dual: bool) -> Tensor:
    # pulls: (..., n, k)  ->  (..., n + 1 or D + 1, k)
    return torch.cat([pulls if dual else x.mT @ pulls, pulls.sum(-2, keepdim=True)], -2)


def _weights(v: Tensor, x: Tensor, dual: bool) -> Tensor:
    # ->  (..., D + 1), the combination of the words that v stands for
    return torch.cat([weighted_sum(v[..., :-1], x), v[..., -1:]], -1) if dual else v


def _labelled(a: Words, b: Words) -> tuple[Tensor, Tensor, Tensor]:
    # ->  x (..., n, D), y (n,), count (..., n)
    lead = torch.broadcast_shapes(a.vectors.shape[:-2], b.vectors.shape[:-2])
    x = torch.cat([s.vectors.expand(*lead, *s.vectors.shape[-2:]) for s in (a, b)], -2)
    count = join(a.count, b.count)
    y = torch.cat([x.new_ones(a.vectors.shape[-2]), -x.new_ones(b.vectors.shape[-2])])
    return x, y, count
