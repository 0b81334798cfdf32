"""Sums over many samples in tiles, which read them once and need no memory of their size."""

import math
import warnings
from collections import defaultdict
from collections.abc import Callable

import torch
from torch import Tensor

from ...core.resampling.errors import UncertaintyWarning

TILE = defaultdict(lambda: 2**22, cpu=2**15)  # device -> values at a time
MIN_TILE = 64  # of one sum in a tile, however many sums there are
HALVINGS = 3


def sum_of(samples: Tensor, terms: Callable[[Tensor, Tensor], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    # samples: (S, ...)  terms: a tile (..., s) float64 and memory like it, both may be overwritten -> tensors (..., s')
    # ->  number and sums (...), float64
    """Count the finite samples and sum the terms over them; at least one term must not be finite where x is not."""
    x = samples.detach().movedim(0, -1)
    step = max(MIN_TILE, TILE[x.device.type] // max(1, math.prod(x.shape[:-1])))
    memory = torch.empty(2, *x.shape[:-1], min(step, len(samples)), dtype=torch.float64, device=x.device)
    tiles = [(part, *memory[..., : part.shape[-1]]) for part in x.split(step, -1)]

    def added(parts: list[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        return tuple(torch.stack(sums).sum(0) for sums in zip(*parts, strict=True))

    sums = added([tuple(term.sum(-1) for term in terms(tile.copy_(part), spare)) for part, tile, spare in tiles])
    if torch.stack([total.isfinite().all() for total in sums]).all():  # the usual case; one synchronization
        return torch.full_like(sums[0], len(samples)), *sums
    parts = []
    for part, tile, spare in tiles:
        is_finite = part.isfinite()
        valid_terms = terms(torch.where(is_finite, tile.copy_(part), torch.nan), spare)
        parts.append((is_finite.sum(-1).double(), *(term.nansum(-1) for term in valid_terms)))
    return added(parts)


def logs_of_products_(x: Tensor) -> Tensor:  # (..., s) -> (..., s')
    """Return fewer numbers with the same sum as the logarithms of x; nan counts as 0, products of 8 must be finite.

    x is overwritten.
    """
    x.nan_to_num_(1.0)
    products = x.shape[-1] >> HALVINGS
    rest = x[..., products << HALVINGS :]
    for k in reversed(range(HALVINGS)):
        half = products << k
        x[..., :half].mul_(x[..., half : 2 * half])
    return torch.cat([x[..., :products], rest], -1).log_()


def finite_moments(samples: Tensor) -> tuple[Tensor, Tensor]:
    # samples: (S, ...)  ->  mean and variance (...) float64
    """Compute mean and variance (ddof 1) of the finite samples; UncertaintyWarning if less than 90 % are finite."""
    count, mean, squares = deviations(samples)
    if (count < 0.9 * len(samples)).any():
        fraction = 1 - float(count.min()) / len(samples)
        warnings.warn(
            f"samples: {fraction:.0%} of an experiment's are nan or infinite and are left out; "
            "a positive prior avoids undefined values",
            UncertaintyWarning,
            stacklevel=2,
        )
    return mean, squares / (count - 1)


def deviations(samples: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    # samples: (S, ...)  ->  (...) float64 each
    """Return the number of finite samples, their mean, and the sum of squared deviations from it."""
    pivot = samples.new_zeros(samples.shape[1:], dtype=torch.float64)
    if len(samples):  # near the mean, and equal samples have a variance of exactly 0
        pivot.copy_(samples[0].detach()).nan_to_num_(0, 0, 0)

    def powers(x: Tensor, spare: Tensor) -> tuple[Tensor, Tensor]:
        distance = x.sub_(pivot[..., None])
        return distance, torch.square(distance, out=spare)

    count, total, squares = sum_of(samples, powers)
    return count, pivot + total / count, (squares - total * total / count).clamp(min=0)
