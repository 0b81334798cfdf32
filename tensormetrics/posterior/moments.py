"""Sums over many samples in tiles, so that they are read once and nothing of their size is stored."""

import math
import warnings
from collections import defaultdict
from collections.abc import Callable

import torch
from torch import Tensor

from .errors import PosteriorWarning

TILE = defaultdict(lambda: 2**22, cpu=2**15)  # device -> values at a time
FEWEST = 64  # of one sum in a tile, however many sums there are
HALVINGS = 3


def sum_of(samples: Tensor, terms: Callable[[Tensor], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    # samples: (S, ...)  terms: (..., s) float64, which they may change -> tensors (..., s')
    # ->  number and sums (...), float64
    """How many samples are finite, and over these the sums of the terms, one of which is not finite where x is not."""
    x = samples.movedim(0, -1)
    step = max(FEWEST, TILE[x.device.type] // max(1, math.prod(x.shape[:-1])))
    buffer = torch.empty(*x.shape[:-1], min(step, len(samples)), dtype=torch.float64, device=x.device)
    tiles = [(part, buffer[..., : part.shape[-1]]) for part in x.split(step, -1)]

    def added(parts: list[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        return tuple(torch.stack(sums).sum(0) for sums in zip(*parts, strict=True))

    sums = added([tuple(term.sum(-1) for term in terms(tile.copy_(part))) for part, tile in tiles])
    if all(total.isfinite().all() for total in sums):  # as nearly always
        return torch.full_like(sums[0], len(samples)), *sums
    parts = []
    for part, tile in tiles:
        inside = part.isfinite()
        known = terms(torch.where(inside, tile.copy_(part), torch.nan))
        parts.append((inside.sum(-1).double(), *(term.nansum(-1) for term in known)))
    return added(parts)


def logs_of_products(x: Tensor) -> Tensor:  # (..., s) -> (..., s')
    """Fewer numbers whose sum is that of the logarithms of x, those of nan being 0. Products of 8 are to be finite."""
    x, rest = x.nan_to_num(1.0), []
    for _ in range(HALVINGS):
        half = x.shape[-1] // 2
        rest.append(x[..., 2 * half :])
        x = x[..., :half] * x[..., half : 2 * half]
    return torch.cat([x, *rest], -1).log_()


def finite_moments(samples: Tensor) -> tuple[Tensor, Tensor]:
    # samples: (S, ...)  ->  mean and variance (...) float64
    """Mean and variance (ddof 1) of the finite samples; PosteriorWarning where these are less than 90 %."""
    pivot = first_of(samples).nan_to_num(0, 0, 0)  # near the mean, and equal samples have a variance of exactly 0

    def powers(x: Tensor) -> tuple[Tensor, Tensor]:
        distance = x.sub_(pivot[..., None])
        return distance, distance.square()

    number, total, squares = sum_of(samples, powers)
    if (number < 0.9 * len(samples)).any():
        share = 1 - float(number.min()) / len(samples)
        warnings.warn(
            f"samples: {share:.0%} of an experiment's are nan or infinite and are left out; "
            "a positive prior avoids undefined values",
            PosteriorWarning,
            stacklevel=2,
        )
    return pivot + total / number, (squares - total * total / number).clamp(min=0) / (number - 1)


def first_of(samples: Tensor) -> Tensor:  # (S, ...) -> (...)
    """A copy in float64 of the first sample; nan where there is none."""
    first = samples.new_full(samples.shape[1:], torch.nan, dtype=torch.float64)
    return first.copy_(samples[0]) if len(samples) else first
