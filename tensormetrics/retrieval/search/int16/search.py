"""Search on CPUs with fast int16 products: products of quantized rows exclude most references.

The references that may be among the k nearest are listed and sorted in canonical order.
"""

import torch
from torch import Tensor

from ....core.native import native
from .. import operators
from ..stages import SearchProblem, SearchQueries, SearchStage
from .quantize import CandidateLists, QuantizedRows, list_capacity

PROBE_QUERIES = 64  # queries that are searched first, to measure how many are proven
MIN_REFERENCES = 2048  # fewer references are searched faster by float32 products


class Int16Search(SearchStage):
    """Search stage by int16 products with all references; too inexact if very many references are equally near."""

    def __init__(self, problem: SearchProblem, rows: int, self_index: Tensor, is_self_search: bool) -> None:
        # self_index: (Q,) int64, of all queries  is_self_search: query i is reference i, by Euclidean distance
        self.problem, self.rows, self.self_index = problem, rows, self_index
        references = problem.references.rows
        self.capacity = list_capacity(problem.k, references.shape[1])
        self.filter = filter_ = problem.references.filter(problem.dtype, problem.memory)
        # Shuffled: a list that starts with one tight class would be filled by it.
        self.order = torch.randperm(filter_.count, generator=torch.Generator().manual_seed(0), device="cpu")
        self.position = torch.empty_like(self.order)
        self.position[self.order] = torch.arange(filter_.count, device="cpu")
        self.quantized = QuantizedRows.nothing(filter_.count, references.shape[1])
        self.quantized.write(references, filter_, self.order)
        length, _, residual = self.quantized.sizes
        self.max_sizes = length.where(length < torch.inf, 0.0).amax(), residual.amax()
        terms = self.quantized.as_references(slice(None), filter_.distance.factor, *self.max_sizes)
        self.terms = [self.quantized.scale, *(term.float() for term in terms)]
        self.is_self_search = is_self_search and self.fits_in_memory(problem, len(self_index), True)
        self.lists: tuple[Tensor, CandidateLists] | None = None
        self.last: tuple[Tensor, Tensor, Tensor] | None = None  # last result of `search`: index, delta, is_complete

    @staticmethod
    def fits_in_memory(problem: SearchProblem, queries: int, is_self_search: bool) -> bool:
        """Return whether int16 rows, lists of all queries of a self-search, and float32 rows of the next stage fit."""
        count, dim = problem.references.rows.shape
        lists = queries * 12 * list_capacity(problem.k, dim) if is_self_search else 0
        rows = 4 * count * dim
        return lists + 2 * count * dim + (rows if rows <= problem.memory // 2 else 0) <= problem.memory // 8 * 7

    @staticmethod
    def is_faster(problem: SearchProblem, queries: int) -> bool:
        count, dim = problem.references.rows.shape
        return (
            problem.exact
            and problem.dtype == torch.float32
            and count >= max(MIN_REFERENCES, 8 * problem.k)
            and queries > PROBE_QUERIES
            and 48 <= dim <= 2**14
            and Int16Search.fits_in_memory(problem, queries, False)
            and bool(operators.supports_int16(problem.references.rows))
        )

    def is_effective(self, query: Tensor) -> bool:
        # query: (Q, D)
        """Return whether the neighbors of most queries of a sample are proven."""
        probe = torch.arange(0, len(query), -(-len(query) // PROBE_QUERIES), device="cpu")
        _, proven = self.search(SearchQueries(query[probe], self.self_index[probe], None, None))
        return 8 * int((~proven).sum()) <= len(probe)

    def can_handle(self, queries: SearchQueries) -> bool:
        return queries.span is not None and queries.ignored is None

    def search(self, queries: SearchQueries) -> tuple[Tensor, Tensor]:
        # ->  (Q, k) int64, -1 where fewer than k exist, (Q,) bool
        references, distance = self.problem.references.rows, self.problem.references.distance
        if self.is_self_search and queries.span:
            all_rows = torch.arange(self.filter.count, device="cpu")
            self.lists = self.lists or self._candidate_lists(self.quantized, all_rows, True)
            (rounding_error, lists), list_index = self.lists, self.position[queries.span]
        else:
            rounded = QuantizedRows.nothing(len(queries.rows), references.shape[1])
            rounded.write(queries.rows, self.filter, None)
            self_index = self.position[queries.self_index.clamp(min=0)].where(queries.self_index >= 0, -1)
            rounding_error, lists = self._candidate_lists(rounded, self_index, False)
            list_index = torch.arange(len(self_index), device="cpu")
        operands = queries.rows.double().contiguous(), references, list_index, self.order
        self.last = operators.rerank_candidates(*operands, rounding_error, *lists, self.problem.k, distance.code)
        return self.last[0], self.last[2]

    def _candidate_lists(
        self, x: QuantizedRows, self_index: Tensor, is_symmetric: bool
    ) -> tuple[Tensor, CandidateLists]:
        # self_index: (Q,)  ->  rounding_error (Q,) float32, ...
        queries = len(self_index)
        width, rounding_error = (term.float() for term in x.as_queries(slice(queries), self.filter, *self.max_sizes))
        # The lists of queries that are not finite or too long are incomplete, even if all references would fit.
        unbounded = rounding_error == torch.inf
        lists = CandidateLists.of_size(queries, self.capacity)
        lists.list_size.copy_(unbounded * self.capacity)
        lists.limit.fill_(torch.inf).masked_fill_(unbounded, -torch.inf)
        scale = x.scale * -self.filter.distance.factor
        operands = x.panels, scale, self.quantized.panels, *self.terms, width, rounding_error, self_index
        operators.int16_candidates(*operands, *lists, self.problem.k, is_symmetric)
        return rounding_error, lists


@native.reference("rerank_candidates")
def _rerank_candidates(
    query: Tensor,
    reference: Tensor,
    list_index: Tensor,
    order: Tensor,
    rounding_error: Tensor,
    bounds: Tensor,
    column: Tensor,
    count: Tensor,
    limit: Tensor,
    k: int,
    distance: int,
) -> tuple[Tensor, Tensor, Tensor]:
    column, count = column[list_index], count[list_index]
    is_complete = count < column.shape[1]
    valid = (torch.arange(column.shape[1], device="cpu") < count[:, None]) & is_complete[:, None]
    index = order[column.long().where(valid, 0)]
    row = torch.arange(len(query), device="cpu").repeat_interleave(index.shape[1])
    delta = operators.canonical_pairs(query, reference, row, index.flatten(), distance).view_as(index)
    delta = delta.masked_fill(~valid, torch.inf)
    sorted_ = index.argsort(dim=1)
    sorted_ = sorted_.gather(1, delta.gather(1, sorted_).argsort(dim=1, stable=True))[:, :k]
    delta, index = delta.gather(1, sorted_), index.gather(1, sorted_)
    return index.masked_fill(delta == torch.inf, -1), delta, is_complete
