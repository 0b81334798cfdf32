"""Sums with the same bits for any order of their numbers, and so for any split over processes.

Each number is cut into multiples of a few powers of two, its parts. Sums of multiples of one power of two are exact as
long as they fit into the 53 bits of a float64, and exact sums have no order.
"""

from collections.abc import Callable

import torch
from torch import Tensor

GRIDS = (2.0**-8, 2.0**-34, 2.0**-60)  # 2^27 numbers up to 2^18: their first parts sum up to 2^53 times 2^-8
COARSE = GRIDS[:2]  # of numbers up to 2^18 these keep 52 bits below the largest


def parts(values: Tensor, unit: Tensor | float = 1.0, grids: tuple[float, ...] = GRIDS) -> list[Tensor]:
    # values: (...) float64  unit: a power of two, broadcasts against values  ->  (...) for each grid
    """Split values into multiples of `grid * unit`; remainders below half of the last one are rounded away."""
    parts = []
    for grid in grids:
        shift = 1.5 * 2.0**52 * grid * unit  # numbers of this size are multiples of grid * unit
        parts.append((values + shift) - shift)
        values = values - parts[-1]
    return parts


def total(sums: Tensor | list[Tensor]) -> Tensor:
    # sums: (grids, ...)  ->  (...)
    """Add the sums of the parts, from the smallest to the largest."""
    *others, result = sums
    for part in reversed(others):
        result = result + part
    return result


def unit_of(largest: Tensor) -> Tensor:
    # largest: (...) float64, of moduli  ->  (...), a power of two
    """Return the unit in which numbers up to `largest` are below 2^18."""
    return 2.0**-18 / power_of_two(largest)


def ratio(counts: Tensor, total: float) -> Tensor:
    """Return counts / total in float64, rounded once: a GPU multiplies by the reciprocal of a Python number."""
    return counts.double() / torch.full((), total, dtype=torch.float64, device=counts.device)


def index_add(x: Tensor, dim: int, index: Tensor, values: Tensor) -> Tensor:
    """Add values to x in place as `x.index_add_`, but in their order; a GPU's atomic additions have any order."""
    if x.is_cpu:
        return x.index_add_(dim, index, values)
    x.movedim(dim, 0).index_put_((index,), values.movedim(dim, 0), accumulate=True)  # sorts by index
    return x


def scatter_add(x: Tensor, index: Tensor, values: Tensor) -> Tensor:
    # x: (..., M) contiguous  index, values: (..., N)  ->  (..., M)
    """Add values to x in place as `x.scatter_add_(-1, index, values)`, but in their order, as `index_add`."""
    if x.is_cpu:
        return x.scatter_add_(-1, index, values)
    first = torch.arange(0, x.numel(), max(x.shape[-1], 1), device=x.device).view(*x.shape[:-1], 1)
    index_add(x.view(-1), 0, (index + first).flatten(), values.flatten())
    return x


def prefix_sums(values: Tensor) -> Tensor:
    # (..., N) floating  ->  (..., N)
    """Return cumulative sums along the last dimension, with the same bits in every run.

    A GPU's own cumulative sum of floats promises no order of its additions, and deterministic mode refuses it.
    """
    return values.cumsum(-1) if values.device.type == "cpu" else doubling_sums(values)


def doubling_sums(values: Tensor, join: Callable[[Tensor, Tensor], Tensor] = torch.add) -> Tensor:
    # (..., N) floating  ->  (..., N)
    """Return `prefix_sums`, or products, whose bits are also those of every other device, in log2 N passes."""
    step = 1
    while step < values.shape[-1]:
        values = torch.cat([values[..., :step], join(values[..., step:], values[..., :-step])], -1)
        step *= 2
    return values


def cumulative_mass(weights: Tensor) -> Tensor:
    # (..., N) floating, >= 0  ->  (..., N)
    """Return `prefix_sums` that never decrease, as `searchsorted` requires."""
    sums = prefix_sums(weights)
    return sums if weights.device.type == "cpu" else sums.cummax(-1).values


def power_of_two(norm: Tensor) -> Tensor:
    # The factor that brings a norm into [1/2, 1); 1 for 0, NaN and infinity. The quotient is exact, and not rounded to
    # float32 as torch's own power of an integer.
    return torch.where((norm > 0) & (norm < torch.inf), norm.frexp().mantissa / norm, 1.0)
