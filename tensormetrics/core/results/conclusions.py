"""Verdicts that follow from the interval of a difference, and how likely more items decide it."""

from typing import NamedTuple

import torch
from torch import Tensor


class Assurance(NamedTuple):
    """Chances that an interval will exclude 0, ``(...)`` each; see `Comparison.assurance`."""

    better: Tensor
    worse: Tensor


def assurance_of(difference: Tensor, low: Tensor, high: Tensor, more: float, z: float) -> Assurance:
    # difference, low, high: (...)  more: number of added items, divided by that of the data  z: quantile of the ends
    """Return the probabilities that the interval of the data and more items lies above 0, or below.

    The interval's half width at the end nearer to 0 stands for z standard errors.
    """
    chances = []
    for value, end in ((difference, low), (-difference, -high)):
        # Of half widths, as infinite ones leave no difference.
        distance = (value / (value - end)).nan_to_num(0) - (1 + more) ** -0.5
        chance = torch.special.ndtr(z * distance * (1 + 1 / more) ** 0.5) if more else (end > 0).double()
        chances.append(chance.where(difference.isfinite() & ~low.isnan() & ~high.isnan(), torch.nan))
    return Assurance(*chances)


def verdict_of(
    low: float, high: float, rope: float | None, p_not_worse: float = 0.0, p_equivalent: float = 0.0, level: float = 1.0
) -> str:
    # low, high: the interval, oriented so that positive means better
    cases = {"better": low > 0, "worse": high < 0}
    if rope is not None:
        cases = {"better by more than rope": low > rope, "worse by more than rope": high < -rope, **cases}
        cases |= {
            "equivalent": -rope <= low and high <= rope and p_equivalent <= level,
            "not worse": low >= -rope and p_not_worse <= level,
            "not better": high <= rope,
        }
    return next((verdict for verdict, holds in cases.items() if holds), "undecided")
