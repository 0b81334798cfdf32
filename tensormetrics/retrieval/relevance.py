"""Which references count for a query: relevant ones, and those that are taken out of its list."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from .. import _checks

Comparison = Callable[[Tensor, Tensor], Tensor]
# Queries, references and gains of pairs, (n,) each, behind an index for leading dimensions.
Triples = tuple[Tensor, ...]
Gains = Tensor | Comparison | Triples
Ignore = Tensor | Callable[[slice], Tensor] | tuple[Tensor, Tensor]


class Positives(NamedTuple):
    """The relevant references of some queries.

    index (Q, P) int64: their indices, ascending; -1 means none and may stand anywhere.
    relevant, candidates (Q,) int64: how many are relevant, and how many references a query has in all.
    gain (Q, P) float64 or None: their graded relevance, 0 where there is none.
    ignored (Q, N) bool or None: references that are no candidates, besides the query itself.
    """

    index: Tensor  # type: ignore[assignment]  # in place of the method of tuples
    relevant: Tensor
    candidates: Tensor
    gain: Tensor | None
    ignored: Tensor | None


class Relevance:
    """`relevance(rows)` finds the relevant references of a slice of the queries; arguments as in `positive_ranks`."""

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
        query_labels, reference_labels = same_kind(query_labels, reference_labels)
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
            self.groups = _as_groups(ignore, self.shape)
        else:
            self.ignore = rows_of("ignore", ignore, self.shape)
        if self.compare:
            self.labels = query_labels
            self.other_labels, self.other = reference_labels.unique(dim=0, return_inverse=True)
        elif self.sparse:
            most = self.sparse.most
        elif query_labels.ndim > 1 and not self.gains:
            raise ValueError(
                f"query_labels: got shape {tuple(query_labels.shape)}, wanted (N,); for more columns give a "
                "label_comparison_fn"
            )
        elif not self.gains:
            ordered, self.by_label = reference_labels.sort(stable=True)
            self.first = torch.searchsorted(ordered, query_labels.contiguous())
            self.last = torch.searchsorted(ordered, query_labels.contiguous(), right=True)
            most = int((self.last - self.first).max()) if len(query_labels) else 0
        # Of a mask, of the places where it holds, and of pairs of labels; else of what is known of each positive.
        pairs = len(reference_labels) * (32 + 24 * columns * bool(self.compare))
        listed = self.compare or self.gains or self.groups or self.ignore
        self.bytes_per_query = max(pairs if listed else 128 * most, 1)

    def __call__(self, rows: slice) -> Positives:
        own, others = self.self_index[rows, None], torch.arange(self.shape[1], device=self.self_index.device)
        values = gain = None
        if self.gains:
            values = self.gains(rows)
        elif self.compare:
            values = self._compared(self.compare, self.labels[rows])
        if self.sparse:
            index, gain = self.sparse(rows)
        else:
            index = self._of_same_label(rows, own) if values is None else columns_of((values > 0) & (others != own))
        ignored = _as_mask(self.ignore(rows)) & (others != own) if self.ignore else None
        if self.groups:
            same = (index >= 0) & (self.groups[1][index] == self.groups[0][rows, None])
            ignored = scattered(torch.where(same, index, -1), same, len(others))
        candidates = len(others) - (own[:, 0] >= 0).long()
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

    def _of_same_label(self, rows: slice, own: Tensor) -> Tensor:
        # own: (Q, 1)  ->  (Q, P) int64
        first, last = self.first[rows, None], self.last[rows, None]
        # The width has to be known on the host: once per tile.
        place = first + torch.arange(int((last - first).max()), device=own.device)
        index = self.by_label[place.clamp(max=self.shape[1] - 1)]
        return index.masked_fill((place >= last) | (index == own), -1)

    def _compared(self, compare: Comparison, labels: Tensor) -> Tensor:
        # labels: (Q[, L])  ->  (Q, N), by one comparison for every pair of distinct labels
        labels, inverse = labels.unique(dim=0, return_inverse=True)
        x = labels.repeat_interleave(len(self.other_labels), 0)
        y = self.other_labels.repeat(len(labels), *[1] * (labels.ndim - 1))
        result = compare(x, y)
        if result.shape != x.shape[:1] or (result.dtype != torch.bool and not self.graded):
            name, wanted = ("gains", "a number") if self.graded else ("label_comparison_fn", "a torch.bool")
            raise ValueError(
                f"{name}: got shape {tuple(result.shape)} and {result.dtype} for {len(x)} pairs of labels, "
                f"wanted {wanted} for each pair"
            )
        return result.view(len(labels), -1)[inverse][:, self.other]


class SparseGains:
    """`gains(rows)` has the gains of a slice of the queries, from triples of all: those that are 0 are not relevant.

    A query's own reference is left out. Takes O(n) for n triples, and for the rows what the longest of them takes.
    """

    def __init__(self, triples: Triples, shape: tuple[int, int], self_index: Tensor) -> None:
        # self_index: (Q,) int64, -1 = none
        check_triples(triples, shape)
        _checks.same_device(self_index=self_index, gains=triples[0])
        query, reference, gain = triples
        pair, order = (query.long() * shape[1] + reference.long()).sort()
        if (pair[1:] == pair[:-1]).any():
            twice = int(pair[1:][pair[1:] == pair[:-1]][0])
            got = f"reference {twice % shape[1]} of query {twice // shape[1]}"
            raise ValueError(f"gains: got {got} more than once, wanted each pair once")
        query, reference, gain = query.long()[order], reference.long()[order], gain.double()[order]
        kept = (gain > 0) & (self_index[query] != reference)
        query, self.reference, self.gain = query[kept], reference[kept], gain[kept]
        ends = torch.arange(shape[0] + 1, device=query.device)
        self.first = torch.searchsorted(query, ends)
        self.most = int(self.first.diff().max()) if shape[0] else 0

    def __call__(self, rows: slice) -> tuple[Tensor, Tensor]:
        # ->  (q, P) int64 ascending, then -1; (q, P) float64
        ends = self.first[rows.start : rows.stop + 1, None]
        place = ends[:-1] + torch.arange(self.most, device=ends.device)
        there = place < ends[1:]
        place = place.clamp(max=max(len(self.gain) - 1, 0))
        return torch.where(there, self.reference[place], -1), torch.where(there, self.gain[place], 0.0)


def check_triples(gains: tuple[Tensor, ...], shape: tuple[int, ...]) -> None:
    # gains: an index for each dimension of the shape, and a gain, (n,) each
    names = (*(f"dimension {i}" for i in range(len(shape) - 2)), "queries", "references")
    if len(gains) != len(names) + 1:
        raise ValueError(f"gains: got a tuple of {len(gains)}, wanted ({', '.join(names)}, gains), (n,) each")
    named = {f"gains: {name}": column for name, column in zip(names, gains[:-1], strict=True)} | {"gains": gains[-1]}
    for name, column in named.items():
        _checks.shape(name, column, len(gains[0]))
    _checks.same_device(**named)
    for (name, column), length in zip(list(named.items())[:-1], shape, strict=True):
        _checks.integral(name, column)
        if len(column) and not ((column >= 0) & (column < length)).all():
            raise ValueError(f"{name}: got {int(column.min())} to {int(column.max())}, wanted 0 to {length - 1}")
    if not ((gains[-1] >= 0) & (gains[-1] < torch.inf)).all():
        raise ValueError("gains: got values that are negative or not finite, wanted finite numbers >= 0")


def numbered_anew(triples: Triples, query_number: Tensor, reference_number: Tensor) -> Triples:
    # query_number: (Q,) int64  reference_number: (N,) int64, -1 = left out
    """The triples of some queries and references, by what these are called from now on."""
    query, reference, gain = query_number[triples[0].long()], reference_number[triples[1].long()], triples[2]
    kept = (query >= 0) & (reference >= 0)
    return query[kept], reference[kept], gain[kept]


def triples_of(triples: Triples, queries: Tensor, shape: tuple[int, int]) -> Triples:
    # queries: (q,) int64, distinct
    """The triples of some of the queries, which are numbered in this order."""
    check_triples(triples, shape)
    return numbered_anew(triples, positions_among(queries, shape[0]), torch.arange(shape[1], device=queries.device))


def positions_among(chosen: Tensor, count: int) -> Tensor:
    # chosen: (n,) int64, distinct, below count  ->  (count,) int64, -1 = not chosen
    place = chosen.new_full((count,), -1)
    place[chosen] = torch.arange(len(chosen), device=chosen.device)
    return place


class BatchGains:
    """`gains(item)` has the triples of an item of a batch, from indices of all leading dimensions, and triples."""

    def __init__(self, gains: tuple[Tensor, ...], lead: torch.Size, queries: int, references: int) -> None:
        check_triples(gains, (*lead, queries, references))
        item = torch.zeros_like(gains[-3], dtype=torch.int64)
        for index, size in zip(gains[:-3], lead, strict=True):
            item = item * size + index.long()
        item, order = item.sort(stable=True)
        self.triples = [column[order] for column in gains[-3:]]
        self.ends = torch.searchsorted(item, torch.arange(lead.numel() + 1, device=item.device)).tolist()

    def __call__(self, item: int) -> Triples:
        return tuple(column[self.ends[item] : self.ends[item + 1]] for column in self.triples)


def rows_of(name: str, values: Tensor | Callable | None, shape: tuple[int, int]) -> Callable[[slice], Tensor] | None:
    """A function of a slice of the queries, from that or from all rows at once, with a check of the shape."""
    if isinstance(values, Tensor):
        _checks.shape(name, values, *shape)
        return values.__getitem__
    if values is None:
        return None

    def checked(rows: slice) -> Tensor:
        of_rows = values(rows)
        _checks.shape(name, of_rows, rows.stop - rows.start, shape[1])
        return of_rows

    return checked


def _as_mask(ignore: Tensor) -> Tensor:
    if ignore.dtype != torch.bool:
        raise ValueError(f"ignore: got {ignore.dtype}, wanted torch.bool; write ignore.bool()")
    return ignore


def scattered(index: Tensor, values: Tensor, width: int) -> Tensor:
    # index: (Q, K) int64, distinct in a row but for -1  values: (Q, K)  ->  (Q, width), 0 where nothing is
    """Each value in the column that its index says, -1 = in none."""
    table = values.new_zeros(len(index), width + 1)
    return table.scatter_(1, torch.where(index < 0, width, index), values)[:, :width]


def columns_of(found: Tensor) -> Tensor:
    # found: (Q, N) bool  ->  (Q, P) int64, the columns found in each row, then -1
    row, column = found.nonzero().unbind(1)
    number = found.sum(1)
    place = torch.arange(len(row), device=found.device) - (number.cumsum(0) - number)[row]
    # The width has to be known on the host: once per tile.
    return column.new_full((len(found), int(number.max())), -1).index_put((row, place), column)


def same_kind(query_labels: Tensor, reference_labels: Tensor) -> tuple[Tensor, Tensor]:
    # (Q[, L]), (N[, L])  ->  the same of one dtype, (Q,), (N,) if L is 1
    names = ("query_labels", "reference_labels")
    sides = [side[:, 0] if side.ndim == 2 and side.shape[1] == 1 else side for side in (query_labels, reference_labels)]
    for name, side in zip(names, sides, strict=True):
        if side.ndim not in (1, 2):
            raise ValueError(f"{name}: got shape {tuple(side.shape)}, wanted (N,) or (N, L)")
        if side.is_complex():
            raise ValueError(f"{name}: got {side.dtype}, wanted integers that int64 can hold, or real numbers")
    if sides[0].shape[1:] != sides[1].shape[1:]:
        raise ValueError(
            f"query_labels and reference_labels: got shapes {tuple(query_labels.shape)} and "
            f"{tuple(reference_labels.shape)}, wanted the same number of columns"
        )
    if sides[0].is_floating_point() != sides[1].is_floating_point():
        raise ValueError(
            f"query_labels and reference_labels: got {sides[0].dtype} and {sides[1].dtype}, wanted both as integers or "
            "both floating"
        )
    dtype = torch.promote_types(sides[0].dtype, sides[1].dtype) if sides[0].is_floating_point() else torch.int64
    if dtype.is_floating_point:
        return sides[0].to(dtype), sides[1].to(dtype)
    return as_int64(names[0], sides[0]), as_int64(names[1], sides[1])


def as_int64(name: str, labels: Tensor) -> Tensor:
    # labels: integers or bools  ->  int64
    """ValueError on a CPU for what int64 cannot hold; elsewhere, where nothing waits, it becomes other labels."""
    if labels.dtype != torch.uint64:
        return labels.long()
    labels = labels.view(torch.int64)
    if labels.device.type == "cpu" and (labels < 0).any():
        raise ValueError(
            f"{name}: got torch.uint64 above 2**63 - 1, wanted integers that int64 can hold, or real numbers"
        )
    return labels


def _as_groups(ignore: tuple[Tensor, Tensor], shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
    for side, group, length in zip(("query", "reference"), ignore, shape, strict=True):
        _checks.shape(f"ignore: {side} groups", group, length)
    return ignore
