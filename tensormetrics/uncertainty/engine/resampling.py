"""Intervals and comparisons of values that are functions of sums over items: the same sums of reweighted items."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from .draws import (
    HEAVY_TAILS,
    Bounds,
    Spread,
    excess_kurtosis,
    jackknife,
    pseudo_masses,
    reach,
    scaled_draws,
    t_scales,
)
from .errors import UncertaintyWarning
from .estimates import Comparison, Estimate, interval_of
from .swaps import SwapTest, swap_test
from .units import Units, units_of_items
from .weights import fingerprint, joined, weighted_sums

FEW_UNITS = 5  # fewer: the interval rests on the range of the scores
FEW_PAIRS = 5  # up to so many pairs no swap test reaches .05
Range = tuple[float | Tensor, float | Tensor]  # of all values, or (V,)
UNKNOWN: Range = (-torch.inf, torch.inf)


class Resampled(NamedTuple):
    """Sums over all items, over those of each unit and in R replicates, and what is read off them."""

    plain: Tensor  # (...)
    weighted: Tensor  # (R, ...)
    half: Tensor | None  # (R, ...), of a random half of the units; None where such sums are not to be mixed
    read: Callable[[Tensor], Any]  # sums (..., *shape of plain)  ->  a value (...), or values by name
    items: Tensor  # (), equal for equal items
    units: Units | None  # None if these are too many, or the value is no function of sums
    num_items: int
    sizes: Tensor | None  # (R,), weighted numbers of items
    seed: int
    bounds: Bounds | None = None
    range: Range = UNKNOWN


class Joined(NamedTuple):
    """Several metrics on the same items; `join` makes one value, or one result, of theirs."""

    parts: list[Resampled]
    join: Callable[[list[Any]], Any]


class Items(NamedTuple):
    """Rows whose sums, over all items or over those of each cell, a metric reads its value off."""

    rows: Tensor  # (N, K) float64
    units: Tensor  # (N,) int64, equal for items that share a weight
    read: Callable[[Tensor], Any]  # (..., C, K)  ->  a value (...), or values by name
    cells: Tensor | None = None  # (N,) int64 in [0, C)
    width: int = 1  # C
    mixes: bool = True  # may sums of two metrics be mixed? Not where cells are numbered by the scores themselves
    bounds: Bounds | None = None
    range: Range = UNKNOWN
    identity: tuple[Tensor, ...] = ()  # columns (N',) int64 by which items are told; by default the units

    def resampled(self, replicates: int, seed: int) -> Resampled:
        """Return the sums that the items have in all replicates."""
        rows, mixes = self.rows.double(), self.mixes
        sums = weighted_sums(rows, self.units, replicates, seed, halves=mixes, cells=self.cells, width=self.width)
        cells = torch.zeros_like(self.units) if self.cells is None else self.cells
        units = units_of_items(rows, self.units, self.cells, self.width)
        sizes = None
        if units is None:
            sizes = joined(weighted_sums(torch.ones_like(rows[:, :1]), self.units, replicates, seed)[0])[:, 0, 0]
        return Resampled(
            plain=rows.new_zeros(self.width, rows.shape[1]).index_add_(0, cells, rows),
            weighted=joined(sums[0]),
            half=joined(sums[1]) if mixes else None,
            read=self.read,
            items=fingerprint(*(self.identity or (self.units,))),
            units=units,
            num_items=len(rows),
            sizes=sizes,
            seed=seed,
            bounds=self.bounds,
            range=self.range,
        )


def together(parts: Sequence[Resampled | Joined], join: Callable[[list[Any]], Any]) -> Joined:
    """Join several metrics that were updated with the same items."""
    if all(isinstance(part, Resampled) for part in parts):
        return Joined([part for part in parts if isinstance(part, Resampled)], join)
    flat = [part.parts if isinstance(part, Joined) else [part] for part in parts]

    def join_nested(results: list[Any]) -> Any:
        remaining, outer = iter(results), []
        for part, inner in zip(parts, flat, strict=True):
            values = [next(remaining) for _ in inner]
            outer.append(part.join(values) if isinstance(part, Joined) else values[0])
        return join(outer)

    return Joined([part for inner in flat for part in inner], join_nested)


def value_of(resampled: Resampled | Joined) -> Any:
    """Read the value of the data."""
    if isinstance(resampled, Joined):
        return resampled.join([value_of(part) for part in resampled.parts])
    return resampled.read(resampled.plain)


class _Values(NamedTuple):
    """Values (...) by name as one tensor (..., V), and back."""

    read: Callable[[Tensor], Tensor]
    leaves: list[Tensor]  # of the data
    spec: Any

    def restored(self, columns: list[Tensor], make: Callable[..., Any]) -> Any:
        # columns: (V,) each  ->  `make` of the columns of each leaf
        sizes = [leaf.numel() for leaf in self.leaves]
        parts = zip(*(column.split(sizes) for column in columns), strict=True)
        results = [
            make(*(part.view(leaf.shape).to(torch.float64) for part in leaf_parts))
            for leaf, leaf_parts in zip(self.leaves, parts, strict=True)
        ]
        return tree_unflatten(results, self.spec)


def _values(resampled: Resampled) -> _Values:
    leaves, spec = tree_flatten(resampled.read(resampled.plain))
    lead = resampled.plain.ndim

    def read(sums: Tensor) -> Tensor:
        batch = sums.ndim - lead
        return torch.cat([leaf.double().flatten(batch) for leaf in _leaves(resampled.read(sums), batch)], -1)

    return _Values(read, [leaf.double() for leaf in leaves], spec)


def _leaves(value: Any, batch: int) -> list[Tensor]:
    return [leaf.unsqueeze(-1) if leaf.ndim == batch else leaf for leaf in tree_flatten(value)[0]]


class _Draws(NamedTuple):
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


class _Side(NamedTuple):
    """One metric, or one of the two of a comparison with its sign."""

    resampled: Resampled
    values: _Values
    sign: float = 1.0


def interval(resampled: Resampled | Joined, confidence: float) -> Any:
    """Return an `Estimate` for each value."""
    if isinstance(resampled, Joined):
        return resampled.join([interval(part, confidence) for part in resampled.parts])
    values = _values(resampled)
    sides = [_Side(resampled, values)]
    value, spread = _read(sides, lambda side: side.resampled.plain), _spread(sides)
    ranges = _ranges(sides)
    if spread is not None and spread.num_units == 1:
        low, high = (end.expand_as(value) for end in ranges)
    else:
        low, high = _draws(sides, value, spread).interval(confidence)
    low, high = (end.where(value.isfinite(), torch.nan) for end in (torch.fmin(low, value), torch.fmax(high, value)))
    counts = _counts(resampled, spread)
    if message := _warning(spread, value, ranges, counts["groups"] != counts["items"]):
        warnings.warn(message, UncertaintyWarning, stacklevel=3)
    details = {} if resampled.units is not None else {"groups_estimated": True}

    def estimate(value: Tensor, low: Tensor, high: Tensor) -> Estimate:
        return Estimate(
            value, low, high, confidence=confidence, **counts, method="bayesian bootstrap", details=dict(details)
        )

    return values.restored([value, low, high], estimate)


def comparisons(
    a: Resampled | Joined,
    b: Resampled | Joined,
    confidence: float,
    rope: float | None,
    better: Callable[[str], int],
) -> Any:
    # better: of a name, -1 where less is better
    """Return a `Comparison` for each value of a and b, whose replicates have the same weights."""
    if isinstance(a, Joined) or isinstance(b, Joined):
        if not (isinstance(a, Joined) and isinstance(b, Joined) and len(a.parts) == len(b.parts)):
            raise ValueError("a, b: their results differ in shape; wanted equal options and the same classes")
        pairs = zip(a.parts, b.parts, strict=True)
        return a.join([comparisons(x, y, confidence, rope, better) for x, y in pairs])
    _check_comparable(a, b)
    values, others = _values(a), _values(b)
    if values.spec != others.spec or [x.shape for x in values.leaves] != [x.shape for x in others.leaves]:
        raise ValueError("a, b: their results differ in shape; wanted equal options and the same classes")
    sides = [_Side(a, values), _Side(b, others, -1.0)]
    difference, spread = _read(sides, lambda side: side.resampled.plain), _spread(sides)
    names = _names(values)
    direction = torch.cat([
        torch.full((leaf.numel(),), float(better(name)), dtype=torch.float64)
        for name, leaf in zip(names, values.leaves, strict=True)
    ]).to(difference)  # fmt: skip
    draws = _draws(sides, difference, spread)
    low, high = draws.interval(confidence)
    differs = None if a.units is None or b.units is None else (a.units.rows != b.units.rows).flatten(1).any(1)
    is_equal = differs is not None and a.half is not None and not bool(differs.any())
    sets = [draws.first, draws.second.where(draws.has_second, draws.first)]
    p_draws, p_better = _shares(sets, direction, is_equal)
    p_value, mid_p = p_draws, torch.zeros_like(p_draws)
    if a.half is not None and b.half is not None:
        test = _swap_test(sides, a.half, b.half)
        p_value, mid_p = torch.maximum(test.p_value, p_draws), test.mid_p
    if spread is not None and spread.num_units == 1:
        low, high = (end.expand_as(difference) for end in _ranges(sides))
        p_value, p_better = torch.ones_like(difference), torch.full_like(difference, 0.5)
    p_better = p_better.clamp(mid_p / 2, 1 - mid_p / 2)
    low, high = _consistent(torch.fmin(low, difference), torch.fmax(high, difference), p_value, confidence)
    p_rope = torch.full_like(difference, torch.nan)
    if rope is not None:
        shares = [(draw.abs() <= rope).double().sum(0) / draw.isnan().logical_not().sum(0) for draw in sets]
        p_rope = torch.minimum(*shares)
    counts = _counts(a, spread) | {"discordant": None if differs is None else int(differs.sum())}
    if message := _pairs_warning(counts, spread):
        warnings.warn(message, UncertaintyWarning, stacklevel=3)
    columns = [difference, low, high, p_value, p_better, p_rope]
    columns = [columns[0], *(column.where(difference.isfinite(), torch.nan) for column in columns[1:])]
    return values.restored(columns, lambda *tensors: Comparison(*tensors, confidence=confidence, **counts, rope=rope))


def _check_comparable(a: Resampled, b: Resampled) -> None:
    if not torch.equal(a.items, b.items):
        raise ValueError("a, b: their items differ; feed both with the same ids (or, without ids, the same order)")
    is_swapped = a.half is not None and b.half is not None
    if len(a.weighted) != len(b.weighted) or (is_swapped and a.plain.shape != b.plain.shape):
        raise ValueError("a, b: their results differ in shape; wanted equal options and the same classes")
    if a.units is not None and b.units is not None and not torch.equal(a.units.ids, b.units.ids):
        raise ValueError("a, b: their items differ; feed both with the same ids and groups")


def _read(sides: list[_Side], sums: Callable[[_Side], Tensor]) -> Tensor:
    # ->  (..., V), the value of one metric or the difference of two
    return torch.stack([side.sign * side.values.read(sums(side)) for side in sides]).sum(0)


def _spread(sides: list[_Side]) -> Spread | None:
    """Return the jackknife; None without units, or where these are too many."""
    units = sides[0].resampled.units
    if any(side.resampled.units is None for side in sides) or units is None or not len(units.ids):
        return None
    value = _read(sides, lambda side: side.resampled.plain)
    without = _read(sides, lambda side: side.resampled.plain - cast(Units, side.resampled.units).rows)
    return jackknife(value, without, units.sizes)


def _ranges(sides: list[_Side]) -> tuple[Tensor, Tensor]:
    # ->  (V,) or () each
    """Return the least and the largest possible value, or difference."""
    like = sides[0].resampled.weighted
    ends = [tuple(torch.as_tensor(end, dtype=torch.float64).to(like) for end in side.resampled.range) for side in sides]
    if len(ends) == 1:
        return ends[0][0], ends[0][1]
    (low_a, high_a), (low_b, high_b) = ends
    return low_a - high_b, high_a - low_b


def _draws(sides: list[_Side], value: Tensor, spread: Spread | None) -> _Draws:
    """Draw the value: J or JT, and P where bounds are known; the replicates where units are too many."""
    replicates = _read(sides, lambda side: side.resampled.weighted)
    is_comparison = len(sides) > 1
    has_bounds = _has_bounds(sides, value)
    if spread is None:
        heavy = has_bounds & (excess_kurtosis(replicates) > HEAVY_TAILS)
        pseudo = _pseudo_draws(sides, value, None) if bool(heavy.any()) else replicates
        return _Draws(replicates, pseudo, heavy)
    scales = torch.ones_like(replicates[:, :1])
    if is_comparison or not bool(has_bounds.all()):
        seed, df = sides[0].resampled.seed, spread.effective_units - 1
        scales = t_scales(seed, len(replicates), df, value.device)[:, None]
        scales = scales if is_comparison else torch.where(has_bounds, 1.0, scales)
    moved = scaled_draws(value, replicates, spread.standard_error, scales)
    moved = torch.minimum(torch.maximum(moved, _ranges(sides)[0]), _ranges(sides)[1])
    return _Draws(moved, _pseudo_draws(sides, value, spread) if bool(has_bounds.any()) else moved, has_bounds)


def _has_bounds(sides: list[_Side], value: Tensor) -> Tensor:
    # ->  (V,) bool
    known = torch.ones_like(value, dtype=torch.bool)
    for side in sides:
        if side.resampled.bounds is None:
            return torch.zeros_like(known)
        worst, best = _bound_rows(side)
        known = known & side.values.read(worst + best).isfinite()
    return known


def _pseudo_draws(sides: list[_Side], value: Tensor, spread: Spread | None) -> Tensor:
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


def _bound_rows(side: _Side) -> tuple[Tensor, Tensor]:
    bounds, plain = cast(Bounds, side.resampled.bounds), side.resampled.plain
    return bounds.worst.to(plain).expand_as(plain), bounds.best.to(plain).expand_as(plain)


def _effective_size(resampled: Resampled) -> float:
    """Estimate the items of the group of an average item from the replicates of the number of items."""
    if resampled.sizes is None or not resampled.num_items:
        return 1.0
    return max(float(resampled.sizes.var()) / resampled.num_items, 1.0)


def _counts(resampled: Resampled, spread: Spread | None) -> dict[str, Any]:
    items = resampled.num_items
    if spread is not None:
        return {"items": items, "groups": spread.num_units, "effective_groups": spread.effective_units}
    groups = round(items / _effective_size(resampled))
    return {"items": items, "groups": groups, "effective_groups": float(groups)}


def _shares(sets: list[Tensor], direction: Tensor, is_equal: bool) -> tuple[Tensor, Tensor]:
    # sets: (R, V) each  direction: (V,)  ->  two-sided p-value and probability that a is better, (V,) each
    """Read both off the set whose share is nearer to 1/2; where the sets disagree on the side, nothing is known."""
    shares, p_values = [], []
    for draws in sets:
        oriented = direction * draws
        count = oriented.isnan().logical_not().sum(0)
        above, equal = (oriented > 0).sum(0).double(), (oriented == 0).sum(0).double()
        shares.append((above + equal / 2) / count)
        tails = torch.minimum(1 + above + equal, 1 + count - above) / (1 + count)
        p_values.append((2 * tails).clamp(max=1))
    half = torch.full_like(shares[0], 0.5)
    if is_equal:
        return torch.ones_like(half), half
    agree = (shares[0] - 0.5) * (shares[1] - 0.5) > 0
    first, second = shares
    nearer = torch.where((first - 0.5).abs() <= (second - 0.5).abs(), first, second)
    return torch.maximum(p_values[0], p_values[1]).where(agree, 1.0), nearer.where(agree, half)


def _swap_test(sides: list[_Side], half_a: Tensor, half_b: Tensor) -> SwapTest:
    (a, values, _), (b, others, _) = sides
    units = None if a.units is None or b.units is None else (a.units.rows, b.units.rows)
    scale = torch.maximum(values.read(a.plain).abs(), others.read(b.plain).abs())
    of_means = a.bounds is not None and a.bounds.is_mean

    def read_difference(x: Tensor, y: Tensor) -> Tensor:
        return values.read(x) - others.read(y)

    return swap_test(read_difference, (a.plain, b.plain), units, (half_a, half_b), scale, of_means)


def _consistent(low: Tensor, high: Tensor, p_value: Tensor, confidence: float) -> tuple[Tensor, Tensor]:
    # (V,) each
    """Move the end nearer to 0 so that the interval excludes 0 exactly where p_value <= 1 - confidence."""
    tiny = torch.finfo(low.dtype).tiny
    is_significant = p_value <= 1 - confidence
    low, high = (
        torch.where(~is_significant & (low > 0), 0.0, low),
        torch.where(~is_significant & (high < 0), 0.0, high),
    )
    holds = is_significant & (low <= 0) & (high >= 0)
    is_above = low.abs() <= high.abs()
    return torch.where(holds & is_above, tiny, low), torch.where(holds & ~is_above, -tiny, high)


def _names(values: _Values) -> list[str]:
    leaves = tree_unflatten([str(i) for i in range(len(values.leaves))], values.spec)
    return list(leaves) if isinstance(leaves, dict) else [""] * len(values.leaves)


def _warning(spread: Spread | None, value: Tensor, ranges: tuple[Tensor, Tensor], is_grouped: bool) -> str:
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
    is_unbounded = bool((ranges[0] == -torch.inf).any() or (ranges[1] == torch.inf).any())
    if is_unbounded and not bool(spread.num_differing.any()) and bool(value.isfinite().any()):
        return f"all {unit}s are alike and the range of the score is unknown, so that the interval has no width"
    return ""


def _pairs_warning(counts: dict[str, Any], spread: Spread | None) -> str:
    pairs = None if spread is None else spread.num_units
    if pairs == 1:
        return "one pair: its spread cannot be known; wanted at least 6 pairs"
    if pairs is not None and pairs <= FEW_PAIRS:
        least = f"2^(1-{pairs}) = {2.0 ** (1 - pairs):.4g}"
        return f"{pairs} pairs: no p-value below {least} exists, so that a 95 % interval always holds 0"
    return ""
