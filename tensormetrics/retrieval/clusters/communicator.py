"""Collective operations over the rows to cluster, of one process or of several.

Sums are of multiples of one power of two, so that they are exact and independent of the order: results have the same
bits for any number of processes and any split of the rows.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from ...core.metric.distributed import all_gather_cat, all_gather_status, all_reduce
from ...core.numbers.splitmix import mix
from ..deterministic import argsort_by_content, content_keys, rows_per_chunk
from ..inputs import ShardLayout


class Communicator:
    """Collective operations over the rows of all processes; of this class, over those of a single process."""

    local_rows = slice(None)  # rows of this process among all rows

    def num_rows(self, x: Tensor) -> int:
        """Return the number of rows of all processes."""
        return len(x)

    def all_reduce_sum(self, *values: Tensor) -> Sequence[Tensor]:
        """Return the sums over processes."""
        return values

    def all_reduce_max(self, values: Tensor) -> Tensor:
        """Return the maxima over processes."""
        return values

    def all_gather(self, values: Tensor) -> Tensor:
        # values: (n, ...), for the local rows  ->  (N, ...)
        """Return the values for all rows, on every process."""
        return values

    def all_true(self, holds: bool) -> bool:
        """Return whether a condition holds on all processes."""
        return holds

    def content_order(self, x: Tensor) -> Tensor:
        # ->  (N,) int64
        """Return the indices that sort all rows by their content."""
        return argsort_by_content(x, rows_per_chunk(x))

    def gather_rows(self, x: Tensor, indices: Tensor) -> Tensor:
        # indices: (n,) int64 among all rows  ->  (n, D)
        """Return the rows at these indices, on every process."""
        return x[indices]


LOCAL = Communicator()


class GroupCommunicator(Communicator):
    """Communicator of several processes, each with a contiguous block of rows, in the order of ranks."""

    def __init__(self, layout: ShardLayout) -> None:
        self.sizes, self.group, self.local_rows = layout.query, layout.group, layout.local(layout.query)

    def num_rows(self, x: Tensor) -> int:
        return sum(self.sizes)

    def all_reduce_sum(self, *values: Tensor) -> Sequence[Tensor]:
        packed = torch.cat([value.double().flatten() for value in values])  # counts are below 2^53
        sums = all_reduce(packed, dist.ReduceOp.SUM, self.group).split([value.numel() for value in values])
        return [part.view(value.shape).to(value.dtype) for part, value in zip(sums, values, strict=True)]

    def all_reduce_max(self, values: Tensor) -> Tensor:
        return all_reduce(values.contiguous(), dist.ReduceOp.MAX, self.group)

    def all_gather(self, values: Tensor) -> Tensor:
        return all_gather_cat(values, self.group)

    def all_true(self, holds: bool) -> bool:
        return all(all_gather_status(holds, self.group))

    def content_order(self, x: Tensor) -> Tensor:
        keys, digests = (self.all_gather(part) for part in (content_keys(x, rows_per_chunk(x)), _digests(x)))
        order = keys.argsort(stable=True)
        tied = keys[order[1:]] == keys[order[:-1]]
        if (tied & (digests[order[1:]] != digests[order[:-1]])).any():
            rows = self.all_gather(x)  # rare: different rows have equal sums
            return argsort_by_content(rows, rows_per_chunk(rows))
        return order

    def gather_rows(self, x: Tensor, indices: Tensor) -> Tensor:
        is_local = (indices >= self.local_rows.start) & (indices < self.local_rows.stop)
        rows = torch.zeros(len(indices), x.shape[1], dtype=torch.float64, device=x.device)
        rows[is_local] = x[indices[is_local] - self.local_rows.start].double()
        return self.all_reduce_sum(rows)[0]


def _digests(x: Tensor) -> Tensor:
    # x: (N, D)  ->  (N,) int64, equal for different rows with a probability of 2^-64
    random: Any = torch.Generator().manual_seed(0)
    bounds = torch.iinfo(torch.int64)
    keys = torch.randint(bounds.min, bounds.max, (x.shape[1],), generator=random, device="cpu").to(x.device)
    chunk_bits = ((chunk.double() + 0.0).view(torch.int64) for chunk in x.split(rows_per_chunk(x)))  # -0 as 0
    return torch.cat([keys.new_empty(0), *(mix(bits + keys).sum(1) for bits in chunk_bits)])
