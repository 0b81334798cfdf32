"""p-values of permutation tests: exact by meeting in the middle, or from seeded random draws.

Both tests are one question about subset sums of integers: how many of the sums that the null hypothesis allows are
at least as large, or as small, as a bound?
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ... import _checks
from ..._checks import takes_arrays
from ..sets import word_sets
from ..sets.word_ids import check_words, numbers_by_place, word_means, word_places
from ..sets.word_sets import Vectors, WordSet
from .draws import extreme_draws, partitions_by_word, random_partitions, random_signs, random_words_of
from .null_distribution import Alternative, Exact, Method, NullDistribution
from .random import Tails, stream
from .subset_sums import MOST_PLACES, extreme_subsets, number_of_subsets

AUTO_PLACES, MOST_PAIRS = 32, 40  # "auto" is exact up to so many places, and "exact" works up to so many pairs


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
    """How often does a random partition of the n + m scores differ as much as (u, v) does? d = mean u - mean v.

    Shapes: u: (..., n) scores, a tensor or a `WordSet`; v: (..., m) -> (...) float64, in (0, 1].

    The share of the partitions into sizes n and m with d >= the observed one ("greater"), with d <= it
    ("less"), or with |d| >= its modulus ("two-sided"). "exact" counts them all, the observed one included, up to
    50 places; "approximate" draws `replicates` of them: (1 + extreme) / (1 + replicates); "auto" is exact up to 32
    places, padding included. Draws depend on `seed` (None: fresh) and the sizes alone: queries of equal sizes share
    them. Scores are rounded to multiples of 2^-40, of 2^-40 times a power of two if any reaches 2, so that ties count
    as ties. NaN for an empty side, NaN or infinite scores; no gradient. ValueError for other options and for "exact"
    beyond 50 places. Phipson & Smyth 2010, doi:10.2202/1544-6115.1585.

    A word may have several rows (templates, contexts), which `WordSet.words` numbers: it is one place, and counts by
    the mean of its rows (Winkler et al. 2015, doi:10.1016/j.neuroimage.2015.05.092).

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
    """How often is the mean of the values as extreme when every sign is thrown at random? Swapping a pair flips it.

    Shapes: r: (..., P), one value per pair, a tensor or a `WordSet` -> (...) float64, in (0, 1].

    The share of the 2^P sign patterns whose mean is >= the observed one ("greater"), <= it ("less") or as
    far from 0 ("two-sided"). "exact" counts them all, up to 40 pairs, and "auto" does so whenever it can;
    `WordSet.words` numbers the pair of each row where a pair has several rows: it counts by their mean; the rest as in
    `permutation_p_value`.

    >>> sign_flip_p_value(torch.tensor([0.4, 0.1, 0.3]))  # 1 of 8 patterns of signs
    tensor(0.1250, dtype=torch.float64)
    """
    return sign_null(r, seed).p_value(alternative, method, replicates)


def partition_null(u: Vectors, v: Vectors, seed: int | None = 0) -> NullDistribution:
    """Return differences of means under random partitions; arguments as in `permutation_p_value`."""
    (u, v), scores, present, lead = _read(u=u, v=v)
    grid, begin, n = _grid(scores), stream(seed), u.values.shape[-1]
    units, is_ragged = _units(scores, grid), u.mask is not None or v.mask is not None
    words = None
    if u.words is not None or v.words is not None:
        sides = (units[:, :n], present[:, :n], u.words), (units[:, n:], present[:, n:], v.words)
        first, second = (_of_words(*side, lead) for side in sides)
        units, present, words = (torch.cat(pair, -1) for pair in zip(first, second, strict=True))
        n, is_ragged = first[0].shape[-1], True
    pool = _Pool(units, present, n, words)
    count = functools.partial(_count_draws, pool, is_ragged, begin)
    n, size = pool.sizes
    is_valid = scores.isfinite().all(-1) & (n > 0) & (n < size)
    draw_units, draw_units_by_word = _draw_of(pool, begin), _draw_by_word_of(pool, begin)

    def score() -> Tensor:
        return (pool.observed() * grid).view(lead)

    def draw(start: int, rows: int) -> Tensor:
        return (draw_units(start, rows) * grid).view(*lead, rows)

    def draw_by_word(start: int, rows: int) -> Tensor:
        return (draw_units_by_word(start, rows) * grid).view(*lead, rows)

    exact = Exact(units.shape[-1], "places", AUTO_PLACES, MOST_PLACES, functools.partial(_share_of_partitions, pool))
    own = None if words is None else draw_by_word
    cost = (2 if words is None else 4) * units.numel()
    return NullDistribution(is_valid.view(lead), score, draw, cost, exact=exact, count=count, draw_by_word=own)


def sign_null(r: Vectors, seed: int | None = 0) -> NullDistribution:
    """Return means of values with random signs; arguments as in `sign_flip_p_value`."""
    (r,), values, present, lead = _read(r=r)
    grid, begin = _grid(values), stream(seed)
    units, words = _units(values, grid), None
    if r.words is not None:
        units, present, words = _of_words(units, present, r.words, lead)
    num_pairs = present.sum(-1)
    pairs, total = units.shape[-1], units.sum(-1)

    @functools.cache
    def ordered() -> Tensor:
        return units if r.mask is None or r.words is not None else units.gather(-1, _present_first(present))

    def scaled(sums: Tensor) -> Tensor:
        # sums: (B, R) float64
        return sums * (grid / num_pairs.unsqueeze(-1))

    def score() -> Tensor:
        return scaled(total.double().unsqueeze(-1)).view(lead)

    def draw(start: int, rows: int) -> Tensor:
        signs = 1 - 2 * random_signs(begin, pairs, start, rows, units.device)[0].double()
        return scaled(ordered().double() @ signs.mT).view(*lead, rows)

    def draw_by_word(start: int, rows: int) -> Tensor:
        assert words is not None
        signs = 1 - 2 * (random_words_of(begin, words, start, rows) < 0).double()
        return scaled((signs @ units.double().unsqueeze(-1)).squeeze(-1)).view(*lead, rows)

    def count(alternative: Alternative, replicates: int) -> Tensor:
        return extreme_draws(ordered(), None, None, _sign_tails(total, num_pairs, alternative), begin, replicates)

    def share(alternative: Alternative) -> Tensor:  # an absent pair doubles the patterns and the extreme ones alike
        extreme = extreme_subsets(units, present, None, None, _sign_tails(total, num_pairs, alternative))
        return extreme.clamp(max=2**pairs).double() / 2**pairs

    is_valid = values.isfinite().all(-1) & present.any(-1)
    exact = Exact(pairs, "pairs", MOST_PAIRS, MOST_PAIRS, share)
    own = None if words is None else draw_by_word
    return NullDistribution(is_valid.view(lead), score, draw, units.numel(), exact=exact, count=count, draw_by_word=own)


@dataclass
class _Pool:
    """The words of two sets, those of the first at the first `split` positions."""

    units: Tensor  # (B, N) int64
    present: Tensor  # (B, N) bool
    split: int
    words: Tensor | None = None  # (B, N) int64, the number of each word of each side

    @functools.cached_property
    def sizes(self) -> tuple[Tensor, Tensor]:
        # ->  (B,) int64 each, words of the first set and of both
        return self.present[:, : self.split].sum(-1), self.present.sum(-1)

    def observed(self) -> Tensor:
        # ->  (B, 1)
        return self.difference(self.units[:, : self.split].sum(-1, keepdim=True).double())

    def difference(self, sums: Tensor) -> Tensor:
        # sums: (B, P) float64, of the words that are in the first set in each partition  ->  (B, P)
        """Return the differences of means in units, exact but for the divisions."""
        total = self.units.sum(-1, keepdim=True).double()
        n, size = (count.unsqueeze(-1) for count in self.sizes)
        return sums / n - (total - sums) / (size - n)


def _share_of_partitions(pool: _Pool, alternative: Alternative) -> Tensor:
    n, size = pool.sizes
    partitions = number_of_subsets(size, n)
    extreme = extreme_subsets(pool.units, pool.present, n, size, _partition_tails(pool, alternative))
    return extreme.minimum(partitions).double() / partitions  # tails that meet count what lies between them twice


def _draw_of(pool: _Pool, begin: int) -> Callable[[int, int], Tensor]:
    """Return the function that draws differences in units; queries of equal sizes share their partitions."""

    @functools.cache
    def prepared() -> tuple[Tensor, Tensor, Tensor]:
        by_query = torch.stack(pool.sizes, 1)
        sizes = by_query.unique(dim=0)
        group = (by_query[:, None] == sizes).all(-1).double().argmax(-1)
        order = _present_first(pool.present)
        return sizes, group, pool.units.gather(-1, order).double()

    def draw(start: int, rows: int) -> Tensor:
        # ->  (B, rows)
        sizes, group, units = prepared()
        chosen = random_partitions(begin, sizes[:, 0], sizes[:, 1], units.shape[-1], start, rows).double()
        if len(chosen) == 1:
            return pool.difference(units @ chosen[0].mT)
        return pool.difference((chosen[group] @ units.unsqueeze(-1)).squeeze(-1))

    return draw


def _draw_by_word_of(pool: _Pool, begin: int) -> Callable[[int, int], Tensor]:
    """Return the function that draws differences in units by the numbers of words; equal pools are drawn once."""

    @functools.cache
    def prepared() -> tuple[Tensor, Tensor, Tensor, Tensor]:
        assert pool.words is not None
        own = torch.arange(pool.words.shape[-1], device=pool.words.device).expand_as(pool.words)
        words = numbers_by_place(pool.words, pool.present, own, own.shape[-1])
        keys = torch.cat([words, pool.present.long(), pool.sizes[0].unsqueeze(-1)], -1)
        pools, group = keys.unique(dim=0, return_inverse=True)
        words, present, n = pools.split_with_sizes([own.shape[-1], own.shape[-1], 1], -1)
        return words, present > 0, n.squeeze(-1), group

    def draw(start: int, rows: int) -> Tensor:
        # ->  (B, rows)
        words, present, n, group = prepared()
        chosen = partitions_by_word(begin, words, present, n, start, rows).double()
        units = pool.units.double()
        if len(chosen) == 1:
            return pool.difference(units @ chosen[0].mT)
        return pool.difference((chosen[group] @ units.unsqueeze(-1)).squeeze(-1))

    return draw


def _count_draws(pool: _Pool, is_ragged: bool, begin: int, alternative: Alternative, replicates: int) -> Tensor:
    # ->  (B,) int64
    sums, tails = pool.units, _partition_tails(pool, alternative)
    if is_ragged:
        n, size = pool.sizes
        sums = sums.gather(-1, _present_first(pool.present))
    else:  # all queries share their draws
        n, size = (sums.new_full((1,), number) for number in (pool.split, sums.shape[-1]))
    return extreme_draws(sums, n, size, tails, begin, replicates)


def joined(sets: tuple[word_sets.Words, ...]) -> tuple[Tensor, Tensor]:
    # ->  (..., N, D), (..., N) bool: which of them are present
    pairs = [(s.vectors, s.weights) for s in sets]
    leads = {torch.Size(), *(shape for v, w in pairs for shape in (v.shape[:-2], w.shape[:-1]))}
    lead = max(leads, key=len) if len(leads) <= 2 else torch.broadcast_shapes(*leads)  # which takes 10 us
    vectors = torch.cat([vectors.expand(*lead, *vectors.shape[-2:]) for vectors, _ in pairs], -2)
    return vectors, torch.cat([weights.expand(*lead, weights.shape[-1]) for _, weights in pairs], -1) > 0


def _read(**given: Vectors) -> tuple[list[WordSet], Tensor, Tensor, torch.Size]:
    """Return sets of scores, all scores as (B, N) with 0 where none is, which are present (B, N), and B's shape."""
    sets = {name: WordSet.of(each) for name, each in given.items()}
    for name, each in sets.items():
        _checks.tensor(name, each.values)
    columns = {name: WordSet(each.values.detach().unsqueeze(-1), each.mask) for name, each in sets.items()}
    scores, present = joined(word_sets.read(**columns))
    for name, each in sets.items():
        check_words(f"{name}.words", each.words, name, each.values)
    lead, places = present.shape[:-1], present.shape[-1]
    return list(sets.values()), scores.reshape(lead.numel(), places), present.reshape(lead.numel(), places), lead


def _of_words(units: Tensor, present: Tensor, words: Tensor | None, lead: torch.Size) -> tuple[Tensor, Tensor, Tensor]:
    # units, present: (B, N)  words: (..., N)  ->  (B, W) int64, bool, int64: of each word the mean over its rows,
    # whether it is there, and its number
    if words is None:
        return units, present, torch.arange(units.shape[-1], device=units.device).expand_as(units)
    words = words.expand(*lead, -1).reshape(lead.numel(), words.shape[-1])
    places = word_places(present, words)
    units, of_words = word_means(units, present, places)
    return units, of_words, numbers_by_place(words, present, places, units.shape[-1])


def _present_first(present: Tensor) -> Tensor:
    # present: (..., N) bool  ->  (..., N) int64, in this order padding takes no draws
    return (~present).byte().sort(dim=-1, stable=True).indices


def _units(scores: Tensor, grid: Tensor) -> Tensor:
    # scores: (B, N)  grid: (B, 1)  ->  (B, N) int64
    # At most 2^41 in modulus: sums of 50 and their multiples by 50 stay exact.
    return (scores / grid).nan_to_num(0).round().long()


def _grid(scores: Tensor) -> Tensor:
    # scores: (B, N)  ->  (B, 1), the power of two that is one unit
    largest = torch.nn.functional.pad(scores.abs(), (1, 0), value=1).amax(-1, keepdim=True)
    scale = largest / largest.frexp().mantissa / 2  # a power of two, 1 for scores below 2
    bits = min(40, 61 - 2 * scores.shape[-1].bit_length())  # coarser from 1,024 places on, or places^2 would overflow
    return scale / 2.0**bits


def _partition_tails(pool: _Pool, alternative: Alternative) -> Tails:
    # Rounding moves a sum by less than `size` units, so sums that close are equal.
    n, size = pool.sizes
    observed = pool.units[:, : pool.split].sum(-1)
    if alternative == "greater":
        return Tails(observed - size, None)
    if alternative == "less":
        return Tails(None, observed + size)
    # d = mean u - mean v is (size * sum - n * total) / (n * m): both tails in terms of the sum.
    size, expected = size.clamp(min=1), n * pool.units.sum(-1)
    margin = (size * observed - expected).abs() - size * size
    return Tails(-((-expected - margin) // size), (expected - margin) // size)


def _sign_tails(total: Tensor, pairs: Tensor, alternative: Alternative) -> Tails:
    # The mean falls by twice the sum of the flipped values; patterns within one unit per pair are equal.
    if alternative == "greater":
        return Tails(None, pairs // 2)
    if alternative == "less":
        return Tails(-(pairs // 2), None)
    margin = total.abs() - pairs
    return Tails(-((-total - margin) // 2), (total - margin) // 2)
