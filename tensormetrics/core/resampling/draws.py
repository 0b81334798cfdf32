"""Draws of a value from the weighted sums of its items, corrected for few items or groups.

A unit is what is resampled: a group of items, or an item that has no group. The Bayesian bootstrap cannot draw values
that were not observed, and its variance is too small for few units. Two sets of draws share the bootstrap's replicates;
each repairs one of these defects:

- P (`pseudo_masses`, `bound_fraction`) adds a unit of two pseudo-items, the worst and the best possible ones. For means
  of 0 and 1 this is Jeffreys' interval (Brown, Cai & DasGupta 2001, doi:10.1214/ss/1009213286).
- J (`scaled_draws`) rescales the deviations of the replicates from the value to the standard error of the jackknife; JT
  also multiplies them by the scale of a t distribution (`t_scales`).
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..numbers.philox import MASK_32, philox4x32, philox_key

TOLERANCE = 1e-9  # rounding error of influences and replicates, relative to the largest
# A pseudo-item of a mean lies NUM_DEVIATIONS * (1 + SMALL_SAMPLE_FACTOR / (number of units that differ)) standard
# deviations of the influences from the data, in comparisons without the second term.
NUM_DEVIATIONS = 3.0
SMALL_SAMPLE_FACTOR = 20.0
MIN_DIFFERING = 5  # with fewer differing units a comparison leaves its pseudo-items at the bounds
HEAVY_TAILS = 0.4  # excess kurtosis of replicates that few units carry
NEWTON_STEPS = 8  # two more than quantiles from 1e-5 to 1 - 1e-5 need for errors below 1e-12
MIN_DF = 0.5  # smaller degrees of freedom are raised to it, which keeps all draws finite


class Bounds(NamedTuple):
    """Rows (..., K) that the worst and the best possible item add to the K sums; NaN if a value has no bounds.

    `is_mean` if the K columns are V numerators and then V denominators of V means.
    """

    worst: Tensor
    best: Tensor
    is_mean: bool = False


def mean_bounds(values: int, low: float | Tensor = 0.0, high: float | Tensor = 1.0) -> Bounds:
    """Return the bounds of rows with numerators, then denominators, of means of items in [low, high]."""
    ones = torch.ones(values, dtype=torch.float64, device="cpu")
    return Bounds(torch.cat([ones * low, ones]), torch.cat([ones * high, ones]), is_mean=True)


class Jackknife(NamedTuple):
    """Jackknife estimates of V values: how much each depends on single units."""

    standard_error: Tensor  # (V,)
    influence_sd: Tensor  # (V,), standard deviation of the influences, standard_error * sqrt(num_units)
    bias: Tensor  # (V,), of the values (Quenouille 1956, doi:10.1093/biomet/43.3-4.353)
    num_differing: Tensor  # (V,), units whose influence is not the most frequent one
    effective_size: float  # mean size of the unit of a random item: sum of squared sizes over sum of sizes
    num_units: int
    num_items: float

    @property
    def effective_units(self) -> float:
        return self.num_items / self.effective_size


def delete_one_jackknife(values: Tensor, without: Tensor, sizes: Tensor) -> Jackknife:
    # values: (V,)  without: (U, V), the values without each unit  sizes: (U,)
    """Return the delete-one-unit jackknife (Efron & Stein 1981, doi:10.1214/aos/1176345462)."""
    count = len(without)
    influences = ((values - without) * max(count - 1, 1)).nan_to_num(0, 0, 0)
    squares = influences.square().sum(0)
    ordered = influences.sort(0).values
    tolerance = influences.abs().amax(0) * TOLERANCE
    starts = torch.ones_like(ordered, dtype=torch.bool)
    starts[1:] = ordered.diff(dim=0) > tolerance
    run = starts.long().cumsum(0) - 1
    lengths = torch.zeros_like(run).scatter_add_(0, run, torch.ones_like(run))
    items = float(sizes.sum())
    return Jackknife(
        standard_error=(squares / count / max(count - 1, 1)).sqrt(),
        influence_sd=(squares / max(count - 1, 1)).sqrt(),
        bias=-influences.mean(0),
        num_differing=count - lengths.amax(0),
        effective_size=float(sizes.square().sum()) / items,
        num_units=count,
        num_items=items,
    )


def joint_jackknife(squares: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    # squares: (P, V), mean squared deviation from the value without one unit  counts: (P, V), units of each sample
    # ->  (V,) each
    """Return the standard error of a value of P independent samples, and its degrees of freedom.

    The variances of the samples add up; degrees of freedom as in Satterthwaite 1946, doi:10.2307/3002019. A sample of
    one unit is taken as fixed.
    """
    variances = squares * (counts - 1) / counts.clamp(min=1)
    weighted_squares = (variances.square() / (counts - 1).clamp(min=1)).sum(0)
    total = variances.sum(0)
    return total.sqrt(), torch.where(weighted_squares > 0, total.square() / weighted_squares, 1.0)


def _uniforms(seed: int, stream: str, replicates: int) -> Tensor:
    # ->  (2, replicates) float64 in (0, 1)
    key = philox_key(seed, "items", "draws", stream)
    index = torch.arange(replicates, device="cpu")
    high, low, *other = philox4x32((index & MASK_32, index >> 32, 0, 0), key)
    pairs = (high, low), tuple(other)
    return torch.stack([((a << 20 | b >> 12).double() + 0.5) / 2.0**52 for a, b in pairs])


def pseudo_masses(seed: int, replicates: int, device: torch.device, stream: str = "pseudo") -> Tensor:
    # ->  (2, replicates) float64
    """Return the Gamma(1/2) masses of the worst and the best pseudo-item, equal for both models of a comparison."""
    normal = torch.special.ndtri(_uniforms(seed, stream, replicates))
    return (normal.square() / 2).to(device)


def t_scales(seed: int, replicates: int, df: float | Tensor, device: torch.device) -> Tensor:
    # df: (...)  ->  (replicates, ...) float64
    """Return sqrt(df / chi2), by which normal draws become those of a t distribution."""
    shape = torch.as_tensor(df, dtype=torch.float64, device=device).clamp(min=MIN_DF) / 2
    target = _uniforms(seed, "scale", replicates)[0].to(device).view(-1, *[1] * shape.ndim)
    return (shape.log() - log_gamma_quantiles(shape, target)).div(2).exp()


def log_gamma_quantiles(shape: Tensor, target: Tensor) -> Tensor:
    # shape: (...)  target: (R, ...) in (0, 1)  ->  (R, ...)
    """Return the logarithms of quantiles of Gamma(shape), by Newton's method within a bracket."""
    log_gamma = torch.lgamma(shape)
    low = (target.log() + torch.lgamma(shape + 1)) / shape  # P(X <= x) <= x^shape / Gamma(shape + 1)
    high = (shape + 10 * shape.sqrt() + 50).log().expand_as(low)
    # Wilson & Hilferty 1931, doi:10.1073/pnas.17.12.684
    root = 1 - 1 / (9 * shape) + torch.special.ndtri(target) / (3 * shape.sqrt())
    quantile = torch.fmax(shape.log() + 3 * root.clamp(min=0).log(), low)
    for _ in range(NEWTON_STEPS):
        below = torch.special.gammainc(shape, quantile.exp())
        low, high = quantile.where(below < target, low), high.where(below < target, quantile)
        step = quantile + (target - below) * (log_gamma + quantile.exp() - shape * quantile).exp()
        quantile = step.where((step >= low) & (step <= high), (low + high) / 2)
    return quantile


def scaled_draws(values: Tensor, replicates: Tensor, standard_error: Tensor, scales: Tensor | float) -> Tensor:
    # values, standard_error: (V,)  replicates: (R, V)  scales: (R, 1) or 1  ->  (R, V)
    """Return the replicates, with deviations from the values rescaled to the standard error, times `scales`."""
    deviations = replicates - values
    is_defined = ~deviations.isnan()
    count = is_defined.sum(0)
    centered = (deviations - deviations.nansum(0) / count).nan_to_num(0)
    sd = (centered.square().sum(0) / (count - 1).clamp(min=1)).sqrt()
    factor = torch.where(sd > 0, standard_error / sd, 1.0)
    return values + deviations * factor * scales


def bound_fraction(jackknife: Jackknife, distance: Tensor, of_comparison: bool) -> Tensor:
    # distance: (V,), from the value to its bound  ->  (V,) in [0, 1]
    """Return the fraction of the way from the data to the bound at which a pseudo-item of a mean is put."""
    differing = jackknife.num_differing.double()
    factor = torch.full_like(differing, NUM_DEVIATIONS)
    if not of_comparison:
        factor = NUM_DEVIATIONS * (1 + SMALL_SAMPLE_FACTOR / differing)
    fraction = (
        factor
        * jackknife.influence_sd
        * (jackknife.num_items / jackknife.num_units)
        / (jackknife.effective_size * distance)
    )
    min_differing = min(MIN_DIFFERING, math.ceil(jackknife.num_units / 2)) if of_comparison else 1
    return torch.where(differing < min_differing, 1.0, fraction.nan_to_num(1.0).clamp(max=1.0))


def excess_kurtosis(replicates: Tensor) -> Tensor:
    # (R, V)  ->  (V,)
    """Return the excess kurtosis of the defined replicates; infinite where they do not vary."""
    count = replicates.isnan().logical_not().sum(0)
    centered = (replicates - replicates.nansum(0) / count).nan_to_num(0, 0, 0)
    second = centered.square().sum(0) / count
    rounding = (TOLERANCE * replicates.nan_to_num(0, 0, 0).abs().amax(0)).square()
    return torch.where(second > rounding, centered.pow(4).sum(0) / count / second.square() - 3, torch.inf)
