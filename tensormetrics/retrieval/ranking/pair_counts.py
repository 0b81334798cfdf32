"""Counts of pairs by item and by bin of distance, from which reweighted ROC curves of pairs are computed.

The weight of a pair is the product of its items' weights (Owen & Eckles 2012, doi:10.1214/12-AOAS547). Evaluating it
for each pair and replicate would cost R times the pairs. For many pairs the product (1 + a)(1 + b) is therefore
approximated by 1 + a + b, which needs only the counts of each item; the few pairs of small data sets and rare classes
use exact products.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ...core.metric.distributed import all_gather_cat
from ...core.numbers.exact_sums import index_add
from ...core.resampling.weights import replicate_weights
from .pairs import ItemPairs, Threshold, Tile

SAMPLED = 2**18  # pairs of each kind that the bins are chosen from
BINS = 512
PRODUCTS = 2**26  # the most products of weights: replicates times pairs of a kind
CHUNK = 2**22  # products in memory at a time
SAME, DIFFERENT = 0, 1
_STEPS = 0.7548776662466927, 0.5698402909980532  # of a quasirandom sequence that fills a plane (Roberts 2018)


class PairCounts(NamedTuple):
    """Counts of the pairs of V items; an item is a query, a reference or both.

    Bins are ascending and each begins at its start; the first also holds all nearer pairs.
    """

    starts: Tensor  # (B,) float64, canonical distances
    of_items: Tensor  # (V, 2, B) int64, pairs of each item, of the same and of different labels
    lists: tuple[Tensor | None, Tensor | None]  # for each kind (P, 3) int64: both items and the bin; None: too many

    @staticmethod
    def of_none(num_items: int, device: torch.device) -> "PairCounts":
        """Return counts of no pairs."""
        start = torch.zeros(1, dtype=torch.float64, device=device)
        return PairCounts(start, torch.zeros(num_items, 2, 1, dtype=torch.int64, device=device), (None, None))

    @property
    def total(self) -> Tensor:
        # ->  (2, B) int64
        return self.of_items.sum(0) // 2


def count_pairs(pairs: ItemPairs, starts: Tensor, replicates: int) -> PairCounts:
    # starts: (B,) float64
    """Count all pairs by item and bin, and list the pairs of a kind that has few.

    Items are the queries, followed by the references that are no queries.
    """
    num_bins, device = len(starts), starts.device
    num_queries, num_shared = len(pairs.inputs.query), pairs.inputs.shared
    of_items = pairs.self_index.new_zeros(num_queries + len(pairs.inputs.reference) - num_shared, 2 * num_bins)
    is_short = [int(count) * replicates <= PRODUCTS for count in pairs.total]
    parts: list[list[Tensor]] = [[of_items.new_zeros(0, 3)] for _ in is_short]
    error = pairs.error if math.isfinite(pairs.error) else 0.0
    edges = (starts[1:] - error).contiguous()  # values have this error: equal distances stay in one bin
    for tile in pairs.tiles():
        width = tile.columns.stop - tile.columns.start
        position = torch.arange(len(tile.same), device=device) if tile.positions is None else tile.positions
        row, column = position // width, position % width
        values = pairs.values(tile) if math.isfinite(pairs.error) else pairs.canonical(*_all_pairs(tile))
        cell = torch.searchsorted(edges, values, right=True).add_(torch.where(tile.same, 0, num_bins))
        of_rows, of_columns = (
            (index * (2 * num_bins)).add_(cell).bincount(minlength=count * 2 * num_bins).view(count, 2 * num_bins)
            for index, count in ((row, tile.rows.stop - tile.rows.start), (column, width))
        )
        of_items[tile.rows] += of_rows
        references = torch.arange(tile.columns.start, tile.columns.stop, device=device)
        references += torch.where(references < num_shared, 0, num_queries - num_shared)
        of_items.index_add_(0, references, of_columns)
        for kind in (SAME, DIFFERENT):
            if is_short[kind]:
                selected = (tile.same if kind == SAME else ~tile.same).nonzero()[:, 0]
                items = row[selected] + tile.rows.start, references[column[selected]]
                parts[kind].append(torch.stack([*items, cell[selected] - kind * num_bins], 1))
    lists = [torch.cat(rows) if short else None for rows, short in zip(parts, is_short, strict=True)]
    if pairs.several:
        lists = [None if rows is None else all_gather_cat(rows, pairs.group) for rows in lists]
    counts = pairs.of_all_ranks(of_items).view(-1, 2, num_bins)
    return PairCounts(starts, counts, (lists[SAME], lists[DIFFERENT]))


def _all_pairs(tile: Tile) -> tuple[Tensor, Tensor]:
    return tile.pairs(torch.arange(len(tile.same), device=tile.same.device))


def bin_starts(pairs: ItemPairs, far: Sequence[float], thresholds: Sequence[Threshold]) -> Tensor:
    # far: F rates in [0, 1]  ->  (B,) float64
    """Choose bins: evenly filled ones, finer around some rates of false acceptance, and one at each threshold."""
    same, different = _samples(pairs)
    rates = torch.tensor(far, dtype=torch.float64, device=same.device)
    exact = torch.stack([threshold.distance for threshold in thresholds]) if thresholds else rates[:0]
    distinct = torch.cat([same, different]).unique()
    if len(distinct) <= BINS:
        return torch.cat([distinct, exact[exact.isfinite()]]).unique()
    even = torch.linspace(0, 1, BINS // 4, dtype=torch.float64, device=rates.device)
    around = rates[:, None] * 4.0 ** torch.linspace(-1, 1, BINS // 4 + 1, dtype=torch.float64, device=rates.device)
    levels = torch.cat([even, around.flatten()]).clamp(max=1)
    quantiles = [
        values[(level * (len(values) - 1)).long()]
        for values, level in ((same, even), (different, levels))
        if len(values)  # a sample may hold none of the few pairs of a kind
    ]
    after = exact + 3 * pairs.error if math.isfinite(pairs.error) else exact
    starts = torch.cat([*quantiles, exact, torch.nextafter(after, exact + torch.inf)])  # a bin for each exact distance
    return starts[starts.isfinite()].unique()


def _samples(pairs: ItemPairs) -> list[Tensor]:
    # ->  (n,) float64, ascending, of pairs of the same label and of different ones
    """Return the distances of all pairs of each kind, or of a sample that covers all items evenly."""
    query_labels, reference_labels = pairs.inputs.query_labels, pairs.inputs.reference_labels
    device, num_queries, num_references = query_labels.device, len(query_labels), len(reference_labels)
    if num_queries * num_references <= SAMPLED:
        position = torch.arange(num_queries * num_references, device=device)
        row, column = position // num_references, position % num_references
    else:
        index = torch.arange(SAMPLED, dtype=torch.float64, device=device)
        first_fraction, second_fraction = (index * step % 1 for step in _STEPS)
        row = (first_fraction * num_queries).long()
        labels, order = reference_labels.sort()
        first, last = (torch.searchsorted(labels, query_labels[row], right=right) for right in (False, True))
        partner = order[(first + (second_fraction * (last - first)).long()).clamp(max=num_references - 1)]
        row, column = row.repeat(2), torch.cat([(second_fraction * num_references).long(), partner])
    is_pair = pairs.self_index[row] != column
    row, column = row[is_pair], column[is_pair]
    same = query_labels[row] == reference_labels[column]
    return [pairs.canonical(row[kind], column[kind]).sort().values for kind in (same, ~same)]


def weighted_counts(counts: PairCounts, units: Tensor, replicates: int, seed: int) -> tuple[Tensor, Tensor]:
    # units: (V,) int64  ->  (R, 2, B), (R,) float64
    """Return the weighted pairs of each kind and bin in each replicate, and the weighted number of items."""
    of_items, total = counts.of_items.flatten(1).double(), counts.total.flatten().double()
    weighted = total.new_empty(replicates, *counts.of_items.shape[1:])
    sizes = total.new_empty(replicates)
    for rows, weights in replicate_weights(units, replicates, seed):
        sizes[rows] = weights.sum(1)
        linear = weights @ of_items - (sizes[rows] / max(len(units), 1))[:, None] * total
        weighted[rows] = linear.view(-1, *weighted.shape[1:])
        for kind, pairs_of_kind in enumerate(counts.lists):
            if pairs_of_kind is not None:
                weighted[rows, kind] = _products(weights, pairs_of_kind, weighted.shape[2])
    return weighted, sizes


def _products(weights: Tensor, pairs: Tensor, num_bins: int) -> Tensor:
    # weights: (R, V)  pairs: (P, 3), both items and the bin  ->  (R, B)
    sums = weights.new_zeros(len(weights), num_bins)
    for part in pairs.split(max(CHUNK // max(len(weights), 1), 1)):
        first, second, cell = part.unbind(1)
        index_add(sums, 1, cell, weights[:, first] * weights[:, second])
    return sums
