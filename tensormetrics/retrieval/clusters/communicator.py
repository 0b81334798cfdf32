"""Whose rows are clustered: those of one process, or of several, each of which holds some of them.

Sums are of multiples of one power of two, so that they are exact and have no order: results have the same bits for any
number of processes and any split of the rows.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch import distributed as dist

from ..._distributed import all_gather_cat, all_gather_status, all_reduce
from ..._splitmix import mix
from ..deterministic import argsort_by_content, content_keys
from ..inputs import ShardLayout, few_rows


class Among(Protocol):
    """Among whom rows are: one process, or several."""

    own: slice  # which of all rows are here

    def count(self, x: Tensor) -> int:
        """How many rows there are in all."""

    def totals(self, *values: Tensor) -> Sequence[Tensor]:
        """The sums over processes."""

    def largest(self, values: Tensor) -> Tensor:
        """The largest over processes."""

    def all_of(self, values: Tensor) -> Tensor:
        # values: (n, ...), a number for each row here  ->  (N, ...)
        """Those of all rows, which every process then holds."""

    def everywhere(self, holds: bool) -> bool:
        """Whether it holds on all processes."""

    def order(self, x: Tensor) -> Tensor:
        # ->  (N,) int64
        """The places of all rows, by their content."""

    def rows_at(self, x: Tensor, places: Tensor) -> Tensor:
        # places: (n,) int64 among all rows  ->  (n, D)
        """The rows in these places."""


class Alone:
    """All rows are here."""

    own = slice(None)

    def count(self, x: Tensor) -> int:
        return len(x)

    def totals(self, *values: Tensor) -> Sequence[Tensor]:
        return values

    def largest(self, values: Tensor) -> Tensor:
        return values

    def all_of(self, values: Tensor) -> Tensor:
        return values

    def everywhere(self, holds: bool) -> bool:
        return holds

    def order(self, x: Tensor) -> Tensor:
        return argsort_by_content(x, few_rows(x))

    def rows_at(self, x: Tensor, places: Tensor) -> Tensor:
        return x[places]


ALONE: Among = Alone()


class AmongRanks:
    """Each process holds some, one after the other in the order of ranks."""

    def __init__(self, spread: ShardLayout) -> None:
        self.sizes, self.group, self.own = spread.query, spread.group, spread.own()

    def count(self, x: Tensor) -> int:
        return sum(self.sizes)

    def totals(self, *values: Tensor) -> Sequence[Tensor]:
        packed = torch.cat([each.double().flatten() for each in values])  # counts are below 2^53
        sums = all_reduce(packed, dist.ReduceOp.SUM, self.group).split([each.numel() for each in values])
        return [part.view(each.shape).to(each.dtype) for part, each in zip(sums, values, strict=True)]

    def largest(self, values: Tensor) -> Tensor:
        return all_reduce(values.contiguous(), dist.ReduceOp.MAX, self.group)

    def all_of(self, values: Tensor) -> Tensor:
        return all_gather_cat(values, self.group)

    def everywhere(self, holds: bool) -> bool:
        return all(all_gather_status(holds, self.group))

    def order(self, x: Tensor) -> Tensor:
        keys, digests = (self.all_of(part) for part in (content_keys(x, few_rows(x)), _digests(x)))
        order = keys.argsort(stable=True)
        tied = keys[order[1:]] == keys[order[:-1]]
        if (tied & (digests[order[1:]] != digests[order[:-1]])).any():
            whole = self.all_of(x)  # different rows have equal sums, as almost none do
            return argsort_by_content(whole, few_rows(whole))
        return order

    def rows_at(self, x: Tensor, places: Tensor) -> Tensor:
        here = (places >= self.own.start) & (places < self.own.stop)
        rows = torch.zeros(len(places), x.shape[1], dtype=torch.float64, device=x.device)
        rows[here] = x[places[here] - self.own.start].double()
        return self.totals(rows)[0]


def _digests(x: Tensor) -> Tensor:
    # x: (N, D)  ->  (N,) int64, different for different rows but by a chance of 2^-64
    random: Any = torch.Generator().manual_seed(0)
    bounds = torch.iinfo(torch.int64)
    keys = torch.randint(bounds.min, bounds.max, (x.shape[1],), generator=random, device="cpu").to(x.device)
    pieces = ((piece.double() + 0.0).view(torch.int64) for piece in x.split(few_rows(x)))  # -0 as 0
    return torch.cat([keys.new_empty(0), *(mix(bits + keys).sum(1) for bits in pieces)])
