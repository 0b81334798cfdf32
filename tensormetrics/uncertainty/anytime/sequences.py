"""Intervals that hold at every number of items at once, for means that are inspected while they are being measured.

A gambler bets on each item that its score lies above (or below) m, with stakes that depend on earlier items alone. If m
is the mean, the expected capital is constant, and by Ville's inequality it ever grows by 2 / a with a probability of at
most a / 2: values m for which one of both gamblers reaches that capital are ruled out. This is the hedged capital
process of Waudby-Smith & Ramdas 2023, doi:10.1093/jrsssb/qkad009, theorem 3.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from ...core.arguments import checks
from ...core.numbers.exact_sums import index_add, prefix_sums
from ...core.results.estimates import Estimate, check_confidence
from ..item_scores.item_scores import ItemScores, Scores

METHOD = "betting confidence sequence"
PRECISION = 2.0**-44  # of an end, as a fraction of the range
MAX_STEPS = 50  # six more than bisection needs
BISECTIONS = 8  # the first steps, until a function is smooth between the ends


class Bets(NamedTuple):
    """Stakes of both gamblers on units with scores in [0, 1], and the log capital that rules a mean out."""

    units: Tensor  # (2, ..., N), scores and 1 - scores
    stakes: Tensor  # (2, ..., N), before they are limited; 0 where there is no score
    threshold: float

    @classmethod
    def of(cls, units: Tensor, confidence: float) -> "Bets":
        # units: (..., N) in [0, 1], NaN where there is no score
        is_scored = ~units.isnan()
        count, units = is_scored.cumsum(-1), units.nan_to_num(0)
        means = (0.5 + prefix_sums(units)) / (count + 1)
        variances = (0.25 + prefix_sums((units - means).square() * is_scored)) / (count + 1)
        earlier = pad(variances[..., :-1], (1, 0), value=0.25)
        threshold = math.log(2 / (1 - confidence))
        steps = count.clamp(min=1).double()
        stakes = (2 * threshold / (earlier * steps * (steps + 1).log())).sqrt() * is_scored
        return cls(torch.stack([units, 1 - units]), stakes.expand(2, *stakes.shape), threshold)

    def capital(self, mean: Tensor, count: int) -> Tensor:
        # mean: (2, ...)  ->  (2, ...), the largest logarithm of a capital that was ever reached among `count` units
        mean = mean[..., None]
        stakes = torch.minimum(self.stakes[..., :count], 0.5 / mean)
        growth = (stakes * (self.units[..., :count] - mean)).log1p()
        return prefix_sums(growth).amax(-1).clamp(min=0) if count else torch.zeros_like(mean[..., 0])

    def interval(self, count: int) -> tuple[Tensor, Tensor]:
        # ->  (...) each, in [0, 1]
        """Return the interval after `count` units: the smallest and the largest mean that is not ruled out so far."""
        low = torch.zeros(self.units.shape[:-1], dtype=torch.float64, device=self.units.device)
        low = decreasing_root(lambda mean: self.capital(mean, count) - self.threshold, low, -self.threshold)
        return low[0], 1 - low[1]

    def ends(self, looks: Sequence[int], low: float, high: float) -> tuple[Tensor, ...]:
        # ->  (..., L) each
        """Return the intervals after the numbers of units of scores that were rescaled from [low, high]."""
        ends = zip(*(self.interval(look) for look in looks), strict=True)
        return tuple(low + (high - low) * torch.stack(end, -1) for end in ends)

    def p_values(self, mean: float, count: int) -> tuple[Tensor, Tensor]:
        # ->  (...) each
        """Return the p-values against larger and against smaller means, valid at every number of units."""
        candidates = torch.tensor([mean, 1 - mean], dtype=torch.float64, device=self.units.device)
        capital = self.capital(candidates.view(2, *[1] * (self.units.ndim - 2)).expand(self.units.shape[:-1]), count)
        return (-capital[0]).exp(), (-capital[1]).exp()


def decreasing_root(function: Callable[[Tensor], Tensor], start: Tensor, last: float) -> Tensor:
    # start: (...), all 0  last: the value at 1  ->  (...) in [0, 1]
    """Return the largest number, up to `PRECISION`, at which a decreasing function is >= 0; 0 if it is negative at 0.

    Bisection, then interpolate, truncate and project (Oliveira & Takahashi 2020, doi:10.1145/3423597): hardly more
    steps than bisection in the worst case, a third of them for smooth functions.
    """
    low, low_value = start, function(start)
    high, high_value = torch.ones_like(low).where(low_value >= 0, 0), torch.full_like(low, last)
    for step in range(MAX_STEPS):
        center, width = (low + high) / 2, high - low
        is_open = width > PRECISION
        # On GPUs the remaining steps are cheaper than a synchronization.
        if low.device.type == "cpu" and not bool(is_open.any()):
            break
        secant = (low * high_value - high * low_value) / (high_value - low_value)
        distance = center - secant
        truncated = secant + distance.sign() * torch.minimum(0.2 * width.square(), distance.abs())
        radius = (PRECISION / 2 * 2.0 ** (MAX_STEPS - step) - width / 2) * (step >= BISECTIONS)
        trial = center - (center - truncated).clamp(-radius, radius)
        value = function(trial)
        above, below = is_open & (value >= 0), is_open & (value < 0)
        low, low_value = trial.where(above, low), value.where(above, low_value)
        high, high_value = trial.where(below, high), value.where(below, high_value)
    return low


class UnitScores(NamedTuple):
    """Scores of items, or means of groups, in the order in which they were complete."""

    values: Tensor  # (V, U) float64, NaN where there is no score
    items: int

    @property
    def is_grouped(self) -> bool:
        return self.values.shape[1] != self.items

    def running_means(self, looks: Sequence[int]) -> Tensor:
        # ->  (V, L)
        is_scored = ~self.values.isnan()
        index = torch.tensor(looks, dtype=torch.int64, device=self.values.device) - 1
        return (prefix_sums(self.values.nan_to_num(0)) / is_scored.cumsum(1))[:, index]

    def rescaled(self, low: float, high: float) -> Tensor:
        # ->  (V, U) in [0, 1]
        return ((self.values - low) / (high - low)).clamp(0, 1)


def check_complete(models: Iterable[Scores], items: ItemScores, positions: Tensor, looks: Sequence[int] | None) -> None:
    """Raise a ValueError for units that later scores may change, unless `looks` says that the data are complete.

    Bets on a mean that changes with the next repeat are not those that were made on it before.
    """
    if looks is not None:
        return
    remedy = "pass one score for each, or looks=[number of units] once all are complete"
    for scores in models:
        if scores.ids is not None and len(scores.id_numbers().unique()) < len(scores):
            raise ValueError(f"ids: got repeats of items with anytime=True, whose means change with each; {remedy}")
    if items.groups is not None:
        groups = items.groups[positions.argsort(stable=True)]
        if int((groups[1:] != groups[:-1]).sum()) + 1 > len(groups.unique()):
            raise ValueError(f"groups: got scores of one after those of another, so that it grows again; {remedy}")


def units_in_order(items: ItemScores, positions: Tensor) -> UnitScores:
    # positions: (I,) int64, when each item was scored
    """Return the units in the order of their last items; the mean of a group is that of its items."""
    order = positions.argsort(stable=True)
    values = items.values[order]
    if items.groups is None:
        return UnitScores(values.T, len(values))
    distinct, unit = items.groups[order].unique(return_inverse=True)
    last = torch.zeros_like(distinct).scatter_reduce_(0, unit, torch.arange(len(unit), device=unit.device), "amax")
    position = torch.empty_like(last)
    position[last.argsort()] = torch.arange(len(last), device=last.device)
    sums, counts = (values.new_zeros(len(distinct), values.shape[1]) for _ in range(2))
    index_add(sums, 0, position[unit], values.nan_to_num(0))
    counts.index_add_(0, position[unit], (~values.isnan()).double())
    return UnitScores((sums / counts).T, len(values))


def last_positions(scores: Scores, items: ItemScores, as_texts: bool = False) -> Tensor:
    # ->  (I,) int64
    """Return the position of the last score of each item, whose ids are those of the scores."""
    if items.ids is None or scores.ids is None:
        return torch.arange(len(items.values), device=items.values.device)
    score_ids = scores.id_numbers(as_texts)
    ordered, order = items.ids.sort()
    index = torch.searchsorted(ordered, score_ids).clamp(max=len(ordered) - 1)
    is_item = ordered[index] == score_ids
    positions = torch.zeros_like(ordered)
    positions.scatter_reduce_(
        0, order[index[is_item]], torch.arange(len(score_ids), device=score_ids.device)[is_item], "amax"
    )
    return positions


def check_anytime(anytime: bool, looks: Sequence[int] | None, **draws: int | None) -> None:
    """Raise a ValueError for options that have no effect with, or without, `anytime`."""
    if not anytime and looks is not None:
        raise ValueError("looks: got some without anytime=True; write both")
    for name, value in draws.items():
        if anytime and value is not None:
            raise ValueError(f"{name}: got {value} with anytime=True, which draws nothing; leave it out")


def check_looks(looks: Any, units: UnitScores) -> tuple[list[int], bool]:
    """Return the numbers of units after which an interval is computed, by default all, and whether `looks` was set."""
    count = units.values.shape[1]
    if looks is None:
        return [count], False
    looks = [checks.check_int("looks", look, 1) for look in checks.as_list("looks", looks)]
    if not looks or max(looks) > count:
        unit = "groups" if units.is_grouped else "items"
        raise ValueError(f"looks: got {looks}, wanted numbers of {unit} from 1 to {count}")
    return looks, True


def bounds_of(scores: Scores) -> tuple[float, float]:
    """Return the bounds of scores; a ValueError where one is unknown."""
    if scores.bounds is None or not all(map(math.isfinite, scores.bounds)):
        got = "none" if scores.bounds is None else scores.bounds
        raise ValueError(f"bounds: got {got}, wanted the least and the largest possible score; write bounds=(0, 1)")
    return scores.bounds


def interval_sequence(scores: Scores, confidence: float, looks: Sequence[int] | None = None) -> Estimate:
    """Return the mean with an interval that holds at every number of items, or a path of them with `looks`."""
    confidence, bounds = check_confidence(confidence), bounds_of(scores)
    items = scores._items().scored()
    positions = last_positions(scores, items)
    check_complete([scores], items, positions, looks)
    units = units_in_order(items, positions)
    counts, is_path = check_looks(looks, units)
    return estimate_of(units, scores, bounds, confidence, counts, is_path)


def estimate_of(
    units: UnitScores, scores: Scores, bounds: tuple[float, float], confidence: float, looks: list[int], is_path: bool
) -> Estimate:
    """Return the running means of the units of one model, each with its interval."""
    bets = Bets.of(units.rescaled(*bounds), confidence)
    columns = units.running_means(looks), *bets.ends(looks, *bounds)
    shape = (*scores.shape, len(looks)) if is_path else scores.shape
    return Estimate(
        *(column.reshape(shape) for column in columns),
        confidence=confidence,
        items=units.items,
        groups=units.values.shape[1],
        effective_groups=float(units.values.shape[1]),
        method=f"{METHOD} of the mean of group means" if units.is_grouped else METHOD,
        name=scores.name,
        labels=tuple(map(str, looks)) if is_path else None,
        details={"missing": scores.missing},
    )
