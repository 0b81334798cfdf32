"""Families of comparisons, such as all pairs of models: corrected p-values and intervals from the same draws."""

import dataclasses
import math
import warnings
from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor

from ..arguments import checks
from ..arguments.callers import level_of_caller
from ..results.estimates import Comparison
from .corrections import CORRECTIONS, correct_p_values
from .errors import UncertaintyWarning

MEMBER = "family"  # key of `Comparison.details`, until the family is corrected
FAMILY_CORRECTIONS = ("max-t", *CORRECTIONS)
SIDES = {"two-sided": 0, "greater": 1, "less": -1}
ROUNDING = 1e-9  # of an observed deviation that equals one of the draws


class FamilyMember(NamedTuple):
    """Deviations of the draws of a comparison in standard errors, and the range of the difference."""

    deviations: Tensor  # (R, ...)
    low: Tensor  # (...)
    high: Tensor
    scales: Tensor | None  # (R, 1), of Student's t in the deviations

    def take(self, index: Tensor | int) -> "FamilyMember":
        return FamilyMember(self.deviations[:, index], self.low[index], self.high[index], self.scales)


def corrected(comparisons: Sequence[Comparison], correction: str) -> list[Comparison]:
    """Return the comparisons with p-values that hold for all of them at once, and intervals that agree with these.

    "max-t": how often the largest deviation of all members in the common draws reaches the observed one, or the p-value
    itself if it is larger (single-step maximum, Westfall & Young 1993, ISBN 978-0-471-55761-6, section 2.3). Intervals
    are extended by the critical value of the same maxima (Romano & Wolf 2005, doi:10.1198/016214504000000539), also
    those beside "holm" and "bh".
    """
    checks.check_choice("correction", correction, FAMILY_CORRECTIONS)
    members = [comparison.details.get(MEMBER) for comparison in comparisons]
    comparisons = [without_draws(comparison) for comparison in comparisons]
    if len(comparisons) < 2:
        return comparisons
    columns = [
        torch.stack([getattr(c, name) for c in comparisons]) for name in ("difference", "low", "high", "p_value")
    ]
    difference, low, high, p_values = columns
    confidence = comparisons[0].confidence or 0.95
    p_corrected = None
    if all(member is not None for member in members):
        errors = torch.stack([cast(Tensor, c.se) for c in comparisons])
        family = _Family.of(cast(list[FamilyMember], members), SIDES[comparisons[0].alternative])
        low, high = family.extended(difference, low, high, errors, confidence)
        p_corrected = family.p_values(difference, p_values, errors)
        smallest = 2 / (1 + len(family.maxima)) * len(comparisons)
        if correction != "max-t" and smallest > 1 - confidence:
            message = (
                f"correction: {len(family.maxima)} replicates show no p-value below {smallest:.3g} of "
                f"{len(comparisons)} comparisons; write correction='max-t' or more replicates"
            )
            warnings.warn(message, UncertaintyWarning, stacklevel=level_of_caller())
    elif correction == "max-t":
        raise ValueError("correction: got 'max-t' for comparisons without common draws; write 'holm' or 'bh'")
    if correction != "max-t" or p_corrected is None:
        p_corrected = correct_p_values(p_values.movedim(0, -1), correction).movedim(-1, 0)
    low, high = consistent(low, high, difference, p_corrected, confidence)
    rows = zip(comparisons, low, high, p_corrected, strict=True)
    return [dataclasses.replace(c, low=a, high=b, p_corrected=p) for c, a, b, p in rows]


def without_draws(comparison: Comparison) -> Comparison:
    details = {name: value for name, value in comparison.details.items() if name != MEMBER}
    return dataclasses.replace(comparison, details=details)


class _Family(NamedTuple):
    """The largest deviation of T comparisons in each draw; see `FamilyMember`."""

    maxima: Tensor  # (R, ...), ascending
    side: int  # 1: greater, -1: less, 0: two-sided
    ranges: tuple[Tensor, Tensor]  # (T, ...) each

    @classmethod
    def of(cls, members: list[FamilyMember], side: int) -> "_Family":
        maxima = torch.zeros_like(members[0].deviations)
        keys = torch.stack([member.deviations[0].abs().nan_to_num(0).sum() for member in members])
        for position, index in enumerate(keys.argsort(stable=True).tolist()):  # whatever the order of the models
            member = members[index]
            deviations = member.deviations  # NaN where the standard error is 0
            if member.scales is not None:  # comparisons of few items have variances of their own
                ratio = member.scales.roll(position, 0) / member.scales
                deviations = deviations * ratio.view(-1, *[1] * (deviations.ndim - 1))
            deviations = side * deviations if side else deviations.abs()
            maxima = torch.fmax(maxima, deviations)
        ranges = torch.stack([member.low for member in members]), torch.stack([member.high for member in members])
        return cls(maxima.sort(0).values, side, ranges)

    def p_values(self, difference: Tensor, p_values: Tensor, errors: Tensor) -> Tensor:
        # (T, ...)  ->  (T, ...)
        count = len(self.maxima)
        statistics = (self.side * difference if self.side else difference.abs()) / errors * (1 - ROUNDING)
        ordered, statistics = (values.movedim(0, -1).contiguous() for values in (self.maxima, statistics))
        hits = (count - torch.searchsorted(ordered, statistics)).movedim(-1, 0)
        largest = torch.maximum(p_values, (1.0 + hits.double()) / (1 + count))
        # Without a standard error there is no deviation: Bonferroni's correction.
        return largest.where(errors > 0, (p_values * len(difference)).clamp(max=1)).where(
            p_values.isfinite(), torch.nan
        )

    def extended(
        self, difference: Tensor, low: Tensor, high: Tensor, errors: Tensor, confidence: float
    ) -> tuple[Tensor, Tensor]:
        # (T, ...) each
        count = len(self.maxima)
        reach = self.maxima[min(math.ceil(confidence * (count + 1)), count) - 1] * errors
        ends = torch.fmax(difference - reach, self.ranges[0]), torch.fmin(difference + reach, self.ranges[1])
        return torch.fmin(low, ends[0]) if self.side >= 0 else low, torch.fmax(
            high, ends[1]
        ) if self.side <= 0 else high


def consistent(
    low: Tensor, high: Tensor, difference: Tensor, p_value: Tensor, confidence: float
) -> tuple[Tensor, Tensor]:
    # (...)  ->  (...) each
    """Adjust the interval to the p-value, so that it excludes 0 exactly where p_value <= 1 - confidence.

    Where it does, an end beyond 0 becomes the number next to 0; elsewhere the interval is extended to 0.
    """
    tiny = torch.finfo(low.dtype).tiny
    is_significant, is_above = p_value <= 1 - confidence, difference > 0
    low = torch.where(is_significant & is_above, low.clamp(min=tiny), low)
    high = torch.where(is_significant & ~is_above, high.clamp(max=-tiny), high)
    return torch.where(is_significant, low, low.clamp(max=0)), torch.where(is_significant, high, high.clamp(min=0))
