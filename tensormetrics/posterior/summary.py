"""What samples say: the middle, and the interval that holds most of them."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from .. import _checks


class Estimate(NamedTuple):
    """The median of samples and the ends of their highest density interval."""

    median: Tensor
    low: Tensor
    high: Tensor


def as_scalars(estimates: Mapping[str, Estimate], prefix: str = "") -> dict[str, float]:
    """What a logger takes: "acc/median", "acc/low", "acc/high", and "tpr/0/median", ... for one value per class."""
    scalars = {}
    for name, found in estimates.items():
        for field, values in found._asdict().items():
            if values.ndim == 0:
                scalars[f"{prefix}{name}/{field}"] = float(values)
            else:
                scalars |= {f"{prefix}{name}/{c}/{field}": value for c, value in enumerate(values.tolist())}
    return scalars


def hdi(samples: Tensor, ci_probability: float = 0.95, dim: int = 0) -> tuple[Tensor, Tensor]:
    # samples: (..., S, ...)  ->  low and high: (..., ...), without axis `dim`
    """The highest density interval: the narrowest one over floor(ci_probability * S) gaps of the sorted samples.

    The lowest of equally narrow ones is taken; everything, if ci_probability = 1. Equal infinities are 0 apart. nan
    samples are left out; where no sample remains the result is nan. float64. ValueError: ci_probability not in (0, 1].
    """
    return estimate(samples, ci_probability, dim)[1:]


def estimate(samples: Tensor, ci_probability: float = 0.95, dim: int = 0) -> Estimate:
    # samples: (..., S, ...)  ->  each (..., ...), without axis `dim`
    """The median (mean of the middle two) and `hdi` of samples, from one sort."""
    _checks.floating("samples", samples)
    check_probability("ci_probability", ci_probability)
    x = samples.movedim(dim, -1)
    if x.shape[-1] == 0:
        x = x.new_full((*x.shape[:-1], 1), torch.nan)
    x = x.sort(-1).values.double()  # nan comes last
    n = x.isnan().logical_not().sum(-1, keepdim=True)
    gaps = torch.minimum((n.double() * ci_probability).long(), n - 1)
    first = torch.arange(x.shape[-1], device=x.device)
    end = x.gather(-1, (first + gaps).clamp(0, x.shape[-1] - 1))
    width = torch.where(end == x, 0, end - x)
    low = width.masked_fill(first >= n - gaps, torch.inf).argmin(-1, keepdim=True)
    middle = torch.cat([(n - 1).clamp(min=0) // 2, n // 2], -1)
    ends = torch.cat([low, (low + gaps).clamp(min=0)], -1)
    return Estimate(x.gather(-1, middle).mean(-1), *x.gather(-1, ends).unbind(-1))


def check_probability(name: str, value: float) -> None:
    if not 0 < value <= 1:
        raise ValueError(f"{name}: got {value!r}, wanted a number in (0, 1]")
