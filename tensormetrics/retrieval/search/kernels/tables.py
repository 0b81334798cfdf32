"""What the kernels of the search read: queries and references as float16, with the bounds of their products."""

from typing import NamedTuple, Protocol

from torch import Tensor


class Float16Queries(NamedTuple):
    """Queries as float16."""

    rows: Tensor  # (Q', D'), Q' and D' multiples of a tile's sides
    left: Tensor  # (3, Q') float32, see `HalfFilter.right`
    is_bounded: Tensor  # (Q,), whether the bound holds
    scale: Tensor | None = None  # (Q,) float64, what each was multiplied by, unless the distance is Euclidean


class Float16References(Protocol):
    """References as float16; see `HalfFilter`."""

    rows: Tensor  # (R', D') float16
    bias: Tensor  # (R',) float32
    row_bounds: Tensor  # (3, R') float32, the bound of each reference
    right: Tensor  # (3, blocks) float32, the bound of each block
    factor: int


class Prepared(NamedTuple):
    """What `HalfFilter` keeps of references."""

    rows: Tensor  # (R', D') float16
    bias: Tensor  # (R',) float32
    order: Tensor  # (R' + 1,) int32, the reference at each place, -1 = none, also behind the last place
    position: Tensor  # (R,) int64, the place of each reference
    row_bounds: Tensor  # (3, R') float32
    right: Tensor  # (3, blocks) float32
    left: Tensor  # (3, R') float32, `Halves.left` of the references as queries of Euclidean distances, of one part
    low: Tensor  # (1,) float64, the largest norm of a low part
