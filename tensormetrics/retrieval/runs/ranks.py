"""Ranks of judged documents: rows of queries, sorted once on their device, and the tables that measures read."""

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from ..ranking.positive_ranks import PositiveRanks

MAX_PADDING = 4, 1 << 20  # a table has at most four times as many cells as rows, or a million
Measure = Callable[["JudgedRanks"], Tensor]  # ->  (Q,) float64


class JudgedRanks:
    """The judged documents of each query in order of rank, as a table.

    rank (Q, P) int64: from 1; 0 for a document that was not retrieved and as padding. gain (Q, P) float64: -inf as
    padding. retrieved (Q,) int64: numbers of documents, default those with a rank. level: minimum gain of a relevant
    document. is_integral: all gains are integers.
    """

    def __init__(
        self, rank: Tensor, gain: Tensor, retrieved: Tensor | None, level: float, is_integral: bool = False
    ) -> None:
        self.rank, self.gain, self._retrieved, self.level = rank, gain, retrieved, level
        self.is_integral = is_integral

    @property
    def retrieved(self) -> Tensor:
        return (self.rank > 0).sum(-1) if self._retrieved is None else self._retrieved

    @functools.cached_property
    def is_relevant(self) -> Tensor:
        return self.gain >= self.level

    @functools.cached_property
    def positives(self) -> PositiveRanks:
        """Ranks of relevant documents."""
        return PositiveRanks(self.rank * self.is_relevant, self.is_relevant.sum(-1))

    @functools.cached_property
    def graded(self) -> PositiveRanks:
        """Ranks of documents with positive gains, and the gains."""
        gain = self.gain.clamp(min=0)
        if self.is_integral and 0 < self.level <= 1:  # the same documents are relevant
            rank, count = self.positives[:2]
        else:
            has_gain = self.gain > 0
            rank, count = self.rank * has_gain, has_gain.sum(-1)
        return PositiveRanks(rank, count, None, gain, gain.sort(descending=True).values)


class RankedRows(NamedTuple):
    """Judged documents as rows, ordered by query and rank; n rows, Q queries, of which each has up to `width` rows."""

    query: Tensor  # (n,) int64, 0 to Q - 1
    rank: Tensor  # (n,) int64, from 1; 0 for a document that was not retrieved
    gain: Tensor  # (n,)
    position: Tensor  # (n,) int64, from 1 in each query
    num_queries: int
    retrieved: Tensor | None  # (Q,) int64, numbers of documents; None: those of the rows with a rank
    width: int

    def values(self, measures: Mapping[str, Measure], level: float) -> dict[str, Tensor]:
        # ->  (Q,) float64 each
        """Compute measures of all queries."""
        queries, (factor, least) = self.num_queries, MAX_PADDING
        if queries * self.width <= max(factor * len(self.query), least):
            table = self._table(level)
            return {name: measure(table) for name, measure in measures.items()}
        values = {name: torch.empty(queries, dtype=torch.float64, device=self.rank.device) for name in measures}
        for chosen, rows in self._of_similar_length():
            table = rows._table(level)
            for name, measure in measures.items():
                values[name][chosen] = measure(table)
        return values

    def _table(self, level: float) -> JudgedRanks:
        shape, device = (self.num_queries, max(self.width, 1)), self.rank.device
        options = self.retrieved, level, not self.gain.is_floating_point()
        if self.rank.numel() == shape[0] * shape[1]:  # every query has as many rows
            return JudgedRanks(self.rank.view(shape), self.gain.double().view(shape), *options)
        cell = self.query, self.position - 1
        rank = torch.zeros(shape, dtype=torch.int64, device=device).index_put_(cell, self.rank)
        gain = torch.full(shape, -torch.inf, dtype=torch.float64, device=device).index_put_(cell, self.gain.double())
        return JudgedRanks(rank, gain, *options)

    def _of_similar_length(self) -> Iterator[tuple[Tensor, "RankedRows"]]:
        """Yield queries whose numbers of rows have the same number of digits in base 2, so that tables stay small."""
        counts = self.query.new_zeros(self.num_queries).index_add_(0, self.query, torch.ones_like(self.query))
        digits = counts.double().frexp().exponent
        for length in digits.unique().tolist():
            is_chosen = digits == length
            (chosen,), mask = is_chosen.nonzero(as_tuple=True), is_chosen[self.query]
            query, rank, gain, position = (x[mask] for x in (self.query, self.rank, self.gain, self.position))
            new_number = is_chosen.cumsum(0) - 1
            width = int(counts[chosen].max())
            retrieved = None if self.retrieved is None else self.retrieved[chosen]
            yield chosen, RankedRows(new_number[query], rank, gain, position, len(chosen), retrieved, width)


def order_of_rows(query: Tensor, score: Tensor, tie: Tensor | None = None) -> tuple[Tensor, Tensor]:
    # query, score, tie: (n,)  ->  (n,) int64 each
    """Order rows by query, the highest score first, at equal scores the greatest `tie`, or the earliest row.

    Returns the order, and the queries in it.
    """
    by_score = None if tie is None else tie.argsort(descending=True, stable=True)
    score = score if by_score is None else score[by_score]
    order = score.argsort(descending=True, stable=True)
    order = order if by_score is None else by_score[order]
    ordered, by_query = query[order].sort(stable=True)
    return order[by_query], ordered


def starts_of(ordered: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    # ordered: (n,)  ->  (n,) int64 each
    """Return the number of each group of equal neighbors, from 0, the position in it, from 1, and where it starts."""
    number = torch.nn.functional.pad(ordered[1:] != ordered[:-1], (1, 0)).cumsum(0)
    start = torch.searchsorted(number, number)
    return number, torch.arange(1, len(ordered) + 1, device=ordered.device) - start, start
