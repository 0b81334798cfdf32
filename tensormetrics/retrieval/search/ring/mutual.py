"""Nearest neighbours of two sets of rows in each other, where each product serves both of its rows."""

from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor

from .. import operators
from ..backend import nearest
from ..distance import Distance
from ..filter import Filter, plain_products
from ..least import Least
from ..nearest import NearestSearch
from ..references import References
from ..ways import kept_of

TILE = 4096  # rows made ready at once


class Known:
    """The k nearest so far of some rows: delta (N, k) float64 and index (N, k) int64, by both; -1 and inf = none."""

    def __init__(self, delta: Tensor, index: Tensor) -> None:
        self.delta, self.index = delta, index

    def add(self, delta: Tensor, index: Tensor, rows: slice = slice(None)) -> None:
        # delta, index: (n, K) of these rows
        k = self.index.shape[1]
        both = torch.cat([self.delta[rows], delta], 1), torch.cat([self.index[rows], index], 1)
        self.delta[rows], self.index[rows] = nearest(*both, k)


def mutual_neighbours(
    x: Tensor, worst_x: Tensor, y: Tensor, worst_y: Tensor, k: int, distance: Distance, memory: int
) -> Iterator[tuple[bool, slice, Tensor, Tensor]]:
    # x: (N, D)  y: (M, D)  worst_x: (N,), worst_y: (M,) float64
    # ->  whether of x, slices of its rows or of y's, (n, k) float64, (n, k) int64, -1 = none
    """Of each row the k nearest rows of the other side by (Euclidean distance, index), as far as they are not further
    than `worst`; piece by piece."""
    size = 4 * Least.capacity(kept_of(k, 2**31, True)) * (8 if x.dtype == torch.float64 else 4)
    step = max(memory // 4 // size, 256)
    for i in range(0, len(x), step):
        for j in range(0, len(y), step):
            rows = slice(i, min(i + step, len(x))), slice(j, min(j + step, len(y)))
            found = _neighbours(x[rows[0]], worst_x[rows[0]], y[rows[1]], worst_y[rows[1]], k, distance, memory // 2)
            for first, (here, start) in enumerate(zip(rows, (j, i), strict=True)):
                delta, index = found[first]
                yield not first, here, delta, torch.where(index < 0, -1, index + start)


class _Stacked:
    """Two sets of rows, one behind the other, of which pieces are read."""

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


def _neighbours(
    x: Tensor, worst_x: Tensor, y: Tensor, worst_y: Tensor, k: int, distance: Distance, memory: int
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    filter_ = Filter(cast(Tensor, _Stacked(x, y)), distance, dtype)  # which reads slices of rows alone
    worst, size = torch.cat([worst_x, worst_y]), len(x)
    scaled = filter_.norms * filter_.scale
    factor, shift = filter_.scale * filter_.scale, -scaled.square()
    # The squares of the norms are sums in another order than that of canonical distances.
    error = filter_.error(scaled) + (2 * x.shape[1] + 16) * 2.0**-53 * scaled.square()
    least = Least(len(worst), kept_of(k, len(worst), True), filter_.bias)
    limit = torch.nextafter((factor * worst + shift + error).to(dtype), worst.new_full((), torch.inf, dtype=dtype))
    least.limit.copy_(limit.masked_fill(filter_.hidden, -torch.inf))
    own = torch.full((TILE,), -1)
    step = max(memory // 4 // (x.shape[1] * dtype.itemsize), 256)
    for first in range(size, len(worst), step):
        rows = filter_.ready(slice(first, min(first + step, len(worst))))
        for start in range(0, size, TILE):
            queries, _ = filter_.query(x[start : start + TILE])
            tables = least.keys, least.number, least.limit, least.kept, start
            with plain_products(x.device):
                operators.keep_least(queries, rows, filter_.bias, first, own[: len(queries)], None, *tables)
    values, columns = least.sorted()
    of_x, of_y = slice(size), slice(size, None)

    def found(query: Tensor, reference: Tensor, rows: slice, before: int) -> tuple[Tensor, Tensor]:
        places = factor, shift[rows], error[rows]
        least = values[rows], columns[rows] - before, worst[rows]
        return _settled(query, reference, *least, places, k, distance, memory)

    return found(x, y, of_x, size), found(y, x, of_y, 0)


def _settled(
    query: Tensor,
    reference: Tensor,
    values: Tensor,
    columns: Tensor,
    worst: Tensor,
    places: tuple[Tensor, Tensor, Tensor],
    k: int,
    distance: Distance,
    memory: int,
) -> tuple[Tensor, Tensor]:
    # values, columns: (Q, kept)  worst: (Q,)  places: factor, shift (Q,) and error (Q,) of filter values
    # ->  (Q, k) float64, (Q, k) int64
    there = values < torch.inf
    row, place = there.nonzero().unbind(1)
    column = columns[row, place]
    delta = torch.full(values.shape, torch.inf, dtype=torch.float64)
    delta[row, place] = distance.of_pairs(query, reference, row, column, memory // 4)
    delta, index = nearest(delta, columns.masked_fill(~there, -1), k)
    factor, shift, error = places
    # What was not kept is at least as far as the last that was. Written so that NaN proves nothing.
    last = factor * torch.minimum(delta[:, -1], worst) + shift
    proven = (values[:, -1] == torch.inf) | (values[:, -1] - error > last)
    left = (~proven).nonzero()[:, 0]
    if len(left):
        some = query[left]
        count = min(k, len(reference))
        none = torch.full((len(left),), -1)
        search = NearestSearch(some, none, count, References(reference, distance), memory)
        for start in range(0, len(left), search.rows):
            rows = slice(start, min(start + search.rows, len(left)))
            index[left[rows], :count] = search(rows)
            index[left[rows], count:] = -1
        row = left.repeat_interleave(k)
        near = index[left].flatten()
        delta[left] = distance.of_pairs(query, reference, row, near.clamp(min=0), memory // 4).view(-1, k)
        delta[left] = delta[left].masked_fill(index[left] < 0, torch.inf)
    return delta, index
