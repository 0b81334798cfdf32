"""The search on a CPU that multiplies words of 16 bits: products of rows rounded to these rule most references out.

The references that may be among the k nearest are listed, and put in canonical order.
"""

import torch
from torch import Tensor

from .... import _native
from .. import operators
from ..stages import Queries, Task
from .quantize import Lists, Rounded, capacity_of

SOME = 64  # queries that are tried first
LEAST = 2048  # references for which it pays


class WordSearch:
    """By products of words with all references; where very many are equally near, they say too little."""

    def __init__(self, task: Task, rows: int, own: Tensor, alike: bool) -> None:
        # own: (Q,) int64, of all queries  `alike`: query i is reference i, by Euclidean distance
        self.task, self.rows, self.own = task, rows, own
        references = task.references.rows
        self.capacity = capacity_of(task.k, references.shape[1])
        self.filter = filter_ = task.references.filter(task.dtype, task.memory)
        # In an order without meaning: a list that begins with one tight class would be full of it.
        self.order = torch.randperm(filter_.count, generator=torch.Generator().manual_seed(0), device="cpu")
        self.place = torch.empty_like(self.order)
        self.place[self.order] = torch.arange(filter_.count, device="cpu")
        self.rounded = Rounded.nothing(filter_.count, references.shape[1])
        self.rounded.put(references, filter_, self.order)
        length, _, left = self.rounded.sizes
        self.most = length.where(length < torch.inf, 0.0).amax(), left.amax()
        terms = self.rounded.as_references(slice(None), filter_.distance.factor, *self.most)
        self.terms = [self.rounded.scale, *(term.float() for term in terms)]
        self.alike = alike and self.fits(task, len(own), True)
        self.lists: tuple[Tensor, Lists] | None = None
        self.last: tuple[Tensor, Tensor, Tensor] | None = None  # what `search` found last: index, delta and known

    @staticmethod
    def fits(task: Task, queries: int, alike: bool) -> bool:
        """Whether there is room for words, lists of all queries if `alike`, and the float32 rows of the next way."""
        count, dim = task.references.rows.shape
        lists = queries * 12 * capacity_of(task.k, dim) if alike else 0
        rows = 4 * count * dim
        return lists + 2 * count * dim + (rows if rows <= task.memory // 2 else 0) <= task.memory // 8 * 7

    @staticmethod
    def pays(task: Task, queries: int) -> bool:
        count, dim = task.references.rows.shape
        return (
            task.exact
            and task.dtype == torch.float32
            and count >= max(LEAST, 8 * task.k)
            and queries > SOME
            and 48 <= dim <= 2**14
            and WordSearch.fits(task, queries, False)
            and bool(operators.multiplies_words(task.references.rows))
        )

    def works(self, query: Tensor) -> bool:
        # query: (Q, D)
        """Whether it settles most of some queries."""
        some = torch.arange(0, len(query), -(-len(query) // SOME), device="cpu")
        _, proven = self.search(Queries(query[some], self.own[some], None, None))
        return 8 * int((~proven).sum()) <= len(some)

    def serves(self, queries: Queries) -> bool:
        return queries.place is not None and queries.ignored is None

    def search(self, queries: Queries) -> tuple[Tensor, Tensor]:
        # ->  (Q, k) int64, -1 where none is left, (Q,) bool
        references, distance = self.task.references.rows, self.task.references.distance
        if self.alike and queries.place:
            every = torch.arange(self.filter.count, device="cpu")
            self.lists = self.lists or self._listed(self.rounded, every, 0)
            (slack, lists), place = self.lists, self.place[queries.place]
        else:
            rounded = Rounded.nothing(len(queries.rows), references.shape[1])
            rounded.put(queries.rows, self.filter, None)
            own = self.place[queries.own.clamp(min=0)].where(queries.own >= 0, -1)
            (slack, lists), place = self._listed(rounded, own, -1), torch.arange(len(own), device="cpu")
        sides = queries.rows.double().contiguous(), references, place, self.order
        self.last = operators.rerank_candidates(*sides, slack, *lists, self.task.k, distance.code)
        return self.last[0], self.last[2]

    def _listed(self, x: Rounded, own: Tensor, first: int) -> tuple[Tensor, Lists]:
        # own: (Q,)  ->  slack (Q,) float32, ...
        queries = len(own)
        width, slack = (each.float() for each in x.as_queries(slice(queries), self.filter, *self.most))
        # Of a query that is not finite or too far away nothing is known, even where its list would take all references.
        unknown = slack == torch.inf
        lists = Lists.of_size(queries, self.capacity)
        lists.number.copy_(unknown * self.capacity)
        lists.limit.fill_(torch.inf).masked_fill_(unknown, -torch.inf)
        scale = x.scale * -self.filter.distance.factor
        sides = x.panels, scale, self.rounded.panels, *self.terms, width, slack, own
        operators.int16_candidates(*sides, *lists, self.task.k, first)
        return slack, lists


@_native.reference("rerank_candidates")
def _rerank_candidates(
    query: Tensor,
    reference: Tensor,
    place: Tensor,
    order: Tensor,
    slack: Tensor,
    bounds: Tensor,
    column: Tensor,
    number: Tensor,
    limit: Tensor,
    k: int,
    distance: int,
) -> tuple[Tensor, Tensor, Tensor]:
    column, number = column[place], number[place]
    known = number < column.shape[1]
    there = (torch.arange(column.shape[1], device="cpu") < number[:, None]) & known[:, None]
    index = order[column.long().where(there, 0)]
    row = torch.arange(len(query), device="cpu").repeat_interleave(index.shape[1])
    delta = operators.canonical_pairs(query, reference, row, index.flatten(), distance).view_as(index)
    delta = delta.masked_fill(~there, torch.inf)
    sorted_ = index.argsort(dim=1)
    sorted_ = sorted_.gather(1, delta.gather(1, sorted_).argsort(dim=1, stable=True))[:, :k]
    delta, index = delta.gather(1, sorted_), index.gather(1, sorted_)
    return index.masked_fill(delta == torch.inf, -1), delta, known
