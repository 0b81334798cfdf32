"""How many sums of subsets are extreme, of all that there are: by meeting in the middle."""

import functools
import itertools
import math

import torch
from torch import Tensor

from ... import _native
from ..._device_cache import cached_per_device
from ..._interruptible import interruptible
from .random import Tails

BUDGET = 2**22  # integers held at a time, but for the one table over 44 places
MOST_PLACES = 50  # of subsets of a size; without a size, of 40 places

# The size and the sum of a subset in one integer, size * UNIT + sum. A subset with an absent place outweighs all.
UNIT, ABSENT = 2**50, 2**56

OPERATOR = _native.define(
    "extreme_subsets(Tensor units, Tensor present, Tensor? n, Tensor? low, Tensor? high) -> Tensor",
    lambda units, *_: units.new_empty(len(units)),
    _native.Operator("subsets", "permutation_p_value and sign_flip_p_value", 5),
)
_native_subsets = interruptible(OPERATOR, lambda units, *_: 20 * len(units) * 2.0 ** (units.shape[1] / 2))


def extreme_subsets(units: Tensor, present: Tensor, n: Tensor | None, size: Tensor | None, tails: Tails) -> Tensor:
    # units: (B, N) int64, at most 2^41 in modulus  present: (B, N) bool  n, size: (B,) int64  ->  (B,) int64
    """Of the subsets of n of the `size` present places, how many have a sum >= low, plus how many have one <= high?

    Without n and size: of all subsets of all places.
    """
    if units.device.type == "cpu":
        return _native_subsets(*(None if each is None else each.contiguous() for each in (units, present, n, *tails)))
    return _look_up(units, present, n, size, tails)


@_native.reference("extreme_subsets")
def _extreme_subsets(
    units: Tensor, present: Tensor, n: Tensor | None, low: Tensor | None, high: Tensor | None
) -> Tensor:
    return _look_up(units, present, n, present.sum(-1), Tails(low, high))


def _look_up(units: Tensor, present: Tensor, n: Tensor | None, size: Tensor | None, tails: Tails) -> Tensor:
    if n is None or size is None:
        return _count_sums(units, tails)
    keys = (units + UNIT).masked_fill(~present, ABSENT)
    extreme = _count_sums(keys, Tails(*(None if bound is None else bound + n * UNIT for bound in tails)))
    if tails.low is not None:  # larger subsets, and those with an absent place
        extreme = extreme - (2 ** units.shape[-1] - _binomials(units)[1, size, n + 1])
    return extreme if tails.high is None else extreme - _binomials(units)[1, size, n]


def number_of_subsets(size: Tensor, n: Tensor) -> Tensor:
    # size, n: (B,) int64  ->  (B,) int64: how many subsets of `size` places have n of them
    return _binomials(size)[0, size, n]


@cached_per_device
def _binomials(device: torch.device) -> Tensor:
    # ->  (2, 51, 52) int64, [:, s, k]: how many subsets of s places have k of them, and how many have fewer
    exact = [[math.comb(s, k) for k in range(MOST_PLACES + 2)] for s in range(MOST_PLACES + 1)]
    fewer = [list(itertools.accumulate(row[:-1], initial=0)) for row in exact]
    return torch.tensor([exact, fewer], device=device)


def _count_sums(keys: Tensor, tails: Tails) -> Tensor:
    # keys: (B, N)  ->  (B,) int64: how many of the 2^N subset sums are >= low, plus how many are <= high
    """Horowitz & Sahni 1974, doi:10.1145/321812.321823: sort the sums of one half, look up those of the other."""
    table = min((keys.shape[-1] + 1) // 2, 24)
    rows = max(1, BUDGET >> table)
    count = keys.new_zeros(len(keys))
    for start in range(0, len(keys), rows):
        part = slice(start, start + rows)
        known = subset_sums(keys[part, :table]).sort(-1).values
        base = subset_sums(keys[part, table : table + 20]).sort(-1).values  # ascending look-ups stay in the cache
        for offset in subset_sums(keys[part, table + 20 :]).unbind(-1):
            other = base + offset.unsqueeze(-1)
            if tails.low is not None:
                fewer = torch.searchsorted(known, tails.low[part].unsqueeze(-1) - other)
                count[part] += (known.shape[-1] - fewer).sum(-1)
            if tails.high is not None:
                count[part] += torch.searchsorted(known, tails.high[part].unsqueeze(-1) - other, right=True).sum(-1)
    return count


def subset_sums(keys: Tensor) -> Tensor:
    # keys: (B, N)  ->  (B, 2^N)
    return functools.reduce(
        lambda sums, key: torch.cat([sums, sums + key.unsqueeze(-1)], -1), keys.unbind(-1), keys.new_zeros(len(keys), 1)
    )
