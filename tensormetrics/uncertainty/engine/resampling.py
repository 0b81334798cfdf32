"""How sure a metric is of a value that is a function of sums over items: the same sums of reweighted items."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .estimates import Comparison, estimates, interval_of
from .weights import fingerprint, joined, weighted_sums


class Resampled(NamedTuple):
    """The sums over all items, their weighted sums in R replicates, and what is read off them."""

    plain: Tensor  # (...)
    weighted: Tensor  # (R, ...)
    half: Tensor | None  # (R, ...), of a random half of the items; None where such sums are not to be mixed
    read: Callable[[Tensor], Any]  # sums (..., *shape of plain)  ->  a value (...), or values by name
    items: Tensor  # (), equal for equal items


class Items(NamedTuple):
    """Rows whose sums, over all items or over those of each cell, a metric reads its value off."""

    rows: Tensor  # (N, K) float64
    units: Tensor  # (N,) int64, equal for items that share a weight
    read: Callable[[Tensor], Any]  # (..., C, K)  ->  a value (...), or values by name
    cells: Tensor | None = None  # (N,) int64 in [0, C)
    width: int = 1  # C
    mixes: bool = True  # may sums of two metrics be mixed? Not where cells are numbered by the scores themselves

    def resampled(self, replicates: int, seed: int) -> Resampled:
        rows, mixes = self.rows.double(), self.mixes
        sums = weighted_sums(rows, self.units, replicates, seed, halves=mixes, cells=self.cells, width=self.width)
        cells = torch.zeros_like(self.units) if self.cells is None else self.cells
        plain = rows.new_zeros(self.width, rows.shape[1]).index_add_(0, cells, rows)
        half = joined(sums[1]) if mixes else None
        return Resampled(plain, joined(sums[0]), half, self.read, fingerprint(self.units))


def together(found: list[Resampled], join: Callable[[list[Any]], Any]) -> Resampled:
    """Those of several metrics that were fed with the same items as one; `join` makes one value of theirs."""
    sizes = [each.plain.numel() for each in found]
    shapes = [each.plain.shape for each in found]

    def read(sums: Tensor) -> Any:
        pieces = zip(sums.split(sizes, -1), shapes, found, strict=True)
        return join([each.read(piece.unflatten(-1, shape)) for piece, shape, each in pieces])

    plain = torch.cat([each.plain.flatten() for each in found])
    weighted = torch.cat([each.weighted.flatten(1) for each in found], 1)
    halves = [each.half for each in found if each.half is not None]
    half = torch.cat([each.flatten(1) for each in halves], 1) if len(halves) == len(found) else None
    return Resampled(plain, weighted, half, read, torch.stack([each.items for each in found]))


def interval(value: Any, found: Resampled, confidence: float) -> Any:
    """An `Estimate` for each tensor of `value`."""
    return estimates(value, found.read(found.weighted), confidence)


def comparisons(
    a: tuple[Any, Resampled],
    b: tuple[Any, Resampled],
    confidence: float,
    rope: float | None,
    better: Callable[[str], int],
) -> Any:
    # better: of a name, -1 where less is better
    """A `Comparison` for each tensor of a's and b's values, whose replicates have the same weights."""
    (value_a, one), (value_b, two) = a, b
    if not torch.equal(one.items, two.items):
        raise ValueError("a, b: their items differ; feed both with the same ids (or, without ids, the same order)")
    tested = one.half is not None and two.half is not None
    if len(one.weighted) != len(two.weighted) or tested and one.plain.shape != two.plain.shape:
        raise ValueError("a, b: their results differ in shape; wanted equal options and the same classes")
    sides = [value_a, value_b, one.read(one.weighted), two.read(two.weighted)]
    if one.half is not None and two.half is not None:
        moved = two.half - one.half
        sides += [one.read(one.plain), two.read(two.plain), one.read(one.plain + moved), two.read(two.plain - moved)]

    def compared(name: str, x: Tensor, y: Tensor, p: Tensor, q: Tensor, *swaps: Tensor) -> Comparison:
        difference, samples = x - y, p - q
        low, high = interval_of(samples, confidence)
        known = samples.isnan().logical_not().sum(0).double()
        share = ((better(name) * samples > 0).sum(0) + 0.5 * (samples == 0).sum(0)) / known
        nothing = torch.full_like(difference, torch.nan)
        p_value = _share_as_extreme(*swaps) if swaps else nothing
        p_rope = nothing if rope is None else ((samples.abs() <= rope).sum(0) / known).to(difference)
        return Comparison(difference, low, high, p_value, share.to(difference), p_rope)

    if isinstance(value_a, dict):
        return {name: compared(name, *(side[name] for side in sides)) for name in value_a}
    return compared("", *sides)


def _share_as_extreme(x: Tensor, y: Tensor, p: Tensor, q: Tensor) -> Tensor:
    # x, y: (...) values  p, q: (R, ...) the same of items that were swapped at random  ->  (...)
    """(1 + hits) / (1 + R), where equal differences that rounding parts are as extreme."""
    observed, drawn = x - y, p - q
    slack = 1e-10 * torch.maximum(x.abs(), y.abs())
    hits = (drawn.abs() >= observed.abs() - slack).sum(0).double()
    p_value = (1 + hits) / (1 + drawn.isnan().logical_not().sum(0))
    return p_value.clamp(max=1).to(x.dtype).masked_fill(observed.isnan(), torch.nan)
