"""Rows to search, and queries that are searched for again and again, with what is computed from them once."""

import math
from types import ModuleType

import torch
from torch import Tensor

from ..inputs import check_count
from .distance import DISTANCES, Distance, equal_rows, rows_at_once
from .fp16_filter import HalfFilter
from .kernels.tables import Halves
from .product_filter import Filter, Normalization


class References:
    """Rows to search, with what is computed from them once."""

    def __init__(self, rows: Tensor, distance: Distance, frame: Normalization | None = None) -> None:
        # rows: (R, D)  frame: that of the first filter, None = their own
        check_count(len(rows))
        self.rows, self.distance, self.frame = rows, distance, frame
        self._filters: dict[torch.dtype, Filter] = {}
        self._halves: HalfFilter | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def filter(self, dtype: torch.dtype, memory: int) -> Filter:
        if dtype not in self._filters:
            frame = None if self._filters else self.frame
            self._filters[dtype] = self._filter(dtype, memory, frame=frame)
        return self._filters[dtype]

    def halves(self, kernels: ModuleType, memory: int) -> HalfFilter:
        if self._halves is None:
            self._halves = HalfFilter(self.filter(torch.float32, memory), kernels)
        return self._halves

    def filter_of(self, chosen: Tensor, memory: int) -> Filter:
        # chosen: (M,) int64
        return self._filter(torch.float64, memory, chosen)

    def _filter(
        self, dtype: torch.dtype, memory: int, chosen: Tensor | None = None, frame: Normalization | None = None
    ) -> Filter:
        # On a GPU a copy of all rows is kept.
        allowed = memory // 2 if self.rows.device.type == "cpu" else math.inf
        return Filter(self.rows, self.distance, dtype, allowed, chosen, frame)

    def first_of_equal(self, count: int) -> Tensor:
        # ->  (M,) int64 ascending: of each set of equal rows the `count` lowest indices
        first = equal_rows(self.rows)
        order = first.argsort(stable=True)
        ordered = first[order]
        place = torch.arange(len(order), device=order.device) - torch.searchsorted(ordered, ordered)
        return order[place < count].sort().values


class KnownQueries:
    """Queries that are centred, scaled and rounded once for several searches, as k-means does, by "sqeuclidean".

    References are put into the frame of the queries, for which they should lie among them, as means do: of any that is
    more than twice as far from the centre as all queries nothing is proven, and slower ways to search find it.
    """

    distance = DISTANCES["sqeuclidean"]

    def __init__(self, rows: Tensor, memory: int) -> None:
        # rows: (Q, D)
        self.rows = rows
        self.dtype = torch.float64 if rows.dtype == torch.float64 else torch.float32
        self.kept = rows.device.type != "cpu" or 2 * rows.numel() * self.dtype.itemsize <= memory
        own = Filter(rows, self.distance, self.dtype)
        self.frame = Normalization(own.centre, own.scale / 2)
        self._scaled: tuple[Tensor, Tensor] | None = None
        self._halves: Halves | None = None

    def query(self, rows: slice, filter_: Filter) -> tuple[Tensor, Tensor]:
        # ->  (Q, D), (Q,)
        """What `Filter.query` gives for some of the queries, of a filter in their frame."""
        if not self.kept:
            return filter_.query(self.rows[rows])
        if self._scaled is None:
            pieces = self.rows.split(rows_at_once(self.rows))
            x = torch.empty(self.rows.shape, dtype=self.dtype, device=self.rows.device)
            sides = zip(pieces, x.split(len(pieces[0])), strict=True)
            self._scaled = x, torch.cat([filter_.scaled(*side) for side in sides])
        x, norm = self._scaled
        return x[rows], filter_.error(norm[rows])

    def halves(self, rows: slice, filter_: HalfFilter) -> Halves:
        """What `HalfFilter.query` gives for some of the queries, the first of them at the start of a tile."""
        if self._halves is None:
            self._halves = filter_.query(self.rows)
        stop = rows.start + filter_.whole_tiles(rows.stop - rows.start)
        table, left, known = self._halves[:3]
        return Halves(table[rows.start : stop], left[:, rows.start : stop].contiguous(), known[rows])
