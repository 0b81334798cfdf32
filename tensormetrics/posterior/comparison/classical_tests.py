"""Tests of two classifiers that reports ask for by name; posteriors of the difference say more."""

import torch
from torch import Tensor

from ... import _checks


def mcnemar_p_value(a_right: Tensor, b_right: Tensor) -> Tensor:
    """The exact two-sided test of McNemar: are two classifiers right on equally many of the same N items?

    Shapes: a_right, b_right: (..., N) bool or integer -> (...) float64, in (0, 1].

    Of the items on which just one is right, is that one a as often as b? 1 without such items. ValueError for shapes
    and dtypes. McNemar 1947, doi:10.1007/BF02295996; the exact binomial law as in Edwards 1948.

    >>> a_right, b_right = torch.tensor([1, 1, 1, 1, 1, 1, 0]), torch.tensor([0, 0, 0, 0, 0, 1, 0])
    >>> mcnemar_p_value(a_right, b_right)  # five items that a alone has right
    tensor(0.0625, dtype=torch.float64)
    """
    _checks.integral("a_right", a_right)
    _checks.integral("b_right", b_right)
    _checks.shape("b_right", b_right, *a_right.shape)
    _checks.shape("a_right", a_right, "...", "N")
    _checks.same_device(a_right=a_right, b_right=b_right)
    a, b = a_right != 0, b_right != 0
    only_a, only_b = (a & ~b).sum(-1).double(), (b & ~a).sum(-1).double()
    number, fewer = only_a + only_b, torch.minimum(only_a, only_b)
    k = torch.arange(a.shape[-1] // 2 + 1, dtype=torch.float64, device=a.device)
    n, most = number.unsqueeze(-1), fewer.unsqueeze(-1)
    ways = torch.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma((n - k).clamp(min=0) + 1)
    chances = (ways - n * 0.6931471805599453).masked_fill(k > most, -torch.inf)
    return (2 * chances.exp().sum(-1)).clamp(max=1)
