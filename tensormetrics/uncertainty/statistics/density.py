"""Kernel density estimates of samples."""

from typing import NamedTuple

import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.arguments.checks import takes_arrays
from ...core.numbers.exact_sums import scatter_add

EXACT = 20_000  # more samples than this are binned first
BINS = 2**13  # dozens of bins for each bandwidth
SCRATCH = 2**24  # kernel values at a time


class Density(NamedTuple):
    """Density on a grid, and the bandwidth of its kernel."""

    grid: Tensor  # (..., G)
    density: Tensor  # (..., G)
    bandwidth: Tensor  # (...)


@takes_arrays
def kde(
    samples: Tensor,
    *,
    bw_adjust: float = 1.0,
    cut: float = 1.0,
    clip: tuple[float, float] | None = None,
    grid_samples: int = 200,
    boundary: str = "none",
) -> Density:
    """Compute a Gaussian kernel density estimate with bandwidth S^(-1/5) * sd * `bw_adjust` (Scott's rule) in float64.

    Shapes: samples: (S, ...).

    The grid of `grid_samples` points reaches `cut` standard deviations beyond the samples, not beyond `clip` (low,
    high). `boundary="reflect"` adds the samples' mirror images at the finite ends of `clip`, so that no mass is lost
    there. nan and infinite samples are left out. Above 20,000 samples are binned, which moves the density by less than
    1e-4 of its peak. Equal samples have bandwidth 0 and no density: nan.

    Raises ValueError for `bw_adjust`, `cut`, `clip` or `grid_samples` out of range, an unknown `boundary`, or
    `boundary="reflect"` without `clip`.
    """
    checks.floating("samples", samples)
    checks.check_choice("boundary", boundary, ("none", "reflect"))
    grid_samples = checks.check_int("grid_samples", grid_samples, 2)
    checks.check_number("bw_adjust", bw_adjust, "a finite number > 0", lambda x: 0 < x < torch.inf)
    checks.check_number("cut", cut, "a finite number >= 0", lambda x: 0 <= x < torch.inf)
    if samples.ndim == 0:
        raise ValueError("samples: got shape (), wanted (S, ...)")
    if clip is not None and not (isinstance(clip, tuple | list) and len(clip) == 2 and clip[0] < clip[1]):
        raise ValueError(f"clip: got {clip!r}, wanted (low, high) with low < high")
    if boundary == "reflect" and clip is None:
        raise ValueError("clip: got None with boundary='reflect', wanted (low, high), where to reflect")
    low, high = clip or (-torch.inf, torch.inf)
    x = samples.double().movedim(0, -1)
    x = x if x.shape[-1] else x.new_full((*x.shape[:-1], 1), torch.nan)
    is_valid = x.isfinite()
    n = is_valid.sum(-1).double()
    mean = torch.where(is_valid, x, 0).sum(-1) / n
    square = torch.where(is_valid, x - mean[..., None], 0).square().sum(-1)
    bandwidth = bw_adjust * n ** (-1 / 5) * (square / (n - 1)).sqrt()
    minimum, maximum = torch.where(is_valid, x, torch.inf).amin(-1), torch.where(is_valid, x, -torch.inf).amax(-1)
    margin = cut * (square / n).sqrt()
    start, stop = (minimum - margin).clamp(min=low), (maximum + margin).clamp(max=high)
    step = torch.linspace(0, 1, grid_samples, dtype=x.dtype, device=x.device)
    grid = torch.lerp(start[..., None], stop[..., None], step)

    weights = is_valid.double()
    if x.shape[-1] > EXACT:
        x, weights = _binned(x, is_valid, minimum, maximum)
    else:
        x = torch.where(is_valid, x, 0)
    mirrors = [2 * end - grid for end in (low, high) if boundary == "reflect" and abs(end) < torch.inf]
    points = torch.cat([grid, *mirrors], -1)
    mass = _kernel_sum(points, x, weights, bandwidth).unflatten(-1, (-1, grid_samples)).sum(-2)
    return Density(grid, mass / (n * bandwidth * (2 * torch.pi) ** 0.5)[..., None], bandwidth)


def _binned(x: Tensor, is_valid: Tensor, minimum: Tensor, maximum: Tensor) -> tuple[Tensor, Tensor]:
    # x, is_valid: (..., S)  minimum, maximum: (...)  ->  positions and weights (..., BINS)
    """Split the weight of each sample between the two nearest bins so that its mean is kept."""
    step = ((maximum - minimum) / (BINS - 1))[..., None]
    position = torch.where(is_valid & (step > 0), (x - minimum[..., None]) / step, 0)
    below = position.long().clamp(max=BINS - 2)
    fraction = torch.where(is_valid, position - below, 0)
    weights = x.new_zeros(*x.shape[:-1], BINS)
    scatter_add(scatter_add(weights, below, is_valid.double() - fraction), below + 1, fraction)
    return minimum[..., None] + step * torch.arange(BINS, device=x.device), weights


def _kernel_sum(points: Tensor, x: Tensor, weights: Tensor, bandwidth: Tensor) -> Tensor:
    # points: (..., P)  x, weights: (..., S)  bandwidth: (...)  ->  (..., P)
    x, points = x / bandwidth[..., None], points / bandwidth[..., None]
    parts = points.split(max(1, SCRATCH // max(1, x.numel())), -1)
    kernels = ((part[..., None] - x[..., None, :]).square_().mul_(-0.5).exp_() for part in parts)
    return torch.cat([(kernel @ weights[..., None])[..., 0] for kernel in kernels], -1)
