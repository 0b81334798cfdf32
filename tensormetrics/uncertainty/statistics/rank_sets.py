"""Simultaneous confidence intervals of the ranks of several models."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

CHUNK = 2**20  # numbers of differences at a time


class RankSets(NamedTuple):
    """First and last possible rank of K models, which hold simultaneously with the given confidence."""

    critical: float  # largest studentized error of a difference
    first: Tensor  # (K,) int64, from 1
    last: Tensor  # (K,) int64


def rank_sets(
    values: Tensor,
    draws: Tensor,
    confidence: float = 0.95,
    *,
    standard_errors: Tensor | None = None,
    scales: Tensor | None = None,
) -> RankSets:
    # values: (K,), more is better  draws: (R, K)  standard_errors: (K, K) of differences  scales: (R,) of the errors
    """Return the possible ranks of each model, from the largest error of all differences.

    A model is worse than another if its value is lower by more than the critical number of standard errors, by default
    the standard deviations of the draws. Its first possible rank is one more than the number of models that it is worse
    than, its last one K less the number of models that are worse. Mogstad, Romano, Shaikh & Wilhelm 2024,
    doi:10.1093/restud/rdad006.
    """
    K, R = len(values), len(draws)
    differences = values[:, None] - values
    step = max(CHUNK // (R * K), 1)
    slices = [slice(start, start + step) for start in range(0, K, step)]
    spreads = torch.cat([(draws[:, part, None] - draws[:, None]).std(0) for part in slices])
    largest = draws.new_zeros(R)
    for part in slices:
        errors = (draws[:, part, None] - draws[:, None] - differences[part]).abs() / spreads[part]
        largest = torch.maximum(largest, errors.masked_fill(spreads[part] == 0, 0).flatten(1).amax(1))
    if scales is not None:
        largest = largest * scales
    critical = largest.sort().values[min(math.ceil(confidence * (R + 1)), R) - 1]
    is_worse = differences < -critical * (spreads if standard_errors is None else standard_errors)
    return RankSets(float(critical), 1 + is_worse.sum(1), K - is_worse.sum(0))
