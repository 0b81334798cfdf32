"""Random words as a function of their address, so that draws depend on no device, chunk or batch.

SplitMix64: Steele, Lea & Flood 2014, doi:10.1145/2660193.2660195.
"""

import secrets
from typing import NamedTuple

import torch
from torch import Tensor

from .. import _checks

# The generator's three odd constants as signed 64-bit integers.
STEP, FIRST, SECOND = (c - 2**64 for c in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


class Null(NamedTuple):
    """Which subset sums are as extreme as the observed one: those >= low or <= high; None is out of reach."""

    low: Tensor | None  # (B,) int64
    high: Tensor | None  # (B,) int64


def stream(seed: int | None) -> int:
    """A seed as the address where its stream begins; None is a stream of its own each time."""
    if seed is None:
        return secrets.randbits(63)
    z = _checks.integer_at_least("seed", seed, 0) + 1
    for shift, factor in ((30, FIRST), (27, SECOND)):  # far from the streams of neighbouring seeds
        z = (z ^ (z >> shift)) * factor % 2**64
    return z >> 1


def random_words(begin: int, start: int, rows: int, columns: int, device: torch.device) -> Tensor:
    # ->  (rows, columns) int64, all values equally likely; row `start` is the first
    row = torch.arange(start, start + rows, device=device).unsqueeze(-1)
    z = (row * 2**24 + torch.arange(columns, device=device)) * STEP + begin
    z = (z ^ _shift(z, 30)) * FIRST
    z = (z ^ _shift(z, 27)) * SECOND
    return z ^ _shift(z, 31)


def random_uniform(begin: int, start: int, rows: int, columns: int, device: torch.device) -> Tensor:
    # ->  (rows, columns) float64 in [0, 1), of 53 random bits
    return (random_words(begin, start, rows, columns, device) >> 11).double() / 2**53 + 0.5


def _shift(z: Tensor, bits: int) -> Tensor:
    return (z >> bits) & (2 ** (64 - bits) - 1)  # int64 shifts copy the sign, which the mask takes off
