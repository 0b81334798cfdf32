"""Search on a GPU: float16 products exclude most references, canonical distances order the others."""

from types import ModuleType

import torch
from torch import Tensor

from .references import QueryCache, References
from .stages import Queries


class Float16Search:
    """Search stage that excludes blocks of references by float16 products.

    No value of a block is below its minimum minus the error bound, and at least k references are nearer than the k-th
    smallest minimum plus the bound. All references that may be among the k nearest are listed and sorted in canonical
    order.
    """

    def __init__(
        self,
        dim: int,
        k: int,
        references: References,
        memory: int,
        kernels: ModuleType,
        is_self_search: bool,
        query_cache: QueryCache | None = None,
    ) -> None:
        # is_self_search: query i is reference i  query_cache: prepared queries
        self.references = references
        self.kernels, self.filter = kernels, references.fp16_filter(kernels, memory)
        self.k, self.capacity = k, self._capacity(k, len(references), kernels.BLOCK)
        blocks = self.filter.right.shape[1]
        row = 80 * self.capacity + 16 * k
        self.minima = None
        if is_self_search and self.filter.euclidean and 4 * blocks * len(self.filter.rows) <= memory // 2:
            self.minima = self.kernels.block_minima(self.filter.as_queries, self.filter, symmetric=True)
        else:
            row += 4 * blocks + 80 * dim
        self.rows = max(memory // 2 // row, 1)
        self.query_cache = query_cache
        if query_cache:
            self.rows = max(self.rows // kernels.TILE, 1) * kernels.TILE

    @staticmethod
    def is_faster(k: int, references: int, kernels: ModuleType) -> bool:
        # If nearly all blocks are needed, the bound excludes little.
        return 4 * (k + 1) * kernels.BLOCK <= 3 * references

    @staticmethod
    def _capacity(k: int, references: int, block: int) -> int:
        """Return the capacity of a candidate list: the number expected for random values, and a third more."""
        fraction = 1 - (1 - (k + 1) * block / references) ** (1 / block)
        expected = int(fraction * references)
        return 1 << (expected + max(16, expected // 3)).bit_length()

    def can_handle(self, queries: Queries) -> bool:
        return queries.span is not None and queries.ignored is None

    def search(self, queries: Queries) -> tuple[Tensor, Tensor]:
        # ->  (Q, k) int64, -1 where fewer than k exist, (Q,) bool
        from .kernels.canonical import in_order

        filter_, self_index = self.filter, queries.self_index
        if self.minima is not None:
            fp16_queries, minima, source = filter_.as_queries, self.minima, filter_.position[queries.span]
            is_bounded = fp16_queries.is_bounded[queries.span]
        else:
            cached = self.query_cache.fp16(queries.span, filter_) if self.query_cache and queries.span else None
            fp16_queries = cached or filter_.query(queries.rows)
            minima = self.kernels.block_minima(fp16_queries, filter_)
            source, is_bounded = torch.arange(len(self_index), device=self_index.device), fp16_queries.is_bounded
        # k + 1, because one of them may be the query itself.
        position, num_hits = self.kernels.candidates(minima, fp16_queries, source, filter_, self.k + 1, self.capacity)
        index = filter_.order[position]
        index.masked_fill_(index == self_index[:, None], -1)
        delta = self.references.distance.of_lists(queries.rows, self.references.rows, index, memory=2**24)
        delta.masked_fill_(index < 0, torch.inf)
        index.masked_fill_(delta.isnan(), -1)
        return in_order(delta, index, self.k), is_bounded & (num_hits <= self.capacity)
