"""Nearest neighbors of two sets of rows in each other, where each product is used for both of its rows."""

from collections.abc import Iterator
from typing import NamedTuple, cast

import torch
from torch import Tensor

from .. import operators
from ..backend import nearest
from ..distance import Distance
from ..nearest import NearestSearch
from ..product_filter import Filter, Normalization, exact_float32_products
from ..references import References
from ..stages import candidate_count
from ..topk import TopK

TILE = 4096  # rows multiplied at once


class Neighbors:
    """The k nearest so far of some rows: delta (N, k) float64, index (N, k) int64, sorted by both; inf, -1 = none."""

    def __init__(self, delta: Tensor, index: Tensor) -> None:
        self.delta, self.index = delta, index

    @staticmethod
    def empty(rows: int, k: int) -> "Neighbors":
        return Neighbors(
            torch.full((rows, k), torch.inf, dtype=torch.float64, device="cpu"), torch.full((rows, k), -1, device="cpu")
        )

    def add(self, delta: Tensor, index: Tensor, rows: slice | Tensor = slice(None)) -> None:
        # delta, index: (n, k) of these rows, sorted
        k = self.index.shape[1]
        if not (self.index[rows, :1] >= 0).any():
            self.delta[rows], self.index[rows] = delta, index
            return
        both = torch.cat([self.delta[rows], delta], 1), torch.cat([self.index[rows], index], 1)
        self.delta[rows], self.index[rows] = nearest(*both, k)


class RowSet(NamedTuple):
    """Rows (N, D) with norms in the common normalization and largest useful canonical distances, (N,) float64 each.

    `scaled`: the rows prepared as queries, if they are stored.
    """

    rows: Tensor
    norms: Tensor
    worst: Tensor
    scaled: Tensor | None = None

    def of(self, rows: slice) -> "RowSet":
        return RowSet(*(None if part is None else part[rows] for part in self))  # type: ignore[arg-type]


def symmetric_neighbors(
    x: RowSet, y: RowSet, k: int, distance: Distance, normalization: Normalization, memory: int
) -> Iterator[tuple[bool, slice, Tensor, Tensor]]:
    # ->  whether of x, slices of its rows or of y's, (n, k) float64, (n, k) int64, -1 = none
    """Yield the k nearest rows in the other set by (Euclidean distance, index), up to the distance `worst`."""
    size = 4 * TopK.capacity(candidate_count(k, 2**31, True)) * (8 if x.rows.dtype == torch.float64 else 4)
    step = max(memory // 4 // max(size, 16 * x.rows.shape[1]), 256)
    for i in range(0, len(x.rows), step):
        for j in range(0, len(y.rows), step):
            rows = slice(i, min(i + step, len(x.rows))), slice(j, min(j + step, len(y.rows)))
            results = _block_neighbors(x.of(rows[0]), y.of(rows[1]), k, distance, normalization, memory // 2)
            for first, (part, start) in enumerate(zip(rows, (j, i), strict=True)):
                delta, index = results[first]
                yield not first, part, delta, torch.where(index < 0, -1, index + start)


class _Stacked:
    """Two sets of rows, one after the other, that are read in slices."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y, self.device, self.shape = x, y, x.device, (len(x) + len(y), x.shape[1])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> Tensor:
        start, stop, step = rows.indices(len(self))
        of_x = self.x[start : min(stop, len(self.x)) : step] if start < len(self.x) else self.x[:0]
        behind = max(start + step * len(of_x) - len(self.x), 0)
        of_y = self.y[behind : max(stop - len(self.x), 0) : step]
        return of_x if not len(of_y) else of_y if not len(of_x) else torch.cat([of_x, of_y])


def _block_neighbors(
    x: RowSet, y: RowSet, k: int, distance: Distance, normalization: Normalization, memory: int
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    dtype = torch.float64 if x.rows.dtype == torch.float64 else torch.float32
    stacked = cast(Tensor, _Stacked(x.rows, y.rows))  # only slices of rows are read
    filter_ = Filter(stacked, distance, dtype, normalization=normalization, norms=torch.cat([x.norms, y.norms]))
    worst, size, dim = torch.cat([x.worst, y.worst]), len(x.rows), x.rows.shape[1]
    scaled = filter_.norms * filter_.scale
    factor, shift = filter_.scale * filter_.scale, -scaled.square()
    # The squares of the norms are summed in a different order than canonical distances.
    error = filter_.error(scaled) + (2 * dim + 16) * 2.0**-53 * scaled.square()
    topk = TopK(len(worst), candidate_count(k, len(worst), True), filter_.bias)
    limit = torch.nextafter((factor * worst + shift + error).to(dtype), worst.new_full((), torch.inf, dtype=dtype))
    topk.limit.copy_(limit.masked_fill(filter_.nonfinite, -torch.inf))
    self_index = torch.full((TILE,), -1, device="cpu")
    step = max(memory // 4 // (dim * dtype.itemsize), 256)
    tile_rows = TILE if x.scaled is not None else min(max(memory // 4 // (32 * dim), 64), TILE)
    for first in range(size, len(worst), step):
        rows = filter_.ready(slice(first, min(first + step, len(worst))))
        for start in range(0, size, tile_rows):
            tile = slice(start, start + tile_rows)
            queries = filter_.query(x.rows[tile])[0] if x.scaled is None else x.scaled[tile]
            tables = topk.keys, topk.count, topk.limit, topk.k, start
            with exact_float32_products(queries.device):
                operators.update_topk(queries, rows, filter_.bias, first, self_index[: len(queries)], None, *tables)
    values, columns = topk.sorted()
    of_x, of_y = slice(size), slice(size, None)

    def rerank(query: Tensor, reference: Tensor, rows: slice, before: int) -> tuple[Tensor, Tensor]:
        conversion = factor, shift[rows], error[rows]
        candidates = values[rows], columns[rows] - before, worst[rows]
        return _rerank(query, reference, *candidates, conversion, k, distance, memory)

    return rerank(x.rows, y.rows, of_x, size), rerank(y.rows, x.rows, of_y, 0)


def _rerank(
    query: Tensor,
    reference: Tensor,
    values: Tensor,
    columns: Tensor,
    worst: Tensor,
    conversion: tuple[Tensor, Tensor, Tensor],
    k: int,
    distance: Distance,
    memory: int,
) -> tuple[Tensor, Tensor]:
    # values, columns: (Q, K)  worst: (Q,)  conversion: factor, shift (Q,) and error (Q,) of filter values
    # ->  (Q, k) float64, (Q, k) int64
    is_valid = values < torch.inf
    row, slot = is_valid.nonzero().unbind(1)
    column = columns[row, slot]
    delta = torch.full(values.shape, torch.inf, dtype=torch.float64, device="cpu")
    delta[row, slot] = distance.of_pairs(query, reference, row, column, memory // 4)
    delta, index = nearest(delta, columns.masked_fill(~is_valid, -1), k)
    factor, shift, error = conversion
    # All other references are at least as far as the last candidate. Written so that NaN proves nothing.
    last = factor * torch.minimum(delta[:, -1], worst) + shift
    proven = (values[:, -1] == torch.inf) | (values[:, -1] - error > last)
    left = (~proven).nonzero()[:, 0]
    if len(left):
        none = torch.full((len(left),), -1, device="cpu")
        delta[left], index[left] = nearest_of(query[left], none, reference, k, distance, memory)
    return delta, index


def nearest_of(
    query: Tensor, self_index: Tensor, reference: Tensor, k: int, distance: Distance, memory: int
) -> tuple[Tensor, Tensor]:
    # query: (Q, D)  self_index: (Q,) int64, the reference that is this query, -1 = none
    # ->  (Q, k) float64, (Q, k) int64
    """Search the nearest references of rows for which the products of two sets were inconclusive."""
    count = min(k, len(reference))
    index = torch.full((len(query), k), -1, device="cpu")
    search = NearestSearch(query, self_index, count, References(reference, distance), memory)
    for start in range(0, len(query), search.rows):
        rows = slice(start, min(start + search.rows, len(query)))
        index[rows, :count] = search(rows)
    row = torch.arange(len(query), device="cpu").repeat_interleave(k)
    delta = distance.of_pairs(query, reference, row, index.flatten().clamp(min=0), memory // 4).view(-1, k)
    return delta.masked_fill(index < 0, torch.inf), index
