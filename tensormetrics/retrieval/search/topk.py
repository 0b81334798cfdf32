"""The smallest filter values of each query; a self-search needs half of the products."""

import torch
from torch import Tensor

from ...core.native import native
from . import operators
from .product_filter import Filter, exact_float32_products


class TopK:
    """Running top-k: the `k` smallest entries so far of each of `rows` rows."""

    def __init__(self, rows: int, k: int, like: Tensor) -> None:
        self.k = k
        self.keys = like.new_empty(rows, self.capacity(k), 2)
        self.count = torch.zeros(rows, dtype=torch.int32, device="cpu")
        self.limit = like.new_full((rows,), torch.inf)

    @staticmethod
    def capacity(k: int) -> int:
        return 2 * k + 32

    def add(
        self, filter_: Filter, x: Tensor, self_index: Tensor, ignored: Tensor | None = None, start: int | None = None
    ) -> None:
        # x: (Q, D) from `filter_.query`  self_index: (Q,)  ignored: (Q, R)
        """Add the filter values of queries.

        With `start`, the rows are all references, the queries are those from `start` on, and a value is also an entry
        of its reference if that follows its query.
        """
        with exact_float32_products(x.device):
            for first, rows in filter_.chunks(start or 0):
                operators.update_topk(
                    x,
                    rows,
                    filter_.bias,
                    first,
                    self_index.contiguous(),
                    ignored,
                    self.keys,
                    self.count,
                    self.limit,
                    self.k,
                    -1 if start is None else start,
                )

    def sorted(self, rows: slice = slice(None)) -> tuple[Tensor, Tensor]:
        # ->  (Q, k) float64 ascending, (Q, k) int64; inf and -1 if there are fewer
        return operators.finalize_topk(self.keys[rows], self.count[rows], self.limit[rows], self.k)


@native.reference("update_topk")
def _update_topk(
    x: Tensor,
    rows: Tensor,
    bias: Tensor,
    first: int,
    self_index: Tensor,
    ignored: Tensor | None,
    keys: Tensor,
    count: Tensor,
    limit: Tensor,
    k: int,
    start: int,
) -> None:
    columns = torch.arange(first, first + len(rows), device="cpu")
    product = (x @ rows.T).masked_fill_(columns == self_index[:, None], torch.inf)
    if ignored is not None:
        masked = ignored[:, first : first + len(rows)]
        product[:, : masked.shape[1]].masked_fill_(masked, torch.inf)
    tile = product + bias[columns]
    if start < 0:
        return _join(keys, count, k, slice(None), tile, columns)
    stop = start + len(x)
    is_query, is_later = columns >= start, columns >= stop
    _join(keys, count, k, slice(start, stop), tile[:, is_query], columns[is_query])
    is_later &= columns < len(limit)
    if is_later.any():
        queries, later = torch.arange(start, stop, device="cpu"), columns[is_later]
        _join(keys, count, k, slice(int(later[0]), int(later[-1]) + 1), product[:, is_later].T + bias[queries], queries)


def _join(keys: Tensor, count: Tensor, k: int, rows: slice, values: Tensor, columns: Tensor) -> None:
    # values: (Q, C) to merge into the entries of these rows  columns: (C,)
    column_bits = keys.view(torch.int32 if keys.dtype == torch.float32 else torch.int64)[rows, :k, 1]
    filled = torch.arange(column_bits.shape[1], device="cpu") < count[rows, None]
    values = torch.cat(
        [keys[rows, :k, 0].where(filled, torch.inf), values.nan_to_num(torch.inf, torch.inf, -torch.inf)], 1
    )
    columns = torch.cat([column_bits.long(), columns.expand(len(column_bits), -1)], 1)
    order = columns.argsort(1)
    order = order.gather(1, values.gather(1, order).argsort(dim=1, stable=True))[:, :k]
    values, columns = values.gather(1, order), columns.gather(1, order)
    keys[rows, : order.shape[1], 0], column_bits[:, : order.shape[1]] = values, columns.to(column_bits.dtype)
    count[rows] = (values < torch.inf).sum(1).int()


@native.reference("finalize_topk")
def _finalize_topk(keys: Tensor, count: Tensor, limit: Tensor, k: int) -> tuple[Tensor, Tensor]:
    column_bits = keys.view(torch.int32 if keys.dtype == torch.float32 else torch.int64)[:, :k, 1]
    filled = torch.arange(k, device="cpu") < count[:, None]
    return keys[:, :k, 0].double().where(filled, torch.inf), column_bits.long().where(filled, -1)


class SymmetricTopK:
    """Self-search by Euclidean distance, where each product updates both of its rows.

    Call `symmetric_topk(x, rows)` with consecutive slices. Each product also updates later rows; their partial top-k is
    stored until they are queried.
    """

    def __init__(self, filter_: Filter, self_index: Tensor, k: int) -> None:
        # self_index: (R,) int64
        self.filter, self.self_index = filter_, self_index
        self.topk, self.done = TopK(len(self_index), k, filter_.bias), 0

    @staticmethod
    def bytes_of(rows: int, k: int, dtype: torch.dtype) -> int:
        """Return the bytes of the stored entries."""
        return rows * TopK.capacity(k) * 2 * dtype.itemsize

    def is_next(self, rows: slice) -> bool:
        return rows.start == self.done

    def __call__(self, x: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
        # x: (Q, D) of these rows  ->  as in `TopK.sorted`
        self.topk.add(self.filter, x, self.self_index[rows], start=rows.start)
        self.done = rows.stop
        return self.topk.sorted(rows)


def filter_topk(
    filter_: Filter, x: Tensor, self_index: Tensor, ignored: Tensor | None, count: int, columns: int
) -> tuple[Tensor, Tensor]:
    # x: (Q, D) from `filter_.query`  self_index: (Q,)  ignored: (Q, R)
    # ->  (Q, count) float64 ascending, (Q, count) int64
    """Select the smallest values and their columns by tiles of `columns` columns; 0: by the native operator."""
    if not columns:
        topk = TopK(len(x), count, x)
        topk.add(filter_, x, self_index, ignored)
        return topk.sorted()
    values, indices = x.new_empty(len(x), 0), self_index.new_empty(len(x), 0)
    for start in range(0, len(filter_), columns):
        tile = filter_.values(x, slice(start, start + columns))
        if ignored is not None:
            masked = ignored[:, start : start + columns]
            tile[:, : masked.shape[1]].masked_fill_(masked, torch.inf)
        position = (self_index - start).clamp(0, tile.shape[1] - 1)[:, None]
        tile.scatter_(
            1, position, tile.gather(1, position).masked_fill_(position + start == self_index[:, None], torch.inf)
        )
        smallest_values, position = smallest(tile, min(count, tile.shape[1]))
        values, indices = torch.cat([values, smallest_values], 1), torch.cat([indices, position + start], 1)
        if values.shape[1] > count or start + columns >= len(filter_):
            values, order = values.topk(min(count, values.shape[1]), largest=False)
            indices = indices.gather(1, order)
    return values.double(), indices


def smallest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    # values: (Q, C)  ->  (Q, count) in any order, (Q, count) int64
    """Select the smallest values of each row and their columns; `topk` reads only blocks with a small minimum."""
    blocks, left_over = divmod(values.shape[1], 4)
    if left_over or blocks < 3 * count:
        return values.topk(count, largest=False, sorted=False)
    # The columns of a block are `blocks` apart, so block minima are elementwise minima of contiguous chunks.
    _, block = smallest(values.unflatten(1, (4, blocks)).amin(1), count)
    columns = (block[:, None] + blocks * torch.arange(4, device=values.device)[:, None]).flatten(1)
    result, position = values.gather(1, columns).topk(count, largest=False, sorted=False)
    return result, columns.gather(1, position)
