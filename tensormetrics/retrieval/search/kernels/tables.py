"""What the kernels of the search read: queries and references as float16, with the bounds of their products."""

from typing import NamedTuple, Protocol

from torch import Tensor


class Halves(NamedTuple):
    """Queries as float16."""

    rows: Tensor  # (Q', D'), Q' and D' multiples of a tile's sides
    left: Tensor  # (3, Q') float32, see `HalfFilter.right`
    known: Tensor  # (Q,), whether the bound holds


class HalfTable(Protocol):
    """References as float16; see `HalfFilter`."""

    rows: Tensor  # (R', D') float16
    bias: Tensor  # (R',) float32
    each: Tensor  # (3, R') float32, the bound of each reference
    right: Tensor  # (3, blocks) float32, the bound of each block
    factor: int
