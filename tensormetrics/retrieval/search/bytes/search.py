"""The search on a CPU that multiplies bytes: products of rows rounded to 8 bits rule most references out.

Each row has one scale. Of a query x and a reference z of the float32 filter, with x' and z' the rounded ones, the
Cauchy-Schwarz inequality gives |x.z - x'.z'| <= |x - x'| |z| + |x'| |z - z'|, and all four lengths are computed. The
references whose value may be among the k least are listed, and the float32 filter orders these.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from .... import _native
from .. import operators
from ..filter import BLOCK
from ..ways import Queries, Task, settle_filtered

UP = 1 + 2.0**-20  # float32 numbers made of it are not below what they bound
SOME = 64  # queries that are tried first
LEAST, MOST = 2048, 16  # references and neighbours for which it pays


class Rounded(NamedTuple):
    """Rows rounded to bytes: about scale * bytes."""

    bytes: Tensor  # (N, D') int8, D' the next multiple of 4
    scale: Tensor  # (N,) float32
    sizes: Tensor  # (3, N) float64: lengths of the rows, of the rounded ones, of the differences

    def at(self, rows: Tensor) -> "Rounded":
        return Rounded(self.bytes[rows], self.scale[rows], self.sizes[:, rows])


class Lists(NamedTuple):
    """What may be among the nearest of some queries, and how sure."""

    width: Tensor  # (Q,) float32: `share` times this is what rounding to bytes costs
    slack: Tensor  # (Q,) float32: all other rounding
    lower: Tensor  # (Q, capacity) float32
    column: Tensor  # (Q, capacity) int32
    number: Tensor  # (Q,) int32, capacity: nothing is known
    limit: Tensor  # (Q,) float32
    upper: Tensor  # (Q, k) float32, the least upper bounds, ascending

    def of(self, rows: Tensor) -> "Lists":
        return Lists(*(each[rows] for each in self))


class ByteSearch:
    """By products of bytes with all references; where rows are in tight clusters, they say too little."""

    def __init__(self, task: Task, rows: int, own: Tensor, alike: bool) -> None:
        # own: (Q,) int64, of all queries  `alike`: query i is reference i, by Euclidean distance
        self.task, self.rows, self.own = task, rows, own
        self.capacity = capacity_of(task.k, task.references.rows.shape[1])
        self.filter = filter_ = task.references.filter(task.dtype, task.memory)
        self.ready: Tensor = filter_.ready(slice(0, 0)) if filter_.rows is None else filter_.rows
        self.rounded = Rounded(*operators.to_bytes(self.ready))
        length, _, left = self.rounded.sizes
        self.longest, self.most_left = length.amax(), left.amax()
        tiny = torch.finfo(torch.float64).tiny
        share = torch.maximum(length / self.longest.clamp(min=tiny), left / self.most_left.clamp(min=tiny))
        # In an order without meaning: a list that begins with one tight class would be full of it.
        self.order = torch.arange(filter_.size, device="cpu")
        drawn = torch.Generator().manual_seed(0)
        self.order[: filter_.count] = torch.randperm(filter_.count, generator=drawn, device="cpu")
        self.place = self.order.argsort()
        self.shuffled = self.rounded.at(self.order)
        self.share, self.bias = (share * UP).float()[self.order], filter_.bias[self.order]
        self.panels = panels_of(self.shuffled.bytes)
        self.alike = alike
        self.lists: Lists | None = None

    @staticmethod
    def pays(task: Task, queries: int, alike: bool) -> bool:
        count, dim = task.references.rows.shape
        lists = (queries if alike else 0) * 8 * capacity_of(task.k, dim)
        return (
            task.exact
            and task.dtype == torch.float32
            and task.k <= MOST  # of many neighbours the lists are long
            and count >= LEAST
            and queries > SOME
            and 48 <= dim <= 2**15
            and lists + 2 * count * dim <= task.memory // 8 * 5
            and bool(operators.multiplies_bytes(task.references.rows))
            and task.references.filter(task.dtype, task.memory).rows is not None
        )

    def works(self, query: Tensor) -> bool:
        # query: (Q, D)
        """Whether it settles most of some queries."""
        some = torch.arange(0, len(query), -(-len(query) // SOME), device="cpu")
        _, proven = self.search(Queries(query[some], self.own[some], None, None))
        return 8 * int((~proven).sum()) <= len(some)

    def serves(self, queries: Queries) -> bool:
        return queries.place is not None and queries.ignored is None

    def search(self, queries: Queries) -> tuple[Tensor, Tensor]:
        # ->  (Q, k) int64, -1 where none is left, (Q,) bool
        filter_, task = self.filter, self.task
        if self.alike and queries.place:
            self.lists = self.lists or self._listed_halved()
            lists, x = (
                self.lists.of(self.place[queries.place]),
                self.ready[queries.place] / -task.references.distance.factor,
            )
            error = self._error_of_references()[queries.place]
        else:
            lists, x, error = self._listed(queries.rows, queries.own)
        kept = min(task.kept, filter_.count)
        sides = x, self.ready, filter_.bias, error, self.order, *lists[1:-1]
        values, columns, flooded = operators.least_of_possible(*sides, task.k, kept)
        error = error.masked_fill(flooded, torch.inf)
        return settle_filtered(task, queries, values, columns, error, kept == filter_.count)

    def _listed(self, rows: Tensor, own: Tensor) -> tuple[Lists, Tensor, Tensor]:
        # rows: (Q, D)  own: (Q,)  ->  lists, (Q, D) the rows made ready, (Q,) float64 what float32 products are off by
        x, error = self.filter.query(rows)
        rounded = Rounded(*operators.to_bytes(x))
        lists = self._empty(rounded.sizes, error)
        self._keep(rounded, lists, self.place[own].where(own >= 0, -1), -1)
        return lists, x, error

    def _listed_halved(self) -> Lists:
        factor, count = self.task.references.distance.factor, self.filter.count
        # The filter's rows are its queries times -factor, a power of two.
        some = self.shuffled
        rounded = Rounded(some.bytes[:count], some.scale[:count] / -factor, some.sizes[:, :count] / factor)
        lists = self._empty(rounded.sizes, self._error_of_references()[self.order[:count]])
        self._keep(rounded, lists, torch.arange(count, device="cpu"), 0)
        return lists

    def _error_of_references(self) -> Tensor:
        # ->  (R,) float64
        norms = self.filter.norms * self.filter.scale
        return self.filter.error(norms).masked_fill(self.filter.hidden, torch.inf)

    def _empty(self, sizes: Tensor, error: Tensor) -> Lists:
        # sizes: (3, Q), as in `Rounded`  error: (Q,) float64
        _, rounded, left = sizes
        width = left * self.longest + rounded * self.most_left
        # At most 32 operations of float32 on terms of this size.
        terms = 1 + rounded * (self.longest + self.most_left) + 2 * width
        slack = error + 32 * 2.0**-24 * terms
        width, slack, queries = (width * UP).float(), (slack * UP).float(), len(error)
        return Lists(
            width,
            slack,
            width.new_empty(queries, self.capacity),
            width.new_empty(queries, self.capacity, dtype=torch.int32),
            width.new_zeros(queries, dtype=torch.int32),
            torch.full_like(width, torch.inf),
            width.new_full((queries, self.task.k), torch.inf),
        )

    def _keep(self, x: Rounded, lists: Lists, own: Tensor, start: int) -> None:
        excess = 128 * x.bytes.sum(1, dtype=torch.int32)
        queries = x.bytes.contiguous(), x.scale.contiguous(), excess
        references = self.panels, self.shuffled.scale, self.bias, self.share
        sides = *queries, *references, lists.width, lists.slack, own.contiguous()
        operators.keep_possible(*sides, *lists[2:], start)


def capacity_of(k: int, dim: int) -> int:
    """How many references the list of a query takes."""
    # Of Gaussian rows a query has about 64 entries for k = 10 in 512 columns, and 205 for k = 100 in 128.
    return 3 * k + dim // 4 + 32


def panels_of(rows: Tensor) -> Tensor:
    # rows: (R', D') int8, R' a multiple of 64  ->  (R' / 64, D' / 4, 64, 4) uint8
    """References as `keep_possible` reads them, 128 more."""
    words = rows.view(torch.int32).view(-1, BLOCK, rows.shape[1] // 4).transpose(1, 2).contiguous()
    return words.bitwise_xor_(0x80808080 - 2**32).view(torch.uint8).view(*words.shape, 4)


@_native.reference("multiplies_bytes")
def _multiplies_bytes(like: Tensor) -> Tensor:
    return torch.zeros((), dtype=torch.bool, device=like.device)


@_native.reference("to_bytes")
def _to_bytes(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    largest = rows.abs().amax(1)
    scale = largest / 127
    inverse = torch.where(largest > 2.0**-100, 127 / largest, 0.0)
    held = (rows * inverse[:, None]).round().clamp(-127, 127)
    rounded = held.double() * scale.double()[:, None]
    sizes = torch.stack([each.norm(dim=1) for each in (rows.double(), rounded, rows.double() - rounded)])
    padded = torch.nn.functional.pad(held.to(torch.int8), (0, -rows.shape[1] % 4))
    return padded.contiguous(), scale, sizes


@_native.reference("keep_possible")
def _keep_possible(
    x: Tensor,
    x_scale: Tensor,
    excess: Tensor,
    panels: Tensor,
    scale: Tensor,
    bias: Tensor,
    share: Tensor,
    width: Tensor,
    slack: Tensor,
    own: Tensor,
    lower: Tensor,
    listed: Tensor,
    number: Tensor,
    limit: Tensor,
    upper: Tensor,
    start: int,
) -> None:
    rows = panels.transpose(1, 2).flatten(2).flatten(0, 1).int() - 128  # (R', D')
    queries, first = len(x), max(start, 0)
    column = torch.arange(first, first + len(rows), device="cpu")
    product = (x.double() @ rows.double().T).float() * (x_scale[:, None] * scale[column])

    def put(begin: int, values: Tensor, width: Tensor, shares: Tensor, columns: Tensor) -> None:
        # values: (q, C) of the rows from `begin` on
        at = slice(begin, begin + len(values))
        spread = width[at, None] * shares
        values = values - spread
        upper[at] = torch.cat([upper[at], values + 2 * spread], 1).topk(upper.shape[1], largest=False).values
        limit[at] = torch.minimum(limit[at], (upper[at, -1] + 2 * slack[at]).nextafter(upper.new_tensor(torch.inf)))
        for q, (entries, below) in enumerate(zip(values, limit[at].tolist(), strict=True), begin):
            found = (entries < below).nonzero()[:, 0]
            stop = int(number[q]) + len(found)
            fits = stop < lower.shape[1]
            if fits:
                lower[q, number[q] : stop], listed[q, number[q] : stop] = entries[found], columns[found].int()
            number[q] = stop if fits else lower.shape[1]

    across = product[:, : len(limit) - first].T + bias[:queries] if start > 0 else None
    product[column == own[:, None]] = torch.inf
    put(0, product + bias[column], width, share[column], column)
    if across is not None:
        put(first, across, width, share[:queries], torch.arange(queries, device="cpu"))


@_native.reference("least_of_possible")
def _least_of_possible(
    x: Tensor,
    rows: Tensor,
    bias: Tensor,
    error: Tensor,
    order: Tensor,
    slack: Tensor,
    lower: Tensor,
    column: Tensor,
    number: Tensor,
    limit: Tensor,
    k: int,
    kept: int,
) -> tuple[Tensor, Tensor, Tensor]:
    flooded = number == lower.shape[1]
    there = (torch.arange(lower.shape[1], device="cpu") < number[:, None]) & ~flooded[:, None]
    index = order[column.long().where(there, 0)]
    values = (rows[index] * x[:, None]).sum(2) + bias[index]
    values, sorted_ = values.double().masked_fill(~there, torch.inf).sort(dim=1, stable=True)
    columns = index.gather(1, sorted_).masked_fill(values == torch.inf, -1)
    return values[:, :kept].contiguous(), columns[:, :kept].contiguous(), flooded
