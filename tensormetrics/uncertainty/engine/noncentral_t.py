"""Student's distribution, central or not, of any degrees of freedom >= 1: a mean of normal tails over the law of the
estimated standard deviation."""

import math

import numpy as np
import torch
from torch import Tensor

from ..._device_cache import kept

NODES = 200  # of a Gauss-Legendre rule
DEVIATIONS = 7.35  # normal, beyond which lies 1e-13
STEPS = 60  # of a bisection


def t_sf(t: Tensor, df: Tensor | float, shift: Tensor | float = 0.0) -> Tensor:
    # t, df, shift: (...) broadcast  ->  (...) float64
    """Return P(T > t) for T = (Z + shift) / Y, where Y^2 is chi-square / df; its error is below 1e-10."""
    t = t.double()
    df, shift = (torch.as_tensor(x, dtype=torch.float64, device=t.device) for x in (df, shift))
    nodes, weights = _nodes(t)
    # Wilson & Hilferty 1931, doi:10.1073/pnas.17.12.684: the cube root of chi-square / df is nearly normal.
    center, spread = 1 - 2 / (9 * df), DEVIATIONS * (2 / (9 * df)).sqrt()
    low, high = (center - spread).clamp(min=0) ** 1.5, (center + spread) ** 1.5
    y = torch.lerp(low[..., None], high[..., None], nodes)
    log_density = (df[..., None] - 1) * y.log() - df[..., None] * (y.square() - 1) / 2
    mass = (log_density - log_density.amax(-1, keepdim=True)).exp() * weights
    tails = torch.special.ndtr(shift[..., None] - t[..., None] * y)
    return ((tails * mass).sum(-1) / mass.sum(-1)).where(~(t.isnan() | shift.isnan()), torch.nan)


def t_upper_quantile(tail: float, df: Tensor) -> Tensor:
    # df: (...)  ->  (...) float64
    """Return the t with P(T > t) = tail <= 1/2, by halving the angle atan(t / sqrt(df))."""
    low, high = torch.zeros_like(df), torch.full_like(df, math.pi / 2)
    root = df.sqrt()
    for _ in range(STEPS):
        angle = (low + high) / 2
        is_below = t_sf(angle.tan() * root, df) > tail
        low, high = angle.where(is_below, low), high.where(is_below, angle)
    return ((low + high) / 2).tan() * root


@kept
def _nodes(device: torch.device) -> tuple[Tensor, Tensor]:
    # ->  (NODES,) float64 each, in [0, 1]
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    nodes = (nodes + 1) / 2
    # Cubes, because the density of few degrees of freedom has a root at 0.
    return torch.from_numpy(nodes**3).to(device), torch.from_numpy(3 * nodes**2 * weights).to(device)
