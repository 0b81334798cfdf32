"""Number of items of a comparison, the difference that it can show, and its power."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..core.arguments import checks
from ..core.arguments.checks import array_as_tensor
from ..core.numbers.exact_sums import ratio
from ..core.numbers.student import t_quantiles_of, t_sf
from ..core.results.estimates import Comparison, check_confidence, check_rope

MAX_ITEMS = 2**40
STEPS = 60  # of a bisection
Number = Tensor | float


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """Planned comparison of two models, see `plan`.

    Args:
        items: Number of items.
        groups: Number of groups of them, equal to `items` without groups.
        difference: Difference that is shown.
        power: Chance that the p-value of a true difference of this size is at most 1 - `confidence`, with these items.
        sd: Standard deviation of the paired difference per group.
        confidence: Mass of the interval.
        rope: Margin of non-inferiority; None of a test of a difference.

    Shape:
        - items, groups: ``(...)`` int64
        - difference, power, sd: ``(...)`` float64
    """

    items: Tensor
    groups: Tensor
    difference: Tensor
    power: Tensor
    sd: Tensor
    confidence: float
    rope: float | None = None

    def __repr__(self) -> str:
        if self.items.numel() != 1:
            return f"Plan{(*self.items.shape,)}"
        grouped = "" if bool(self.items == self.groups) else f" in {int(self.groups):,} groups"
        shown = f"a difference of {float(self.difference):.3g}"
        if self.rope is not None:
            shown += f" is shown to be above -{self.rope:.3g}"
        return f"{int(self.items):,} items{grouped}: {shown} with power {float(self.power):.3f}"


def plan(
    pilot: Comparison | tuple[Any, Any] | None = None,
    *,
    sd: Number | None = None,
    difference: Number | None = None,
    items: Tensor | int | None = None,
    power: Number | None = None,
    confidence: float = 0.95,
    rope: float | None = None,
) -> Plan:
    """Return how many items show a difference with a power, or the difference, or the power.

    The test is the two-sided paired t test of n items, or n groups of them; with `rope` the one-sided test that a is
    not worse than b by `rope`. Omit the one of the three numbers that is to be computed.

    Args:
        pilot: Source of the standard deviation: a `Comparison`, whose mean group size the plan keeps, or the pair of
            scores of both models on the same items.
        sd: Standard deviation of the paired difference, without a pilot.
        difference: True difference of the models; with `rope` positive where a is better.
        items: Number of items.
        power: Chance that the test succeeds, above 1 - `confidence` and below 1.
        confidence: 1 - the level of the test.
        rope: Margin of non-inferiority.

    Shape:
        - pilot: ``(..., N)`` each
        - sd, difference, items, power: ``(...)``, broadcast
        - Output: ``(...)`` each

    Returns:
        A `Plan` with all three numbers; the number of items is rounded up, at least 2.

    Raises:
        ValueError: If not exactly one number is left out, one is out of range, or no number of items is enough.

    Example:
        >>> plan(sd=0.4, difference=0.05, power=0.8)
        505 items: a difference of 0.05 with power 0.801
        >>> plan(sd=0.4, items=500, power=0.8)
        500 items: a difference of 0.0502 with power 0.800
        >>> pilot = compare([1, 1, 0, 1, 1, 0, 1, 1, 0, 1], [1, 0, 0, 1, 0, 0, 1, 1, 1, 0])
        >>> plan(pilot, difference=0.1, power=0.9)
        423 items: a difference of 0.1 with power 0.901

    References:
        Cohen 1988, Statistical Power Analysis for the Behavioral Sciences
    """
    if sum(value is None for value in (difference, items, power)) != 1:
        raise ValueError("difference, items, power: wanted two of them; the third one is the answer")
    confidence = check_confidence(confidence)
    check_rope(rope)
    pilot_sd, size = _pilot(pilot, sd)
    inputs = {"sd": pilot_sd, "difference": difference, "items": items, "power": power}
    values = {name: _as_numbers(value, pilot_sd.device) for name, value in inputs.items() if value is not None}
    _check(values, confidence, size, rope)
    shape = torch.broadcast_shapes(*(value.shape for value in values.values()))
    values = {name: value.expand(shape) for name, value in values.items()}
    test = _Test(confidence, rope)
    deviation = values["sd"]
    if items is None:
        effect = test.effect(values["difference"]) / deviation
        groups = test.groups(effect, values["power"])
        if bool((groups > MAX_ITEMS).any()):
            raise ValueError("difference: got one that no number of items shows with this power, wanted a larger one")
    else:
        groups = ratio(values["items"], size).floor().clamp(min=2).long()
        if difference is None:
            effect = test.shift(groups, values["power"]) / groups.double().sqrt()
            values["difference"] = effect * deviation - (rope or 0.0)
        else:
            effect = test.effect(values["difference"]) / deviation
    total = (groups.double() * size).ceil().long() if items is None else values["items"].long()
    reached = values["power"] if items is not None and power is not None else test.power(groups, effect)
    return Plan(total, groups, values["difference"], reached, deviation, confidence, rope)


def _pilot(pilot: Any, sd: Any) -> tuple[Tensor, float]:
    # ->  (...) float64, and the mean size of a group
    if (pilot is None) == (sd is None):
        raise ValueError("pilot, sd: wanted one of both, from which the standard deviation is taken")
    if sd is not None:
        return checks.as_tensor(array_as_tensor(sd), torch.float64), 1.0
    if isinstance(pilot, Comparison):
        if pilot.sd is None or not pilot.items or not pilot.groups:
            raise ValueError("pilot: got a comparison without sd, items and groups, wanted one of compare(a, b)")
        return pilot.sd, pilot.items / pilot.groups
    if not isinstance(pilot, tuple | list) or len(pilot) != 2:
        raise TypeError("pilot: wanted a Comparison, or the pair of scores of both models")
    a, b = (checks.as_tensor(array_as_tensor(scores)).double() for scores in pilot)
    if a.shape != b.shape or not a.ndim or a.shape[-1] < 2:
        raise ValueError(f"pilot: got scores {tuple(a.shape)} and {tuple(b.shape)}, wanted as many, at least 2")
    return (a - b).std(-1), 1.0


def _as_numbers(value: Any, device: torch.device) -> Tensor:
    # ->  (...) float64
    if isinstance(value, int | float):  # filled in on the device, without a copy from the host
        return torch.full((), float(value), dtype=torch.float64, device=device)
    return torch.as_tensor(array_as_tensor(value), dtype=torch.float64, device=device)


def _check(values: dict[str, Tensor], confidence: float, size: float, rope: float | None) -> None:
    """Raise a ValueError for a number out of range, with one synchronization."""
    sd, margin = values["sd"], rope or 0.0
    right = {
        "sd: wanted numbers above 0; differences that are all alike tell nothing of others": (sd > 0) & sd.isfinite()
    }
    if "difference" in values:
        effect = values["difference"] + margin if rope is not None else values["difference"].abs()
        right["difference: wanted finite numbers other than 0, with rope above -rope"] = (
            effect > 0
        ) & effect.isfinite()
    if "items" in values:
        enough = (values["items"] >= 2 * size) & (values["items"] <= MAX_ITEMS)
        right[f"items: wanted at least {2 * size:.4g}, so that there are two groups"] = enough
    if "power" in values:
        level = 1 - confidence
        in_range = (values["power"] > level) & (values["power"] < 1)
        right[f"power: wanted numbers above {level:.4g} and below 1"] = in_range
    holds = torch.stack([condition.all() for condition in right.values()]).tolist()
    for message in (message for message, is_right in zip(right, holds, strict=True) if not is_right):
        raise ValueError(message)


class _Test:
    """A t test of n groups and a mean difference of `effect` standard deviations."""

    def __init__(self, confidence: float, rope: float | None) -> None:
        self.is_two_sided, self.margin = rope is None, rope or 0.0
        self.below = (1 + confidence) / 2 if self.is_two_sided else confidence

    def effect(self, difference: Tensor) -> Tensor:
        return difference.abs() if self.is_two_sided else difference + self.margin

    def power(self, groups: Tensor, effect: Tensor) -> Tensor:
        # groups: (...) int64  effect: (...)  ->  (...)
        return self._power_of_shift(groups, effect * groups.double().sqrt())

    def _power_of_shift(self, groups: Tensor, shift: Tensor) -> Tensor:
        limit = t_quantiles_of(self.below, groups - 1)
        power = t_sf(limit, groups - 1, shift)
        return power + 1 - t_sf(-limit, groups - 1, shift) if self.is_two_sided else power

    def groups(self, effect: Tensor, power: Tensor) -> Tensor:
        # ->  (...) int64, above `MAX_ITEMS` where these are not enough
        low, high = torch.ones_like(effect, dtype=torch.int64), torch.full_like(effect, 2 * MAX_ITEMS).long()
        for _ in range(MAX_ITEMS.bit_length()):
            center = ((low + high) // 2).clamp(min=2)
            is_enough = self.power(center, effect) >= power
            low, high = low.where(is_enough, center), center.where(is_enough, high)
        return high

    def shift(self, groups: Tensor, power: Tensor) -> Tensor:
        # ->  (...), the mean difference in standard errors
        high = 10 * (t_quantiles_of(self.below, groups - 1) + 1)
        low = torch.zeros_like(high)
        for _ in range(STEPS):
            center = (low + high) / 2
            is_enough = self._power_of_shift(groups, center) >= power
            low, high = low.where(is_enough, center), center.where(is_enough, high)
        return high


def more_items(comparison: Comparison, power: float) -> int | None:
    """Return how many more items decide a comparison of one value with this probability; None if no number does."""
    if comparison.se is None or comparison.items is None or comparison.confidence is None:
        raise ValueError("comparison: got one without se, items and confidence, wanted one of compare(a, b)")

    def is_enough(more: int) -> bool:
        return max(map(float, comparison.assurance(more))) >= power

    if not float(comparison.low) <= 0 <= float(comparison.high):
        return 0
    low, high = 0, MAX_ITEMS
    if not is_enough(high):
        return None
    while high - low > 1:
        center = (low + high) // 2
        low, high = (low, center) if is_enough(center) else (center, high)
    return high
