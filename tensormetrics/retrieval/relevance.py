"""Relevant references of a query, and references that are excluded from its ranking."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ..core.arguments import checks

Comparison = Callable[[Tensor, Tensor], Tensor]
# Queries, references and gains of pairs, (n,) each; preceded by an index for each leading dimension.
Triples = tuple[Tensor, ...]
Gains = Tensor | Comparison | Triples
Ignore = Tensor | Callable[[slice], Tensor] | tuple[Tensor, Tensor]


class Positives(NamedTuple):
    """The relevant references of some queries.

    index (Q, P) int64: their indices, ascending; -1 is padding and may occur anywhere.
    relevant, candidates (Q,) int64: numbers of relevant references and of candidates of each query.
    gain (Q, P) float64 or None: their graded relevance, 0 as padding.
    ignored (Q, N) bool or None: references that are no candidates, in addition to the query itself.
    """

    index: Tensor  # type: ignore[assignment]  # replaces the method of tuples
    relevant: Tensor
    candidates: Tensor
    gain: Tensor | None
    ignored: Tensor | None


class Relevance:
    """Relevant references of a slice of the queries, `relevance(rows)`; arguments as in `positive_ranks`."""

    def __init__(
        self,
        query_labels: Tensor,
        reference_labels: Tensor,
        self_index: Tensor,
        label_comparison_fn: Comparison | None = None,
        gains: Gains | None = None,
        ignore: Ignore | None = None,
    ) -> None:
        # query_labels: (Q[, L])  reference_labels: (N[, L])  self_index: (Q,) int64, -1 = none
        self.shape = (len(query_labels), len(reference_labels))
        self.self_index = self_index
        columns = query_labels.shape[1] if query_labels.ndim > 1 else 1
        if gains is not None and label_comparison_fn is not None:
            raise ValueError("gains and label_comparison_fn: got both, wanted one; a gain above 0 means relevant")
        self.graded = gains is not None
        self.compare = gains if callable(gains) else label_comparison_fn
        self.gains = self.sparse = None
        if isinstance(gains, tuple):
            self.sparse = SparseGains(gains, self.shape, self_index)
        elif not callable(gains):
            self.gains = rows_of("gains", gains, self.shape)
        self.groups, self.ignore = None, None
        if isinstance(ignore, tuple):
            self.groups = _check_groups(ignore, self.shape)
        else:
            self.ignore = masks_of(ignore, self.shape)
        if self.compare:
            self.labels = query_labels
            self.distinct_labels, self.label_index = reference_labels.unique(dim=0, return_inverse=True)
        elif self.sparse:
            max_relevant = self.sparse.max_relevant
        elif query_labels.ndim > 1 and not self.gains:
            raise ValueError(
                f"query_labels: got shape {tuple(query_labels.shape)}, wanted (N,); for more columns give a "
                "label_comparison_fn"
            )
        elif not self.gains:
            ordered, self.by_label = reference_labels.sort(stable=True)
            self.first = torch.searchsorted(ordered, query_labels.contiguous())
            self.last = torch.searchsorted(ordered, query_labels.contiguous(), right=True)
            max_relevant = int((self.last - self.first).max()) if len(query_labels) else 0
        # A mask, the indices of its entries and pairs of labels take `pairs` bytes; otherwise each positive takes 128.
        pairs = len(reference_labels) * (32 + 24 * columns * bool(self.compare))
        is_dense = self.compare or self.gains or self.groups or self.ignore
        self.bytes_per_query = max(pairs if is_dense else 128 * max_relevant, 1)

    def __call__(self, rows: slice) -> Positives:
        self_index, columns = self.self_index[rows, None], torch.arange(self.shape[1], device=self.self_index.device)
        values = gain = None
        if self.gains:
            values = self.gains(rows)
        elif self.compare:
            values = self._compare_labels(self.compare, self.labels[rows])
        if self.sparse:
            index, gain = self.sparse(rows)
        else:
            is_relevant = None if values is None else (values > 0) & (columns != self_index)
            index = self._with_same_label(rows, self_index) if is_relevant is None else columns_of(is_relevant)
        ignored = self.ignore(rows) & (columns != self_index) if self.ignore else None
        if self.groups:
            in_group = (index >= 0) & (self.groups[1][index] == self.groups[0][rows, None])
            ignored = scattered(torch.where(in_group, index, -1), in_group, len(columns))
        candidates = len(columns) - (self_index[:, 0] >= 0).long()
        if ignored is not None:
            candidates = candidates - ignored.sum(1)
            index = index.masked_fill(ignored.gather(1, index.clamp(min=0)), -1)
        if gain is not None:
            gain = gain * (index >= 0)
        elif self.graded and values is not None:
            if not ((values >= 0) & (values < torch.inf)).all():
                raise ValueError("gains: got values that are negative or not finite, wanted finite numbers >= 0")
            gain = values.double().gather(1, index.clamp(min=0)) * (index >= 0)
        return Positives(index, (index >= 0).sum(1), candidates, gain, ignored)

    def _with_same_label(self, rows: slice, self_index: Tensor) -> Tensor:
        # self_index: (Q, 1)  ->  (Q, P) int64
        first, last = self.first[rows, None], self.last[rows, None]
        # The width is needed on the host: one synchronization per tile.
        position = first + torch.arange(int((last - first).max()), device=self_index.device)
        index = self.by_label[position.clamp(max=self.shape[1] - 1)]
        return index.masked_fill((position >= last) | (index == self_index), -1)

    def _compare_labels(self, compare: Comparison, labels: Tensor) -> Tensor:
        # labels: (Q[, L])  ->  (Q, N), by one comparison for every pair of distinct labels
        labels, inverse = labels.unique(dim=0, return_inverse=True)
        x = labels.repeat_interleave(len(self.distinct_labels), 0)
        y = self.distinct_labels.repeat(len(labels), *[1] * (labels.ndim - 1))
        result = compare(x, y)
        if result.shape != x.shape[:1] or (result.dtype != torch.bool and not self.graded):
            name, expected = ("gains", "a number") if self.graded else ("label_comparison_fn", "a torch.bool")
            raise ValueError(
                f"{name}: got shape {tuple(result.shape)} and {result.dtype} for {len(x)} pairs of labels, "
                f"wanted {expected} for each pair"
            )
        return result.view(len(labels), -1)[inverse][:, self.label_index]


class SparseGains:
    """Gains of a slice of the queries, `gains(rows)`, from the triples of all queries; 0 means not relevant.

    The reference that is the query itself is left out. Memory is O(n) for n triples; rows are padded to the longest.
    """

    def __init__(self, triples: Triples, shape: tuple[int, int], self_index: Tensor) -> None:
        # self_index: (Q,) int64, -1 = none
        check_triples(triples, shape)
        checks.same_device(self_index=self_index, gains=triples[0])
        query, reference, gain = triples
        pair, order = (query.long() * shape[1] + reference.long()).sort()
        if (pair[1:] == pair[:-1]).any():
            repeated = int(pair[1:][pair[1:] == pair[:-1]][0])
            got = f"reference {repeated % shape[1]} of query {repeated // shape[1]}"
            raise ValueError(f"gains: got {got} more than once, wanted each pair once")
        query, reference, gain = query.long()[order], reference.long()[order], gain.double()[order]
        is_relevant = (gain > 0) & (self_index[query] != reference)
        query, self.reference, self.gain = query[is_relevant], reference[is_relevant], gain[is_relevant]
        ends = torch.arange(shape[0] + 1, device=query.device)
        self.first = torch.searchsorted(query, ends)
        self.max_relevant = int(self.first.diff().max()) if shape[0] else 0

    def __call__(self, rows: slice) -> tuple[Tensor, Tensor]:
        # ->  (q, P) int64 ascending, then -1; (q, P) float64
        ends = self.first[rows.start : rows.stop + 1, None]
        position = ends[:-1] + torch.arange(self.max_relevant, device=ends.device)
        valid = position < ends[1:]
        position = position.clamp(max=max(len(self.gain) - 1, 0))
        return torch.where(valid, self.reference[position], -1), torch.where(valid, self.gain[position], 0.0)


def check_triples(gains: tuple[Tensor, ...], shape: tuple[int, ...]) -> None:
    # gains: indices for each dimension of the shape, and gains, (n,) each
    names = (*(f"dimension {i}" for i in range(len(shape) - 2)), "queries", "references")
    if len(gains) != len(names) + 1:
        raise ValueError(f"gains: got a tuple of {len(gains)}, wanted ({', '.join(names)}, gains), (n,) each")
    named = {f"gains: {name}": column for name, column in zip(names, gains[:-1], strict=True)} | {"gains": gains[-1]}
    for name, column in named.items():
        checks.shape(name, column, len(gains[0]))
    checks.same_device(**named)
    for (name, column), length in zip(list(named.items())[:-1], shape, strict=True):
        checks.integral(name, column)
        if len(column) and not ((column >= 0) & (column < length)).all():
            raise ValueError(f"{name}: got {int(column.min())} to {int(column.max())}, wanted 0 to {length - 1}")
    if not ((gains[-1] >= 0) & (gains[-1] < torch.inf)).all():
        raise ValueError("gains: got values that are negative or not finite, wanted finite numbers >= 0")


def renumber_triples(triples: Triples, query_index: Tensor, reference_index: Tensor) -> Triples:
    # query_index: (Q,) int64  reference_index: (N,) int64, -1 = left out
    """Select the triples of a subset of the queries and references, and renumber them."""
    query, reference, gain = query_index[triples[0].long()], reference_index[triples[1].long()], triples[2]
    is_selected = (query >= 0) & (reference >= 0)
    return query[is_selected], reference[is_selected], gain[is_selected]


def triples_of(triples: Triples, queries: Tensor, shape: tuple[int, int]) -> Triples:
    # queries: (q,) int64, distinct
    """Select the triples of a subset of the queries, and number these in the given order."""
    check_triples(triples, shape)
    return renumber_triples(triples, inverse_index(queries, shape[0]), torch.arange(shape[1], device=queries.device))


def inverse_index(selected: Tensor, count: int) -> Tensor:
    # selected: (n,) int64, distinct, below count  ->  (count,) int64, -1 = not selected
    positions = selected.new_full((count,), -1)
    positions[selected] = torch.arange(len(selected), device=selected.device)
    return positions


class BatchGains:
    """Triples of an item of a batch, `gains(item)`, from triples that are preceded by indices of leading dimensions."""

    def __init__(self, gains: tuple[Tensor, ...], batch_shape: torch.Size, queries: int, references: int) -> None:
        check_triples(gains, (*batch_shape, queries, references))
        item = torch.zeros_like(gains[-3], dtype=torch.int64)
        for index, size in zip(gains[:-3], batch_shape, strict=True):
            item = item * size + index.long()
        item, order = item.sort(stable=True)
        self.triples = [column[order] for column in gains[-3:]]
        self.ends = torch.searchsorted(item, torch.arange(batch_shape.numel() + 1, device=item.device)).tolist()

    def __call__(self, item: int) -> Triples:
        return tuple(column[self.ends[item] : self.ends[item + 1]] for column in self.triples)


def rows_of(name: str, values: Tensor | Callable | None, shape: tuple[int, int]) -> Callable[[slice], Tensor] | None:
    """Return a function of a slice of the queries, from a function or from all rows, that checks the shape."""
    if isinstance(values, Tensor):
        checks.shape(name, values, *shape)
        return values.__getitem__
    if values is None:
        return None

    def checked_rows(rows: slice) -> Tensor:
        block = values(rows)
        checks.shape(name, block, rows.stop - rows.start, shape[1])
        return block

    return checked_rows


def masks_of(
    ignore: Tensor | Callable[[slice], Tensor] | None, shape: tuple[int, int]
) -> Callable[[slice], Tensor] | None:
    """Return `rows_of` an `ignore` argument; the function also checks the dtype."""
    rows = rows_of("ignore", ignore, shape)
    return None if rows is None else lambda selected: as_mask(rows(selected))


def as_mask(ignore: Tensor) -> Tensor:
    if ignore.dtype != torch.bool:
        raise ValueError(f"ignore: got {ignore.dtype}, wanted torch.bool; write ignore.bool()")
    return ignore


def scattered(index: Tensor, values: Tensor, width: int) -> Tensor:
    # index: (Q, K) int64, distinct in a row except -1  values: (Q, K)  ->  (Q, width), 0 in other columns
    """Scatter values to the columns given by index; values of index -1 are dropped."""
    table = values.new_zeros(len(index), width + 1)
    return table.scatter_(1, torch.where(index < 0, width, index), values)[:, :width]


def columns_of(mask: Tensor) -> Tensor:
    # mask: (Q, N) bool  ->  (Q, P) int64, the columns set in each row, then -1
    row, column = mask.nonzero().unbind(1)
    counts = mask.sum(1)
    position = torch.arange(len(row), device=mask.device) - (counts.cumsum(0) - counts)[row]
    # The width is needed on the host: one synchronization per tile.
    return column.new_full((len(mask), int(counts.max())), -1).index_put((row, position), column)


def as_int64(name: str, labels: Tensor) -> Tensor:
    # labels: integers or bools  ->  int64
    """Convert labels to int64.

    Values above its range are a ValueError on a CPU. On other devices they wrap around: a check would synchronize.
    """
    if labels.dtype != torch.uint64:
        return labels.long()
    labels = labels.view(torch.int64)
    if labels.device.type == "cpu" and (labels < 0).any():
        raise ValueError(
            f"{name}: got torch.uint64 above 2**63 - 1, wanted integers that int64 can hold, or real numbers"
        )
    return labels


def _check_groups(ignore: tuple[Tensor, Tensor], shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
    for role, group, length in zip(("query", "reference"), ignore, shape, strict=True):
        checks.shape(f"ignore: {role} groups", group, length)
    return ignore
