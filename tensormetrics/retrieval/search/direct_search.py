"""Small searches on a GPU: three launches that never wait, whatever the values of the rows."""

from typing import NamedTuple

import torch
from torch import Tensor

from ...core.native import gpu_kernels
from ..deterministic import chunk_slices
from .distance import Distance

MAX_WORK = 2**33  # multiplications; beyond it tensor cores are faster
MAX_REFERENCES = 8192
MAX_NEIGHBORS = 128
NOT_FINITE = 1  # bit of a status word: a row holds NaN or infinity


class DirectSearch(NamedTuple):
    """Search of the k nearest references of the queries of one or several items of equal sizes.

    own: the reference that is each query, (B Q,) int64, -1 = none, or the one that is the first query if both are in
    order; None: no query is a reference.
    """

    query: Tensor  # (B Q, D)
    reference: Tensor  # (B R, D)
    own: Tensor | int | None
    k: int
    distance: Distance
    memory: int
    items: int = 1
    status: Tensor | None = None  # int32, the first of which gets NOT_FINITE

    @property
    def can_run(self) -> bool:
        queries, size, dim = len(self.query), len(self.reference) // max(self.items, 1), self.query.shape[1]
        if not (queries and 0 < size <= MAX_REFERENCES and 0 < dim <= MAX_REFERENCES and 0 < self.k <= MAX_NEIGHBORS):
            return False
        # A float64 operation takes much longer on most cards.
        work = queries * size * dim * (8 if torch.float64 in (self.query.dtype, self.reference.dtype) else 1)
        return work <= MAX_WORK and gpu_kernels.can_use("direct search", self.query.device)

    def search(self, ignored: Tensor | None = None, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
        # ignored: (B Q, R) bool  dtype: of distances, None = none
        # ->  (B Q, k) distances as users see them, or (B Q, 0), (B Q, k) int64; infinite and -1 if fewer exist
        from .kernels import direct

        query, reference, own, items = self.query, self.reference, self.own, self.items
        queries, size = len(query) // items, len(reference) // items
        options = min(self.k, size), self.k, self.distance.code, self.distance.name == "l2", dtype
        y = direct.transposed(reference, items, self.status, NOT_FINITE)
        row = 10 * y.shape[2] + 4 * query.shape[1] + 40 * self.k
        unit = 1 if items == 1 else queries  # a tile has some queries of one item, or all queries of some items
        step = max(self.memory // (row * unit), 1) * unit
        if step >= len(query):
            x = y if query is reference else direct.transposed(query, items, self.status, NOT_FINITE)
            return direct.neighbors(query, reference, x, y, own, ignored, *options)
        tiles = []
        for tile in chunk_slices(len(query), step):
            start = tile.start
            rows, of_items = reference, slice(None)
            if items > 1:
                of_items = slice(start // unit, (start + step) // unit)
                rows = reference[size * of_items.start : size * of_items.stop]
            first = own[tile] if isinstance(own, Tensor) else own if own is None or items > 1 else own + start
            x = direct.transposed(query[tile], len(y[of_items]), self.status, NOT_FINITE)
            mask = None if ignored is None else ignored[tile]
            tiles.append(direct.neighbors(query[tile], rows, x, y[of_items], first, mask, *options))
        distances, indices = (torch.cat(parts) for parts in zip(*tiles, strict=True))
        return distances, indices
