"""One k or several: functions of ranks and metrics take both."""

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ... import _checks
from ..ranking.positive_ranks import PositiveRanks

Depths = int | Sequence[int]
Score = Callable[[PositiveRanks], Tensor]


def at_depths(k: Depths, score: Callable[[int], Tensor]) -> Tensor:
    # score: k  ->  (..., Q)
    """The score at k, (..., Q), or for several k those of each, (..., Q, K)."""
    k = checked_depths(k)
    return score(k) if isinstance(k, int) else torch.stack([score(each) for each in k], -1)


def checked_depths(k: Depths) -> int | tuple[int, ...]:
    """One integer, or several that differ; ValueError for none and for k < 1."""
    if isinstance(k, str) or not isinstance(k, Sequence):
        return _checks.check_int("k", k, 1)
    several = tuple(_checks.check_int("k", each, 1) for each in k)
    if not several or len(set(several)) < len(several):
        raise ValueError(f"k: got {k!r}, wanted an integer >= 1, or one or more such integers that differ")
    return several


def scores_at(
    k: Depths | None, function: Callable[..., Tensor], **options: str
) -> tuple[Score | dict[str, Score], int | None]:
    """What a metric of this function scores, for several k by names such as "recall_at_5", and how deep that looks."""
    if k is None:
        return functools.partial(function, **options), None
    k = checked_depths(k)
    if isinstance(k, int):
        return functools.partial(function, k=k, **options), k
    return {f"{function.__name__}_at_{each}": functools.partial(function, k=each, **options) for each in k}, max(k)
