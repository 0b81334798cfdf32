"""Student's t distribution and its quantiles.

Integral degrees of freedom have finite series; others, and the noncentral distribution, are computed by quadrature.
"""

import functools
import math

import numpy as np
import torch
from torch import Tensor

from ..native.device_cache import cached_per_device

TABLE_DF = 100  # for more degrees of freedom, an expansion is as good
NODES = 200  # of a Gauss-Legendre rule
DEVIATIONS = 7.35  # normal, beyond which lies 1e-13
STEPS = 60  # of a bisection


def t_cdf(t: Tensor, df: int) -> Tensor:
    # t: (...)  ->  (...) float64
    """Compute P(T <= t) by the series of Abramowitz & Stegun 1964, 26.7.3 and 26.7.4."""
    angle = torch.atan(t.double() / math.sqrt(df))
    sine, square = angle.sin(), angle.cos().square()
    odd = df % 2
    term = angle.cos() if odd else torch.ones_like(angle)
    series = torch.zeros_like(angle)
    for k in range(1 + odd, df, 2):  # of cosines to the powers 0, 2, 4, ... or 1, 3, 5, ...
        series = series + term
        term = term * square * (k / (k + 1))
    central = (angle + sine * series) * (2 / math.pi) if odd else sine * series
    return (1 + central) / 2


def t_quantiles(probabilities: Tensor, df: int) -> Tensor:
    # probabilities: (...) in (0, 1)  ->  (...) float64
    """Return the t with P(T <= t) = probability, by bisection of the angle atan(t / sqrt(df))."""
    low, high = torch.full_like(probabilities, -math.pi / 2), torch.full_like(probabilities, math.pi / 2)
    for _ in range(60):
        center = (low + high) / 2
        below = t_cdf(center.tan() * math.sqrt(df), df) < probabilities
        low, high = center.where(below, low), high.where(below, center)
    return ((low + high) / 2).tan() * math.sqrt(df)


@functools.lru_cache(maxsize=256)
def t_quantile(probability: float, df: int) -> float:
    """Return the t with P(T <= t) = probability, computed on the host."""
    low, high = -math.pi / 2, math.pi / 2
    odd = df % 2
    for _ in range(60):
        angle = (low + high) / 2
        term, series = math.cos(angle) if odd else 1.0, 0.0
        for k in range(1 + odd, df, 2):  # as in `t_cdf`
            series += term
            term *= math.cos(angle) ** 2 * (k / (k + 1))
        central = (angle + math.sin(angle) * series) * (2 / math.pi) if odd else math.sin(angle) * series
        low, high = (angle, high) if (1 + central) / 2 < probability else (low, angle)
    return math.tan((low + high) / 2) * math.sqrt(df)


def t_quantiles_of(probability: float, df: Tensor) -> Tensor:
    # df: (...) integers >= 1  ->  (...) float64
    """Return the t with P(T <= t) = probability for many df, with a relative error below 1e-6 up to .9995."""
    z = float(torch.special.ndtri(torch.tensor(probability, dtype=torch.float64, device="cpu")))
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )  # Abramowitz & Stegun 1964, 26.7.5
    table = _quantile_table(df, probability)
    free = df.double()
    large = z + sum(term / free ** (n + 1) for n, term in enumerate(terms))
    return torch.where(df <= TABLE_DF, table[df.clamp(1, TABLE_DF) - 1], large)


@cached_per_device
def _quantile_table(device: torch.device, probability: float) -> Tensor:
    # ->  (TABLE_DF,) float64
    return torch.tensor(
        [t_quantile(probability, n) for n in range(1, TABLE_DF + 1)], dtype=torch.float64, device=device
    )


def log_t_pdf(t: Tensor, df: int) -> Tensor:
    # t: (...)  ->  (...)
    constant = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - math.log(df * math.pi) / 2
    return constant - (df + 1) / 2 * (t.square() / df).log1p()


def t_sf(t: Tensor, df: Tensor | float, shift: Tensor | float = 0.0) -> Tensor:
    # t, df, shift: (...) broadcast  ->  (...) float64
    """Return P(T > t) for T = (Z + shift) / Y, where Y^2 is chi-square / df; its error is below 1e-10."""
    t = t.double()
    df, shift = (torch.as_tensor(x, dtype=torch.float64, device=t.device) for x in (df, shift))
    nodes, weights = _nodes(t)
    # Wilson & Hilferty 1931, doi:10.1073/pnas.17.12.684: the cube root of chi-square / df is nearly normal.
    center, half_width = 1 - 2 / (9 * df), DEVIATIONS * (2 / (9 * df)).sqrt()
    low, high = (center - half_width).clamp(min=0) ** 1.5, (center + half_width) ** 1.5
    y = torch.lerp(low[..., None], high[..., None], nodes)
    log_density = (df[..., None] - 1) * y.log() - df[..., None] * (y.square() - 1) / 2
    mass = (log_density - log_density.amax(-1, keepdim=True)).exp() * weights
    tails = torch.special.ndtr(shift[..., None] - t[..., None] * y)
    return ((tails * mass).sum(-1) / mass.sum(-1)).where(~(t.isnan() | shift.isnan()), torch.nan)


def t_upper_quantile(tail: float, df: Tensor) -> Tensor:
    # df: (...)  ->  (...) float64
    """Return the t with P(T > t) = tail <= 1/2, by bisection of the angle atan(t / sqrt(df))."""
    low, high = torch.zeros_like(df), torch.full_like(df, math.pi / 2)
    root = df.sqrt()
    for _ in range(STEPS):
        angle = (low + high) / 2
        is_below = t_sf(angle.tan() * root, df) > tail
        low, high = angle.where(is_below, low), high.where(is_below, angle)
    return ((low + high) / 2).tan() * root


@cached_per_device
def _nodes(device: torch.device) -> tuple[Tensor, Tensor]:
    # ->  (NODES,) float64 each, in [0, 1]
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    nodes = (nodes + 1) / 2
    # Cubes, because the density of few degrees of freedom has a root at 0.
    return torch.from_numpy(nodes**3).to(device), torch.from_numpy(3 * nodes**2 * weights).to(device)
