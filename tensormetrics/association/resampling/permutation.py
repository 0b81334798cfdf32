"""p-values of permutation tests: exact by meeting in the middle, or from seeded random draws.

Both tests count subset sums of integers: the sums under the null hypothesis that reach a lower or an upper bound.
"""

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.arguments.checks import takes_arrays
from ...core.native import gpu_kernels
from ..sets import word_sets
from ..sets.word_ids import check_words, dense_word_indices, word_ids_by_index, word_means
from ..sets.word_sets import Vectors, WordSet
from .draws import extreme_draws, partitions_by_word, random_int64_of_words, random_partitions, random_signs
from .null_distribution import Alternative, Exact, Method, NullDistribution
from .random import Tails, stream
from .subset_sums import MAX_POSITIONS, extreme_subsets, number_of_subsets

AUTO_POSITIONS, MAX_PAIRS = 32, 40  # limit of positions for "auto", and of pairs for "exact"


@takes_arrays
def permutation_p_value(
    u: Vectors,
    v: Vectors,
    *,
    alternative: Alternative = "greater",
    method: Method = "auto",
    replicates: int = 10000,
    seed: int | None = 0,
) -> Tensor:
    """Compute the p-value of d = mean u - mean v under random partitions of the n + m scores.

    Shapes: u: (..., n) scores, a tensor or a `WordSet`; v: (..., m) -> (...) float64, in (0, 1].

    The fraction of the partitions into sizes n and m with d >= the observed one ("greater"), with d <= it ("less"), or
    with |d| >= its modulus ("two-sided"). "exact" counts all partitions, the observed one included, up to 50
    positions; "approximate" draws `replicates` of them: (1 + extreme) / (1 + replicates); "auto" is exact up to 32
    positions, padding included. Draws depend only on `seed` (None: fresh) and the sizes: queries of equal sizes share
    them. Scores are rounded to multiples of 2^-40, of 2^-40 times a power of two if any reaches 2 (coarser from 1,024
    scores on), so that ties count as ties. NaN for an empty set, NaN or infinite scores; no gradient. ValueError for
    other options and for "exact" with more than 50 positions. Phipson & Smyth 2010, doi:10.2202/1544-6115.1585.

    A word with several rows (templates, contexts), identified by `WordSet.words`, is one position with the mean of its
    rows (Winkler et al. 2015, doi:10.1016/j.neuroimage.2015.05.092).

    >>> permutation_p_value(torch.tensor([0.9, 0.8, 0.7]), torch.tensor([0.1, 0.3, 0.2]))  # 1 of 20 partitions
    tensor(0.0500, dtype=torch.float64)
    """
    return partition_null(u, v, seed).p_value(alternative, method, replicates)


@takes_arrays
def sign_flip_p_value(
    r: Vectors,
    *,
    alternative: Alternative = "greater",
    method: Method = "auto",
    replicates: int = 10000,
    seed: int | None = 0,
) -> Tensor:
    """Compute the p-value of the mean under random signs of the values; swapping a pair flips its sign.

    Shapes: r: (..., P), one value per pair, a tensor or a `WordSet` -> (...) float64, in (0, 1].

    The fraction of the 2^P sign patterns with a mean >= the observed one ("greater"), <= it ("less") or as far from 0
    ("two-sided"). "exact" counts all patterns, up to 40 pairs, and "auto" does so up to that limit. `WordSet.words`
    holds the pair id of each row if a pair has several rows; the pair has their mean. All else is as in
    `permutation_p_value`.

    >>> sign_flip_p_value(torch.tensor([0.4, 0.1, 0.3]))  # 1 of 8 patterns of signs
    tensor(0.1250, dtype=torch.float64)
    """
    return sign_null(r, seed).p_value(alternative, method, replicates)


def partition_null(u: Vectors, v: Vectors, seed: int | None = 0) -> NullDistribution:
    """Return differences of means under random partitions; arguments as in `permutation_p_value`."""
    (u, v), scores, valid_mask, batch_shape = _read(u=u, v=v)
    (units, grid, is_finite), n = _units(scores), u.values.shape[-1]
    is_ragged = u.mask is not None or v.mask is not None
    words = None
    if u.words is not None or v.words is not None:
        operands = (units[:, :n], valid_mask[:, :n], u.words), (units[:, n:], valid_mask[:, n:], v.words)
        first, second = (_merge_rows(*operand, batch_shape) for operand in operands)
        units, valid_mask, words = (torch.cat(pair, -1) for pair in zip(first, second, strict=True))
        n, is_ragged = first[0].shape[-1], True
    pool = _Pool(units, valid_mask, n, is_ragged, grid, batch_shape, stream(seed), words)
    n, size = pool.sizes
    is_valid = (is_finite & (n > 0) & (n < size)).view(batch_shape)
    exact = Exact(units.shape[-1], "positions", AUTO_POSITIONS, MAX_POSITIONS, pool.extreme_fraction)
    by_word = None if words is None else pool.draw_by_word
    cost = (2 if words is None else 4) * units.numel()
    return NullDistribution(is_valid, pool.score, pool.draw, cost, exact=exact, count=pool.count, draw_by_word=by_word)


def sign_null(r: Vectors, seed: int | None = 0) -> NullDistribution:
    """Return means of values with random signs; arguments as in `sign_flip_p_value`."""
    (r,), values, valid_mask, batch_shape = _read(r=r)
    (units, grid, is_finite), stream_offset, words = _units(values), stream(seed), None
    if r.words is not None:
        units, valid_mask, words = _merge_rows(units, valid_mask, r.words, batch_shape)
    num_pairs = valid_mask.sum(-1)
    pairs, total = units.shape[-1], units.sum(-1)

    @functools.cache
    def ordered() -> Tensor:
        return units if r.mask is None or r.words is not None else units.gather(-1, _valid_first(valid_mask))

    def scaled(sums: Tensor) -> Tensor:
        # sums: (B, R) float64
        return sums * (grid / num_pairs.unsqueeze(-1))

    def score() -> Tensor:
        return scaled(total.double().unsqueeze(-1)).view(batch_shape)

    def draw(start: int, rows: int) -> Tensor:
        signs = 1 - 2 * random_signs(stream_offset, pairs, start, rows, units.device)[0].double()
        return scaled(ordered().double() @ signs.mT).view(*batch_shape, rows)

    def draw_by_word(start: int, rows: int) -> Tensor:
        assert words is not None
        signs = 1 - 2 * (random_int64_of_words(stream_offset, words, start, rows) < 0).double()
        return scaled((signs @ units.double().unsqueeze(-1)).squeeze(-1)).view(*batch_shape, rows)

    def count(alternative: Alternative, replicates: int) -> Tensor:
        return extreme_draws(
            ordered(), None, None, _sign_tails(total, num_pairs, alternative), stream_offset, replicates
        )

    def fraction(alternative: Alternative) -> Tensor:  # a masked pair doubles both numbers
        extreme = extreme_subsets(units, valid_mask, None, None, _sign_tails(total, num_pairs, alternative))
        return extreme.clamp(max=2**pairs).double() / 2**pairs

    is_valid = is_finite & valid_mask.any(-1)
    exact = Exact(pairs, "pairs", MAX_PAIRS, MAX_PAIRS, fraction)
    by_word = None if words is None else draw_by_word
    return NullDistribution(
        is_valid.view(batch_shape), score, draw, units.numel(), exact=exact, count=count, draw_by_word=by_word
    )


@dataclass
class _Pool:
    """Words of two sets; the words of the first set are at the first `split` positions."""

    units: Tensor  # (B, N) int64
    valid_mask: Tensor  # (B, N) bool
    split: int
    is_ragged: bool  # whether words of some rows are not valid
    grid: Tensor  # (B, 1) float64, one unit
    batch_shape: torch.Size
    stream_offset: int
    words: Tensor | None = None  # (B, N) int64, the id of each word of each set

    @functools.cached_property
    def sizes(self) -> tuple[Tensor, Tensor]:
        # ->  (B,) int64 each, words of the first set and of both
        if not self.is_ragged:
            first, both = (self.units.new_full((len(self.units),), n) for n in (self.split, self.units.shape[-1]))
            return first, both
        return self.valid_mask[:, : self.split].sum(-1), self.valid_mask.sum(-1)

    def score(self) -> Tensor:
        # ->  (...)
        return self._differences(self.units[:, : self.split].sum(-1, keepdim=True).double()).squeeze(-1)

    def draw(self, start: int, rows: int) -> Tensor:
        # ->  (..., rows), from partitions that queries of equal sizes share
        sizes, group, units = self._by_size
        selected = random_partitions(self.stream_offset, sizes[:, 0], sizes[:, 1], units.shape[-1], start, rows)
        return self._of_partitions(selected, group, units)

    def draw_by_word(self, start: int, rows: int) -> Tensor:
        # ->  (..., rows), from partitions by word ids, which equal pools share
        words, valid_mask, n, group = self._by_words
        selected = partitions_by_word(self.stream_offset, words, valid_mask, n, start, rows)
        return self._of_partitions(selected, group, self.units.double())

    def count(self, alternative: Alternative, replicates: int) -> Tensor:
        # ->  (B,) int64
        units, (n, size) = self.units, self.sizes
        if self.is_ragged:
            units = units.gather(-1, _valid_first(self.valid_mask))
        else:  # all queries share their draws
            n, size = n[:1], size[:1]
        return extreme_draws(units, n, size, self._tails(alternative), self.stream_offset, replicates)

    def extreme_fraction(self, alternative: Alternative) -> Tensor:
        # ->  (B,) float64
        n, size = self.sizes
        partitions = number_of_subsets(size, n)
        extreme = extreme_subsets(self.units, self.valid_mask, n, size, self._tails(alternative))
        return extreme.minimum(partitions).double() / partitions  # overlapping tails count sums twice

    @functools.cached_property
    def _by_size(self) -> tuple[Tensor, Tensor, Tensor]:
        # ->  (G, 2), the distinct sizes  (B,), the index of each query's  (B, N), valid units first
        by_query = torch.stack(self.sizes, 1)
        sizes = by_query.unique(dim=0)
        group = (by_query[:, None] == sizes).all(-1).double().argmax(-1)
        return sizes, group, self.units.gather(-1, _valid_first(self.valid_mask)).double()

    @functools.cached_property
    def _by_words(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        # ->  (P, N), (P, N), (P,), of the distinct pools  (B,), the index of each query's
        assert self.words is not None
        positions = torch.arange(self.words.shape[-1], device=self.words.device).expand_as(self.words)
        words = word_ids_by_index(self.words, self.valid_mask, positions, positions.shape[-1])
        keys = torch.cat([words, self.valid_mask.long(), self.sizes[0].unsqueeze(-1)], -1)
        pools, group = keys.unique(dim=0, return_inverse=True)
        words, valid_mask, n = pools.split_with_sizes([positions.shape[-1], positions.shape[-1], 1], -1)
        return words, valid_mask > 0, n.squeeze(-1), group

    def _of_partitions(self, selected: Tensor, group: Tensor, units: Tensor) -> Tensor:
        # selected: (G, rows, N) bool  group: (B,)  units: (B, N) float64  ->  (..., rows)
        selected = selected.double()
        if len(selected) == 1:
            return self._differences(units @ selected[0].mT)
        return self._differences((selected[group] @ units.unsqueeze(-1)).squeeze(-1))

    def _differences(self, sums: Tensor) -> Tensor:
        # sums: (B, P) float64, over the words of the first set in each partition  ->  (..., P)
        """Return the differences of means; in units they are exact except for the divisions."""
        total = self.units.sum(-1, keepdim=True).double()
        n, size = (count.unsqueeze(-1) for count in self.sizes)
        return ((sums / n - (total - sums) / (size - n)) * self.grid).view(*self.batch_shape, sums.shape[-1])

    def _tails(self, alternative: Alternative) -> Tails:
        # Rounding moves a sum by less than `size` units, so sums that close are equal.
        n, size = self.sizes
        observed = self.units[:, : self.split].sum(-1)
        if alternative == "greater":
            return Tails(observed - size, None)
        if alternative == "less":
            return Tails(None, observed + size)
        # d = mean u - mean v is (size * sum - n * total) / (n * m): both tails in terms of the sum.
        size, expected = size.clamp(min=1), n * self.units.sum(-1)
        margin = (size * observed - expected).abs() - size * size
        return Tails(-((-expected - margin) // size), (expected - margin) // size)


def concatenate(sets: tuple[word_sets.Words, ...]) -> tuple[Tensor, Tensor]:
    # ->  (..., N, D), (..., N) bool, True for valid words
    vectors = [s.vectors for s in sets]
    weights = [] if all(s.counts is None for s in sets) else [s.weights for s in sets]
    batch_shapes = {torch.Size(), *(v.shape[:-2] for v in vectors), *(w.shape[:-1] for w in weights)}
    batch_shape = (
        max(batch_shapes, key=len) if len(batch_shapes) <= 2 else torch.broadcast_shapes(*batch_shapes)
    )  # which takes 10 us
    joined = torch.cat([v.expand(*batch_shape, *v.shape[-2:]) for v in vectors], -2)
    if not weights:
        return joined, torch.ones(joined.shape[:-1], dtype=torch.bool, device=joined.device)
    return joined, torch.cat([w.expand(*batch_shape, w.shape[-1]) for w in weights], -1) > 0


def _read(**vectors: Vectors) -> tuple[list[WordSet], Tensor, Tensor, torch.Size]:
    """Return sets of scores, all scores (B, N) with 0 for invalid ones, the valid mask (B, N), and the batch shape."""
    sets = {name: WordSet.of(word_set) for name, word_set in vectors.items()}
    for name, word_set in sets.items():
        checks.shape(name, word_set.values, "...", "N")
    columns = {name: WordSet(word_set.values.detach().unsqueeze(-1), word_set.mask) for name, word_set in sets.items()}
    scores, valid_mask = concatenate(word_sets.read(**columns))
    for name, word_set in sets.items():
        check_words(f"{name}.words", word_set.words, name, word_set.values)
    batch_shape, num_scores = valid_mask.shape[:-1], valid_mask.shape[-1]
    return (
        list(sets.values()),
        scores.reshape(batch_shape.numel(), num_scores),
        valid_mask.reshape(batch_shape.numel(), num_scores),
        batch_shape,
    )


def _merge_rows(
    units: Tensor, valid_mask: Tensor, words: Tensor | None, batch_shape: torch.Size
) -> tuple[Tensor, Tensor, Tensor]:
    # units, valid_mask: (B, N)  words: (..., N)  ->  (B, W) int64, bool, int64
    """Return the mean over the rows of each word, whether the word exists, and its id."""
    if words is None:
        return units, valid_mask, torch.arange(units.shape[-1], device=units.device).expand_as(units)
    words = words.expand(*batch_shape, -1).reshape(batch_shape.numel(), words.shape[-1])
    word_indices = dense_word_indices(valid_mask, words)
    units, has_word = word_means(units, valid_mask, word_indices)
    return units, has_word, word_ids_by_index(words, valid_mask, word_indices, units.shape[-1])


def _valid_first(valid_mask: Tensor) -> Tensor:
    # valid_mask: (..., N) bool  ->  (..., N) int64, an order in which padding comes last and takes no draws
    return (~valid_mask).byte().sort(dim=-1, stable=True).indices


def _units(scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    # scores: (B, N)  ->  (B, N) int64, (B, 1) float64, (B,) bool
    """Return the scores in units, the power of two that is one unit, and whether all scores of a row are finite.

    Units are at most 2^41 in modulus, so that sums of 50 and their multiples by 50 stay exact.
    """
    bits = min(40, 61 - 2 * scores.shape[-1].bit_length())  # coarser from 1,024 scores on, or N^2 would overflow
    if gpu_kernels.can_use("drawn sums", scores.device):
        from . import kernels

        return kernels.units(scores, bits)
    largest = torch.nn.functional.pad(scores.abs(), (1, 0), value=1).amax(-1, keepdim=True)
    grid = largest / largest.frexp().mantissa / 2.0 ** (bits + 1)  # 2^-bits for scores below 2
    return (scores / grid).nan_to_num(0).round().long(), grid, scores.isfinite().all(-1)


def _sign_tails(total: Tensor, pairs: Tensor, alternative: Alternative) -> Tails:
    # The mean falls by twice the sum of the flipped values; patterns within one unit per pair are equal.
    if alternative == "greater":
        return Tails(None, pairs // 2)
    if alternative == "less":
        return Tails(-(pairs // 2), None)
    margin = total.abs() - pairs
    return Tails(-((-total - margin) // 2), (total - margin) // 2)
