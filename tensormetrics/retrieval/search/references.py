"""References and repeated queries with cached values."""

import math
from types import ModuleType

import torch
from torch import Tensor

from ..inputs import check_count
from .distance import DISTANCES, Distance, equal_rows, rows_at_once
from .fp16_filter import Float16Filter
from .product_filter import Filter, Normalization


class References:
    """Rows to search, with cached values computed from them."""

    def __init__(self, rows: Tensor, distance: Distance, normalization: Normalization | None = None) -> None:
        # rows: (R, D)  normalization: of the first filter, None: computed from the rows
        check_count(len(rows))
        self.rows, self.distance, self.normalization = rows, distance, normalization
        self._filters: dict[torch.dtype, Filter] = {}
        self._fp16: Float16Filter | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def filter(self, dtype: torch.dtype, memory: int) -> Filter:
        if dtype not in self._filters:
            normalization = None if self._filters else self.normalization
            self._filters[dtype] = self.new_filter(dtype, memory, normalization=normalization)
        return self._filters[dtype]

    def fp16_filter(self, kernels: ModuleType, memory: int) -> Float16Filter:
        if self._fp16 is None:
            self._fp16 = Float16Filter(self.filter(torch.float32, memory), kernels)
        return self._fp16

    def new_filter(
        self, dtype: torch.dtype, memory: int, subset: Tensor | None = None, normalization: Normalization | None = None
    ) -> Filter:
        # subset: (M,) int64; a GPU stores a copy of all rows
        allowed = memory // 2 if self.rows.device.type == "cpu" else math.inf
        return Filter(self.rows, self.distance, dtype, allowed, subset, normalization)

    def first_of_equal(self, count: int) -> Tensor:
        # ->  (M,) int64 ascending, the `count` lowest indices of each set of equal rows
        first = equal_rows(self.rows)
        order = first.argsort(stable=True)
        ordered = first[order]
        position = torch.arange(len(order), device=order.device) - torch.searchsorted(ordered, ordered)
        return order[position < count].sort().values


class QueryCache:
    """Cache of queries that are centered, scaled and rounded once for several searches by "sqeuclidean".

    k-means uses it. References share the normalization of the queries, so they should lie among them, as means do: if
    one is more than twice as far from the center as all queries, nothing is proven and slower stages search it.
    """

    distance = DISTANCES["sqeuclidean"]

    def __init__(self, rows: Tensor, memory: int) -> None:
        # rows: (Q, D)
        self.rows = rows
        self.dtype = torch.float64 if rows.dtype == torch.float64 else torch.float32
        self.is_cached = rows.device.type != "cpu" or 2 * rows.numel() * self.dtype.itemsize <= memory
        query_filter = Filter(rows, self.distance, self.dtype)
        self.normalization = Normalization(query_filter.center, query_filter.scale / 2)
        self._scaled: tuple[Tensor, Tensor] | None = None

    def query(self, rows: slice, filter_: Filter) -> tuple[Tensor, Tensor]:
        # ->  (Q, D), (Q,)
        """Return the result of `Filter.query` for a slice of the queries; the filter shares their normalization."""
        if not self.is_cached:
            return filter_.query(self.rows[rows])
        if self._scaled is None:
            chunks = self.rows.split(rows_at_once(self.rows))
            x = torch.empty(self.rows.shape, dtype=self.dtype, device=self.rows.device)
            pairs = zip(chunks, x.split(len(chunks[0])), strict=True)
            self._scaled = x, torch.cat([filter_.scaled(*pair) for pair in pairs])
        x, norm = self._scaled
        return x[rows], filter_.error(norm[rows])
