"""Exact counts of the extreme ones among all subset sums, by meeting in the middle."""

import functools
import itertools
import math

import torch
from torch import Tensor

from ...core.native import native
from ...core.native.device_cache import cached_per_device
from ...core.native.interruptible import interruptible
from .random import Tails

BUDGET = 2**22  # integers held at a time, except for the one table over 44 positions
MAX_POSITIONS = 50  # for subsets of one size; 40 positions for subsets of any size

# The size and the sum of a subset in one integer, size * UNIT + sum. Subsets with a masked position exceed all others.
UNIT, ABSENT = 2**50, 2**56

OPERATOR = native.define(
    "extreme_subsets(Tensor units, Tensor present, Tensor? n, Tensor? low, Tensor? high) -> Tensor",
    lambda units, *_: units.new_empty(len(units)),
    native.Operator("subsets", "permutation_p_value and sign_flip_p_value", 5),
)
_native_subsets = interruptible(OPERATOR, lambda units, *_: 20 * len(units) * 2.0 ** (units.shape[1] / 2))


def extreme_subsets(units: Tensor, valid_mask: Tensor, n: Tensor | None, size: Tensor | None, tails: Tails) -> Tensor:
    # units: (B, N) int64, at most 2^41 in modulus  valid_mask: (B, N) bool  n, size: (B,) int64  ->  (B,) int64
    """Count the subsets with a sum >= low, plus those with a sum <= high, of n of the `size` valid positions.

    Without n and size, count all subsets of all positions.
    """
    if units.device.type == "cpu":
        return _native_subsets(
            *(None if tensor is None else tensor.contiguous() for tensor in (units, valid_mask, n, *tails))
        )
    return _look_up(units, valid_mask, n, size, tails)


@native.reference("extreme_subsets")
def _extreme_subsets(
    units: Tensor, valid_mask: Tensor, n: Tensor | None, low: Tensor | None, high: Tensor | None
) -> Tensor:
    return _look_up(units, valid_mask, n, valid_mask.sum(-1), Tails(low, high))


def _look_up(units: Tensor, valid_mask: Tensor, n: Tensor | None, size: Tensor | None, tails: Tails) -> Tensor:
    if n is None or size is None:
        return _count_sums(units, tails)
    keys = (units + UNIT).masked_fill(~valid_mask, ABSENT)
    extreme = _count_sums(keys, Tails(*(None if bound is None else bound + n * UNIT for bound in tails)))
    if tails.low is not None:  # subtract larger subsets and subsets with a masked position
        extreme = extreme - (2 ** units.shape[-1] - _binomials(units)[1, size, n + 1])
    return extreme if tails.high is None else extreme - _binomials(units)[1, size, n]


def number_of_subsets(size: Tensor, n: Tensor) -> Tensor:
    # size, n: (B,) int64  ->  (B,) int64, the number of subsets of n of `size` positions
    return _binomials(size)[0, size, n]


@cached_per_device
def _binomials(device: torch.device) -> Tensor:
    # ->  (2, 51, 52) int64, [:, s, k]: the number of subsets of s positions with k members, and with fewer than k
    exact = [[math.comb(s, k) for k in range(MAX_POSITIONS + 2)] for s in range(MAX_POSITIONS + 1)]
    fewer = [list(itertools.accumulate(row[:-1], initial=0)) for row in exact]
    return torch.tensor([exact, fewer], device=device)


def _count_sums(keys: Tensor, tails: Tails) -> Tensor:
    # keys: (B, N)  ->  (B,) int64, the number of the 2^N subset sums >= low plus the number <= high
    """Count extreme subset sums: sort the sums of one half, look up the sums of the other half.

    Horowitz & Sahni 1974, doi:10.1145/321812.321823.
    """
    table = min((keys.shape[-1] + 1) // 2, 24)
    rows = max(1, BUDGET >> table)
    count = keys.new_zeros(len(keys))
    for start in range(0, len(keys), rows):
        part = slice(start, start + rows)
        sums = subset_sums(keys[part, :table]).sort(-1).values
        base = subset_sums(keys[part, table : table + 20]).sort(-1).values  # ascending lookups stay in the cache
        for offset in subset_sums(keys[part, table + 20 :]).unbind(-1):
            other = base + offset.unsqueeze(-1)
            if tails.low is not None:
                fewer = torch.searchsorted(sums, tails.low[part].unsqueeze(-1) - other)
                count[part] += (sums.shape[-1] - fewer).sum(-1)
            if tails.high is not None:
                count[part] += torch.searchsorted(sums, tails.high[part].unsqueeze(-1) - other, right=True).sum(-1)
    return count


def subset_sums(keys: Tensor) -> Tensor:
    # keys: (B, N)  ->  (B, 2^N)
    return functools.reduce(
        lambda sums, key: torch.cat([sums, sums + key.unsqueeze(-1)], -1), keys.unbind(-1), keys.new_zeros(len(keys), 1)
    )
