"""Verdicts that follow from the interval of a difference, and how likely more items decide it."""

from typing import NamedTuple

import torch
from torch import Tensor


class Assurance(NamedTuple):
    """Chances that an interval will exclude 0, ``(...)`` each; see `Comparison.assurance`."""

    better: Tensor
    worse: Tensor


def assurance_of(difference: Tensor, se: Tensor, more: float, confidence: float) -> Assurance:
    # difference, se: (...)  more: number of added items, divided by that of the data
    """Return the probabilities that the interval of the data and more items lies above 0, or below."""
    z = torch.special.ndtri(difference.new_tensor((1 + confidence) / 2, dtype=torch.float64))
    limit, sd = z * se / (1 + more) ** 0.5, se * (more / (1 + more)) ** 0.5
    chances = []
    for sign in (1, -1):
        chance = torch.special.ndtr((sign * difference - limit) / sd)
        chance = torch.where(sd > 0, chance, (sign * difference > limit).double())  # nothing is left to chance
        chances.append(chance.where(difference.isfinite() & se.isfinite(), torch.nan))
    return Assurance(*chances)


def verdict_of(low: float, high: float, rope: float | None) -> str:
    # low, high: the interval, oriented so that positive means better
    cases = {"better": low > 0, "worse": high < 0}
    if rope is not None:
        cases = {"better by more than rope": low > rope, "worse by more than rope": high < -rope, **cases}
        cases |= {"equivalent": -rope <= low and high <= rope, "not worse": low >= -rope, "not better": high <= rope}
    return next((verdict for verdict, holds in cases.items() if holds), "undecided")
