"""Sums over many samples in tiles, so that they are read once and nothing of their size is stored."""

import math
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from .errors import PosteriorWarning

TILE = 2**15  # values at a time


def sum_of(samples: Tensor, terms: Callable[[Tensor], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    # samples: (S, ...)  terms: (s, ...) float64 -> tensors (s, ...)  ->  number and sums (...), float64
    """How many samples are finite, and over these, along the first axis, the sums of the terms."""
    step = max(1, TILE // max(1, samples[:1].numel()))
    tiles = samples.split(step)

    def added(parts: list[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        return tuple(torch.stack(sums).sum(0) for sums in zip(*parts, strict=True))

    def total(term: Tensor) -> Tensor:  # (s, ...) -> (...)
        s, *shape = term.shape  # a product with ones is several times faster than a sum over the first axis
        return (term.new_ones(s) @ term.reshape(s, math.prod(shape))).view(shape)

    sums = added([tuple(map(total, terms(tile.double()))) for tile in tiles])
    if all(total.isfinite().all() for total in sums):  # as nearly always
        return torch.full_like(sums[0], len(samples)), *sums
    parts = []
    for tile in tiles:
        inside = tile.isfinite()
        known = terms(torch.where(inside, tile, torch.nan).double())
        parts.append((inside.sum(0).double(), *(term.nansum(0) for term in known)))
    return added(parts)


def finite_moments(samples: Tensor) -> tuple[Tensor, Tensor]:
    # samples: (S, ...)  ->  mean and variance (...) float64
    """Mean and variance (ddof 1) of the finite samples; PosteriorWarning where these are less than 90 %."""
    pivot = samples[0].double().nan_to_num(0, 0, 0)  # near the mean, and equal samples have a variance of exactly 0

    def powers(x: Tensor) -> tuple[Tensor, Tensor]:
        distance = x - pivot
        return distance, distance * distance

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
