"""The search on a GPU: float16 products rule most references out, canonical distances order the others."""

from types import ModuleType

import torch
from torch import Tensor

from .references import KnownQueries, References
from .stages import Queries


class HalfSearch:
    """By float16 products with all references, of which blocks are left out.

    What lies in a block of references is at least its least value less the bound, and at least k references are nearer
    than the k-th least of these values plus the bound: all that may be among the k nearest are listed, and put in
    canonical order.
    """

    def __init__(
        self,
        dim: int,
        k: int,
        references: References,
        memory: int,
        kernels: ModuleType,
        alike: bool,
        known: KnownQueries | None = None,
    ) -> None:
        # `alike`: query i is reference i; `known`: the queries
        self.references = references
        self.kernels, self.filter = kernels, references.halves(kernels, memory)
        self.k, self.room = k, self._room(k, len(references), kernels.BLOCK)
        blocks = self.filter.right.shape[1]
        row = 80 * self.room + 16 * k
        self.least = None
        if alike and self.filter.euclidean and 4 * blocks * len(self.filter.rows) <= memory // 2:
            self.least = self.kernels.block_minima(self.filter.as_queries, self.filter, halved=True)
        else:
            row += 4 * blocks + 80 * dim
        self.rows = max(memory // 2 // row, 1)
        self.known = known
        if known:
            self.rows = max(self.rows // kernels.SIDE, 1) * kernels.SIDE

    @staticmethod
    def pays(k: int, references: int, kernels: ModuleType) -> bool:
        # Of nearly all blocks the bound says little.
        return 4 * (k + 1) * kernels.BLOCK <= 3 * references

    @staticmethod
    def _room(k: int, references: int, block: int) -> int:
        """How many entries are kept: those that random values have below the limit, and a third more."""
        share = 1 - (1 - (k + 1) * block / references) ** (1 / block)
        listed = int(share * references)
        return 1 << (listed + max(16, listed // 3)).bit_length()

    def serves(self, queries: Queries) -> bool:
        return queries.place is not None and queries.ignored is None

    def search(self, queries: Queries) -> tuple[Tensor, Tensor]:
        # ->  (Q, k) int64, -1 where none is left, (Q,) bool
        from .kernels.canonical import in_order

        filter_, own = self.filter, queries.own
        if self.least is not None:
            halves, least, source = filter_.as_queries, self.least, filter_.position[queries.place]
            known = halves.known[queries.place]
        else:
            ready = self.known.halves(queries.place, filter_) if self.known and queries.place else None
            halves = ready or filter_.query(queries.rows)
            least = self.kernels.block_minima(halves, filter_)
            source, known = torch.arange(len(own), device=own.device), halves.known
        # One of them may be the query itself.
        place, number = self.kernels.candidates(least, halves, source, filter_, self.k + 1, self.room)
        index = filter_.order[place]
        index.masked_fill_(index == own[:, None], -1)
        row = torch.arange(len(own), device=own.device).repeat_interleave(self.room)
        sides = queries.rows, self.references.rows, row, index.flatten()
        delta = self.references.distance.of_pairs(*sides, memory=2**24).view_as(index)
        delta.masked_fill_(index < 0, torch.inf)
        index.masked_fill_(delta.isnan(), -1)
        return in_order(delta, index, self.k), known & (number <= self.room)
