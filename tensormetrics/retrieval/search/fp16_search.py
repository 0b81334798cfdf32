"""Search on a GPU: float16 products exclude most references, canonical distances order the others."""

import math
from types import ModuleType

import torch
from torch import Tensor

from .references import References
from .stages import SearchQueries, SearchStage

SAMPLE = 8192  # positions whose values limit those of the k nearest, if most blocks hold one of these
MAX_CAPACITY = 2**14  # of a list, which one program sorts


class Float16Search(SearchStage):
    """Search stage that lists the references whose float16 products are small enough, and sorts them.

    For small k, no value of a block is below its minimum minus the error bound, and at least k references are nearer
    than the k-th smallest minimum plus the bound. For larger k, a sample of the references yields a limit; at least k
    of the references below it have to be there with their bounds, else the query is not proven.
    """

    def __init__(
        self,
        k: int,
        references: References,
        memory: int,
        kernels: ModuleType,
        is_self_search: bool,
        is_repeated: bool = False,
    ) -> None:
        # is_self_search: query i is reference i
        # is_repeated: for queries whose list was too short or whose limit too low
        self.references, self.kernels, self.k, self.is_repeated = references, kernels, k, is_repeated
        self.filter = references.fp16_filter(kernels, memory)
        size, blocks = len(self.filter.rows), self.filter.right.shape[1]
        self.is_sampled, self.rank, self.step, self.capacity = self.plan(k, len(references), kernels.BLOCK, is_repeated)
        width = -(-size // self.step) if self.is_sampled else blocks
        row = 40 * self.capacity + 16 * k
        self.minima = None
        if is_self_search and self.filter.euclidean and not self.is_sampled and 4 * blocks * size <= memory // 2:
            self.minima = self.kernels.block_minima(self.filter.as_queries, self.filter.references, symmetric=True)
        else:
            row += 4 * width + 2 * self.filter.rows.shape[1] + 16
        self.rows = max(min(memory // 2 // row, 2**30 // max(self.capacity, width)), 1)  # offsets have 32 bits

    @staticmethod
    def plan(k: int, references: int, block: int, is_repeated: bool = False) -> tuple[bool, int, int, int]:
        """Return whether values are sampled, the rank that is the limit, the step of the sample, and the capacity."""
        count = k + 1  # because one of them may be the query itself
        if 2 * count * block <= references and not is_repeated:
            expected = int((1 - (1 - count * block / references) ** (1 / block)) * references)
            return False, count, 1, 1 << (expected + max(16, expected // 3)).bit_length()
        # Odd, because positions of similar rows are powers of two apart.
        step = -(-references // SAMPLE) | 1
        mean, left_out = count / step, 1 - 1 / step
        rank = (1 + is_repeated) * math.ceil(mean + 4.3 * math.sqrt(left_out * mean) + 3)
        expected = min(rank * step, references)
        deviation = step * math.sqrt(left_out * rank)
        return True, rank, step, 1 << int(expected + expected / 16 + 3 * deviation + 16).bit_length()

    @staticmethod
    def is_faster(k: int, references: int, kernels: ModuleType, is_repeated: bool = False) -> bool:
        return Float16Search.plan(k, references, kernels.BLOCK, is_repeated)[3] <= MAX_CAPACITY

    def can_handle(self, queries: SearchQueries) -> bool:
        return queries.ignored is None and (self.is_repeated or queries.span is not None)

    def search(self, queries: SearchQueries) -> tuple[Tensor, Tensor]:
        # ->  (Q, k) int64, -1 where fewer than k exist, (Q,) bool
        from .kernels import finish

        filter_, self_index, kernels = self.filter, queries.self_index, self.kernels
        references = filter_.references
        if self.minima is not None:
            fp16_queries, table, source = filter_.as_queries, self.minima, filter_.position[queries.span]
            is_bounded = fp16_queries.is_bounded[queries.span]
        else:
            fp16_queries = filter_.query(queries.rows)
            if self.is_sampled:
                table = kernels.sample(fp16_queries, references, self.step)
            else:
                table = kernels.block_minima(fp16_queries, references)
            source, is_bounded = torch.arange(len(self_index), device=self_index.device), fp16_queries.is_bounded
        lists = kernels.candidates(table, fp16_queries, source, references, self.rank, self.capacity, self.is_sampled)
        prepared = fp16_queries, source, references, self_index, is_bounded
        code = self.references.distance.code
        return finish.nearest(queries.rows, self.references.rows, lists, *prepared, self.k, code, self.is_sampled)
