"""Tables of one-dimensional log-concave distributions: masses and quantiles without a closed form.

Student's t is log-concave in y = asinh(t / sqrt(df)), the gamma distribution in y = ln x, the beta distribution in
y = logit(x); in these coordinates their tails are exponential, so that a table covers everything up to exp(-45).
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ...core.numbers.exact_sums import cumulative_mass

DROP = 45.0  # how far below its peak the log density is cut
KNOTS = 2**12  # on each side of the peak
CELLS, ROUNDS = 2**6, 5  # of the search for the ends: few launches for 2^30 positions


class Tabulated(NamedTuple):
    """Tabulated distribution; between two knots the density is taken as exponential."""

    knots: Tensor  # (..., K) ascending
    mass: Tensor  # (..., K) below each knot, up to a factor
    width: Tensor  # (..., K - 1) between knots, for each unit by which the log density rises
    slope: Tensor  # (..., K - 1) relative growth of the density for each unit of mass


def tabulate(log_density: Callable[[Tensor], Tensor], mode: Tensor, low: Tensor, high: Tensor) -> Tabulated:
    # log_density: (..., K) -> (..., K)  mode, low, high: (...)
    """Tabulate a log density that rises to `mode` and then falls over [low, high], whose ends may be infinite."""
    peak = torch.minimum(torch.maximum(mode, low), high)[..., None]
    below, above = _reaches(log_density, peak).split(1, -1)
    left, right = torch.maximum(peak - below, low[..., None]), torch.minimum(peak + above, high[..., None])
    t = torch.linspace(0, 1, KNOTS + 1, dtype=peak.dtype, device=peak.device).square()  # denser around the peak
    knots = torch.cat([peak + (left - peak) * t.flip(-1)[:-1], peak + (right - peak) * t], -1)
    shift = log_density(peak)
    log_f, log_center = log_density(knots) - shift, log_density((knots[..., 1:] + knots[..., :-1]) / 2) - shift
    f = log_f.exp()
    panels = knots.diff(dim=-1) * (f[..., 1:] + 4 * log_center.exp() + f[..., :-1]) / 6  # Simpson's rule
    rise = log_f.diff(dim=-1)
    rise = torch.where(rise.abs() < 1e-9, 1e-9, rise)
    slope = torch.where(panels > 0, rise.expm1() / panels, 0)
    return Tabulated(knots, torch.nn.functional.pad(cumulative_mass(panels), (1, 0)), knots.diff(dim=-1) / rise, slope)


def quantile(table: Tabulated, u: Tensor) -> Tensor:
    # u: (S, ...) in [0, 1]  ->  (S, ...)
    """Return the points below which the fraction `u` of the table's mass lies."""
    target = u.movedim(0, -1).contiguous() * table.mass[..., -1:]
    panel = torch.searchsorted(table.mass, target, right=True).clamp_(1, table.mass.shape[-1] - 1) - 1
    excess = (target - table.mass.gather(-1, panel)) * table.slope.gather(-1, panel)
    return (table.knots.gather(-1, panel) + table.width.gather(-1, panel) * excess.log1p()).movedim(-1, 0)


def _reaches(log_density: Callable[[Tensor], Tensor], peak: Tensor) -> Tensor:
    # peak: (..., 1)  ->  (..., 2)
    """Return how far below and above the peak the log density has fallen by DROP.

    The exponent of two is searched for in a grid of 2^-23, by CELLS parts of a range at a time.
    """
    floor = log_density(peak) - DROP
    interior = torch.arange(1, CELLS, dtype=peak.dtype, device=peak.device)
    start, width = torch.full_like(peak[..., None].expand(*peak.shape[:-1], 2, 1), -60), 120.0  # (..., 2, 1)
    for _ in range(ROUNDS):
        width /= CELLS
        distance = (start + width * interior).exp2()  # (..., 2, CELLS - 1)
        below, above = distance.unbind(-2)
        holds = log_density(torch.cat([peak - below, peak + above], -1)) > floor
        start = start + width * holds.unflatten(-1, (2, -1)).sum(-1, keepdim=True, dtype=start.dtype)
    return (start + width).exp2()[..., 0]
