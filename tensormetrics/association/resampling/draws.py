"""Random partitions and signs, drawn in chunks of bounded memory, and counts of the extreme ones."""

import functools
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from ...core.native import gpu_kernels, native
from ...core.native.interruptible import interruptible
from ...core.numbers.splitmix import random_bits_at
from .random import Tails, random_int64

BUDGET = 2**22  # numbers held at a time
KERNEL_POSITIONS = 128  # largest number of units whose sum fits in the 32 bits of the kernels
NEVER = 2**63 - 1  # random bits that are never among the smallest
GPU_BUDGET = 2**26  # small chunks would be dominated by the cost of launches

# The native loop of `extreme_draws`, with the same arguments. Units are float64, which adds integers exactly.
OPERATOR = native.define(
    "extreme_draws(Tensor units, Tensor? n, Tensor? size, Tensor? low, Tensor? high, int begin, int iterations)"
    " -> Tensor",
    lambda units, *_: units.new_empty(len(units), dtype=torch.int64),
    native.Operator("subsets", "permutation_p_value and sign_flip_p_value", 10),
)
_native_draws = interruptible(OPERATOR, lambda units, *rest: rest[-1] * units.shape[1] * (1 + units.shape[0] / 8))


def extreme_draws(
    units: Tensor, n: Tensor | None, size: Tensor | None, tails: Tails, stream_offset: int, iterations: int
) -> Tensor:
    # units: (B, N) int64, whose sums stay below 2^53  n, size: (B,) or (1,), None for signs  ->  (B,) int64
    """Count the draws 0 ... iterations - 1 of the stream at `stream_offset` that have a sum >= low or <= high.

    A draw selects n of the first `size` positions as in `random_partitions`, or is one of `random_signs`.
    """
    if units.device.type == "cpu" and not gpu_kernels.can_use("drawn sums", units.device):
        tensors = (None if tensor is None else tensor.contiguous() for tensor in (units.double(), n, size, *tails))
        return _native_draws(*tensors, stream_offset, iterations)
    return _extreme_draws(units, n, size, *tails, stream_offset, iterations)


@native.reference("extreme_draws")
def _extreme_draws(
    units: Tensor,
    n: Tensor | None,
    size: Tensor | None,
    low: Tensor | None,
    high: Tensor | None,
    stream_offset: int,
    iterations: int,
) -> Tensor:
    (batch, num_positions), device = units.shape, units.device
    groups = 1 if n is None else len(n)

    def draw(start: int, rows: int) -> Tensor:
        # ->  (G, rows, N) bool
        if n is None or size is None:
            return random_signs(stream_offset, num_positions, start, rows, device)
        return random_partitions(stream_offset, n, size, num_positions, start, rows)

    if groups == 1 and num_positions <= KERNEL_POSITIONS and gpu_kernels.can_use("drawn sums", device):
        from . import kernels

        ranges = chunks(iterations, max(num_positions, batch // 256), GPU_BUDGET)
        counts = (kernels.count_extreme(draw(*row_range)[0], units.long(), Tails(low, high)) for row_range in ranges)
        return functools.reduce(torch.add, counts)
    group_size = batch // max(groups, 1)
    units = units.double().view(groups, group_size, num_positions)
    bounds = [None if bound is None else bound.view(groups, 1, group_size) for bound in (low, high)]
    extreme = torch.zeros(groups, group_size, dtype=torch.int64, device=device)
    budget = BUDGET if device.type == "cpu" else GPU_BUDGET
    for start, rows in chunks(iterations, max(groups * num_positions, batch), budget):
        sums = draw(start, rows).double() @ units.mT  # exact, whatever the order
        lower, upper = bounds
        tails = ([] if lower is None else [sums >= lower]) + ([] if upper is None else [sums <= upper])
        extreme += functools.reduce(torch.logical_or, tails).sum(1)
    return extreme.flatten()


def random_partitions(stream_offset: int, n: Tensor, size: Tensor, num_positions: int, start: int, rows: int) -> Tensor:
    # n, size: (G,)  ->  (G, rows, num_positions) bool: n of the first `size` positions, uniform up to 2^-32
    """Draw the partitions `start`, `start + 1`, ... of the stream at `stream_offset`.

    Each position in turn is selected with the probability needed / remaining, which requires no sorting (algorithm S of
    Knuth, The Art of Computer Programming 2, 3.4.2).
    """
    if gpu_kernels.can_use("drawn sums", n.device):
        from . import kernels

        out = torch.empty(len(n), rows, num_positions, dtype=torch.bool, device=n.device)
        return kernels.random_partitions(out, n, size, stream_offset, start)
    random_bits = random_int64(stream_offset, start, rows, (num_positions + 1) // 2, n.device).T.contiguous()
    draws = random_bits & (2**32 - 1), (random_bits >> 32) & (2**32 - 1)  # two draws of 32 bits from each integer
    # (num_positions, G, 1)
    remaining = (size - torch.arange(num_positions, device=n.device).unsqueeze(-1)).clamp(min=0).unsqueeze(-1)
    needed = n.unsqueeze(-1).repeat(1, rows)
    selected = torch.empty(num_positions, len(n), rows, dtype=torch.bool, device=n.device)
    for position in range(num_positions):
        torch.lt((draws[position % 2][position // 2] * remaining[position]) >> 32, needed, out=selected[position])
        needed.add_(selected[position], alpha=-1)
    return selected.permute(1, 2, 0)


def random_signs(stream_offset: int, pairs: int, start: int, rows: int, device: torch.device) -> Tensor:
    # ->  (1, rows, pairs) bool, True for swapped pairs
    if gpu_kernels.can_use("drawn sums", device):
        from . import kernels

        return kernels.random_signs(torch.empty(1, rows, pairs, dtype=torch.bool, device=device), stream_offset, start)
    return random_int64(stream_offset, start, rows, pairs, device).unsqueeze(0) < 0


def partitions_by_word(
    stream_offset: int, words: Tensor, valid_mask: Tensor, n: Tensor, start: int, rows: int
) -> Tensor:
    # words: (P, W) int64  valid_mask: (P, W) bool  n: (P,)  ->  (P, rows, W) bool: n of the valid words
    """Draw partitions in which a word has the same random bits in every set; the n smallest are selected.

    Partitions of sets with common words are therefore correlated, whatever the order of the words.
    """
    if not words.shape[-1]:
        return valid_mask.unsqueeze(-2).expand(-1, rows, -1)
    distinct, index = words.unique(return_inverse=True)  # queries share words
    # (rows, P, W)
    random_bits = random_int64_of_words(stream_offset, distinct, start, rows)[:, index].masked_fill(~valid_mask, NEVER)
    last = (n - 1).clamp(min=0)[:, None].expand(rows, -1, 1)
    return (random_bits <= _sort(random_bits).gather(-1, last)).transpose(0, 1)


def _sort(values: Tensor) -> Tensor:
    if values.is_cpu:  # torch also sorts the indices, which takes eight times as long
        return torch.from_numpy(np.sort(values.numpy()))
    return values.sort(dim=-1).values


def random_int64_of_words(stream_offset: int, words: Tensor, start: int, rows: int) -> Tensor:
    # words: (..., W) int64  ->  (..., rows, W) int64, the random bits of each word
    draw = torch.arange(start, start + rows, device=words.device).unsqueeze(-1)
    return random_bits_at(random_bits_at(stream_offset, words).unsqueeze(-2), draw)


def chunks(iterations: int, cost: int, budget: int | None = None, min_rows: int = 1) -> Iterator[tuple[int, int]]:
    """Yield (start, rows) of chunks in which `iterations` draws of `cost` numbers each stay within `budget` (BUDGET).

    A chunk has at least `min_rows` draws, even if they exceed the budget.
    """
    rows = max(min_rows, (budget or BUDGET) // max(cost, 1))
    for start in range(0, iterations, rows):
        yield start, min(rows, iterations - start)
