"""Intervals of values that are read off sums of reweighted items."""

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from ..arguments.callers import level_of_caller
from ..numbers.quantiles import equal_tailed_interval
from ..results.estimates import Estimate
from .draws import (
    HEAVY_TAILS,
    TOLERANCE,
    Bounds,
    Jackknife,
    bound_fraction,
    delete_one_jackknife,
    excess_kurtosis,
    pseudo_masses,
    scaled_draws,
    t_scales,
)
from .errors import UncertaintyWarning
from .resampling import FlatValues, Joined, Resampled, values_of
from .units import Units

MIN_UNITS = 5  # fewer: the interval rests on the range of the scores


class DrawSets(NamedTuple):
    """Two sets of draws of V values, (R, V) each; `has_second` marks the values that the second set has."""

    first: Tensor
    second: Tensor
    has_second: Tensor  # (V,) bool
    is_unknown: Tensor  # (V,) bool, values whose spread the data do not show
    scales: Tensor | None = None  # (R, 1), of Student's t in the first set

    def interval(self, confidence: float) -> tuple[Tensor, Tensor]:
        # ->  (V,) each
        """Return the outer envelope of the intervals of both sets."""
        low, high = equal_tailed_interval(self.first, confidence)
        if self.second is not self.first:
            others = equal_tailed_interval(self.second, confidence)
            low = torch.where(self.has_second, torch.fmin(low, others[0]), low)
            high = torch.where(self.has_second, torch.fmax(high, others[1]), high)
        return low.masked_fill(self.is_unknown, -torch.inf), high.masked_fill(self.is_unknown, torch.inf)

    def minus(self, reference: float) -> "DrawSets":
        """Return the draws of the differences to a number."""
        return self._replace(first=self.first - reference, second=self.second - reference)

    def minus_draws(self, other: "DrawSets") -> "DrawSets":
        """Return the draws of the differences to the values of another sample, in which items have other weights."""
        first, second = (draws.second.where(draws.has_second, draws.first) for draws in (self, other))
        has_second, is_unknown = self.has_second | other.has_second, self.is_unknown | other.is_unknown
        return DrawSets(independent(self.first, other.first), independent(first, second), has_second, is_unknown)


def independent(draws: Tensor, others: Tensor) -> Tensor:
    # draws, others: (R, V)  ->  (R, V)
    """Subtract draws of another sample that have the same weights: those of the sample that is ahead are shifted."""
    differences = draws - others.roll(1, 0), draws.roll(1, 0) - others
    return torch.where((draws - others).nansum(0) > 0, *differences)


class Operand(NamedTuple):
    """A metric, with its sign where it is one of the two of a comparison."""

    resampled: Resampled
    values: FlatValues
    sign: float = 1.0


def interval(resampled: Resampled | Joined, confidence: float) -> Any:
    """Return an `Estimate` for each value."""
    if isinstance(resampled, Joined):
        return resampled.join([interval(part, confidence) for part in resampled.parts])
    values = values_of(resampled)
    operands = [Operand(resampled, values)]
    value, jackknife = read_operands(operands, lambda operand: operand.resampled.observed), jackknife_of(operands)
    ranges, draws = ranges_of(operands), draw_sets(operands, value, jackknife)
    low, high = draws.interval(confidence)
    low, high = torch.maximum(low, ranges[0]), torch.minimum(high, ranges[1])
    low, high = (end.where(value.isfinite(), torch.nan) for end in (torch.fmin(low, value), torch.fmax(high, value)))
    counts = counts_of(resampled, jackknife)
    if message := unit_count_warning(jackknife, draws, counts["groups"] != counts["items"]):
        warnings.warn(message, UncertaintyWarning, stacklevel=level_of_caller())
    is_counted = resampled.units is not None or resampled.unit_counts is not None
    details = {} if is_counted else {"groups_estimated": True}

    def estimate(value: Tensor, low: Tensor, high: Tensor) -> Estimate:
        return Estimate(
            value, low, high, confidence=confidence, **counts, method="bayesian bootstrap", details=dict(details)
        )

    return values.restored([value, low, high], estimate)


def with_values(estimates: Any, values: Any, name: str = "") -> Any:
    """Return the estimates with a name and the values of `compute`, from which sums in another order may differ."""
    if isinstance(estimates, Estimate):
        low, high = torch.minimum(estimates.low, values), torch.maximum(estimates.high, values)
        return dataclasses.replace(estimates, value=values, low=low, high=high, name=name)
    values = values._asdict() if hasattr(values, "_asdict") else values
    return {key: with_values(estimate, values[key], key) for key, estimate in estimates.items()}


def read_operands(operands: list[Operand], sums: Callable[[Operand], Tensor]) -> Tensor:
    # ->  (..., V), the value of one metric or the difference of two
    return _joined(operands, [operand.values.read(sums(operand)) for operand in operands])


def _joined(operands: list[Operand], values: list[Tensor]) -> Tensor:
    # values: (..., V) of each operand  ->  (..., V)
    return torch.stack([operand.sign * value for operand, value in zip(operands, values, strict=True)]).sum(0)


def _unbiased(operand: Operand, draws: Tensor) -> Tensor:
    # draws: (R, V)  ->  (V,)
    """Return the value without the larger of its biases by the jackknife and by the draws."""
    resampled = operand.resampled
    value, jackknife = operand.values.read(resampled.observed), jackknife_of([operand._replace(sign=1.0)])
    bias = draws.mean(0) - value
    if resampled.check_bias is not None:
        resampled.check_bias(bias, draws.std(0).clamp(min=TOLERANCE))
    other = cast(Tensor, resampled.bias).flatten() if jackknife is None else jackknife.bias
    return value - torch.maximum(other, bias)


def jackknife_of(operands: list[Operand]) -> Jackknife | None:
    """Return the jackknife; None without units, or where these are too many."""
    units = operands[0].resampled.units
    if any(operand.resampled.units is None for operand in operands) or units is None or not len(units.ids):
        return None
    value = read_operands(operands, lambda operand: operand.resampled.observed)
    without = read_operands(
        operands, lambda operand: operand.resampled.observed - cast(Units, operand.resampled.units).rows
    )
    return delete_one_jackknife(value, without, units.sizes)


def ranges_of(operands: list[Operand]) -> tuple[Tensor, Tensor]:
    # ->  (V,) or () each
    """Return the smallest and the largest possible value, or difference."""
    like = operands[0].resampled.weighted
    ends = [
        tuple(torch.as_tensor(end, dtype=torch.float64).to(like) for end in operand.resampled.range)
        for operand in operands
    ]
    if len(ends) == 1:
        return ends[0][0], ends[0][1]
    (low_a, high_a), (low_b, high_b) = ends
    return low_a - high_b, high_a - low_b


def draw_sets(operands: list[Operand], value: Tensor, jackknife: Jackknife | None) -> DrawSets:
    """Draw the value: J or JT, and P where bounds are known; the replicates where units are too many."""
    of_models = [operand.values.read(operand.resampled.weighted) for operand in operands]
    replicates = _joined(operands, of_models)
    center = value
    if operands[0].resampled.is_biased:
        center = _joined(operands, [_unbiased(*pair) for pair in zip(operands, of_models, strict=True)])
        replicates = replicates - replicates.mean(0) + center
    is_comparison = len(operands) > 1
    has_bounds = _has_bounds(operands, value)
    low, high = ranges_of(operands)

    def clip(draws: Tensor) -> Tensor:
        return torch.minimum(torch.maximum(draws, low), high)

    if jackknife is None or not all(operand.resampled.is_smooth for operand in operands):
        kurtosis = excess_kurtosis(replicates)
        is_alike = kurtosis == torch.inf
        heavy = has_bounds & (is_alike if jackknife is not None and _lacks_bounds(operands) else kurtosis > HEAVY_TAILS)
        pseudo = _pseudo_draws(operands, value, None, replicates) if bool(heavy.any()) else replicates
        pseudo = _with_unseen_cells(operands, value, jackknife, pseudo)
        heavy = heavy | (operands[0].resampled.unseen is not None)
        is_unknown = ~has_bounds & is_alike & (not operands[0].resampled.has_pseudo_items)
        if jackknife is not None and jackknife.num_units == 1:
            is_unknown = torch.ones_like(is_unknown)
        return DrawSets(clip(replicates), clip(pseudo), heavy, is_unknown & value.isfinite())
    scales = torch.ones_like(replicates[:, :1])
    if is_comparison or not bool(has_bounds.all()):
        seed, df = operands[0].resampled.seed, jackknife.effective_units - 1
        scales = t_scales(seed, len(replicates), df, value.device)[:, None]
        scales = scales if is_comparison else torch.where(has_bounds, 1.0, scales)
    moved = clip(scaled_draws(center, replicates, jackknife.standard_error, scales))
    pseudo = clip(_pseudo_draws(operands, value, jackknife, replicates)) if bool(has_bounds.any()) else moved
    pseudo = _with_unseen_cells(operands, value, jackknife, pseudo)
    is_unknown = (jackknife.num_differing == 0) & ~has_bounds | (jackknife.num_units == 1)
    return DrawSets(moved, pseudo, has_bounds, is_unknown & value.isfinite(), scales)


def _has_bounds(operands: list[Operand], value: Tensor) -> Tensor:
    # ->  (V,) bool
    is_known = torch.ones_like(value, dtype=torch.bool)
    if _lacks_bounds(operands):
        low, high = ranges_of(operands)
        return is_known & (low.isfinite() & high.isfinite()) & (not operands[0].resampled.has_pseudo_items)
    for operand in operands:
        worst, best = _bound_rows(operand)
        is_known = is_known & operand.values.read(operand.resampled.observed + worst + best).isfinite()
    return is_known


def margin_draws(operands: list[Operand], value: Tensor, jackknife: Jackknife | None) -> tuple[Tensor, Tensor] | None:
    # ->  (R, V) each, NaN where the range is unknown
    """Draw with one whole pseudo-unit at the lower end of the range, and with one at the upper end."""
    has_bounds = _has_bounds(operands, value)
    if not bool(has_bounds.any()):
        return None
    first = operands[0].resampled
    mass = pseudo_masses(first.seed, len(first.weighted), value.device).sum(0)[:, None]  # exponential
    at_low = torch.stack([mass, 0 * mass])
    replicates = read_operands(operands, lambda operand: operand.resampled.weighted)
    low, high = (_pseudo_draws(operands, value, jackknife, replicates, part) for part in (at_low, at_low.flip(0)))
    return low.where(has_bounds, torch.nan), high.where(has_bounds, torch.nan)


def _pseudo_draws(
    operands: list[Operand],
    value: Tensor,
    jackknife: Jackknife | None,
    replicates: Tensor,
    masses: Tensor | None = None,
) -> Tensor:
    # replicates: (R, V)  masses: (2, R, 1)  ->  (R, V)
    """Draw with a pseudo-unit, half of it the worst and half the best item; of a difference, the best and the worst."""
    first = operands[0].resampled
    of_means = all(operand.resampled.bounds is not None and operand.resampled.bounds.is_mean for operand in operands)
    if masses is None:
        masses = pseudo_masses(first.seed, len(first.weighted), value.device)[..., None]
        if len(operands) > 1:  # so that two models in the other order have the opposite draws
            is_separate = of_means or _lacks_bounds(operands)  # else values share rows
            ahead = (replicates + value).nansum(0 if is_separate else (0, 1))  # all replicates may be 0
            masses = torch.where(ahead < 0, masses.flip(0), masses)
    if _lacks_bounds(operands):
        return _pseudo_values(operands, value, jackknife, replicates, masses)
    bounds = [_bound_rows(operand) for operand in operands]
    bounds = [rows if operand.sign > 0 else rows[::-1] for operand, rows in zip(operands, bounds, strict=True)]
    lowest, highest = ([rows[end] for rows in bounds] for end in (0, 1))
    if jackknife is not None and of_means:
        lowest, highest = (_moved_to_data(operands, rows, value, jackknife) for rows in (lowest, highest))
    size = _effective_size(first) if jackknife is None else jackknife.effective_size
    masses = masses.expand(-1, -1, len(value)).repeat(1, 1, 2) if of_means else masses
    masses = size * masses.unflatten(1, (-1, *[1] * (first.observed.ndim - 1)))
    draws = []
    for operand, low, high in zip(operands, lowest, highest, strict=True):
        added = masses[0] * low.nan_to_num(0) + masses[1] * high.nan_to_num(0)
        draws.append(operand.sign * operand.values.read(operand.resampled.weighted + added))
    return torch.stack(draws).sum(0)


def _lacks_bounds(operands: list[Operand]) -> bool:
    return any(operand.resampled.bounds is None for operand in operands)


def _pseudo_values(
    operands: list[Operand], value: Tensor, jackknife: Jackknife | None, draws: Tensor, masses: Tensor
) -> Tensor:
    # draws: (R, V)  masses: (2, R, 1 or V)  ->  (R, V)
    """Draw values of known range and unknown rows with a pseudo-unit, as if they were means over the units."""
    first = operands[0].resampled
    if jackknife is None:
        units = max(first.num_items / _effective_size(first), 1.0)
        ends = [end.expand_as(value) for end in ranges_of(operands)]
    else:
        units = jackknife.effective_units
        distances = [(end - value).abs() for end in ranges_of(operands)]
        fractions = [bound_fraction(jackknife, distance, len(operands) > 1) for distance in distances]
        ends = [
            torch.lerp(value, end.expand_as(value), f) for end, f in zip(ranges_of(operands), fractions, strict=True)
        ]
    total = (units / t_scales(first.seed, len(draws), 2 * units, value.device).square())[:, None]  # Gamma(units)
    low, high = masses
    return (total * draws + low * ends[0] + high * ends[1]) / (total + low + high)


def _with_unseen_cells(operands: list[Operand], value: Tensor, jackknife: Jackknife | None, draws: Tensor) -> Tensor:
    # draws: (R, V)  ->  the same, or those with items in cells that were not seen, where these are farther away
    first = operands[0].resampled
    size = _effective_size(first) if jackknife is None else jackknife.effective_size
    functions = [operand.resampled.unseen for operand in operands if operand.resampled.unseen is not None]
    if len(functions) < len(operands):
        return draws
    unseen, *others = (function(first.seed, len(draws), size)[:, None] for function in functions)
    unseen = independent(unseen, others[0]) if others else unseen
    return unseen.where((unseen - value).abs() > (draws - value).abs(), draws)


def _moved_to_data(operands: list[Operand], rows: list[Tensor], value: Tensor, jackknife: Jackknife) -> list[Tensor]:
    # rows: (..., 2 V) of each operand, an item at one end of the range  ->  the same
    """Move rows of means towards the mean row of the data, so that a distant bound does not widen narrow scores."""
    pairs = list(zip(operands, rows, strict=True))
    at_bound = torch.stack([operand.sign * operand.values.read(row) for operand, row in pairs]).sum(0)
    fraction = bound_fraction(jackknife, (at_bound - value).abs(), len(operands) > 1).repeat(2)
    means = [operand.resampled.observed / max(operand.resampled.num_items, 1) for operand in operands]
    return [torch.lerp(mean, row, fraction) for mean, row in zip(means, rows, strict=True)]


def _bound_rows(operand: Operand) -> tuple[Tensor, Tensor]:
    bounds, observed = cast(Bounds, operand.resampled.bounds), operand.resampled.observed
    return bounds.worst.to(observed).expand_as(observed), bounds.best.to(observed).expand_as(observed)


def _effective_size(resampled: Resampled) -> float:
    """Estimate the items of the group of an average item from the replicates of the number of items."""
    if resampled.sizes is None or not resampled.num_items:
        return 1.0
    return max(float(resampled.sizes.var()) / resampled.num_items, 1.0)


def counts_of(resampled: Resampled, jackknife: Jackknife | None) -> dict[str, Any]:
    items = resampled.num_items
    if jackknife is not None:
        return {"items": items, "groups": jackknife.num_units, "effective_groups": jackknife.effective_units}
    if resampled.unit_counts is not None:
        groups, effective_groups = resampled.unit_counts
        return {"items": items, "groups": groups, "effective_groups": effective_groups}
    groups = round(items / _effective_size(resampled))
    return {"items": items, "groups": groups, "effective_groups": float(groups)}


def unit_count_warning(jackknife: Jackknife | None, draws: DrawSets, is_grouped: bool) -> str:
    unit = "group" if is_grouped else "item"
    if jackknife is not None and jackknife.num_units == 1:
        return f"one {unit}: its spread cannot be known; wanted at least 5 {unit}s"
    if bool(draws.is_unknown.any()):
        return f"all {unit}s are alike and the range of the score is unknown, so that the interval has no ends"
    if jackknife is not None and jackknife.num_units < MIN_UNITS:
        return (
            f"{jackknife.num_units} {unit}s: the interval rests on the range of the scores rather than on their "
            f"spread; wanted at least {MIN_UNITS}"
        )
    return ""
