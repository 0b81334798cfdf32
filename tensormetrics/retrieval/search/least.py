"""The least filter values of each query; in self-retrieval from half of the products."""

import torch
from torch import Tensor

from . import operators
from .filter import Filter, plain_products


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

    def add(
        self, filter_: Filter, x: Tensor, own: Tensor, ignored: Tensor | None = None, start: int | None = None
    ) -> None:
        # x: (Q, D) from `filter_.query`  own: (Q,)  ignored: (Q, R)
        """The filter's values of these queries. With `start`, the rows are all references, the queries are those from
        `start` on, and a value counts for its reference too, if that comes behind its query.
        """
        with plain_products(x.device):
            for first, rows in filter_.pieces(start or 0):
                operators.keep_least(
                    x,
                    rows,
                    filter_.bias,
                    first,
                    own.contiguous(),
                    ignored,
                    self.keys,
                    self.number,
                    self.limit,
                    self.kept,
                    -1 if start is None else start,
                )

    def sorted(self, rows: slice = slice(None)) -> tuple[Tensor, Tensor]:
        # ->  (Q, kept) float64 ascending, (Q, kept) int64; inf and -1 where there are fewer
        return operators.sorted_least(self.keys[rows], self.number[rows], self.limit[rows], self.kept)


class HalvedTiles:
    """All rows against each other by Euclidean distance: each product serves both of its rows.

    `halved(x, rows)` wants the slices in order; what rows behind them get out of their products waits until it is their
    turn.
    """

    def __init__(self, filter_: Filter, self_index: Tensor, kept: int) -> None:
        # self_index: (R,) int64
        self.filter, self.own = filter_, self_index
        self.least, self.done = Least(len(self_index), kept, filter_.bias), 0

    @staticmethod
    def bytes_of(rows: int, kept: int, dtype: torch.dtype) -> int:
        """What the entries that wait take."""
        return rows * Least.capacity(kept) * 2 * dtype.itemsize

    def serves(self, rows: slice) -> bool:
        return rows.start == self.done

    def __call__(self, x: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
        # x: (Q, D) of these rows  ->  as `Least.sorted`
        self.least.add(self.filter, x, self.own[rows], start=rows.start)
        self.done = rows.stop
        return self.least.sorted(rows)
