"""Intervals of values that are read off sums of reweighted items."""

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from .draws import HEAVY_TAILS, Bounds, Spread, excess_kurtosis, jackknife, pseudo_masses, reach, scaled_draws, t_scales
from .errors import UncertaintyWarning
from .estimates import Estimate, interval_of
from .resampling import Joined, Resampled, Values, values_of
from .units import Units

FEW_UNITS = 5  # fewer: the interval rests on the range of the scores


class DrawSets(NamedTuple):
    """Two sets of draws of V values, (R, V) each; of the second one those values that it has."""

    first: Tensor
    second: Tensor
    has_second: Tensor  # (V,) bool

    def interval(self, confidence: float) -> tuple[Tensor, Tensor]:
        # ->  (V,) each
        """Return the outer envelope of the intervals of both sets."""
        ends, others = interval_of(self.first, confidence), interval_of(self.second, confidence)
        return (
            torch.where(self.has_second, torch.fmin(ends[0], others[0]), ends[0]),
            torch.where(self.has_second, torch.fmax(ends[1], others[1]), ends[1]),
        )


class Side(NamedTuple):
    """One metric, or one of the two of a comparison with its sign."""

    resampled: Resampled
    values: Values
    sign: float = 1.0


def interval(resampled: Resampled | Joined, confidence: float) -> Any:
    """Return an `Estimate` for each value."""
    if isinstance(resampled, Joined):
        return resampled.join([interval(part, confidence) for part in resampled.parts])
    values = values_of(resampled)
    sides = [Side(resampled, values)]
    value, spread = read_sides(sides, lambda side: side.resampled.plain), spread_of(sides)
    ranges = ranges_of(sides)
    if spread is not None and spread.num_units == 1:
        low, high = (end.expand_as(value) for end in ranges)
    else:
        low, high = draw_sets(sides, value, spread).interval(confidence)
    low, high = (end.where(value.isfinite(), torch.nan) for end in (torch.fmin(low, value), torch.fmax(high, value)))
    counts = counts_of(resampled, spread)
    if message := _warning(spread, ranges, counts["groups"] != counts["items"], resampled.is_smooth):
        warnings.warn(message, UncertaintyWarning, stacklevel=3)
    details = {} if resampled.units is not None else {"groups_estimated": True}

    def estimate(value: Tensor, low: Tensor, high: Tensor) -> Estimate:
        return Estimate(
            value, low, high, confidence=confidence, **counts, method="bayesian bootstrap", details=dict(details)
        )

    return values.restored([value, low, high], estimate)


def with_values(estimates: Any, values: Any) -> Any:
    """Return the estimates with the values of `compute`, from which sums in another order differ by rounding."""
    if isinstance(estimates, Estimate):
        low, high = torch.fmin(estimates.low, values), torch.fmax(estimates.high, values)
        return dataclasses.replace(estimates, value=values, low=low, high=high)
    return {name: with_values(estimate, values[name]) for name, estimate in estimates.items()}


def read_sides(sides: list[Side], sums: Callable[[Side], Tensor]) -> Tensor:
    # ->  (..., V), the value of one metric or the difference of two
    return torch.stack([side.sign * side.values.read(sums(side)) for side in sides]).sum(0)


def spread_of(sides: list[Side]) -> Spread | None:
    """Return the jackknife; None without units, or where these are too many."""
    units = sides[0].resampled.units
    if any(side.resampled.units is None for side in sides) or units is None or not len(units.ids):
        return None
    value = read_sides(sides, lambda side: side.resampled.plain)
    without = read_sides(sides, lambda side: side.resampled.plain - cast(Units, side.resampled.units).rows)
    return jackknife(value, without, units.sizes)


def ranges_of(sides: list[Side]) -> tuple[Tensor, Tensor]:
    # ->  (V,) or () each
    """Return the least and the largest possible value, or difference."""
    like = sides[0].resampled.weighted
    ends = [tuple(torch.as_tensor(end, dtype=torch.float64).to(like) for end in side.resampled.range) for side in sides]
    if len(ends) == 1:
        return ends[0][0], ends[0][1]
    (low_a, high_a), (low_b, high_b) = ends
    return low_a - high_b, high_a - low_b


def draw_sets(sides: list[Side], value: Tensor, spread: Spread | None) -> DrawSets:
    """Draw the value: J or JT, and P where bounds are known; the replicates where units are too many."""
    replicates = read_sides(sides, lambda side: side.resampled.weighted)
    is_comparison = len(sides) > 1
    has_bounds = _has_bounds(sides, value)
    if spread is None or not all(side.resampled.is_smooth for side in sides):
        heavy = has_bounds & (excess_kurtosis(replicates) > HEAVY_TAILS)
        pseudo = _pseudo_draws(sides, value, None) if bool(heavy.any()) else replicates
        return DrawSets(replicates, pseudo, heavy)
    scales = torch.ones_like(replicates[:, :1])
    if is_comparison or not bool(has_bounds.all()):
        seed, df = sides[0].resampled.seed, spread.effective_units - 1
        scales = t_scales(seed, len(replicates), df, value.device)[:, None]
        scales = scales if is_comparison else torch.where(has_bounds, 1.0, scales)
    moved = scaled_draws(value, replicates, spread.standard_error, scales)
    moved = torch.minimum(torch.maximum(moved, ranges_of(sides)[0]), ranges_of(sides)[1])
    return DrawSets(moved, _pseudo_draws(sides, value, spread) if bool(has_bounds.any()) else moved, has_bounds)


def _has_bounds(sides: list[Side], value: Tensor) -> Tensor:
    # ->  (V,) bool
    known = torch.ones_like(value, dtype=torch.bool)
    for side in sides:
        if side.resampled.bounds is None:
            return torch.zeros_like(known)
        worst, best = _bound_rows(side)
        known = known & side.values.read(side.resampled.plain + worst + best).isfinite()
    return known


def _pseudo_draws(sides: list[Side], value: Tensor, spread: Spread | None) -> Tensor:
    # ->  (R, V)
    """Draw with a pseudo-unit, half of it the worst and half the best item; of a difference, the best and the worst."""
    rows = [_bound_rows(side) for side in sides]
    rows = [(best, worst) if side.sign < 0 else (worst, best) for side, (worst, best) in zip(sides, rows, strict=True)]
    if spread is not None and all(cast(Bounds, side.resampled.bounds).is_mean for side in sides):
        for end in (0, 1):
            at_bound = torch.stack([
                side.sign * side.values.read(pair[end]) for side, pair in zip(sides, rows, strict=True)
            ]).sum(0)  # fmt: skip
            share = reach(spread, (at_bound - value).abs(), len(sides) > 1).repeat(2)
            for side, (index, pair) in zip(sides, enumerate(rows), strict=True):
                mean = side.resampled.plain / max(side.resampled.num_items, 1)
                moved = ((1 - share) * mean + share * pair[end]).nan_to_num(0)
                rows[index] = (moved, pair[1]) if end == 0 else (pair[0], moved)
    first = sides[0].resampled
    size = _effective_size(first) if spread is None else spread.effective_size
    masses = size * pseudo_masses(first.seed, len(first.weighted), value.device)
    masses = masses.view(2, -1, *[1] * first.plain.ndim)
    draws = [
        side.sign
        * side.values.read(side.resampled.weighted + masses[0] * low.nan_to_num(0) + masses[1] * high.nan_to_num(0))
        for side, (low, high) in zip(sides, rows, strict=True)
    ]
    return torch.stack(draws).sum(0)


def _bound_rows(side: Side) -> tuple[Tensor, Tensor]:
    bounds, plain = cast(Bounds, side.resampled.bounds), side.resampled.plain
    return bounds.worst.to(plain).expand_as(plain), bounds.best.to(plain).expand_as(plain)


def _effective_size(resampled: Resampled) -> float:
    """Estimate the items of the group of an average item from the replicates of the number of items."""
    if resampled.sizes is None or not resampled.num_items:
        return 1.0
    return max(float(resampled.sizes.var()) / resampled.num_items, 1.0)


def counts_of(resampled: Resampled, spread: Spread | None) -> dict[str, Any]:
    items = resampled.num_items
    if spread is not None:
        return {"items": items, "groups": spread.num_units, "effective_groups": spread.effective_units}
    groups = round(items / _effective_size(resampled))
    return {"items": items, "groups": groups, "effective_groups": float(groups)}


def _warning(spread: Spread | None, ranges: tuple[Tensor, Tensor], is_grouped: bool, is_smooth: bool) -> str:
    unit = "group" if is_grouped else "item"
    if spread is None:
        return ""
    if spread.num_units == 1:
        return f"one {unit}: its spread cannot be known; wanted at least 5 {unit}s"
    if spread.num_units < FEW_UNITS:
        return (
            f"{spread.num_units} {unit}s: the interval rests on the range of the scores rather than on their spread; "
            f"wanted at least {FEW_UNITS}"
        )
    if not is_smooth:
        return ""
    is_unbounded = bool((ranges[0] == -torch.inf).any() or (ranges[1] == torch.inf).any())
    if is_unbounded and not bool(spread.num_differing.any()):
        return f"all {unit}s are alike and the range of the score is unknown, so that the interval has no width"
    return ""
