"""The search on a CPU that multiplies words of 16 bits: products of rows rounded to these rule most references out.

Each row has one scale. Of a query x and a reference y of the filter, with x' and y' the rounded ones, the
Cauchy-Schwarz inequality gives |x.y - x'.y'| <= |x - x'| |y| + |x'| |y - y'|, and all four lengths are computed. The
references that may be among the k nearest are listed, and put in canonical order.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from .... import _native
from .. import operators
from ..bytes.search import LEAST, SOME, UP
from ..distance import rows_at_once
from ..filter import BLOCK
from ..ways import Queries, Task

UNIT = 16 * 2.0**-24  # more than float32 may lose of a term


class Rounded(NamedTuple):
    """Rows rounded to words: about scale * words."""

    panels: Tensor  # (P, D', 64, 2) int16, D' = D / 2 rounded up
    scale: Tensor  # (64 P,) float32
    sizes: Tensor  # (3, 64 P) float64: lengths of the rows, of the rounded ones, of the differences


class Lists(NamedTuple):
    """What may be among the nearest of some queries, and how sure."""

    width: Tensor  # (Q,) float32: `share` times this is what rounding to words costs
    slack: Tensor  # (Q,) float32: other rounding, that of references' terms apart
    bounds: Tensor  # (2, Q, capacity) float32, lower and upper
    column: Tensor  # (Q, capacity) int32
    number: Tensor  # (Q,) int32, capacity: nothing is known
    limit: Tensor  # (Q,) float32


class WordSearch:
    """By products of words with all references; where very many are equally near, they say too little."""

    def __init__(self, task: Task, rows: int, own: Tensor, alike: bool) -> None:
        # own: (Q,) int64, of all queries  `alike`: query i is reference i, by Euclidean distance
        self.task, self.rows, self.own = task, rows, own
        self.capacity = _capacity(task.k, task.references.rows.shape[1])
        self.filter = filter_ = task.references.filter(task.dtype, task.memory)
        # In an order without meaning: a list that begins with one tight class would be full of it.
        self.order = torch.randperm(filter_.count, generator=torch.Generator().manual_seed(0), device="cpu")
        self.place = torch.empty_like(self.order)
        self.place[self.order] = torch.arange(filter_.count, device="cpu")
        self.rounded = self._rounded(task.references.rows, self.order)[0]
        length, _, left = self.rounded.sizes
        self.longest, self.most_left = length.amax(), left.amax()
        tiny = torch.finfo(torch.float64).tiny
        share = torch.maximum(length / self.longest.clamp(min=tiny), left / self.most_left.clamp(min=tiny))
        self.share = (share * UP).float()
        norms = torch.zeros_like(length)
        norms[: filter_.count] = filter_.norms[self.order] * filter_.scale
        squares = norms.square() * (filter_.distance.factor - 1)
        self.spread = (UNIT * UP * squares).float()
        bias = squares - UNIT * squares
        bias[: filter_.count].masked_fill_(filter_.hidden[self.order], torch.inf)
        bias[filter_.count :] = torch.inf
        self.bias = bias.float()
        self.alike = alike and self.fits(task, len(own), True)
        self.lists: Lists | None = None
        self.last: tuple[Tensor, Tensor, Tensor] | None = None  # what `search` found last: index, delta and known

    @staticmethod
    def fits(task: Task, queries: int, alike: bool) -> bool:
        """Whether there is room for words, lists of all queries if `alike`, and the float32 rows of the next way."""
        count, dim = task.references.rows.shape
        lists = queries * 12 * _capacity(task.k, dim) if alike else 0
        rows = 4 * count * dim
        return lists + 2 * count * dim + (rows if rows <= task.memory // 2 else 0) <= task.memory // 8 * 7

    @staticmethod
    def pays(task: Task, queries: int) -> bool:
        count, dim = task.references.rows.shape
        return (
            task.exact
            and task.dtype == torch.float32
            and count >= max(LEAST, 8 * task.k)
            and queries > SOME
            and 48 <= dim <= 2**14
            and WordSearch.fits(task, queries, False)
            and bool(operators.multiplies_words(task.references.rows))
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
        references, distance = self.task.references.rows, self.task.references.distance
        if self.alike and queries.place:
            self.lists = self.lists or self._listed_halved()
            lists, place = self.lists, self.place[queries.place]
        else:
            lists, place = self._listed(queries.rows, queries.own), torch.arange(len(queries.own), device="cpu")
        sides = queries.rows.double().contiguous(), references, place, self.order, self.share, self.spread
        index, delta, known = operators.nearest_of_possible(*sides, *lists, self.task.k, distance.code)
        self.last = index, delta, known
        return index, known

    def _listed(self, rows: Tensor, own: Tensor) -> Lists:
        # rows: (Q, D)  own: (Q,)
        rounded, norms = self._rounded(rows)
        lists = self._empty(rounded.sizes[:, : len(rows)], norms)
        self._keep(rounded, lists, self.place[own.clamp(min=0)].where(own >= 0, -1), -1)
        return lists

    def _listed_halved(self) -> Lists:
        count = self.filter.count
        norms = (self.filter.norms * self.filter.scale).masked_fill(self.filter.hidden, torch.inf)
        lists = self._empty(self.rounded.sizes[:, :count], norms[self.order])
        self._keep(self.rounded, lists, torch.arange(count, device="cpu"), 0)
        return lists

    def _rounded(self, rows: Tensor, order: Tensor | None = None) -> tuple[Rounded, Tensor]:
        # rows: (N, D)  order: (N,) int64, of references; None: these are queries  ->  ..., (N,) float64, queries' norms
        filter_, (count, dim) = self.filter, rows.shape
        panels = torch.zeros(-(-count // BLOCK), -(-dim // 2), BLOCK, 2, dtype=torch.int16, device="cpu")
        size = len(panels) * BLOCK
        sizes = torch.zeros(3, size, dtype=torch.float64, device="cpu")
        rounded = Rounded(panels, torch.zeros(size, dtype=torch.float32, device="cpu"), sizes)
        norms = torch.empty(count, dtype=torch.float64, device="cpu")
        step = rows_at_once(rows)
        for start in range(0, count, step):
            piece = slice(start, min(start + step, count))
            if order is None:
                x = norms.new_empty(piece.stop - start, dim)
                norms[piece] = filter_.scaled(rows[piece], x)
            else:
                x = filter_.centred(rows[order[piece]]).mul_(filter_.scale)
            operators.to_words(x, *rounded, start)
        return rounded, norms

    def _empty(self, sizes: Tensor, norms: Tensor) -> Lists:
        # sizes: (3, Q), as in `Rounded`  norms: (Q,) float64
        (_, rounded, left), factor = sizes, self.filter.distance.factor
        width = left * self.longest + rounded * self.most_left + UNIT * rounded * (self.longest + self.most_left)
        slack = self.filter.error(norms, products=False)
        width, slack, queries = (factor * UP * width).float(), (slack * UP).float(), len(norms)
        return Lists(
            width,
            slack,
            width.new_empty(2, queries, self.capacity),
            width.new_empty(queries, self.capacity, dtype=torch.int32),
            width.new_zeros(queries, dtype=torch.int32),
            torch.full_like(width, torch.inf),
        )

    def _keep(self, x: Rounded, lists: Lists, own: Tensor, first: int) -> None:
        scale = x.scale * -self.filter.distance.factor
        references = self.rounded.panels, self.rounded.scale, self.bias, self.share, self.spread
        operators.keep_by_words(x.panels, scale, *references, *lists[:2], own, *lists[2:], self.task.k, first)


def _capacity(k: int, dim: int) -> int:
    # Of Gaussian rows in 512 columns about 14 are possible for k = 10, and 107 for k = 100.
    return 2 * k + dim // 32 + 32


def _panels_of(panels: Tensor) -> Tensor:
    # (P, D', 64, 2)  ->  (64 P, 2 D') float64
    return panels.transpose(1, 2).flatten(2).flatten(0, 1).double()


@_native.reference("multiplies_words")
def _multiplies_words(like: Tensor) -> Tensor:
    return torch.zeros((), dtype=torch.bool, device=like.device)


@_native.reference("to_words")
def _to_words(rows: Tensor, panels: Tensor, scale: Tensor, sizes: Tensor, first: int) -> None:
    length, dim = rows.norm(dim=1), rows.shape[1]
    known = (length > 2.0**-60) & (length < 2.0**41)
    unit = torch.maximum(length / (46338 - dim**0.5 / 2), rows.abs().amax(1) / 32766) * (1 + 2.0**-22)
    unit = torch.where(known, unit, 0.0).float()
    x = rows.where(known[:, None], 0.0)
    words = (x * torch.where(known, 1 / unit.double(), 0.0)[:, None]).round()
    rounded = words * unit.double()[:, None]
    length = torch.where(length < 2.0**41, length, 0.0)
    place = slice(first, first + len(rows))
    scale[place] = unit
    sizes[:, place] = torch.stack([length, rounded.norm(dim=1), torch.where(known, (x - rounded).norm(dim=1), length)])
    padded = torch.nn.functional.pad(words, (0, dim % 2)).to(torch.int16).view(len(rows), -1, 2)
    place_of = torch.arange(first, first + len(rows), device="cpu")
    panels[place_of // BLOCK, :, place_of % BLOCK] = padded


@_native.reference("keep_by_words")
def _keep_by_words(
    x: Tensor,
    x_scale: Tensor,
    panels: Tensor,
    scale: Tensor,
    bias: Tensor,
    share: Tensor,
    spread: Tensor,
    width: Tensor,
    slack: Tensor,
    own: Tensor,
    bounds: Tensor,
    column: Tensor,
    number: Tensor,
    limit: Tensor,
    k: int,
    first: int,
) -> None:
    if first >= 0:  # the same products, from the side of each row
        queries, count = len(own), len(number)
        own = torch.arange(count, device="cpu")
        seen = (torch.arange(len(bias), device="cpu") >= first) | (torch.arange(count, device="cpu") >= first)[:, None]
        seen &= (torch.arange(len(bias), device="cpu") < queries) | (torch.arange(count, device="cpu") < queries)[
            :, None
        ]
    else:
        seen = torch.ones(len(own), len(bias), dtype=torch.bool, device="cpu")
    count = len(number)
    product = _panels_of(x)[:count] @ _panels_of(panels).T
    values = (product.float() * scale) * x_scale[:count, None] + (bias - width[:, None] * share)
    values[~seen | (torch.arange(len(bias), device="cpu") == own[:, None])] = torch.inf
    upper = values + 2 * (width[:, None] * share + spread)
    least = upper.kthvalue(k, dim=1).values
    limit.copy_(torch.minimum(limit, (least + 2 * slack).nextafter(least.new_tensor(torch.inf))))
    for q, (entries, below) in enumerate(zip(values, limit.tolist(), strict=True)):
        found = (entries < below).nonzero()[:, 0]
        fits = len(found) < column.shape[1]
        number[q] = len(found) if fits else column.shape[1]
        if fits:
            bounds[:, q, : len(found)] = torch.stack([entries[found], upper[q, found]])
            column[q, : len(found)] = found.int()


@_native.reference("nearest_of_possible")
def _nearest_of_possible(
    query: Tensor,
    reference: Tensor,
    place: Tensor,
    order: Tensor,
    share: Tensor,
    spread: Tensor,
    width: Tensor,
    slack: Tensor,
    bounds: Tensor,
    column: Tensor,
    number: Tensor,
    limit: Tensor,
    k: int,
    distance: int,
) -> tuple[Tensor, Tensor, Tensor]:
    column, number = column[place], number[place]
    known = number < column.shape[1]
    there = (torch.arange(column.shape[1], device="cpu") < number[:, None]) & known[:, None]
    index = order[column.long().where(there, 0)]
    row = torch.arange(len(query), device="cpu").repeat_interleave(index.shape[1])
    delta = operators.canonical_pairs(query, reference, row, index.flatten(), distance).view_as(index)
    delta = delta.masked_fill(~there, torch.inf)
    sorted_ = index.argsort(dim=1)
    sorted_ = sorted_.gather(1, delta.gather(1, sorted_).argsort(dim=1, stable=True))[:, :k]
    delta, index = delta.gather(1, sorted_), index.gather(1, sorted_)
    return index.masked_fill(delta == torch.inf, -1), delta, known
