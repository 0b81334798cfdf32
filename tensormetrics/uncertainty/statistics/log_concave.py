"""Tables of one-dimensional log-concave distributions: masses and quantiles where no closed form is at hand.

Student's t is log-concave in y = asinh(t / sqrt(df)), the gamma distribution in y = ln x, the beta distribution in
y = logit(x); in these coordinates their tails are exponential, so that a table covers everything up to exp(-45).
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ..._exact_sums import cumulative_mass

DROP = 45.0  # how far below its peak the log density is cut
KNOTS = 2**12  # on each side of the peak


class Table(NamedTuple):
    """Between two knots the density is taken as exponential."""

    knots: Tensor  # (..., K) ascending
    mass: Tensor  # (..., K) below each knot, up to a factor
    width: Tensor  # (..., K - 1) between knots, for each unit by which the log density rises
    slope: Tensor  # (..., K - 1) relative growth of the density for each unit of mass


def tabulate(log_density: Callable[[Tensor], Tensor], mode: Tensor, low: Tensor, high: Tensor) -> Table:
    # log_density: (..., K) -> (..., K)  mode, low, high: (...)
    """A table over [low, high], either of which may be infinite, of a log density that rises to `mode`, then falls."""
    peak = torch.minimum(torch.maximum(mode, low), high)[..., None]
    left = torch.maximum(peak - _reach(log_density, peak, -1), low[..., None])
    right = torch.minimum(peak + _reach(log_density, peak, 1), high[..., None])
    t = torch.linspace(0, 1, KNOTS + 1, dtype=peak.dtype, device=peak.device).square()  # denser around the peak
    knots = torch.cat([peak + (left - peak) * t.flip(-1)[:-1], peak + (right - peak) * t], -1)
    shift = log_density(peak)
    log_f, middle = log_density(knots) - shift, log_density((knots[..., 1:] + knots[..., :-1]) / 2) - shift
    f = log_f.exp()
    panels = knots.diff(dim=-1) * (f[..., 1:] + 4 * middle.exp() + f[..., :-1]) / 6  # Simpson's rule
    rise = log_f.diff(dim=-1)
    rise = torch.where(rise.abs() < 1e-9, 1e-9, rise)
    slope = torch.where(panels > 0, rise.expm1() / panels, 0)
    return Table(knots, torch.nn.functional.pad(cumulative_mass(panels), (1, 0)), knots.diff(dim=-1) / rise, slope)


def quantile(table: Table, u: Tensor) -> Tensor:
    # u: (S, ...) in [0, 1]  ->  (S, ...)
    """Where the share `u` of the table's mass is reached."""
    target = u.movedim(0, -1).contiguous() * table.mass[..., -1:]
    panel = torch.searchsorted(table.mass, target, right=True).clamp_(1, table.mass.shape[-1] - 1) - 1
    beyond = (target - table.mass.gather(-1, panel)) * table.slope.gather(-1, panel)
    return (table.knots.gather(-1, panel) + table.width.gather(-1, panel) * beyond.log1p()).movedim(-1, 0)


def _reach(log_density: Callable[[Tensor], Tensor], peak: Tensor, side: int) -> Tensor:  # (..., 1) -> (..., 1)
    """How far from the peak the log density has fallen by DROP, by bisection of the exponent of two."""
    small, large = torch.full_like(peak, -60), torch.full_like(peak, 60)
    floor = log_density(peak) - DROP
    for _ in range(30):
        middle = (small + large) / 2
        above = log_density(peak + side * middle.exp2()) > floor
        small, large = torch.where(above, middle, small), torch.where(above, large, middle)
    return large.exp2()
