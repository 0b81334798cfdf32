"""Quantiles of samples, linear between order statistics (type 7 of Hyndman and Fan, as NumPy's and torch's)."""

import torch
from torch import Tensor

LARGE = 2**20  # samples from which on sorting their tails alone is faster


def equal_tailed_interval(samples: Tensor, confidence: float) -> tuple[Tensor, Tensor]:
    # samples: (R, ...)  ->  low (...), high (...)
    """Return the quantiles (1 -+ confidence) / 2.

    NaN are left out; the ends are NaN if over half of the samples are.
    """
    tails = samples.new_tensor([(1 - confidence) / 2, (1 + confidence) / 2])
    is_large = samples.numel() >= LARGE and samples.device.type == "cpu"  # where no device is waited for
    if is_large and not bool(samples.isnan().any()):
        return _quantiles_of_tails(samples, tails)
    ordered = unsigned_nan(samples).movedim(0, -1).sort(-1).values  # NaN go last
    defined = samples.isnan().logical_not().sum(0).unsqueeze(-1)
    ends = sorted_quantiles(ordered, torch.zeros_like(defined), defined, tails)
    low, high = ends.where(2 * defined > len(samples), torch.nan).unbind(-1)
    return low, high


def sorted_quantiles(ordered: Tensor, first: Tensor, size: Tensor, q: Tensor) -> Tensor:
    # ordered: (..., S) ascending  first, size: (..., 1) int64, the part of it that is a sample  q: (Q,)  ->  (..., Q)
    """Return the quantiles q of ordered[first : first + size]; any number where `size` is 0."""
    position = q * (size - 1)
    below = position.floor()
    low, high = (take(ordered, first + index.long()) for index in (below, position.ceil()))
    return _interpolate(low, high, position - below)


def unsigned_nan(x: Tensor) -> Tensor:
    """Return x with no NaN whose sign bit is set: a GPU sorts it first, and a CPU makes one of 0/0."""
    return x if x.is_cpu or not x.is_floating_point() else torch.where(x.isnan(), torch.nan, x)


def take(x: Tensor, index: Tensor) -> Tensor:
    # x: (..., S)  index: (..., K), of any value where a row has no samples  ->  (..., K)
    return x.gather(-1, index.clamp(0, x.shape[-1] - 1))


def _quantiles_of_tails(samples: Tensor, tails: Tensor) -> tuple[Tensor, Tensor]:
    # samples: (R, ...) without NaN  tails: (2,)  ->  low (...), high (...)
    """Return the same quantiles by sorting only the tails."""
    ends = []
    for position, largest in zip((tails * (len(samples) - 1)).tolist(), (False, True), strict=True):
        below = int(position)
        above = min(below + 1, len(samples) - 1)
        count = len(samples) - below if largest else above + 1
        ordered = samples.topk(count, 0, largest=largest).values
        indices = (len(samples) - 1 - below, len(samples) - 1 - above) if largest else (below, above)
        ends.append(_interpolate(ordered[indices[0]], ordered[indices[1]], position - below))
    return ends[0], ends[1]


def _interpolate(low: Tensor, high: Tensor, fraction: Tensor | float) -> Tensor:
    return torch.where(
        low == high, low, low * (1 - fraction) + high * fraction
    )  # not lerp, by which -inf and 1 give NaN
