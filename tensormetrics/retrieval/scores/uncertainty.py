"""How sure can we be of a mean over queries: bootstrap intervals, and a randomisation test between two systems.

Random numbers are a function of the seed and of their place in the stream. They are the
same on every device, however the work is cut into pieces, and every row of a batch gets the same ones.
"""

import math
from collections.abc import Iterator
from typing import Literal, get_args

import torch
from torch import Tensor

from ... import _checks
from ..._splitmix import words_at
from ...uncertainty.engine.estimates import Comparison, Estimate, check_confidence, interval_of
from ..deterministic import distinct
from ..inputs import as_labels, budget, check_finite

Method = Literal["percentile", "basic", "bca"]
METHODS: tuple[Method, ...] = get_args(Method)
Alternative = Literal["two-sided", "greater", "less"]
ALTERNATIVES: tuple[Alternative, ...] = get_args(Alternative)
ENUMERATED = 20  # differences whose sign vectors are all tried


@torch.no_grad()
def bootstrap(
    scores: Tensor,
    replicates: int = 10_000,
    confidence: float = 0.95,
    *,
    method: Method = "percentile",
    groups: Tensor | None = None,
    seed: int = 0,
) -> Estimate:
    """Confidence interval of the mean over queries, from resampled queries; NaN scores (lone queries) are left out.

    Shapes: scores: (..., Q); groups: (Q,) -> Estimate of (...) float64.

    With `groups`, for example the queries' labels, whole groups are resampled. Queries of one class share their
    references and are not independent, so that intervals without groups are too narrow: groups are recommended.
    Where NaN falls on different queries of different rows, a resample's mean is over as many as it happens to hold.

    `method`: "percentile" and "basic" (Davison and Hinkley, 1997, DOI 10.1017/CBO9780511802843), or "bca", corrected
    for bias and skewness (Efron, 1987, DOI 10.1080/01621459.1987.10478410). NaN without any score. ValueError for other
    methods, shapes, `replicates` < 1 and a confidence outside (0, 1). Metrics have `interval`, which needs no scores.

    >>> scores = torch.tensor([1.0, 0.5, 0.0, 1.0, 0.75, 1.0])  # of six queries
    >>> print("{:.2f} [{:.2f}, {:.2f}]".format(*bootstrap(scores)))
    0.71 [0.42, 0.96]
    """
    _checks.one_of("method", method, METHODS)
    replicates = _checks.integer_at_least("replicates", replicates, 1)
    confidence = check_confidence(confidence)
    _checks.shape("scores", scores, "...", "Q")
    sums, sizes = _by_group(scores, groups)
    sums, sizes = (side[:, (sizes > 0).any(0)] for side in (sums, sizes))
    mean = sums.sum(1) / sizes.sum(1)
    ordered = _resampled_means(sums, sizes, replicates, seed).T.sort(1).values  # NaN, of nothing, goes last
    defined = ordered.isfinite().sum(1)
    tails = mean.new_tensor([(1 - confidence) / 2, (1 + confidence) / 2]).expand(len(mean), 2)
    if method == "bca":
        tails = _corrected(tails, mean, ordered, defined, sums, sizes)
    low, high = _quantiles(ordered, defined, tails).unbind(1)
    if method == "basic":
        low, high = 2 * mean - high, 2 * mean - low
    return Estimate(*(value.view(scores.shape[:-1]) for value in (mean, low, high)))


@torch.no_grad()
def paired_randomisation(
    a: Tensor,
    b: Tensor,
    replicates: int = 100_000,
    *,
    alternative: Alternative = "two-sided",
    confidence: float = 0.95,
    groups: Tensor | None = None,
    seed: int = 0,
) -> Comparison:
    """Randomisation test of the mean difference of paired scores: are a and b exchangeable within each query?

    Shapes: a, b: (..., Q), broadcast against each other; groups: (Q,) -> Comparison of (...).

    The signs of the differences are flipped at random, with `groups` those of a whole group at once; the p-value is
    the share of flips whose mean is at least as extreme: in size ("two-sided"), or so high ("greater": a above b), or
    so low ("less"). Up to 20 differences that are not zero: all sign vectors, an exact p-value; above, (1 + hits) /
    (1 + replicates). Pairs with NaN are left out. A p-value in (0, 1], small values speak against exchangeability. The
    interval and `p_better`, for scores of which more is better, are those of at most 10,000 resamples, see `bootstrap`.
    ValueError for other alternatives, shapes and `replicates` < 1. Smucker, Allan and Carterette, A Comparison of
    Statistical Significance Tests for Information Retrieval Evaluation, 2007, DOI 10.1145/1321440.1321528.

    >>> a, b = torch.tensor([1.0, 0.5, 0.4, 1.0, 0.75, 1.0]), torch.tensor([0.5, 0.5, 0.0, 0.8, 0.7, 0.9])
    >>> found = paired_randomisation(a, b)
    >>> print(f"{found.difference:.3f}, p = {found.p_value:.4f}")  # 2 of 32 patterns of signs
    0.208, p = 0.0625
    """
    _checks.one_of("alternative", alternative, ALTERNATIVES)
    replicates = _checks.integer_at_least("replicates", replicates, 1)
    confidence = check_confidence(confidence)
    for name, scores in (("a", a), ("b", b)):
        _checks.shape(name, scores, "...", "Q")
    _checks.shape("b", b, "...", a.shape[-1])
    _checks.same_device(a=a, b=b)
    difference = a.double() - b.double()
    sums, sizes = _by_group(difference, groups)
    decisive = (sums != 0).sum(1)
    exact = decisive <= ENUMERATED
    p_value = torch.empty(len(sums), dtype=torch.float64, device=a.device)
    if exact.any():
        few = int(decisive[exact].max())
        # Zeros have no sign: the largest differences are all there are.
        largest = sums[exact].gather(1, sums[exact].abs().topk(few).indices)
        p_value[exact] = _hits(largest, alternative, _all_signs(few, len(largest), a.device)) / 2**few
    if not exact.all():
        flips = _random_signs(replicates, sums.shape[1], len(sums), _key(seed, a.device))
        p_value[~exact] = (1 + _hits(sums[~exact], alternative, flips)) / (1 + replicates)
    means = _resampled_means(sums, sizes, min(replicates, 10_000), seed)
    low, high = interval_of(means, confidence)
    p_better = ((means > 0).sum(0) + 0.5 * (means == 0).sum(0)) / means.isfinite().sum(0)
    p_rope = torch.full_like(p_value, torch.nan)
    result = sums.sum(1) / sizes.sum(1), low, high, p_value, p_better.double(), p_rope
    return Comparison(*(value.view(difference.shape[:-1]) for value in result))


def _resampled_means(sums: Tensor, sizes: Tensor, replicates: int, seed: int) -> Tensor:
    # sums, sizes: (L, G)  ->  (replicates, L), NaN for a resample of nothing
    means = torch.empty(replicates, len(sums), dtype=torch.float64, device=sums.device)
    for piece, counts in _resamples(replicates, sums.shape[1], sums.device, seed):
        means[piece] = (counts @ sums.T) / (counts @ sizes.T)
    return means


def _by_group(scores: Tensor, groups: Tensor | None) -> tuple[Tensor, Tensor]:
    # scores: (..., Q)  groups: (Q,)  ->  (L, G) float64 sums, (L, G) float64 numbers of scores that are not NaN
    scores = scores.double().reshape(math.prod(scores.shape[:-1]), scores.shape[-1])
    items = torch.stack([scores.nan_to_num(0.0, torch.inf, -torch.inf), (~scores.isnan()).double()])
    if groups is None:
        return items[0], items[1]
    groups = as_labels("groups", groups)
    _checks.shape("groups", groups, scores.shape[1])
    _checks.same_device(scores=scores, groups=groups)
    if groups.is_floating_point():
        check_finite(groups=groups)
    _, lengths, group = distinct(groups)
    # In sorted order, because scattered additions on a GPU come in any order.
    items = items.flatten(0, 1).T[group.argsort(stable=True)].contiguous()
    return torch.segment_reduce(items, "sum", lengths=lengths).T.unflatten(0, (2, -1)).unbind(0)


def _quantiles(ordered: Tensor, defined: Tensor, levels: Tensor) -> Tensor:
    # ordered: (L, B) ascending  defined: (L,) how many count  levels: (L, 2)  ->  (L, 2), linear between values
    place = levels * (defined[:, None] - 1).clamp(min=0)
    below = place.floor().long().clamp(0, ordered.shape[1] - 1)
    above = (below + 1).minimum((defined[:, None] - 1).clamp(min=0))
    return ordered.gather(1, below).lerp(ordered.gather(1, above), place - below)


def _corrected(tails: Tensor, mean: Tensor, ordered: Tensor, defined: Tensor, sums: Tensor, sizes: Tensor) -> Tensor:
    # tails: (L, 2)  mean: (L,)  ordered: (L, B)  defined: (L,)  sums, sizes: (L, G)  ->  (L, 2)
    below = (ordered < mean[:, None]).sum(1) + (ordered <= mean[:, None]).sum(1)
    share = (below.double() / (2 * defined)).clamp(0.5 / ordered.shape[1], 1 - 0.5 / ordered.shape[1])
    bias = torch.special.ndtri(share)[:, None]
    without = (sums.sum(1, keepdim=True) - sums) / (sizes.sum(1, keepdim=True) - sizes)
    influence = without.mean(1, keepdim=True) - without
    skewness = influence.pow(3).sum(1) / (6 * influence.square().sum(1).pow(1.5))
    shifted = bias + torch.special.ndtri(tails)
    return torch.special.ndtr(bias + shifted / (1 - skewness.nan_to_num(0.0)[:, None] * shifted))


def _hits(differences: Tensor, alternative: Alternative, flips: Iterator[Tensor]) -> Tensor:
    # differences: (L, G)  flips: pieces (R, G) of 0 and 1  ->  (L,) float64: how many sums are as extreme
    observed = differences.sum(1)
    slack = 1e-12 * differences.abs().sum(1)  # equal sums differ by rounding
    hits = torch.zeros_like(observed)
    for positive in flips:
        total = 2 * (positive @ differences.T) - observed
        if alternative == "two-sided":
            extreme = total.abs() >= observed.abs() - slack
        elif alternative == "greater":
            extreme = total >= observed - slack
        else:
            extreme = total <= observed + slack
        hits += extreme.sum(0)
    return hits


def _all_signs(count: int, batch: int, device: torch.device) -> Iterator[Tensor]:
    # ->  pieces of (2^count, count) float64, short enough for products with a batch
    for codes in torch.arange(2**count, device=device).split(_rows(max(count, batch), device)):
        yield _bits(codes[:, None], count)


def _random_signs(replicates: int, count: int, batch: int, key: Tensor) -> Iterator[Tensor]:
    # ->  pieces of (replicates, count) float64, short enough for products with a batch
    words = -(-count // 64)
    for row in torch.arange(replicates, device=key.device).split(_rows(max(64 * words, batch), key.device)):
        yield _bits(words_at(key, row[:, None] * words + torch.arange(words, device=key.device)), count)


def _resamples(replicates: int, count: int, device: torch.device, seed: int) -> Iterator[tuple[slice, Tensor]]:
    # ->  slices of the resamples, and for each (R, count) float64: how often every item was drawn
    key, rows = _key(seed, device), _rows(count, device)
    for start in range(0, replicates, rows):
        piece = range(start, min(start + rows, replicates))
        words = words_at(key, torch.arange(start * count, piece.stop * count, device=device))
        # The upper 32 bits times count, shifted: a uniform index.
        drawn = ((words >> 32 & 0xFFFFFFFF) * count >> 32).view(len(piece), count)
        cell = drawn + count * torch.arange(len(piece), device=device)[:, None]
        counts = torch.bincount(cell.flatten(), minlength=len(piece) * count).view(len(piece), count)
        yield slice(start, piece.stop), counts.double()


def _rows(width: int, device: torch.device) -> int:
    # Pieces that stay in a CPU's cache are several times faster than ones that fill the memory budget.
    return max(budget(None, device) // 512 // max(width, 1), 1)


def _key(seed: int, device: torch.device) -> Tensor:
    # ->  () int64
    generator = torch.Generator().manual_seed(_checks.integer_at_least("seed", seed, 0))
    return torch.randint(-(2**63), 2**63 - 1, (), generator=generator, device="cpu").to(device)


def _bits(words: Tensor, count: int) -> Tensor:
    # words: (R, W) int64  ->  (R, count) float64 of 0 and 1, lowest bit first
    width = min(count, 64)
    return (words[:, :, None] >> torch.arange(width, device=words.device) & 1).flatten(1)[:, :count].double()
