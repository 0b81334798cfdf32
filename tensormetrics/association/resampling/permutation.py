"""p-values of permutation tests: exact by meeting in the middle, or from seeded random draws.

Both tests are one question about subset sums of integers: how many of the sums that the null hypothesis allows are
at least as large, or as small, as a bound?
"""

from typing import Literal, TypedDict, get_args

import torch
from torch import Tensor

from ... import _checks
from ..._checks import takes_arrays
from ..sets import word_sets
from ..sets.word_ids import check_words, word_sums
from .draws import BUDGET, chunks, extreme_draws, random_partitions
from .random import Null, stream
from .subset_sums import MOST_PLACES, extreme_subsets, number_of_subsets, subset_sums

Alternative = Literal["two-sided", "greater", "less"]
TestType = Literal["right-sided", "left-sided", "two-sided"]
Method = Literal["auto", "exact", "approximate"]
ALTERNATIVES: tuple[Alternative, ...] = get_args(Alternative)
TEST_TYPES: dict[TestType, Alternative] = {  # as WEFE calls them
    "right-sided": "greater",
    "left-sided": "less",
    "two-sided": "two-sided",
}
METHODS: tuple[Method, ...] = get_args(Method)
AUTO_PLACES, MOST_PAIRS = 32, 40  # "auto" is exact up to so many places, and "exact" works up to so many pairs
MOST_UNEQUAL = 20  # words, if their numbers of rows differ: then each partition is scored by itself


class Test(TypedDict):
    """The options of a permutation test."""

    alternative: Alternative
    method: Method
    replicates: int
    seed: int | None


@takes_arrays
def permutation_p_value(
    u: Tensor,
    v: Tensor,
    *,
    alternative: Alternative = "greater",
    method: Method = "auto",
    replicates: int = 10000,
    seed: int | None = 0,
    u_mask: Tensor | None = None,
    v_mask: Tensor | None = None,
    u_words: Tensor | None = None,
    v_words: Tensor | None = None,
) -> Tensor:
    """How often does a random partition of the n + m scores differ as much as (u, v) does? d = mean u - mean v.

    Shapes: u: (..., n) scores; v: (..., m); masks, u_words: (..., n); v_words: (..., m) -> (...) float64, in (0, 1].

    The share of the partitions into sizes n and m with d >= the observed one ("greater"), with d <= it
    ("less"), or with |d| >= its modulus ("two-sided"). "exact" counts them all, the observed one included, up to
    50 places; "approximate" draws `replicates` of them: (1 + extreme) / (1 + replicates); "auto" is exact up to 32
    places, padding included. Draws depend on `seed` (None: fresh) and the sizes alone: queries of equal sizes share
    them. Scores are rounded to multiples of 2^-40, of 2^-40 times a power of two if any reaches 2, so that ties count
    as ties. NaN for an empty side, NaN or infinite scores; no gradient. ValueError for other options and for "exact"
    beyond 50 places. Phipson & Smyth 2010, doi:10.2202/1544-6115.1585.

    A word may have several rows (templates, contexts): `u_words`, `v_words` number each row's word, and a word moves
    with all its rows, as one place (Winkler et al. 2015, doi:10.1016/j.neuroimage.2015.05.092). d stays the difference
    of the means of rows. Where numbers of rows differ, "exact" and "auto" count up to 20 words.

    >>> permutation_p_value(torch.tensor([0.9, 0.8, 0.7]), torch.tensor([0.1, 0.3, 0.2]))  # 1 of 20 partitions
    tensor(0.0500, dtype=torch.float64)
    """
    scores, present, lead = _read(u=(u, u_mask), v=(v, v_mask))
    if u_words is not None or v_words is not None:
        check_words("u_words", u_words, "u", u)
        check_words("v_words", v_words, "v", v)
        test = (alternative, method, replicates, seed)
        share = _share_of_words(scores, present, lead, (u, u_words), (v, v_words), *test)
        return share.where(scores.isfinite().all(-1), torch.nan).reshape(lead)
    places = scores.shape[-1]
    exact = is_exact(alternative, method, replicates, places, AUTO_PLACES, MOST_PLACES, "places")
    size, n = present.sum(-1), present[:, : u.shape[-1]].sum(-1)
    usable = scores.isfinite().all(-1) & (n > 0) & (n < size)
    units = _units(scores)
    observed, total = units[:, : u.shape[-1]].sum(-1), units.sum(-1)
    null = _partition_null(observed, total, n, size, alternative)
    if exact:
        partitions = number_of_subsets(size, n)
        extreme = extreme_subsets(units, present, n, size, null)
        share = extreme.minimum(partitions).double() / partitions  # tails that meet count what lies between them twice
    else:
        if u_mask is None and v_mask is None:  # all queries share their draws
            n, size = n.new_full((1,), u.shape[-1]), n.new_full((1,), places)
        else:
            units = units.gather(-1, present_first(present))
        share = _share_of_draws(extreme_draws(units, n, size, null, stream(seed), replicates), replicates)
    return share.where(usable, torch.nan).reshape(lead)


@takes_arrays
def sign_flip_p_value(
    r: Tensor,
    *,
    alternative: Alternative = "greater",
    method: Method = "auto",
    replicates: int = 10000,
    seed: int | None = 0,
    mask: Tensor | None = None,
    words: Tensor | None = None,
) -> Tensor:
    """How often is the mean of the values as extreme when every sign is thrown at random? Swapping a pair flips it.

    Shapes: r: (..., P), one value per pair; mask, words: (..., P) -> (...) float64, in (0, 1].

    The share of the 2^P sign patterns whose mean is >= the observed one ("greater"), <= it ("less") or as
    far from 0 ("two-sided"). "exact" counts them all, up to 40 pairs, and "auto" does so whenever it can; `words`
    numbers the pair of each row where a pair has several rows, which then flip together; the rest as in
    `permutation_p_value`.

    >>> sign_flip_p_value(torch.tensor([0.4, 0.1, 0.3]))  # 1 of 8 patterns of signs
    tensor(0.1250, dtype=torch.float64)
    """
    values, present, lead = _read(r=(r, mask))
    if words is not None:
        check_words("words", words, "r", r)
        sums, rows = word_sums(_units(values), present, words.expand(*lead, -1).reshape(values.shape))
        options: Test = {"alternative": alternative, "method": method, "replicates": replicates, "seed": seed}
        share = sign_flip_p_value(sums * _grid(values), mask=_unless_all(rows > 0), **options)
        return share.where(values.isfinite().all(-1), torch.nan).reshape(lead)
    pairs = values.shape[-1]
    exact = is_exact(alternative, method, replicates, pairs, MOST_PAIRS, MOST_PAIRS, "pairs")
    usable = values.isfinite().all(-1) & present.any(-1)
    units = _units(values)
    null = _sign_null(units.sum(-1), present.sum(-1), alternative)
    if exact:  # an absent pair doubles the patterns and the extreme ones alike
        share = extreme_subsets(units, present, None, None, null).clamp(max=2**pairs).double() / 2**pairs
    else:
        units = units if mask is None else units.gather(-1, present_first(present))
        share = _share_of_draws(extreme_draws(units, None, None, null, stream(seed), replicates), replicates)
    return share.where(usable, torch.nan).reshape(lead)


def is_exact(
    alternative: Alternative, method: Method, replicates: int, got: int, auto: int, most: int, unit: str
) -> bool:
    _checks.one_of("alternative", alternative, ALTERNATIVES)
    _checks.one_of("method", method, METHODS)
    _checks.integer_at_least("replicates", replicates, 1)
    if method == "exact" and got > most:
        raise ValueError(f"method: got 'exact' with {got} {unit}, wanted at most {most}; write method='approximate'")
    return method == "exact" or (method == "auto" and got <= auto)


def joined(sets: tuple[word_sets.Words, ...]) -> tuple[Tensor, Tensor]:
    # ->  (..., N, D), (..., N) bool: which of them are present
    lead = torch.broadcast_shapes(*(shape.shape[:-1] for s in sets for shape in (s.vectors[..., 0], s.weights)))
    words = torch.cat([s.vectors.expand(*lead, *s.vectors.shape[-2:]) for s in sets], -2)
    return words, torch.cat([s.weights.expand(*lead, s.weights.shape[-1]) for s in sets], -1) > 0


def present_first(present: Tensor) -> Tensor:
    # present: (..., N) bool  ->  (..., N) int64, in this order padding takes no draws
    return (~present).byte().sort(dim=-1, stable=True).indices


def _read(**sides: tuple[Tensor, Tensor | None]) -> tuple[Tensor, Tensor, torch.Size]:
    """All scores as (B, N), 0 where none is, which of them are present (B, N), and the leading shape B stands for."""
    for name, (scores, _) in sides.items():
        _checks.tensor(name, scores)
    sets = word_sets.read(**{name: (scores.detach().unsqueeze(-1), mask) for name, (scores, mask) in sides.items()})
    scores, present = joined(sets)
    lead, places = present.shape[:-1], present.shape[-1]
    return scores.reshape(lead.numel(), places), present.reshape(lead.numel(), places), lead


def _units(scores: Tensor) -> Tensor:
    # scores: (B, N)  ->  (B, N) int64, at most 2^41 in modulus: sums of 50 and their multiples by 50 stay exact
    return (scores / _grid(scores)).nan_to_num(0).round().long()


def _grid(scores: Tensor) -> Tensor:
    # scores: (B, N)  ->  (B, 1), the power of two that is one unit
    largest = torch.nn.functional.pad(scores.abs(), (1, 0), value=1).amax(-1, keepdim=True)
    scale = largest / largest.frexp().mantissa / 2  # a power of two, 1 for scores below 2
    bits = min(40, 61 - 2 * scores.shape[-1].bit_length())  # coarser from 1,024 places on, or places^2 would overflow
    return scale / 2.0**bits


def _unless_all(present: Tensor) -> Tensor | None:
    # a mask makes draws ragged; waits for the device
    return None if present.all() else present


def _share_of_words(
    scores: Tensor,
    present: Tensor,
    lead: torch.Size,
    u: tuple[Tensor, Tensor | None],
    v: tuple[Tensor, Tensor | None],
    alternative: Alternative,
    method: Method,
    replicates: int,
    seed: int | None,
) -> Tensor:
    # scores, present: (B, n + m)  u, v: scores and words as given  ->  (B,) float64
    """Words of one number of rows are exchanged as their means, others with the sums and the numbers of their rows."""
    units, sides = _units(scores), []
    for (rows, words), part in zip((u, v), (slice(u[0].shape[-1]), slice(u[0].shape[-1], None)), strict=True):
        numbers = None if words is None else words.expand(*lead, rows.shape[-1]).reshape(len(scores), -1)
        sides.append(word_sums(units[:, part], present[:, part], numbers))
    counts = torch.cat([rows for _, rows in sides], -1)
    equal = ((counts == counts.amax(-1, keepdim=True)) | (counts == 0)).all(-1)
    share, grid = torch.empty_like(scores[:, 0]), _grid(scores)
    options: Test = {"alternative": alternative, "method": method, "replicates": replicates, "seed": seed}
    for chosen, by_means in ((equal, True), (~equal, False)):
        if not chosen.any():
            continue
        kept = [(sums[chosen], rows[chosen]) for sums, rows in sides]
        widths = [max(1, int((rows > 0).sum(-1).amax())) for _, rows in kept]
        kept = [(sums[:, :width], rows[:, :width]) for (sums, rows), width in zip(kept, widths, strict=True)]
        if by_means:
            u_mean, v_mean = (sums / rows.clamp(min=1) * grid[chosen] for sums, rows in kept)
            u_mask, v_mask = (_unless_all(rows > 0) for _, rows in kept)
            share[chosen] = permutation_p_value(u_mean, v_mean, u_mask=u_mask, v_mask=v_mask, **options)
        else:
            share[chosen] = _share_of_unequal(kept[0], kept[1], **options)
    return share


def _share_of_unequal(
    u: tuple[Tensor, Tensor],
    v: tuple[Tensor, Tensor],
    alternative: Alternative,
    method: Method,
    replicates: int,
    seed: int | None,
) -> Tensor:
    # u, v: the sum of the units of each word, and its rows (B, W) int64, 0 for no word  ->  (B,) float64
    (u_sums, u_rows), (v_sums, v_rows) = u, v
    sums, rows = torch.cat([u_sums, v_sums], -1), torch.cat([u_rows, v_rows], -1)
    places = sums.shape[-1]
    unit = "words of unequal numbers of rows"
    exact = is_exact(alternative, method, replicates, places, MOST_UNEQUAL, MOST_UNEQUAL, unit)
    if exact and len(sums) > (most := max(1, BUDGET >> places)):
        pieces = zip(*(t.split(most) for t in (u_sums, u_rows, v_sums, v_rows)), strict=True)
        test = (alternative, method, replicates, seed)
        return torch.cat([_share_of_unequal(piece[:2], piece[2:], *test) for piece in pieces])
    present = rows > 0
    n, size, order = (u_rows > 0).sum(-1), present.sum(-1), present_first(present)
    total, all_rows = (t.sum(-1, keepdim=True).double() for t in (sums, rows))
    sums, rows, present = (t.gather(-1, order) for t in (sums.double(), rows.double(), present))  # sums are exact

    def extreme(chosen_sums: Tensor, chosen_rows: Tensor) -> Tensor:
        # (B, P) each: the sums and rows of u's words in each partition
        d = chosen_sums / chosen_rows - (total - chosen_sums) / (all_rows - chosen_rows)
        return is_extreme(d, observed, 2, alternative)  # rounding moves a d by less than a unit

    u_sum, u_count = u_sums.sum(-1, keepdim=True).double(), u_rows.sum(-1, keepdim=True).double()
    observed = u_sum / u_count - (total - u_sum) / (all_rows - u_count)
    if exact:
        allowed = subset_sums(torch.ones_like(sums).masked_fill(~present, 2 * places)) == n.unsqueeze(-1)
        share = (extreme(subset_sums(sums), subset_sums(rows)) & allowed).sum(-1) / allowed.sum(-1).double()
    else:
        begin, count = stream(seed), torch.zeros_like(n)
        for start, number in chunks(replicates, sums.numel()):
            chosen = random_partitions(begin, n, size, places, start, number).double()
            count += extreme(*((chosen @ t.unsqueeze(-1)).squeeze(-1) for t in (sums, rows))).sum(-1)
        share = (1 + count.double()) / (1 + replicates)
    return share.where((n > 0) & (n < size), torch.nan)


def is_extreme(scores: Tensor, observed: Tensor, margin: Tensor | float, alternative: Alternative) -> Tensor:
    if alternative == "less":
        return scores <= observed + margin
    if alternative == "two-sided":
        scores, observed = scores.abs(), observed.abs()
    return scores >= observed - margin


def _partition_null(observed: Tensor, total: Tensor, n: Tensor, size: Tensor, alternative: Alternative) -> Null:
    # Rounding moves a sum by less than `size` units, so sums that close are equal.
    if alternative == "greater":
        return Null(observed - size, None)
    if alternative == "less":
        return Null(None, observed + size)
    # d = mean u - mean v is (size * sum - n * total) / (n * m): both tails in terms of the sum.
    size = size.clamp(min=1)
    margin = (size * observed - n * total).abs() - size * size
    return Null(-((-n * total - margin) // size), (n * total - margin) // size)


def _sign_null(total: Tensor, pairs: Tensor, alternative: Alternative) -> Null:
    # The mean falls by twice the sum of the flipped values; patterns within one unit per pair are equal.
    if alternative == "greater":
        return Null(None, pairs // 2)
    if alternative == "less":
        return Null(-(pairs // 2), None)
    margin = total.abs() - pairs
    return Null(-((-total - margin) // 2), (total - margin) // 2)


def _share_of_draws(extreme: Tensor, replicates: int) -> Tensor:
    return (1 + extreme.double()) / (1 + replicates)
