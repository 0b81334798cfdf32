"""The swap test: two models are exchanged on random units, and the difference is looked at again.

Noreen 1989, Computer-intensive methods for testing hypotheses; Yeh 2000, doi:10.3115/992730.992783.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

TOLERANCE = 1e-10  # of equal differences, relative to the values
MAX_EXACT = 12  # so many units that differ are swapped in all ways
CHUNK = 2**22  # numbers of swapped sums at a time


class SwapTest(NamedTuple):
    """Two-sided p-values of V values."""

    p_value: Tensor  # (V,), in which swaps as extreme as the observed one count whole
    mid_p: Tensor  # (V,), in which they count half


def swap_test(
    read_difference: Callable[[Tensor, Tensor], Tensor],
    sums: tuple[Tensor, Tensor],
    units: tuple[Tensor, Tensor] | None,
    halves: tuple[Tensor, Tensor],
    scale: Tensor,
    of_means: bool,
) -> SwapTest:
    # read_difference: sums of a and b (..., *shape)  ->  (..., V)  sums: (*shape) each  units: rows (U, *shape) each
    # halves: (R, *shape) each, sums of random halves of the units  scale: (V,), size of the values
    """Test that a and b are exchangeable on each unit.

    Means whose differences have one size: exact binomial test (McNemar's for 0 and 1). Up to `MAX_EXACT` units that
    differ: all swaps. Else the random ones of `halves`, (1 + hits) / (1 + R).
    """
    observed = read_difference(*sums)
    tolerance = TOLERANCE * scale

    def random_swaps() -> Tensor:
        swap = halves[1] - halves[0]
        return read_difference(sums[0] + swap, sums[1] - swap)

    if units is None:
        return _counted(observed, random_swaps(), tolerance, is_random=True)
    differs = (units[0] != units[1]).flatten(1).any(1)
    rows = units[0][differs], units[1][differs]
    if len(rows[0]) <= MAX_EXACT:
        subsets = torch.arange(2 ** len(rows[0]), device=observed.device)
        selected = (subsets[:, None] >> torch.arange(len(rows[0]), device=observed.device) & 1).double()
        moved = (rows[1] - rows[0]).flatten(1)
        chunks = selected.split(max(CHUNK // max(moved.shape[1], 1), 1))
        swaps = ((chunk @ moved).unflatten(1, sums[0].shape) for chunk in chunks)
        swapped = torch.cat([read_difference(sums[0] + swap, sums[1] - swap) for swap in swaps])
        test = _counted(observed, swapped, tolerance, is_random=False)
    else:
        test = _counted(observed, random_swaps(), tolerance, is_random=True)
    if not of_means:
        return test
    binomial, applies = _binomial(*rows)
    return SwapTest(*(torch.where(applies, a, b) for a, b in zip(binomial, test, strict=True)))


def _counted(observed: Tensor, swapped: Tensor, tolerance: Tensor, is_random: bool) -> SwapTest:
    # observed, tolerance: (V,)  swapped: (R, V)
    excess = swapped.abs() - observed.abs()
    is_defined = ~swapped.isnan()
    count = is_defined.sum(0) + is_random
    above = (excess > tolerance).sum(0).double()
    equal = (excess.abs() <= tolerance).sum(0).double() + is_random  # the observed one is one of the random ones
    p_value, mid_p = ((above + fraction * equal) / count for fraction in (1.0, 0.5))
    return SwapTest(*(p.clamp(max=1).masked_fill(observed.isnan(), torch.nan) for p in (p_value, mid_p)))


def _binomial(a: Tensor, b: Tensor) -> tuple[SwapTest, Tensor]:
    # a, b: (D, 2 V) rows of the units that differ  ->  the test, and the values (V,) to which it applies
    (a, a_counts), (b, b_counts) = (operand.flatten(1).tensor_split(2, 1) for operand in (a, b))
    differences = a - b
    sizes = differences.abs()
    largest = sizes.amax(0) if len(sizes) else sizes.new_zeros(sizes.shape[1])
    is_one_size = ((sizes == 0) | (largest - sizes <= TOLERANCE * largest)).all(0)
    number = (sizes > 0).sum(0)
    fewer = torch.minimum((differences > 0).sum(0), (differences < 0).sum(0))
    k = torch.arange(len(a) // 2 + 1, dtype=torch.float64, device=a.device)[:, None]
    n = number.double()
    log_ways = torch.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma((n - k).clamp(min=0) + 1)
    chances = (log_ways - n * torch.log(n.new_tensor(2.0))).exp()
    below = chances.masked_fill(k > fewer, 0).sum(0)
    at = chances.masked_fill(k != fewer, 0).sum(0)
    p_value, mid_p = (2 * below).clamp(max=1), (2 * below - at).clamp(max=1)
    is_middle = 2 * fewer == number  # one term for both sides
    mid_p = torch.where(is_middle, 1 - at / 2, mid_p)
    return SwapTest(p_value, mid_p), is_one_size & (a_counts == b_counts).all(0)
