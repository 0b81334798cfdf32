"""Rows to search, with what is computed from them once."""

import math
from types import ModuleType

import torch
from torch import Tensor

from ..rows import check_count
from .distance import equal_rows
from .filter import Filter, Frame
from .halves import HalfFilter


class References:
    """Rows to search, with what is computed from them once."""

    def __init__(self, rows: Tensor, distance: str, frame: Frame | None = None) -> None:
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
        self, dtype: torch.dtype, memory: int, chosen: Tensor | None = None, frame: Frame | None = None
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
