"""Means over items as sums of rows: M scores of the same items, and any of their means side by side."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .draws import Bounds
from .resampling import Items, Resampled
from .weights import ItemNames, joined, weighted_sums

UNBOUNDED = -math.inf, math.inf
LARGEST_SUM = 43  # sums of rows up to 2 to this power are exact


class Means(NamedTuple):
    """Sums of the scores of M models, columns of `sums`; the number of items is one more, or one more for each."""

    sums: Resampled
    num_means: int
    scale: float  # a power of two by which all rows were multiplied
    bounds: tuple[float, float]  # of a score, infinite where unknown

    def take(self, index: Tensor | None = None, read: Callable[[Tensor], Any] | None = None) -> Resampled:
        # index: (V,) int64 in [0, M)
        """Return the means of some models, by default of all; `read` makes values (..., V) a result."""
        sums = self.sums
        index = torch.arange(self.num_means, device=sums.observed.device) if index is None else index
        has_one_count = sums.observed.shape[-1] == self.num_means + 1
        counts = torch.full_like(index, self.num_means) if has_one_count else self.num_means + index
        columns = torch.cat([index, counts])

        def means(rows: Tensor) -> Any:
            # rows: (..., 1, 2 V)
            value_sums, counts = rows[..., 0, :].chunk(2, -1)
            return value_sums / counts if read is None else read(value_sums / counts)

        return sums._replace(
            observed=sums.observed[..., columns],
            weighted=sums.weighted[..., columns],
            half=None if sums.half is None else sums.half[..., columns],
            units=None if sums.units is None else sums.units._replace(rows=sums.units.rows[..., columns]),
            read=means,
            bounds=self._item_bounds(len(index)),
            range=self.bounds,
        )

    def _item_bounds(self, count: int) -> Bounds:
        ones = torch.full((count,), self.scale, dtype=torch.float64, device="cpu")
        worst, best = (torch.cat([end * ones, ones]) for end in self.bounds)
        return Bounds(worst, best, is_mean=True)


def resampled_means(
    scores: Tensor,  # (N, M), NaN where a model has no score
    names: ItemNames,
    replicates: int,
    seed: int,
    bounds: tuple[float, float] = UNBOUNDED,
    target: Tensor | None = None,  # (N,) integer, on which both metrics must agree
    weights: Tensor | None = None,  # (N,) > 0, importance of the items
) -> Means:
    """Draw the sums of scores of the same items, all with the same weights."""
    scores = scores.double()
    is_scored = ~scores.isnan()
    scores = scores.nan_to_num(0)
    counts = is_scored[:, :1] if bool(is_scored.all()) else is_scored
    rows = torch.cat([scores, counts.double()], 1)
    if weights is not None:
        importance = weights / weights.mean()
        rows = rows * importance[:, None]
    scale = _scale(rows)
    items = Items(rows * scale, names.units, lambda sums: sums, identity=names.columns(target))
    sums = items.resampled(replicates, seed)
    if weights is not None:
        sums = _with_sizes(sums, names.units, importance, replicates, seed)
    return Means(sums, scores.shape[1], scale, bounds)


def _with_sizes(sums: Resampled, units: Tensor, importance: Tensor, replicates: int, seed: int) -> Resampled:
    # units, importance: (N,)
    """Return the sums of weighted items, with units as large as their items weigh."""
    distinct, unit = units.unique(return_inverse=True)
    sizes = importance.new_zeros(len(distinct)).index_add_(0, unit, importance)
    if sums.units is not None:
        return sums._replace(units=sums.units._replace(sizes=sizes))
    weighted = joined(weighted_sums(importance[:, None], units, replicates, seed)[0])[:, 0, 0]
    return sums._replace(sizes=weighted, unit_counts=(len(sizes), float(sizes.sum().square() / sizes.square().sum())))


def _scale(scores: Tensor) -> float:
    """Return the largest power of two at which sums are exact, so that also tiny scores keep their digits."""
    largest = max(float(scores.abs().amax()) if scores.numel() else 0.0, 1.0)
    return 2.0 ** (LARGEST_SUM - math.ceil(math.log2(largest)) - math.ceil(math.log2(max(len(scores), 1))))
