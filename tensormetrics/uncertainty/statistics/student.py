"""Student's distribution of whole degrees of freedom: its finite series, and the quantiles that invert it."""

import math

import torch
from torch import Tensor


def t_cdf(t: Tensor, df: int) -> Tensor:
    # t: (...)  ->  (...) float64
    """P(T <= t), from the series of Abramowitz & Stegun 1964, 26.7.3 and 26.7.4."""
    angle = torch.atan(t.double() / math.sqrt(df))
    sine, square = angle.sin(), angle.cos().square()
    odd = df % 2
    term = angle.cos() if odd else torch.ones_like(angle)
    series = torch.zeros_like(angle)
    for k in range(1 + odd, df, 2):  # of cosines to the powers 0, 2, 4, ... or 1, 3, 5, ...
        series = series + term
        term = term * square * (k / (k + 1))
    inside = (angle + sine * series) * (2 / math.pi) if odd else sine * series
    return (1 + inside) / 2


def t_quantiles(shares: Tensor, df: int) -> Tensor:
    # shares: (...) in (0, 1)  ->  (...) float64
    """The t with P(T <= t) = share, by halving the angle atan(t / sqrt(df))."""
    low, high = torch.full_like(shares, -math.pi / 2), torch.full_like(shares, math.pi / 2)
    for _ in range(60):
        middle = (low + high) / 2
        below = t_cdf(middle.tan() * math.sqrt(df), df) < shares
        low, high = middle.where(below, low), high.where(below, middle)
    return ((low + high) / 2).tan() * math.sqrt(df)


def log_t_pdf(t: Tensor, df: int) -> Tensor:
    # t: (...)  ->  (...)
    constant = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - math.log(df * math.pi) / 2
    return constant - (df + 1) / 2 * (t.square() / df).log1p()
