"""The least filter values of each query, gathered tile by tile; in self-retrieval from half of the tiles."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from . import _native

if TYPE_CHECKING:
    from ._nearest import NearestSearch


class Least:
    """The `kept` least entries of each of `rows` rows, so far."""

    def __init__(self, rows: int, kept: int, like: Tensor) -> None:
        self.kept = kept
        self.keys = torch.empty(rows, self.capacity(kept) * like.element_size() // 4, dtype=torch.int64)
        self.number = torch.zeros(rows, dtype=torch.int32)
        self.limit = like.new_full((rows,), torch.inf)

    @staticmethod
    def capacity(kept: int) -> int:
        return 2 * kept + 32

    def add(self, tile: Tensor, bias: Tensor, first: int, rows: slice = slice(None)) -> None:
        # tile: (Q, C) of these rows, contiguous along one dimension  bias: (C,)
        """Entries `tile + bias` of the columns first, first + 1, ..."""
        _native.keep_least(tile, bias, first, self.keys[rows], self.number[rows], self.limit[rows], self.kept)

    def sorted(self, rows: slice = slice(None)) -> tuple[Tensor, Tensor]:
        # ->  (Q, kept) float64 ascending, (Q, kept) int64; inf and -1 where there are fewer
        return _native.sorted_least(self.keys[rows], self.number[rows], self.limit[rows], self.kept)


class HalvedTiles:
    """All rows against each other by Euclidean distance: each tile of products serves its rows and its columns.

    `halved(x, rows)` wants the slices in order; what columns behind them get out of a tile waits until it is their
    turn.
    """

    ROWS, COLUMNS = 256, 2048

    def __init__(self, search: "NearestSearch") -> None:
        self.filter = search.references.filter(search.dtype)
        self.size, self.done = len(search.references), 0
        self.least = Least(self.size, search.kept, self.filter.bias)
        self.buffer = self.filter.bias.new_empty(self.ROWS * self.COLUMNS)

    @staticmethod
    def bytes_of(search: "NearestSearch") -> int:
        """What the entries that wait take."""
        return len(search.query) * Least.capacity(search.kept) * 2 * search.dtype.itemsize

    def serves(self, rows: slice) -> bool:
        return rows.start == self.done

    def __call__(self, x: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
        # x: (Q, D) of these rows  ->  as `Least.sorted`
        bias = self.filter.bias
        for start in range(rows.start, self.size, self.COLUMNS):
            stop = min(start + self.COLUMNS, self.size)
            out = self.buffer[: len(x) * (stop - start)].view(len(x), stop - start)
            tile = self.filter.products(x, slice(start, stop), out)
            both = tile[:, : max(rows.stop - start, 0)]  # these rows against each other
            if start == rows.start:
                both.diagonal().fill_(torch.inf)
            self.least.add(tile, bias[start:stop], start, rows)
            behind = slice(max(rows.stop, start), stop)
            if behind.start < stop:
                self.least.add(tile[:, behind.start - start :].T, bias[rows], rows.start, behind)
        self.done = rows.stop
        return self.least.sorted(rows)
