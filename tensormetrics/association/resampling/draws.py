"""Random partitions and signs, in pieces that memory bounds, and how many of them are extreme."""

import functools
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from ... import _gpu_kernels, _native
from ..._interruptible import interruptible
from ..._splitmix import random_bits_at
from .random import Tails, random_words

BUDGET = 2**22  # numbers held at a time
KERNEL_PLACES = 128  # so many may be added in the 32 bits of the kernels
NEVER = 2**63 - 1  # a random number that is never among the least
GPU_BUDGET = 2**26  # there small pieces would be spent on launches

# Arguments as in `extreme_draws`, whose native loop it is; units are float64 here, which adds integers exactly.
OPERATOR = _native.define(
    "extreme_draws(Tensor units, Tensor? n, Tensor? size, Tensor? low, Tensor? high, int begin, int iterations)"
    " -> Tensor",
    lambda units, *_: units.new_empty(len(units), dtype=torch.int64),
    _native.Operator("subsets", "permutation_p_value and sign_flip_p_value", 10),
)
_native_draws = interruptible(OPERATOR, lambda units, *rest: rest[-1] * units.shape[1] * (1 + units.shape[0] / 8))


def extreme_draws(
    units: Tensor, n: Tensor | None, size: Tensor | None, tails: Tails, begin: int, iterations: int
) -> Tensor:
    # units: (B, N) int64, whose sums stay below 2^53  n, size: (B,) or (1,), None for signs  ->  (B,) int64
    """Of the draws 0 ... iterations - 1 of the stream at `begin`, how many have a sum >= low or <= high?

    A draw takes n of the first `size` places, as `random_partitions` does, or what `random_signs` does.
    """
    units = units.double()
    if units.device.type == "cpu" and not _gpu_kernels.can_use("drawn sums", units.device):
        tensors = (None if each is None else each.contiguous() for each in (units, n, size, *tails))
        return _native_draws(*tensors, begin, iterations)
    return _extreme_draws(units, n, size, *tails, begin, iterations)


@_native.reference("extreme_draws")
def _extreme_draws(
    units: Tensor,
    n: Tensor | None,
    size: Tensor | None,
    low: Tensor | None,
    high: Tensor | None,
    begin: int,
    iterations: int,
) -> Tensor:
    (batch, places), device = units.shape, units.device
    groups = 1 if n is None else len(n)

    def draw(start: int, rows: int) -> Tensor:
        # ->  (G, rows, N) bool
        if n is None or size is None:
            return random_signs(begin, places, start, rows, device)
        return random_partitions(begin, n, size, places, start, rows)

    if groups == 1 and places <= KERNEL_PLACES and _gpu_kernels.can_use("drawn sums", device):
        from . import kernels

        pieces, whole = chunks(iterations, max(places, batch // 256), GPU_BUDGET), units.long()
        counts = (kernels.count_extreme(draw(*piece)[0], whole, Tails(low, high)) for piece in pieces)
        return sum(counts, torch.zeros(batch, dtype=torch.int64, device=device))
    each = batch // max(groups, 1)
    units = units.view(groups, each, places)
    bounds = [None if bound is None else bound.view(groups, 1, each) for bound in (low, high)]
    extreme = torch.zeros(groups, each, dtype=torch.int64, device=device)
    budget = BUDGET if device.type == "cpu" else GPU_BUDGET
    for start, rows in chunks(iterations, max(groups * places, batch), budget):
        sums = draw(start, rows).double() @ units.mT  # exact, whatever the order
        least, most = bounds
        tails = ([] if least is None else [sums >= least]) + ([] if most is None else [sums <= most])
        extreme += functools.reduce(torch.logical_or, tails).sum(1)
    return extreme.flatten()


def random_partitions(begin: int, n: Tensor, size: Tensor, places: int, start: int, rows: int) -> Tensor:
    # n, size: (G,)  ->  (G, rows, places) bool: n of the first `size` places, uniformly (but for 2^-32)
    """Partitions number `start` and following of the stream at `begin`.

    Each place in turn is chosen with the probability (still needed) / (still left), which needs no sorting: algorithm
    S of Knuth, The Art of Computer Programming 2, 3.4.2.
    """
    if _gpu_kernels.can_use("drawn sums", n.device):
        from . import kernels

        out = torch.empty(len(n), rows, places, dtype=torch.bool, device=n.device)
        return kernels.random_partitions(out, n, size, begin, start)
    words = random_words(begin, start, rows, (places + 1) // 2, n.device).T.contiguous()
    draws = words & (2**32 - 1), (words >> 32) & (2**32 - 1)  # two of 32 bits from each word
    left = (size - torch.arange(places, device=n.device).unsqueeze(-1)).clamp(min=0).unsqueeze(-1)  # (places, G, 1)
    needed = n.unsqueeze(-1).repeat(1, rows)
    chosen = torch.empty(places, len(n), rows, dtype=torch.bool, device=n.device)
    for place in range(places):
        torch.lt((draws[place % 2][place // 2] * left[place]) >> 32, needed, out=chosen[place])
        needed.add_(chosen[place], alpha=-1)
    return chosen.permute(1, 2, 0)


def random_signs(begin: int, pairs: int, start: int, rows: int, device: torch.device) -> Tensor:
    # ->  (1, rows, pairs) bool: which pairs are swapped
    if _gpu_kernels.can_use("drawn sums", device):
        from . import kernels

        return kernels.random_signs(torch.empty(1, rows, pairs, dtype=torch.bool, device=device), begin, start)
    return random_words(begin, start, rows, pairs, device).unsqueeze(0) < 0


def partitions_by_word(begin: int, words: Tensor, present: Tensor, n: Tensor, start: int, rows: int) -> Tensor:
    # words: (P, W) int64  present: (P, W) bool  n: (P,)  ->  (P, rows, W) bool: n of the present words
    """Return partitions in which a word has the same random number in every set: the n least ones are chosen.

    So partitions of sets that share words go together, in whichever order the words are listed.
    """
    if not words.shape[-1]:
        return present.unsqueeze(-2).expand(-1, rows, -1)
    distinct, index = words.unique(return_inverse=True)  # queries share words
    numbers = random_words_of(begin, distinct, start, rows)[:, index].masked_fill(~present, NEVER)  # (rows, P, W)
    last = (n - 1).clamp(min=0)[:, None].expand(rows, -1, 1)
    return (numbers <= _in_order(numbers).gather(-1, last)).transpose(0, 1)


def _in_order(numbers: Tensor) -> Tensor:
    if numbers.is_cpu:  # torch would also sort the indices, which takes eight times as long
        return torch.from_numpy(np.sort(numbers.numpy()))
    return numbers.sort(dim=-1).values


def random_words_of(begin: int, words: Tensor, start: int, rows: int) -> Tensor:
    # words: (..., W) int64  ->  (..., rows, W) int64, the random numbers of each word
    draw = torch.arange(start, start + rows, device=words.device).unsqueeze(-1)
    return random_bits_at(random_bits_at(begin, words).unsqueeze(-2), draw)


def chunks(iterations: int, cost: int, budget: int | None = None, least: int = 1) -> Iterator[tuple[int, int]]:
    """(start, rows) of the pieces in which `iterations` draws of `cost` numbers each stay within `budget` (BUDGET).

    Where one is larger than the budget, it has `least` draws.
    """
    rows = max(least, (budget or BUDGET) // max(cost, 1))
    for start in range(0, iterations, rows):
        yield start, min(rows, iterations - start)
