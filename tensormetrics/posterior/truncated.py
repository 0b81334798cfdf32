"""Quantile functions of truncated distributions, by inversion; a uniform variate in, a truncated variate out.

The normal is computed in logarithms, the others from tables (see `log_concave`), within 1e-8 for u >= 1e-15. Results
lie in [low, high].
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import softplus

from .log_concave import TILE, quantile, tabulate

FAR = -600.0  # logarithms of probabilities below this have no quantile in float64


def truncated_normal_icdf(u: Tensor, mean: Tensor, sd: Tensor, low: Tensor | float, high: Tensor | float) -> Tensor:
    # u: (S, ...) in [0, 1]  mean, sd, low, high: (...)  ->  (S, ...)
    """Quantiles of a normal distribution restricted to [low, high], however far away its mean lies."""
    a, b = (low - mean) / sd, (high - mean) / sd
    upper = a > 0  # mirrored, because log_ndtr is precise in the lower tail
    a, b = torch.where(upper, -b, a), torch.where(upper, -a, b)
    log_b = torch.special.log_ndtr(b)
    ratio = (torch.special.log_ndtr(a) - log_b).exp()

    near = bool((log_b > FAR / 2).all())  # as nearly always

    def invert(u: Tensor) -> Tensor:
        u = torch.where(upper, 1 - u, u)
        share = u + (1 - u) * ratio
        z = torch.special.ndtri(log_b.exp() * share) if near else _normal_quantile(log_b + share.log())
        x = mean + torch.where(upper, -sd, sd) * z
        return _clamp(torch.where(sd == 0, mean, x), low, high)

    return torch.cat([invert(part) for part in u.split(max(1, TILE // max(1, u[:1].numel())))])


def truncated_t_icdf(
    u: Tensor, df: Tensor | float, loc: Tensor, scale: Tensor, low: Tensor | float, high: Tensor | float
) -> Tensor:
    # u: (S, ...) in [0, 1]  the others: (...)  ->  (S, ...)
    """Quantiles of loc + scale * t restricted to [low, high], t having Student's distribution of `df` degrees."""
    root = torch.as_tensor(df, dtype=torch.float64, device=u.device).sqrt()
    low_y, high_y = (((end - loc) / (scale * root)).nan_to_num(0).asinh() for end in (low, high))
    table = tabulate(log_t_density(df), torch.zeros_like(low_y), low_y, high_y)
    return _clamp(torch.where(scale == 0, loc, loc + scale * root * quantile(table, u).sinh()), low, high)


def truncated_gamma_icdf(
    u: Tensor, shape: Tensor, scale: Tensor, low: Tensor | float = 0.0, high: Tensor | float = math.inf
) -> Tensor:
    # u: (S, ...) in [0, 1]  the others: (...)  ->  (S, ...)
    """Quantiles of a gamma distribution restricted to [low, high], low >= 0."""
    k = shape[..., None]
    low_y, high_y = ((end / scale).log() for end in (low, high))
    table = tabulate(lambda y: k * y - y.exp(), shape.log(), low_y, high_y)
    return _clamp(scale * quantile(table, u).exp(), low, high)


def beta_icdf(u: Tensor, a: Tensor, b: Tensor) -> Tensor:
    # u: (S, ...) in [0, 1]  a, b: (...)  ->  (S, ...)
    """Quantiles of a beta distribution."""
    wide = torch.full_like(a, math.inf)
    a1, b1 = a[..., None], b[..., None]
    table = tabulate(lambda y: -a1 * softplus(-y) - b1 * softplus(y), (a / b).log(), -wide, wide)
    return quantile(table, u).sigmoid()


def log_t_density(df: Tensor | float) -> Callable[[Tensor], Tensor]:
    """Of y = asinh(t / sqrt(df)), up to a constant: -df * ln cosh y."""
    df = df[..., None] if isinstance(df, Tensor) else df  # a number stays one: sending it to a device would wait
    return lambda y: -df * (y.abs() + (-2 * y.abs()).exp().log1p() - math.log(2))


def _normal_quantile(log_p: Tensor) -> Tensor:
    """Of a probability given by its logarithm."""
    z = torch.special.ndtri(log_p.exp())
    far = (log_p < FAR) & (log_p > -math.inf)
    goal = log_p[far]
    tail = -(-2 * goal - (-4 * math.pi * goal).log()).sqrt()  # log_ndtr(z) is near -z^2 / 2 - ln(-z sqrt(2 pi))
    for _ in range(4):  # Newton's method
        log_mass = torch.special.log_ndtr(tail)
        log_slope = -tail.square() / 2 - math.log(2 * math.pi) / 2 - log_mass
        tail = tail - (log_mass - goal) * (-log_slope).exp()
    return z.masked_scatter(far, tail)


def _clamp(x: Tensor, low: Tensor | float, high: Tensor | float) -> Tensor:
    low, high = (torch.as_tensor(end, dtype=x.dtype, device=x.device) for end in (low, high))
    return torch.minimum(torch.maximum(x, low), high)
