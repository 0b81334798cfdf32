"""Nearest neighbours of two sets of rows in each other, where each product serves both of its rows."""

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
from ..stages import kept_of
from ..topk import Least

TILE = 4096  # rows multiplied at once


class Known:
    """The k nearest so far of some rows: delta (N, k) float64 and index (N, k) int64, by both; -1 and inf = none."""

    def __init__(self, delta: Tensor, index: Tensor) -> None:
        self.delta, self.index = delta, index

    @staticmethod
    def nothing(rows: int, k: int) -> "Known":
        return Known(
            torch.full((rows, k), torch.inf, dtype=torch.float64, device="cpu"), torch.full((rows, k), -1, device="cpu")
        )

    def add(self, delta: Tensor, index: Tensor, rows: slice | Tensor = slice(None)) -> None:
        # delta, index: (n, k) of these rows, in order
        k = self.index.shape[1]
        if not (self.index[rows, :1] >= 0).any():
            self.delta[rows], self.index[rows] = delta, index
            return
        both = torch.cat([self.delta[rows], delta], 1), torch.cat([self.index[rows], index], 1)
        self.delta[rows], self.index[rows] = nearest(*both, k)


class Side(NamedTuple):
    """Rows (N, D) with their norms in the common frame, beyond what canonical distance `worst` they have no use for a
    neighbour, (N,) float64 each, and the rows made ready as queries, where they are kept."""

    rows: Tensor
    norms: Tensor
    worst: Tensor
    scaled: Tensor | None = None

    def of(self, rows: slice) -> "Side":
        return Side(*(None if part is None else part[rows] for part in self))  # type: ignore[arg-type]


def mutual_neighbours(
    x: Side, y: Side, k: int, distance: Distance, frame: Normalization, memory: int
) -> Iterator[tuple[bool, slice, Tensor, Tensor]]:
    # ->  whether of x, slices of its rows or of y's, (n, k) float64, (n, k) int64, -1 = none
    """Of each row the k nearest rows of the other side by (Euclidean distance, index), as far as they are not further
    than `worst`; piece by piece."""
    size = 4 * Least.capacity(kept_of(k, 2**31, True)) * (8 if x.rows.dtype == torch.float64 else 4)
    step = max(memory // 4 // max(size, 16 * x.rows.shape[1]), 256)
    for i in range(0, len(x.rows), step):
        for j in range(0, len(y.rows), step):
            rows = slice(i, min(i + step, len(x.rows))), slice(j, min(j + step, len(y.rows)))
            found = _neighbours(x.of(rows[0]), y.of(rows[1]), k, distance, frame, memory // 2)
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
    x: Side, y: Side, k: int, distance: Distance, frame: Normalization, memory: int
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    dtype = torch.float64 if x.rows.dtype == torch.float64 else torch.float32
    stacked = cast(Tensor, _Stacked(x.rows, y.rows))  # of which slices of rows alone are read
    filter_ = Filter(stacked, distance, dtype, frame=frame, norms=torch.cat([x.norms, y.norms]))
    worst, size, dim = torch.cat([x.worst, y.worst]), len(x.rows), x.rows.shape[1]
    scaled = filter_.norms * filter_.scale
    factor, shift = filter_.scale * filter_.scale, -scaled.square()
    # The squares of the norms are sums in another order than that of canonical distances.
    error = filter_.error(scaled) + (2 * dim + 16) * 2.0**-53 * scaled.square()
    least = Least(len(worst), kept_of(k, len(worst), True), filter_.bias)
    limit = torch.nextafter((factor * worst + shift + error).to(dtype), worst.new_full((), torch.inf, dtype=dtype))
    least.limit.copy_(limit.masked_fill(filter_.hidden, -torch.inf))
    own = torch.full((TILE,), -1, device="cpu")
    step = max(memory // 4 // (dim * dtype.itemsize), 256)
    some = TILE if x.scaled is not None else min(max(memory // 4 // (32 * dim), 64), TILE)
    for first in range(size, len(worst), step):
        rows = filter_.ready(slice(first, min(first + step, len(worst))))
        for start in range(0, size, some):
            tile = slice(start, start + some)
            queries = filter_.query(x.rows[tile])[0] if x.scaled is None else x.scaled[tile]
            tables = least.keys, least.number, least.limit, least.kept, start
            with exact_float32_products(queries.device):
                operators.update_topk(queries, rows, filter_.bias, first, own[: len(queries)], None, *tables)
    values, columns = least.sorted()
    of_x, of_y = slice(size), slice(size, None)

    def found(query: Tensor, reference: Tensor, rows: slice, before: int) -> tuple[Tensor, Tensor]:
        places = factor, shift[rows], error[rows]
        least = values[rows], columns[rows] - before, worst[rows]
        return _settled(query, reference, *least, places, k, distance, memory)

    return found(x.rows, y.rows, of_x, size), found(y.rows, x.rows, of_y, 0)


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
    delta = torch.full(values.shape, torch.inf, dtype=torch.float64, device="cpu")
    delta[row, place] = distance.of_pairs(query, reference, row, column, memory // 4)
    delta, index = nearest(delta, columns.masked_fill(~there, -1), k)
    factor, shift, error = places
    # What was not kept is at least as far as the last that was. Written so that NaN proves nothing.
    last = factor * torch.minimum(delta[:, -1], worst) + shift
    proven = (values[:, -1] == torch.inf) | (values[:, -1] - error > last)
    left = (~proven).nonzero()[:, 0]
    if len(left):
        none = torch.full((len(left),), -1, device="cpu")
        delta[left], index[left] = nearest_of(query[left], none, reference, k, distance, memory)
    return delta, index


def nearest_of(
    query: Tensor, own: Tensor, reference: Tensor, k: int, distance: Distance, memory: int
) -> tuple[Tensor, Tensor]:
    # query: (Q, D)  own: (Q,) int64, the reference that is this query, -1 = none  ->  (Q, k) float64, (Q, k) int64
    """The nearest references of rows about which products of two sets did not say enough."""
    count = min(k, len(reference))
    index = torch.full((len(query), k), -1, device="cpu")
    search = NearestSearch(query, own, count, References(reference, distance), memory)
    for start in range(0, len(query), search.rows):
        rows = slice(start, min(start + search.rows, len(query)))
        index[rows, :count] = search(rows)
    row = torch.arange(len(query), device="cpu").repeat_interleave(k)
    delta = distance.of_pairs(query, reference, row, index.flatten().clamp(min=0), memory // 4).view(-1, k)
    return delta.masked_fill(index < 0, torch.inf), index
