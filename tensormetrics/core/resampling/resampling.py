"""Sums of reweighted items, from which intervals and comparisons of functions of sums are computed."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from ..numbers.exact_sums import index_add
from .draws import Bounds
from .units import Units, unit_counts, units_of_items
from .weights import fingerprint, joined, weighted_sums

Range = tuple[float | Tensor, float | Tensor]  # of all values, or (V,)
CHUNK = 2**22  # counts at a time
UNKNOWN: Range = (-torch.inf, torch.inf)


class Resampled(NamedTuple):
    """Sums over all items, over the items of each unit and in R replicates, and the function that reads values off."""

    observed: Tensor  # (...)
    weighted: Tensor  # (R, ...)
    half: Tensor | None  # (R, ...), of a random half of the units; None where sums of two metrics cannot be mixed
    read: Callable[[Tensor], Any]  # sums (..., *shape of observed)  ->  a value (...), or values by name
    items: Tensor  # (), equal for equal items
    units: Units | None  # None if these are too many, or the value is no function of sums
    num_items: int
    sizes: Tensor | None  # (R,), weighted numbers of items
    seed: int
    bounds: Bounds | None = None
    range: Range = UNKNOWN
    is_smooth: bool = True  # else the jackknife is inconsistent, as for medians (Efron 1982, section 3.4)
    unit_counts: tuple[int, float] | None = None  # of stored rows with too many units, see `units.unit_counts`
    is_biased: bool = False  # replicates add the bias of few items once more; draws are centered without both
    check_bias: Callable[[Tensor, Tensor], None] | None = None  # of replicates, and their deviation, (V,) each
    unseen: Callable[[int, int, float], Tensor] | None = None  # seed, R, unit  ->  (R,), with items in cells not seen
    bias: Tensor | None = None  # (), of the value, if there are no units of which the jackknife could tell it
    signs: tuple[Tensor, Tensor] | None = None  # (V,) positive and all signs, of which chance makes half positive
    has_pseudo_items: bool = False  # `weighted` has them, so that none are added
    pairing: str | None = None  # items without ids: "position", or "merged", which cannot be paired
    paired: "Callable[[], Resampled] | None" = None  # the same for comparisons, without pseudo-items in `weighted`


class Joined(NamedTuple):
    """Several metrics on the same items; `join` combines their values, or results, into one."""

    parts: list[Resampled]
    join: Callable[[list[Any]], Any]


class Items(NamedTuple):
    """Rows of items; a metric computes its value from their sums over all items, or over the items of each cell."""

    rows: Tensor  # (N, K) float64
    units: Tensor  # (N,) int64, equal for items that share a weight
    read: Callable[[Tensor], Any]  # (..., C, K)  ->  a value (...), or values by name
    cells: Tensor | None = None  # (N,) int64 in [0, C)
    width: int = 1  # C
    mixes: bool = True  # whether sums of two metrics may be mixed; not where the scores determine the cells
    bounds: Bounds | None = None
    range: Range = UNKNOWN
    identity: tuple[Tensor, ...] = ()  # (N,) int64 each, all equal for equal items; by default the units alone
    is_smooth: bool = True
    is_biased: bool = False
    check_bias: Callable[[Tensor, Tensor], None] | None = None
    unseen: Callable[[int, int, float], Tensor] | None = None

    def resampled(self, replicates: int, seed: int) -> Resampled:
        """Return the sums that the items have in all replicates."""
        rows, mixes = self.rows.double(), self.mixes
        sums = weighted_sums(
            rows, self.units, replicates, seed, random_halves=mixes, cells=self.cells, width=self.width
        )
        cells = torch.zeros_like(self.units) if self.cells is None else self.cells
        is_one_sum = self.cells is None and not rows.is_cpu
        zeros = rows.new_zeros(self.width, rows.shape[1])
        units = units_of_items(rows, self.units, self.cells, self.width)
        sizes = None
        if units is None:
            sizes = joined(weighted_sums(torch.ones_like(rows[:, :1]), self.units, replicates, seed)[0])[:, 0, 0]
        observed = rows.sum(0, keepdim=True) if is_one_sum else index_add(zeros, 0, cells, rows)
        return Resampled(
            observed=observed,
            weighted=joined(sums[0]),
            half=joined(sums[1]) if mixes else None,
            read=self.read,
            items=fingerprint(*(self.identity or (self.units,))),
            units=units,
            num_items=len(rows),
            sizes=sizes,
            seed=seed,
            bounds=self.bounds,
            range=self.range,
            is_smooth=self.is_smooth,
            is_biased=self.is_biased,
            check_bias=self.check_bias,
            unseen=self.unseen,
            bias=_bias_of_counts(observed, self.read) if self.is_biased and units is None else None,
            unit_counts=unit_counts(self.units) if units is None else None,
        )


def _bias_of_counts(counts: Tensor, read: Callable[[Tensor], Any]) -> Tensor:
    # counts: (C, 1), of items in each cell  ->  ()
    """Return the jackknife's bias of a value of counts: all items of a cell leave the same value behind."""
    filled, total, bias = counts[:, 0].nonzero()[:, 0], counts.sum(), counts.new_zeros(())
    for cells in filled.split(max(CHUNK // len(counts), 1)):
        without = counts.repeat(len(cells), 1, 1)
        without[torch.arange(len(cells), device=cells.device), cells, 0] -= 1
        bias = bias + ((read(without) - read(counts)) * counts[cells, 0]).sum()
    return bias * (total - 1) / total


def combine(parts: Sequence[Resampled | Joined], join: Callable[[list[Any]], Any]) -> Joined:
    """Join several metrics that were updated with the same items."""
    if all(isinstance(part, Resampled) for part in parts):
        return Joined([part for part in parts if isinstance(part, Resampled)], join)
    flat = [part.parts if isinstance(part, Joined) else [part] for part in parts]

    def join_nested(results: list[Any]) -> Any:
        remaining, outer = iter(results), []
        for part, inner in zip(parts, flat, strict=True):
            values = [next(remaining) for _ in inner]
            outer.append(part.join(values) if isinstance(part, Joined) else values[0])
        return join(outer)

    return Joined([part for inner in flat for part in inner], join_nested)


def value_of(resampled: Resampled | Joined) -> Any:
    """Read the value of the data."""
    if isinstance(resampled, Joined):
        return resampled.join([value_of(part) for part in resampled.parts])
    return resampled.read(resampled.observed)


class FlatValues(NamedTuple):
    """Values (...) by name as one tensor (..., V), and back."""

    read: Callable[[Tensor], Tensor]
    leaves: list[Tensor]  # of the data
    spec: Any

    def restored(self, columns: list[Tensor], make: Callable[..., Any]) -> Any:
        # columns: (V,) each  ->  `make` of the columns of each leaf
        sizes = [leaf.numel() for leaf in self.leaves]
        parts = zip(*(column.split(sizes) for column in columns), strict=True)
        results = [
            make(*(part.view(leaf.shape).to(torch.float64) for part in leaf_parts))
            for leaf, leaf_parts in zip(self.leaves, parts, strict=True)
        ]
        return tree_unflatten(results, self.spec)


def values_of(resampled: Resampled) -> FlatValues:
    leaves, spec = tree_flatten(resampled.read(resampled.observed))
    sum_ndim = resampled.observed.ndim

    def read(sums: Tensor) -> Tensor:
        batch = sums.ndim - sum_ndim
        parts = tree_flatten(resampled.read(sums))[0]
        return torch.cat([part.double().unsqueeze(-1).flatten(batch) for part in parts], -1)

    return FlatValues(read, [leaf.double() for leaf in leaves], spec)
