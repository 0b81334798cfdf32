"""ROC curves of pairs counted in bins of distance, in the data and in each replicate."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...core.numbers.exact_sums import prefix_sums
from ...core.resampling.draws import Bounds
from ...core.resampling.resampling import Range, Resampled
from ...core.resampling.units import unit_counts, units_of_values
from ...core.resampling.weights import ItemNames, fingerprint
from .pair_counts import DIFFERENT, SAME, PairCounts, bin_starts, count_pairs, weighted_counts
from .pairs import ItemPairs, Threshold


class Curve(NamedTuple):
    """Accept rates of both kinds of pairs before the first bin and after each bin."""

    tar: Tensor  # (..., B + 1) float64, NaN without a pair of the same label
    far: Tensor  # (..., B + 1) float64, NaN without a pair of different labels
    starts: Tensor  # (B + 1,) float64, canonical distances at which bins begin, the last infinite

    @classmethod
    def of_counts(cls, counts: Tensor, starts: Tensor) -> "Curve":
        # counts: (..., 2, B) float64  starts: (B,)
        """Return the curve of pairs in bins."""
        accepted = torch.nn.functional.pad(prefix_sums(counts), (1, 0))
        accepted = accepted / accepted[..., -1:]
        ends = torch.cat([starts, starts.new_full((1,), torch.inf)])
        return cls(accepted[..., SAME, :], accepted[..., DIFFERENT, :], ends)

    def rates_at(self, rates: Sequence[float]) -> tuple[Tensor, Tensor]:
        # rates: F in [0, 1]  ->  (..., F) float64 each
        """Return the true accept rates at false accept rates of at most `rates`, and the canonical thresholds."""
        max_rates = torch.tensor(rates, dtype=torch.float64, device=self.far.device)[:, None]
        bins = _first(self.far[..., None, 1:] > max_rates)
        true_rates = self.tar[..., None, :].expand(*bins.shape, -1).gather(-1, bins[..., None])[..., 0]
        is_valid = self._is_valid()[..., None]
        return true_rates.where(is_valid, torch.nan), self.starts[bins].where(is_valid, torch.nan)

    def equal_error_rate(self) -> Tensor:
        # ->  (...) float64
        """Return the rate at which false accepts equal false rejects, by linear interpolation."""
        bins = _first(self.tar[..., 1:] + self.far[..., 1:] >= 1).clamp(max=self.far.shape[-1] - 2)[..., None]
        ends = torch.cat([bins, bins + 1], -1)
        tar, tar_after = self.tar.gather(-1, ends).unbind(-1)
        far, far_after = self.far.gather(-1, ends).unbind(-1)
        gap, left = 1 - tar - far, tar_after + far_after - 1
        return (far + gap / (gap + left) * (far_after - far)).where(self._is_valid(), torch.nan)

    def area(self) -> Tensor:
        # ->  (...) float64
        """Return the area under the linearly interpolated curve."""
        return ((self.tar[..., 1:] + self.tar[..., :-1]) * self.far.diff(dim=-1)).sum(-1) / 2

    def _is_valid(self) -> Tensor:
        return self.tar[..., -1].isfinite() & self.far[..., -1].isfinite()


def _first(holds: Tensor) -> Tensor:
    # (..., B) bool  ->  (...) int64, B where it never holds
    return (~holds).cumprod(-1).sum(-1)


def resampled_curve(
    pairs: ItemPairs,
    names: ItemNames,
    points: Callable[[ItemPairs], tuple[Sequence[float], list[Threshold]]],
    read: Callable[[Curve], Any],
    value_range: Range,
    replicates: int,
    seed: int,
) -> Resampled:
    """Return the binned pairs, of the data and of all replicates, with a function that reads values off their curve.

    names: of the V items, the queries followed by the references that are no queries. points: returns the false accept
    rates around which, and the thresholds at which, the curve has to be exact, if both kinds have pairs. Pseudo-items
    have their pairs of the same label at one end of the distances, and pairs of different labels distributed like those
    of the data: the data contain no evidence of an item near to all others, but it would invalidate every threshold.
    """
    counts = PairCounts.of_none(len(names.units), names.units.device)  # there is no curve if a kind has no pairs
    if bool(pairs.total.all()):
        rates, thresholds = points(pairs)
        counts = count_pairs(pairs, bin_starts(pairs, rates, thresholds), replicates)
    weighted, sizes = weighted_counts(counts, names.units, replicates, seed)
    observed = counts.total.double()
    units = units_of_values(names.units)
    if units is not None:
        rows = torch.zeros(len(units.ids), *observed.shape, dtype=observed.dtype, device=observed.device)
        rows.index_add_(0, torch.searchsorted(units.ids, names.units), counts.of_items.double())
        units = units._replace(rows=rows)
    per_item = observed * 2 / max(len(names.units), 1)
    worst, best = per_item.clone(), per_item.clone()
    for row, end in ((worst, -1), (best, 0)):
        row[SAME] = 0
        row[SAME, end] = per_item[SAME].sum()
    query_labels, reference_labels = pairs.inputs.query_labels, pairs.inputs.reference_labels
    labels = torch.cat([query_labels, reference_labels[pairs.inputs.shared :].to(query_labels.dtype)])
    identity = names.columns(None if labels.is_floating_point() else labels)
    return Resampled(
        observed=observed,
        weighted=weighted,
        half=None,
        read=lambda sums: read(Curve.of_counts(sums, counts.starts)),
        items=fingerprint(*identity),
        units=units,
        num_items=len(names.units),
        sizes=sizes if units is None else None,
        seed=seed,
        bounds=Bounds(worst, best),
        range=value_range,
        is_smooth=False,
        unit_counts=unit_counts(names.units) if units is None else None,
    )
