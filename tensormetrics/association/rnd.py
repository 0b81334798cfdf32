"""Relative Norm Distance."""

import torch
from torch import Tensor

from .. import _checks
from . import _sets


def rnd(
    x: Tensor,
    y: Tensor,
    a: Tensor,
    distance: str = "norm",
    *,
    x_mask: Tensor | None = None,
    y_mask: Tensor | None = None,
    a_mask: Tensor | None = None,
    per_word: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    # x: (..., X, D)  y: (..., Y, D)  a: (..., A, D)  masks: (..., X), (..., Y), (..., A)  ->  (...) float64
    """How much nearer the attribute words lie to the mean of x than to the mean of y: mean_a d(a, x) - d(a, y).

    `distance` is "norm" (Euclidean), "cos" (1 - cosine) or "cos_similarity" (the cosine itself, so of opposite sign).
    Negative: nearer to x; 0: no difference; swapping x and y changes the sign. `per_word=True` also returns the
    differences (..., A). Masks, empty sets, zero vectors and errors as in `weat`; ValueError for another distance.
    Garg, Schiebinger, Jurafsky & Zou 2018, doi:10.1073/pnas.1720347115.
    """
    _checks.one_of("distance", distance, ("norm", "cos", "cos_similarity"))
    x, y, a = _sets.read(x=(x, x_mask), y=(y, y_mask), a=(a, a_mask))
    if distance == "norm":
        to_x, to_y = (torch.linalg.vector_norm(a.vectors - s.mean().unsqueeze(-2), dim=-1) for s in (x, y))
        difference = to_x - to_y
    else:
        nearer = a.unit().project(_sets.unit(x.mean()) - _sets.unit(y.mean()))
        difference = nearer if distance == "cos_similarity" else -nearer
    score = a.average(difference)
    return (score, a.present(difference)) if per_word else score
