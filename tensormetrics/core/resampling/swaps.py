"""Exact tests of a difference: the swap test and the binomial test.

Two models are exchanged on random units, and their difference is computed again. Noreen 1989, Computer-intensive
methods for testing hypotheses; Yeh 2000, doi:10.3115/992730.992783.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

TOLERANCE = 1e-10  # of equal differences, relative to the values
MAX_EXACT = 12  # differing units up to which all swaps are enumerated
CHUNK = 2**22  # numbers of swapped sums at a time


class ExactTest(NamedTuple):
    """One-sided p-values of V differences; outcomes equal to the observed one count fully. NaN: no test."""

    greater: Tensor  # (V,), chance of the observed difference or a larger one
    less: Tensor
    is_exact: Tensor  # (V,) bool, all outcomes were enumerated; else some were drawn

    @property
    def mid_p(self) -> Tensor:
        # ->  (V,)
        """Twice the smaller p-value if outcomes equal to the observed one count half."""
        return 1 - (self.greater - self.less).abs()


def swap_test(
    read_difference: Callable[[Tensor, Tensor], Tensor],
    sums: tuple[Tensor, Tensor],
    units: tuple[Tensor, Tensor] | None,
    random_halves: tuple[Tensor, Tensor],
    scale: Tensor,
    of_means: bool,
) -> ExactTest:
    # read_difference: sums of a and b (..., *shape)  ->  (..., V)  sums: (*shape) each  units: rows (U, *shape) each
    # random_halves: (R, *shape) each, sums of random halves of the units  scale: (V,), size of the values
    """Test that a and b are exchangeable on each unit.

    Means whose differences have one size: exact binomial test (McNemar's for 0 and 1). Up to `MAX_EXACT` units that
    differ: all swaps. Otherwise the random swaps of `random_halves`, (1 + hits) / (1 + R).
    """
    observed = read_difference(*sums)
    tolerance = TOLERANCE * scale

    def random_swaps() -> Tensor:
        swap = random_halves[1] - random_halves[0]
        return read_difference(sums[0] + swap, sums[1] - swap)

    if units is None:
        return _counted(observed, random_swaps(), tolerance, is_random=True)
    rows = units[0].flatten(1), units[1].flatten(1)
    moved, counts = _differences(*rows, of_means)
    is_exact = counts <= MAX_EXACT
    test = None
    if bool(is_exact.any()):
        moved = moved[: int(counts.masked_fill(~is_exact, 0).amax())]
        subsets = torch.arange(2 ** len(moved), device=observed.device)
        selected = (subsets[:, None] >> torch.arange(len(moved), device=observed.device) & 1).double()
        chunks = selected.split(max(CHUNK // max(moved.shape[1], 1), 1))
        swaps = ((chunk @ moved).unflatten(1, sums[0].shape) for chunk in chunks)
        swapped = torch.cat([read_difference(sums[0] + swap, sums[1] - swap) for swap in swaps])
        test = _counted(observed, swapped, tolerance, is_random=False)
    if test is None or not bool(is_exact.all()):
        random = _counted(observed, random_swaps(), tolerance, is_random=True)
        test = random if test is None else either(is_exact, test, random)
    if not of_means:
        return test
    binomial, applies = _binomial(*rows)
    return either(applies, binomial, test)


def either(is_first: Tensor, first: ExactTest, second: ExactTest) -> ExactTest:
    # is_first: (V,) or ()
    return ExactTest(*(torch.where(is_first, a, b) for a, b in zip(first, second, strict=True)))


def _differences(a: Tensor, b: Tensor, of_means: bool) -> tuple[Tensor, Tensor]:
    # a, b: (U, K) rows of the units  ->  (D, K), (V,) or ()
    """Return b - a of the units that differ, at most `MAX_EXACT`, and the number of those; of means for each alone."""
    differs = a != b
    if not of_means:
        differs = differs.any(1)
        return (b - a)[differs][:MAX_EXACT], differs.sum()
    differs = torch.stack(differs.chunk(2, 1)).any(0)
    first = differs.byte().sort(dim=0, descending=True, stable=True).indices[:MAX_EXACT]
    return (b - a).gather(0, first.repeat(1, 2)), differs.sum(0)


def _counted(observed: Tensor, swapped: Tensor, tolerance: Tensor, is_random: bool) -> ExactTest:
    # observed, tolerance: (V,)  swapped: (R, V)
    """Count swaps; each counts also for the swap of all other units, whose difference has the opposite sign."""
    excess = swapped.abs() - observed.abs()
    is_defined = ~swapped.isnan()
    count = is_defined.sum(0) + is_random
    above = (excess > tolerance).sum(0).double()
    equal = (excess.abs() <= tolerance).sum(0).double() + is_random  # the observed one is one of the random ones
    toward, opposite = (above + equal) / count / 2, 1 - above / count / 2
    tails = torch.where(observed > tolerance, toward, opposite), torch.where(observed < -tolerance, toward, opposite)
    greater, less = (tail.masked_fill(observed.isnan(), torch.nan) for tail in tails)
    return ExactTest(greater, less, torch.full_like(observed, not is_random, dtype=torch.bool))


def _binomial(a: Tensor, b: Tensor) -> tuple[ExactTest, Tensor]:
    # a, b: (U, 2 V) rows of the units  ->  the test, and the values (V,) to which it applies
    (a, a_counts), (b, b_counts) = (operand.tensor_split(2, 1) for operand in (a, b))
    differences = a - b
    sizes = differences.abs()
    largest = sizes.amax(0) if len(sizes) else sizes.new_zeros(sizes.shape[1])
    is_one_size = ((sizes == 0) | (largest - sizes <= TOLERANCE * largest)).all(0)
    test = binomial_test((differences > 0).sum(0), (sizes > 0).sum(0), 0.5)
    return test, is_one_size & (a_counts == b_counts).all(0)


def binomial_test(successes: Tensor, trials: Tensor, chance: float) -> ExactTest:
    # successes, trials: (V,)
    """Test that each trial succeeds with the given chance."""
    max_trials = int(trials.max()) if trials.numel() else 0
    k = torch.arange(max_trials + 1, dtype=torch.float64, device=trials.device)[:, None]
    p = torch.full_like(k, chance)
    failures = (trials - k).clamp(min=0)
    log_counts = torch.lgamma(trials.double() + 1) - torch.lgamma(k + 1) - torch.lgamma(failures + 1)
    chances = (log_counts + torch.xlogy(k, p) + torch.xlogy(failures, 1 - p)).exp().masked_fill(k > trials, 0)
    greater, less = (chances.masked_fill(outside, 0).sum(0).clamp(max=1) for outside in (k < successes, k > successes))
    return ExactTest(greater, less, torch.ones_like(greater, dtype=torch.bool))
