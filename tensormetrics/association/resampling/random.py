"""Counter-based random integers, so that draws do not depend on device, chunk or batch."""

import secrets
from typing import NamedTuple

import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.numbers.philox import random_key
from ...core.numbers.splitmix import random_bits_at


class Tails(NamedTuple):
    """Bounds of the subset sums that are as extreme as the observed one: >= low or <= high; None for no such tail."""

    low: Tensor | None  # (B,) int64
    high: Tensor | None  # (B,) int64


def concrete_seed(seed: int | None) -> int:
    return secrets.randbits(63) if seed is None else checks.check_int("seed", seed, 0)


def stream(seed: int | None, name: str = "permutations") -> int:
    """Return the offset of a stream of random integers; None gives another stream each time."""
    return random_key(concrete_seed(seed), name, "association", "") >> 1


def random_int64(stream_offset: int, start: int, rows: int, columns: int, device: torch.device) -> Tensor:
    # ->  (rows, columns) int64, all values equally likely; row `start` is the first
    row = torch.arange(start, start + rows, device=device).unsqueeze(-1)
    return random_bits_at(stream_offset, row * 2**24 + torch.arange(columns, device=device))


def random_uniform(stream_offset: int, start: int, rows: int, columns: int, device: torch.device) -> Tensor:
    # ->  (rows, columns) float64 in [0, 1), of 53 random bits
    return (random_int64(stream_offset, start, rows, columns, device) >> 11).double() / 2**53 + 0.5
