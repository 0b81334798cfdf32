"""Random words as a function of their address, so that draws depend on no device, chunk or batch."""

import secrets
from typing import NamedTuple

import torch
from torch import Tensor

from ... import _checks
from ..._splitmix import random_bits_at
from ...uncertainty.engine.philox import random_key


class Tails(NamedTuple):
    """Bounds of the subset sums that are as extreme as the observed one: >= low or <= high; None is out of reach."""

    low: Tensor | None  # (B,) int64
    high: Tensor | None  # (B,) int64


def concrete_seed(seed: int | None) -> int:
    return secrets.randbits(63) if seed is None else _checks.check_int("seed", seed, 0)


def stream(seed: int | None, name: str = "permutations") -> int:
    """Return the address where a stream of random words begins; None is another stream each time."""
    return random_key(concrete_seed(seed), name, "association", "") >> 1


def random_words(begin: int, start: int, rows: int, columns: int, device: torch.device) -> Tensor:
    # ->  (rows, columns) int64, all values equally likely; row `start` is the first
    row = torch.arange(start, start + rows, device=device).unsqueeze(-1)
    return random_bits_at(begin, row * 2**24 + torch.arange(columns, device=device))


def random_uniform(begin: int, start: int, rows: int, columns: int, device: torch.device) -> Tensor:
    # ->  (rows, columns) float64 in [0, 1), of 53 random bits
    return (random_words(begin, start, rows, columns, device) >> 11).double() / 2**53 + 0.5
