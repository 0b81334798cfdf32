"""Ranks of the positives: the integers that all retrieval scores are computed from."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.arguments.checks import takes_arrays
from ..deterministic import chunk_slices
from ..inputs import (
    RetrievalInputs,
    as_inputs,
    as_labels,
    both_or_neither,
    check_count,
    check_self_index,
    comparable_labels,
)
from ..relevance import (
    BatchGains,
    Comparison,
    Gains,
    Ignore,
    Positives,
    Relevance,
    scattered,
)
from ..search.batch import Batch
from ..search.distance import DistanceName
from ..search.nearest import NearestSearch
from ..search.references import References
from .rank_counts import RankCounter
from .ranking import RankingOptions, Ties


class PositiveRanks(NamedTuple):
    """Ranks of the relevant references of each query among its candidates.

    rank (..., Q, P) integers: 1-based ranks, ascending. 0 marks an empty entry or a positive that was not found (it is
        deeper than `depth`, or it or the query holds NaN or infinity), and may occur at any position.
    relevant (..., Q) int64: R, the number of relevant references, found or not.
    candidates (..., Q) int64: C, the number of all references except the query itself and ignored ones.
    gain, ideal (..., Q, P) float64: the gain of each entry of rank, and all gains, largest first; None: all are 1.
    depth: the largest rank that was searched for; None: no limit.
    """

    rank: Tensor
    relevant: Tensor
    candidates: Tensor | None = None
    gain: Tensor | None = None
    ideal: Tensor | None = None
    depth: int | None = None

    def within(self, depth: int | Tensor) -> Tensor:
        """Return which entries are positives of rank <= depth.

        Shapes: depth: broadcasts against (..., Q, P) -> (..., Q, P) bool.
        """
        is_found = self.rank > 0
        if self.depth is not None and isinstance(depth, int) and self.depth <= depth:
            return is_found
        return is_found & (self.rank <= depth)


@takes_arrays
@torch.no_grad()
def positive_ranks(
    query: Tensor,
    query_labels: Tensor,
    reference: Tensor | None = None,
    reference_labels: Tensor | None = None,
    *,
    self_index: Tensor | None = None,
    label_comparison_fn: Comparison | None = None,
    gains: Gains | None = None,
    ignore: Ignore | None = None,
    depth: int | None = None,
    ties: Ties = "index",
    distance: DistanceName = "l2",
    exact: bool = True,
    memory_budget: int | None = None,
    query_mask: Tensor | None = None,
    reference_mask: Tensor | None = None,
) -> PositiveRanks:
    """Compute the ranks of the relevant references of every query, exact for each distance and equal on every device.

    Shapes: query: (..., Q, D); query_labels: (..., Q) or (..., Q, L); reference: (..., N, D); reference_labels: (...,
    N) or (..., N, L); self_index: (..., Q) int64; gains, ignore: (..., Q, N); query_mask: (..., Q) bool;
    reference_mask: (..., N) bool -> rank (..., Q, P) int32, P = max R.

    Needs O(Q P) memory. A relevant reference that holds NaN or infinity is not found (rank 0), and a query that does
    finds nothing; both still count in R. Raises a ValueError if the arguments do not match.

    Args:
        query: embeddings of the queries.
        query_labels: classes of the queries; with L columns for `label_comparison_fn`.
        reference: default: the queries; no query is its own candidate.
        reference_labels: classes of the references; default with the queries as references: those of the queries.
        self_index: the reference that is this query, and therefore no candidate; -1 = none.
        label_comparison_fn: `(x, y)` for pairs of labels, (n,) or (n, L) each, to (n,) bool; default equality.
        gains: graded relevance, 0 = not relevant: for each pair, or a function of pairs of labels, or a tuple (queries,
            references, gains), (n,) each: the indices of some pairs, each once, and their gains; all other pairs have
            0. The tuple needs O(n) memory. With leading dimensions it begins with an index (n,) for each of them.
        ignore: True = no candidate: for each pair, or (without leading dimensions and masks) a function of a slice of
            the queries that gives its rows. A pair (query groups (..., Q), reference groups (..., N)): relevant
            references of the same group are no candidates.
        depth: leave out ranks above it; default none.
        ties: the order at equal distance: "index" (of the reference), "optimistic" (relevant ones first) or
            "pessimistic" (last).
        distance: "l2", "sqeuclidean", "ip" or "cosine".
        exact: as in `TorchKNN`.
        memory_budget: as in `TorchKNN`.
        query_mask: False = padding, which has R = 0.
        reference_mask: False = padding, which is never counted.

    >>> x, labels = torch.tensor([[0.0], [0.1], [5.0], [5.1], [0.3]]), torch.tensor([0, 0, 1, 1, 1])
    >>> ranks = positive_ranks(x, labels)  # each row is a query among the others
    >>> ranks.rank, ranks.relevant
    (tensor([[1, 0],
            [1, 0],
            [1, 2],
            [1, 2],
            [3, 4]], dtype=torch.int32), tensor([1, 1, 2, 2, 2]))
    >>> average_precision(ranks)
    tensor([1.0000, 1.0000, 1.0000, 1.0000, 0.4167], dtype=torch.float64)
    """
    inputs = RankingInputs(query, query_labels, reference, reference_labels, self_index, gains, ignore)
    ranking = RankingOptions(label_comparison_fn, depth, ties, distance, exact, memory_budget).checked()
    graded = gains is not None
    checks.tensor("query", query)
    if query.ndim <= 2 and query_mask is None and reference_mask is None:
        return joined(rank_tiles(inputs.checked(), ranking), len(query), graded, ranking.depth, query.device)
    checks.shape("query", query, "...", "N", "D")
    batch_shape, queries = query.shape[:-2], query.shape[-2]
    tiles = _batch_tiles(inputs, (query_mask, reference_mask), ranking)
    ranks = joined(tiles, batch_shape.numel() * queries, graded, ranking.depth, query.device)
    tables: dict[str, Any] = {name: part for name, part in ranks._asdict().items() if isinstance(part, Tensor)}
    tables = {name: part.view(*batch_shape, queries, *part.shape[1:]) for name, part in tables.items()}
    return ranks._replace(**tables)


class RankingInputs(NamedTuple):
    """Unchecked queries and references of `positive_ranks`."""

    query: Tensor
    query_labels: Tensor
    reference: Tensor | None = None
    reference_labels: Tensor | None = None
    self_index: Tensor | None = None
    gains: Gains | None = None
    ignore: Ignore | None = None

    def checked(self) -> RetrievalInputs:
        """Check inputs without leading dimensions and masks; raise a ValueError if they do not match."""
        checks.same_device(**{name: value for name, value in self._asdict().items() if isinstance(value, Tensor)})
        inputs = as_inputs(*self[:4], columns=True, is_finite=False)
        if self.self_index is not None:
            self_index = check_self_index(self.self_index, len(inputs.query), len(inputs.reference))
            inputs = inputs._replace(shared=0, query_index=self_index)
        return inputs._replace(gains=self.gains, ignore=self.ignore)

    def candidates(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return references, their labels and self_index; by default the queries, none its own candidate."""
        both_or_neither(reference=self.reference, reference_labels=self.reference_labels)
        if self.reference is not None and self.reference_labels is not None:
            return self.reference, self.reference_labels, self.self_index
        query, self_index = self.query, self.self_index
        if self_index is None:
            self_index = torch.arange(query.shape[-2], device=query.device).expand(query.shape[:-1])
        return query, self.query_labels, self_index


def rank_tiles(inputs: RetrievalInputs, ranking: RankingOptions) -> Iterator[tuple[slice, PositiveRanks]]:
    # ->  slices of the queries, in order, with their ranks; P = the largest R of a tile
    """Yield `positive_ranks` of checked inputs, a tile of queries at a time.

    A tile can be reduced before the next one is computed, so that memory stays within the budget.
    """
    query, query_labels, reference, reference_labels = inputs[:4]
    check_count(len(reference))
    self_index, depth = inputs.self_index(), ranking.depth
    compared = ranking.label_comparison_fn, inputs.gains, inputs.ignore
    relevance = Relevance(query_labels, reference_labels, self_index, *compared)
    memory = ranking.memory(query.device)
    ranks_of: Callable[[slice, Positives], tuple[Tensor, Tensor | None]]
    if not len(reference):
        rows, ranks_of = max(len(query), 1), lambda _, positives: no_ranks(positives)
    elif depth is not None and ranking.is_shallow(reference, inputs.ignore is not None):
        references, k = References(reference, ranking.order), min(depth, len(reference))
        options = memory, ranking.exact, inputs.ignore is not None
        search = NearestSearch(query, self_index, k, references, *options, is_leading=inputs.all_shared())
        rows, ranks_of = search.rows, lambda tile, positives: read_off(search(tile, positives.ignored), positives)
    else:
        ranks_of = counter = RankCounter(query, self_index, reference, ranking)
        rows = counter.rows
    if len(reference):
        rows = max(min(rows, memory // 4 // relevance.bytes_per_query), 1)

    @torch.no_grad()
    def tiles() -> Iterator[tuple[slice, PositiveRanks]]:
        for tile in chunk_slices(len(query), rows):
            positives = relevance(tile)
            yield tile, within_depth(*ranks_of(tile, positives), positives, depth)

    return tiles()


def no_ranks(positives: Positives) -> tuple[Tensor, Tensor | None]:
    # ->  (Q, 0) int32, (Q, 0) float64 or None
    rank = positives.index[:, :0].int()
    return rank, None if positives.gain is None else positives.gain[:, :0]


def _batch_tiles(
    inputs: RankingInputs, masks: tuple[Tensor | None, Tensor | None], ranking: RankingOptions
) -> Iterator[tuple[Tensor, PositiveRanks]]:
    """Yield `rank_tiles` of every item of a batch, without padding; query numbers run through all items."""
    if inputs.reference is None:
        if masks[1] is not None:
            raise ValueError("reference_mask: got one without reference, wanted query_mask")
        masks = (masks[0], masks[0])
    query, query_labels, gains, ignore = inputs.query, inputs.query_labels, inputs.gains, inputs.ignore
    reference, reference_labels, self_index = inputs.candidates()
    if callable(ignore):
        raise ValueError("ignore: got a function with leading dimensions or masks, wanted a mask (..., Q, N)")
    batch = Batch(query, reference, *masks, self_index)
    queries, size = query.shape[-2], reference.shape[-2]
    of_item = BatchGains(gains, batch.batch_shape, queries, size) if isinstance(gains, tuple) else None

    def flat(name: str, values: Tensor, *tail: int) -> Tensor:
        columns = values.shape[len(batch.batch_shape) + 1 :] if name.endswith("labels") else ()
        return batch.flattened(name, values, *tail, *columns)

    query_labels = flat("query_labels", query_labels, queries)
    reference_labels = flat("reference_labels", reference_labels, size)
    if isinstance(gains, Tensor):
        gains = flat("gains", gains, queries, size)
    if isinstance(ignore, tuple):
        ignore = flat("ignore: query groups", ignore[0], queries), flat("ignore: reference groups", ignore[1], size)
    elif ignore is not None:
        ignore = flat("ignore", ignore, queries, size)
    left = torch.ones(len(batch), dtype=torch.bool, device=query.device)
    labels_only = gains is None and ignore is None and ranking.label_comparison_fn is None and query_labels.ndim == 2
    if labels_only and ranking.ties == "index":
        for items, query_ids, ranks in _ranks_of_small_items(batch, query_labels, reference_labels, ranking):
            left[items] = False
            yield query_ids, ranks
    for item in map(batch.item, left.nonzero()[:, 0].tolist()):
        of_one_item = RankingInputs(
            item.of_query(batch.query),
            item.of_query(query_labels),
            item.of_reference(batch.reference),
            item.of_reference(reference_labels),
            item.index(batch.self_index),
            item.of_triples(of_item) if of_item else item.of_pairs(gains) if isinstance(gains, Tensor) else gains,
            (item.of_query(ignore[0]), item.of_reference(ignore[1])) if isinstance(ignore, tuple)
            else None if ignore is None else item.of_pairs(ignore),
        )  # fmt: skip
        for tile, ranks in rank_tiles(of_one_item.checked(), ranking):
            yield item.query_rows[tile], ranks


def _ranks_of_small_items(
    batch: Batch, query_labels: Tensor, reference_labels: Tensor, ranking: RankingOptions
) -> Iterator[tuple[Tensor, Tensor, PositiveRanks]]:
    # query_labels: (B, Q)  reference_labels: (B, N)  ->  (b,) items, (b Q,) numbers of queries, their ranks
    """Yield the ranks of small items, read off their sorted neighbors."""
    size, memory = reference_labels.shape[1], ranking.memory(batch.query.device)
    depth = min(ranking.depth or size, size)
    labels = comparable_labels(
        as_labels("query_labels", query_labels.flatten()), as_labels("reference_labels", reference_labels.flatten())
    )
    codes = torch.cat(labels).unique(return_inverse=True)[1] * len(batch)
    codes = codes.split([query_labels.numel(), reference_labels.numel()])
    item = torch.arange(len(batch), device=codes[0].device)[:, None]
    query_codes = (codes[0].view_as(query_labels) + item).masked_fill(~batch.query_mask, -1)
    reference_codes = (codes[1].view_as(reference_labels) + item).masked_fill(~batch.reference_mask, -2)
    for items, order in batch.search_small_items(depth, ranking.order, ranking.exact, memory):
        self_index, is_valid, first = batch.self_index[items], batch.reference_mask[items], size * item[: len(items)]
        self_index = torch.where(
            (self_index >= 0) & is_valid.gather(1, self_index.clamp(min=0)), self_index + first, -1
        ).flatten()
        relevance = Relevance(query_codes[items].flatten(), reference_codes[items].flatten(), self_index)
        positives = relevance(slice(0, len(self_index)))
        candidates = is_valid.sum(1).repeat_interleave(query_labels.shape[1]) - (self_index >= 0).long()
        positives = positives._replace(candidates=candidates * batch.query_mask[items].flatten())
        rank, _ = read_off(torch.where(order < 0, -1, order + first[..., None]).flatten(0, 1), positives)
        query_ids = items[:, None] * query_labels.shape[1] + torch.arange(
            query_labels.shape[1], device=self_index.device
        )
        yield items, query_ids.flatten(), within_depth(rank, None, positives, ranking.depth)


def joined(
    tiles: Iterable[tuple[slice | Tensor, PositiveRanks]],
    queries: int,
    graded: bool,
    depth: int | None,
    device: torch.device,
) -> PositiveRanks:
    """Join tiles into the ranks of all queries."""
    tiles = list(tiles)
    width = max((part.rank.shape[1] for _, part in tiles), default=0)

    def assemble(field: str, dtype: torch.dtype, *columns: int) -> Tensor:
        table = torch.zeros(queries, *columns, dtype=dtype, device=device)
        for rows, part in tiles:
            values = getattr(part, field)
            table[(rows, slice(values.shape[-1])) if columns else rows] = values
        return table

    return PositiveRanks(
        assemble("rank", torch.int32, width),
        assemble("relevant", torch.int64),
        assemble("candidates", torch.int64),
        assemble("gain", torch.float64, width) if graded else None,
        assemble("ideal", torch.float64, width) if graded else None,
        depth,
    )


def within_depth(rank: Tensor, gain: Tensor | None, positives: Positives, depth: int | None) -> PositiveRanks:
    # rank: (Q, P)  gain: (Q, P)
    """Return the ranks of the positives, without those above `depth`."""
    if depth is not None:
        is_within = rank <= depth
        rank, gain = rank * is_within, None if gain is None else gain * is_within
    ideal = None if positives.gain is None else positives.gain.sort(1, descending=True).values[:, : rank.shape[1]]
    return PositiveRanks(rank, positives.relevant, positives.candidates, gain, ideal, depth)


def read_off(order: Tensor, positives: Positives) -> tuple[Tensor, Tensor | None]:
    # order: (Q, K) int64, nearest first, -1 = none  ->  (Q, P) int32, (Q, P) float64 or None
    width = int(positives.relevant.max())
    if not width:
        return no_ranks(positives)
    hit, column = hits(order, positives)
    slot = torch.where(hit, hit.cumsum(1) - 1, -1)
    rank = torch.arange(1, order.shape[1] + 1, dtype=torch.int32, device=order.device).expand_as(order)
    gain = None if positives.gain is None else scattered(slot, positives.gain.gather(1, column), width)
    return scattered(slot, rank, width), gain


def hits(order: Tensor, positives: Positives) -> tuple[Tensor, Tensor]:
    # order: (Q, K) int64, -1 = none  ->  (Q, K) bool, (Q, K) int64
    """Return which of these references are relevant, and their columns among the positives; at least one exists."""
    # Empty entries repeat the previous index, which keeps the order.
    ascending = positives.index.cummax(1).values
    column = torch.searchsorted(ascending, order).clamp(max=ascending.shape[1] - 1)
    return (order >= 0) & (positives.index.gather(1, column) == order), column


@takes_arrays
def count_relevant(query_labels: Tensor, reference_labels: Tensor, ref_includes_query: bool = False) -> Tensor:
    """Count the references that share the query's label, without the query itself (R).

    Shapes: query_labels: (..., Q); reference_labels: (..., N), of the same dtype -> (..., Q) int64.

    >>> labels = torch.tensor([0, 0, 1, 1, 1])
    >>> count_relevant(labels, labels, ref_includes_query=True)
    tensor([1, 1, 2, 2, 2])
    """
    ordered, query_labels = reference_labels.sort(-1).values, query_labels.contiguous()
    through = torch.searchsorted(ordered, query_labels, right=True)
    return through - torch.searchsorted(ordered, query_labels) - int(ref_includes_query)


@takes_arrays
def ranks_of_neighbors(
    indices: Tensor, query_labels: Tensor, reference_labels: Tensor, relevant: Tensor
) -> PositiveRanks:
    """Return the ranks of relevant references among the K nearest, which `indices` lists nearest first; P = K.

    Shapes: indices: (..., Q, K), -1 or another number that is no row = no neighbor; query_labels: (..., Q);
    reference_labels: (..., N); relevant: (..., Q).

    >>> query_labels, reference_labels = torch.tensor([0]), torch.tensor([1, 0, 1, 0])
    >>> neighbors = torch.tensor([[2, 1, 3]])  # nearest first
    >>> ranks_of_neighbors(neighbors, query_labels, reference_labels, relevant=torch.tensor([2])).rank
    tensor([[0, 2, 3]])
    """
    labels = torch.take_along_dim(reference_labels.unsqueeze(-2), indices.clamp(min=0), -1)
    match = (labels == query_labels.unsqueeze(-1)) & (indices >= 0) & (indices < reference_labels.shape[-1])
    return PositiveRanks(match * torch.arange(1, indices.shape[-1] + 1, device=indices.device), relevant)
