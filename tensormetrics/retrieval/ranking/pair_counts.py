"""Pairs of items counted by item and by bin of distance: the sums that a reweighted ROC curve of pairs is read off.

A pair weighs the product of its items' weights (Owen & Eckles 2012, doi:10.1214/12-AOAS547). To redo it for each pair
and replicate would cost R times the pairs. Of many pairs the product (1 + a)(1 + b) is therefore taken as 1 + a + b,
which needs the counts of each item alone; the few pairs of small data sets and rare classes have their products.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..._distributed import gathered
from ...uncertainty.engine.weights import replicate_weights
from .pairs import Pairs

SAMPLED = 2**18  # pairs of each kind that bins are chosen by
BINS = 512
PRODUCTS = 2**26  # of weights: replicates times pairs of a kind
SAME, DIFFERENT = 0, 1
_STEPS = 0.7548776662466927, 0.5698402909980532  # of the points of a plane that fill it evenly (Roberts 2018)


class PairCounts(NamedTuple):
    """Pairs of V items, a query and a reference each or both at once.

    Bins are ascending and each begins at its start; the first also holds what is nearer.
    """

    starts: Tensor  # (B,) float64, canonical distances
    of_items: Tensor  # (V, 2, B) int64, pairs of each item, of the same and of different labels
    listed: tuple[Tensor | None, Tensor | None]  # of each kind (P, 3) int64: both items and the bin; None: too many

    @property
    def total(self) -> Tensor:
        # ->  (2, B) int64
        return self.of_items.sum(0) // 2


def count_pairs(pairs: Pairs, starts: Tensor, replicates: int) -> PairCounts:
    # starts: (B,) float64
    """Count all pairs by item and bin, and list those of a kind of which there are few.

    Items are the queries and then the references that are no queries.
    """
    sides, bins, device = pairs.sides, len(starts), starts.device
    queries, shared = len(sides.query), sides.shared
    of_items = pairs.own.new_zeros(queries + len(sides.reference) - shared, 2 * bins)
    is_listed = [int(number) * replicates <= PRODUCTS for number in pairs.total]
    listed: list[list[Tensor]] = [[of_items.new_zeros(0, 3)] for _ in is_listed]
    error = pairs.error if math.isfinite(pairs.error) else 0.0
    edges = (starts[1:] - error).contiguous()  # values are off by the error: equal distances stay in one bin
    for tile in pairs.tiles():
        width = tile.columns.stop - tile.columns.start
        place = torch.arange(len(tile.same), device=device) if tile.at is None else tile.at
        row, column = place // width, place % width
        values = pairs.values(tile) if math.isfinite(pairs.error) else pairs.canonical(*tile.pairs(place))
        cell = torch.searchsorted(edges, values, right=True).add_(torch.where(tile.same, 0, bins))
        of_rows, of_columns = (
            (index * (2 * bins)).add_(cell).bincount(minlength=count * 2 * bins).view(count, 2 * bins)
            for index, count in ((row, tile.rows.stop - tile.rows.start), (column, width))
        )
        of_items[tile.rows] += of_rows
        references = torch.arange(tile.columns.start, tile.columns.stop, device=device)
        references += torch.where(references < shared, 0, queries - shared)
        of_items.index_add_(0, references, of_columns)
        for kind, rows in enumerate(listed):
            if is_listed[kind]:
                chosen = (tile.same if kind == SAME else ~tile.same).nonzero()[:, 0]
                items = row[chosen] + tile.rows.start, references[column[chosen]]
                rows.append(torch.stack([*items, cell[chosen] - (0 if kind == SAME else bins)], 1))
    tables = [torch.cat(rows) if few else None for rows, few in zip(listed, is_listed, strict=True)]
    if pairs.several:
        tables = [None if table is None else gathered(table, pairs.group) for table in tables]
    counts = pairs.of_all_ranks(of_items).view(-1, 2, bins)
    return PairCounts(starts, counts, (tables[SAME], tables[DIFFERENT]))


def bin_starts(pairs: Pairs, rates: Tensor, exact: Tensor) -> Tensor:
    # rates: (F,) float64 in [0, 1], of pairs of different labels  exact: (K,) float64  ->  (B,) float64
    """Choose bins: evenly filled ones, finer around rates of pairs of different labels, and one at each exact value."""
    same, different = _samples(pairs)
    distinct = torch.cat([same, different]).unique()
    if len(distinct) <= BINS:
        return torch.cat([distinct, exact[exact.isfinite()]]).unique()
    even = torch.linspace(0, 1, BINS // 4, dtype=torch.float64, device=rates.device)
    around = rates[:, None] * 4.0 ** torch.linspace(-1, 1, BINS // 4 + 1, dtype=torch.float64, device=rates.device)
    levels = torch.cat([even, around.flatten()]).clamp(max=1)
    chosen = [
        values[(at * (len(values) - 1)).long()] for values, at in ((same, even), (different, levels)) if len(values)
    ]
    after = exact + 3 * pairs.error if math.isfinite(pairs.error) else exact
    starts = torch.cat([*chosen, exact, torch.nextafter(after, exact + torch.inf)])  # a bin for each exact distance
    return starts[starts.isfinite()].unique()


def _samples(pairs: Pairs) -> list[Tensor]:
    # ->  (n,) float64, ascending, of pairs of the same label and of different ones
    """Return the distances of all pairs of a kind, or of some that are spread over all items."""
    sides, device = pairs.sides, pairs.sides.query.device
    count, references = len(sides.query), len(sides.reference)
    if count * references <= SAMPLED:
        place = torch.arange(count * references, device=device)
        row, column = place // references, place % references
    else:
        number = torch.arange(SAMPLED, dtype=torch.float64, device=device)
        first_share, other = (number * step % 1 for step in _STEPS)
        row = (first_share * count).long()
        labels, order = sides.reference_labels.sort()
        first, last = (torch.searchsorted(labels, sides.query_labels[row], right=right) for right in (False, True))
        partner = order[(first + (other * (last - first)).long()).clamp(max=references - 1)]
        row, column = row.repeat(2), torch.cat([(other * references).long(), partner])
    column, row = (index[pairs.own[row] != column] for index in (column, row))
    same = sides.query_labels[row] == sides.reference_labels[column]
    return [pairs.canonical(row[kind], column[kind]).sort().values for kind in (same, ~same)]


def weighted_counts(counts: PairCounts, units: Tensor, replicates: int, seed: int) -> tuple[Tensor, Tensor]:
    # units: (V,) int64  ->  (R, 2, B), (R,) float64
    """Return the weighted pairs of each kind and bin in each replicate, and the weighted number of items."""
    of_items, total = counts.of_items.flatten(1).double(), counts.total.flatten().double()
    weighted = total.new_empty(replicates, *counts.of_items.shape[1:])
    sizes = total.new_empty(replicates)
    for drawn, weights in replicate_weights(units, replicates, seed):
        sizes[drawn] = weights.sum(1)
        linear = weights @ of_items - (sizes[drawn] / len(units))[:, None] * total
        weighted[drawn] = linear.view(-1, *weighted.shape[1:])
        for kind, listed in enumerate(counts.listed):
            if listed is not None:
                weighted[drawn, kind] = _products(weights, listed, weighted.shape[2])
    return weighted, sizes


def _products(weights: Tensor, listed: Tensor, bins: int) -> Tensor:
    # weights: (R, V)  listed: (P, 3)  ->  (R, B)
    first, second, place = listed.unbind(1)
    sums = weights.new_zeros(len(weights), bins)
    step = max(2**22 // max(len(weights), 1), 1)
    for part in torch.arange(len(listed), device=listed.device).split(step):
        sums.index_add_(1, place[part], weights[:, first[part]] * weights[:, second[part]])
    return sums
