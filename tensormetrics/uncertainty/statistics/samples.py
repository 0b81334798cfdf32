"""Order statistics of samples: median, quantiles, mode and highest density interval, from one sort."""

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.arguments.checks import takes_arrays
from ...core.numbers.quantiles import sorted_quantiles, take, unsigned_nan
from ...core.results.estimates import Estimate

RADIX = 2**15  # size from which torch's CPU sort of integers is a radix sort, which is several times faster


@takes_arrays
def hdi(samples: Tensor, confidence: float = 0.95, dim: int = 0) -> tuple[Tensor, Tensor]:
    """Compute the highest density interval: the narrowest one over floor(confidence * S) gaps of sorted samples.

    Shapes: samples: (..., S, ...) -> low and high: (..., ...), without axis `dim`.

    The lowest of equally narrow intervals is returned, and the full range if confidence = 1. Equal infinities have
    distance 0. nan samples are left out; where no sample remains the result is nan. float64. ValueError: confidence not
    in (0, 1].

    >>> samples = torch.distributions.Exponential(1.0).icdf(torch.linspace(0, 0.999, 1000))
    >>> hdi(samples, 0.9)  # from 0 on, as the density falls
    (tensor(0., dtype=torch.float64), tensor(2.3026, dtype=torch.float64))
    """
    result = estimate(samples, confidence, dim)
    return result.low, result.high


def estimate(samples: Tensor, confidence: float = 0.95, dim: int = 0) -> Estimate:
    # samples: (..., S, ...)  ->  each (..., ...), without axis `dim`
    """Compute the median (mean of the middle two) and `hdi` of samples, from one sort."""
    check_probability("confidence", confidence)
    return estimate_sorted(*sort_samples(samples, dim), confidence)


def estimate_sorted(x: Tensor, n: Tensor, confidence: float) -> Estimate:  # as `sort_samples` gives them
    return Estimate(sorted_median(x, n), *narrowest_interval(x, n, confidence))


def equal_tailed(samples: Tensor, confidence: float = 0.95, dim: int = 0) -> Estimate:
    # samples: (..., S, ...)  ->  each (..., ...), without axis `dim`
    """Compute the median and the quantiles (1 -+ confidence) / 2 of samples, interpolated linearly; nan as in `hdi`."""
    check_probability("confidence", confidence)
    x, n = sort_samples(samples, dim)
    q = x.new_tensor([(1 - confidence) / 2, (1 + confidence) / 2])
    return Estimate(sorted_median(x, n), *sorted_quantiles(x, torch.zeros_like(n), n, q).unbind(-1))


def check_probability(name: str, value: float) -> None:
    checks.check_number(name, value, "a number in (0, 1]", lambda x: 0 < x <= 1)


def sort_samples(samples: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    # (..., S, ...)  ->  samples in order, nan last: (..., S) float64, S >= 1; how many are not nan: (..., 1)
    checks.floating("samples", samples)
    if not (isinstance(dim, int) and -samples.ndim <= dim < samples.ndim):
        raise ValueError(f"samples: got shape {tuple(samples.shape)}, wanted samples along dimension {dim!r}")
    x = samples.detach().movedim(dim, -1)
    x = x if x.shape[-1] >= RADIX else x.contiguous()
    if x.shape[-1] == 0:
        x = x.new_full((*x.shape[:-1], 1), torch.nan)
    x = _sort(x)
    if x[..., -1].isnan().any():
        return x, x.isnan().logical_not().sum(-1, keepdim=True)
    return x, torch.full_like(x[..., :1], x.shape[-1], dtype=torch.int64)


def _sort(x: Tensor) -> Tensor:  # (..., S) -> (..., S) float64
    if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.float64):
        return unsigned_nan(x).contiguous().sort(-1).values.double()
    if x.shape[-1] < RADIX:
        return torch.from_numpy(np.sort(x.numpy())).double()  # without positions, hence faster than torch's
    integer = torch.int32 if x.dtype == torch.float32 else torch.int64
    out = torch.empty(x.shape, dtype=torch.float64, device="cpu")
    for row, ordered in zip(x.reshape(-1, x.shape[-1]), out.view(-1, x.shape[-1]), strict=True):
        keys = _ordered_bits(torch.where(row.isnan(), torch.nan, row).view(integer))
        ordered.copy_(_ordered_bits(keys.sort().values).view(x.dtype))
    return out


def _ordered_bits(bits: Tensor) -> Tensor:
    """Map bits of floating numbers to integers of the same order, and back; a nan without sign comes last."""
    flip = bits >> (8 * bits.itemsize - 1)  # all ones below 0
    return flip.bitwise_and_(torch.iinfo(bits.dtype).max).bitwise_xor_(bits)


def sorted_median(x: Tensor, n: Tensor) -> Tensor:  # (..., S), (..., 1) -> (...)
    return take(x, torch.cat([(n - 1) // 2, n // 2], -1)).mean(-1)


def narrowest_interval(x: Tensor, n: Tensor, p: float) -> tuple[Tensor, Tensor]:  # (..., S), (..., 1) -> (...), (...)
    gaps = torch.minimum((n.double() * p).long(), n - 1)
    candidates = min(x.shape[-1], int(x.shape[-1] * (1 - p)) + 2)  # no interval with that many gaps starts later
    first = torch.arange(candidates, device=x.device)
    start, end = x[..., :candidates], take(x, first + gaps)
    width = torch.where(end == start, 0, end - start)
    low = width.masked_fill(first >= n - gaps, torch.inf).argmin(-1, keepdim=True)
    low, high = take(x, torch.cat([low, low + gaps], -1)).unbind(-1)
    return low, high


class FiniteRange(NamedTuple):
    """Range of the finite samples among sorted ones, each field (..., 1)."""

    first: Tensor  # position of the smallest
    num_finite: Tensor
    minimum: Tensor  # nan without finite samples, as is the maximum
    maximum: Tensor


def finite_part(x: Tensor, n: Tensor) -> FiniteRange:  # (..., S), (..., 1)
    first, num_finite = torch.zeros_like(n), n
    if torch.cat([x[..., :1], take(x, n - 1)]).isinf().any():
        first = (x == -torch.inf).sum(-1, keepdim=True)
        num_finite = n - first - (x == torch.inf).sum(-1, keepdim=True)
    ends = take(x, torch.cat([first, first + num_finite - 1], -1))
    return FiniteRange(first, num_finite, *torch.where(num_finite > 0, ends, torch.nan).split(1, -1))


def searchable(x: Tensor, n: Tensor) -> Tensor:  # (..., S), (..., 1) -> (..., S)
    """Return sorted samples with the trailing nan replaced by infinities, since `searchsorted` mishandles nan."""
    return x if (n == x.shape[-1]).all() else x.nan_to_num(torch.inf, torch.inf, -torch.inf)


def histogram_bins(x: Tensor, finite: FiniteRange) -> Tensor:  # (..., S) -> (..., 1)
    """Return the number of bins for the narrower of Sturges' width and Freedman's and Diaconis' (<= 2 sqrt(n) bins)."""
    quartiles = sorted_quantiles(x, finite.first, finite.num_finite, x.new_tensor([0.25, 0.75]))
    num_finite, extent = finite.num_finite.double(), finite.maximum - finite.minimum
    width = torch.maximum(2 * quartiles.diff(dim=-1) * num_finite ** (-1 / 3), extent / (2 * num_finite.sqrt()))
    width = torch.minimum(width, extent / (num_finite.log2() + 1))
    return torch.where(extent > 0, (extent / width).ceil(), 1)


def histogram_mode(x: Tensor, n: Tensor, finite: FiniteRange) -> Tensor:  # (..., S), (..., 1) -> (...)
    """Return the center of the fullest bin, the first of equally full ones."""
    first, num_finite, minimum, maximum = finite
    bins = histogram_bins(x, finite)
    S = x.shape[-1]
    edge = torch.arange(math.ceil(max(2 * S**0.5, math.log2(S) + 1)) + 2, device=x.device)  # more than any row's bins
    edges = minimum + edge * ((maximum - minimum) / bins)
    before = torch.searchsorted(searchable(x, n), edges).clamp(first, first + num_finite)
    before = torch.where(edge < bins, before, first + num_finite)  # the last bin is closed
    fullest = before.diff(dim=-1).argmax(-1, keepdim=True)
    center = torch.where(maximum > minimum, minimum + (fullest + 0.5) * ((maximum - minimum) / bins), minimum)
    positive = n - first - num_finite  # number of +inf
    return torch.where(2 * first > n, -torch.inf, torch.where(2 * positive > n, torch.inf, center))[..., 0]
