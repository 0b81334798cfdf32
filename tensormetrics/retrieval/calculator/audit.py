"""What an approximate search costs the scores: some queries, drawn at random, are searched exactly too."""

import dataclasses
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from ... import _checks
from ..._student import t_quantiles_of
from ...uncertainty.engine.philox import MASK_32, philox4x32, philox_key
from ...uncertainty.results.estimates import Estimate
from ..inputs import RetrievalInputs
from ..scores.query_metric import Average, Classes, averaged
from ..search.knn import TorchKNN
from .metric_names import Depth, RankScore, statistic_of
from .scoring import Audit, QueryScorer, distance_of_search
from .search import Neighbours, Search

DEEPEST = 1000  # neighbours by which recall is told
UNBOUNDED = ("mean_rank",)


def drawn(
    count: int, size: int, seed: int, device: torch.device | str = "cpu", purpose: Literal["audit", "score"] = "audit"
) -> Tensor:
    # ->  (A,) int64 ascending, A = min(size, count)
    """Draw a random sample of `count` queries without replacement: those with the least words of Philox, whose counter
    is the number of a query."""
    number = torch.arange(count, device=device)
    high, low, *_ = philox4x32((number & MASK_32, number >> 32, 0, 0), philox_key(seed, "queries", purpose, "order"))
    key = (high << 31) ^ low  # below 2^63
    return key.argsort(stable=True)[:size].sort().values


def sampled(count: int, size: int, seed: int, device: torch.device, unable: Sequence[str]) -> Tensor:
    # ->  (A,) int64 ascending
    """Return which of `count` queries are scored; ValueError for metrics that are `unable` to do with some."""
    if unable:
        raise ValueError(
            f"sample_queries: {', '.join(unable)} {'needs' if len(unable) == 1 else 'need'} the clusters of all "
            f"queries; write exclude={(*unable,)!r}"
        )
    size = _checks.check_int("sample_queries", size, 1)
    return drawn(count, size, _checks.check_int("sample_seed", seed, 0), device, "score")


class Auditor:
    """Searches some queries exactly, by the distance of a search that is not."""

    def __init__(self, size: int, seed: int, search: Search, k: Depth) -> None:
        if search.counted is not None:
            raise ValueError("audit: got some queries with the exact search, wanted a knn_func that is not exact")
        self.size = _checks.check_int("audit", size, 1)
        self.seed, self.k = _checks.check_int("audit_seed", seed, 0), k
        self.knn = TorchKNN(distance_of_search("audit", search.knn_func).name, memory_budget=search.memory_budget)
        self.search = Search(self.knn, search.comparison, "index", search.memory_budget)

    def look(self, neighbours: Neighbours, available: int) -> None:
        """For as many as the user asked for, by whose recall the index is told, even where the scores need fewer."""
        if isinstance(self.k, int):
            neighbours.indices(min(self.k, available))

    def __call__(
        self, ranked: dict[str, RankScore], sides: RetrievalInputs, relevant: Tensor, neighbours: Neighbours
    ) -> Audit:
        # relevant: (Q,)
        queries = drawn(len(relevant), self.size, self.seed, relevant.device)
        some = sides.of_queries(queries)
        # How deep all of them look, not these.
        k = max(int(relevant.max()), 1) if self.k == "max_bin_count" and len(relevant) else self.k
        scorer = QueryScorer(self.search, k, "scores", False)
        exact = Neighbours(self.knn, some)
        scores = scorer(ranked, some, relevant[queries], exact).scores
        depth = min(neighbours.depth, DEEPEST)
        return Audit(queries, shares_found(exact.indices(depth), neighbours.indices(depth)[queries]), scores)


def shares_found(exact: Tensor, found: Tensor) -> Tensor:
    # exact, found: (A, K) int64, nearest first, -1 = none  ->  (A, K) float64
    """Which share of the first k of one is among the first k of the other, for every k."""
    if not exact.shape[1]:
        return exact.double()
    ordered, place = exact.sort(1)
    at = torch.searchsorted(ordered, found.contiguous()).clamp(max=exact.shape[1] - 1)
    both = (found >= 0) & (ordered.gather(1, at) == found)
    # A reference that both have counts from the later of its two places on.
    later = torch.maximum(place.gather(1, at), torch.arange(exact.shape[1], device=exact.device))
    hits = torch.zeros_like(exact).scatter_add_(1, later, both.long()).cumsum(1)
    return hits.double() / (exact >= 0).cumsum(1)


def recall_estimate(audit: Audit, count: int, confidence: float) -> Estimate:
    # ->  (K,) each
    """The recall of the search at every k, over all queries."""
    present = ~audit.found.isnan()
    mean = audit.found.nanmean(0)
    deviation = (audit.found - mean).where(present, 0)
    found = interval_around(mean, deviation, present.sum(0), 0.5, mean.new_tensor(count), confidence)
    return Estimate(*(each.clamp(0, 1) for each in found))


def exact_estimate(
    name: str, scores: Tensor, audit: Audit, classes: Classes, average: Average, confidence: float
) -> Estimate:
    # scores: (Q,) float64 of the approximate search  ->  () each, or (C,) for "class"
    """What an exact search would give: the approximate mean, and by how much the sample says it is off.

    The error of a mean over a sample without replacement, of Student's law (Cochran, Sampling Techniques, 1977, chapter
    2 and 7.2), as if two more queries differed by 1 and -1: no difference in the sample is no proof that there is none.
    """
    whole, queries = averaged(scores, classes, average), audit.queries
    scored, codes = (classes.codes >= 0) & ~scores.isnan(), classes.codes.clamp(min=0)
    number = torch.bincount(codes[scored], minlength=max(len(classes.labels), 1))
    difference = (audit.exact[name] - scores[queries]).nan_to_num()[:, None]  # (A, 1)
    if average == "class":
        weight = torch.nn.functional.one_hot(codes, len(number))[queries] * scored[queries, None]
        size, count = weight.sum(0), number
    else:  # weights whose mean over all queries is 1
        share = scored.double()
        weight = share / share.sum() if average == "micro" else share / number[codes] / (number > 0).sum()
        weight = (weight.nan_to_num() * len(scores))[queries, None]
        size, count = torch.full_like(number[:1], len(queries)), torch.full_like(number[:1], len(scores))
    mean = (difference * weight).sum(0) / size
    deviation = difference * weight - mean * (weight > 0) if average == "class" else difference * weight - mean
    bounded = name not in UNBOUNDED
    found = interval_around(mean, deviation, size, float(bounded), count.double(), confidence)
    found = Estimate(*(whole + (each if average == "class" else each[0]) for each in found))
    return Estimate(*(each.clamp(0, 1) for each in found)) if bounded else found


def interval_around(
    mean: Tensor, deviation: Tensor, size: Tensor, extreme: float, count: Tensor, confidence: float
) -> Estimate:
    # mean: (C,)  deviation: (A, C) from it, of samples of `size` (C,) among `count` (C,); two more are +-extreme
    variance = (deviation.square().sum(0) + 2 * extreme**2) / (size - 1).clamp(min=1)
    t = t_quantiles_of((1 + confidence) / 2, (size - 1).long().clamp(min=1))
    half = t * (variance / size).sqrt() * unsampled(size, count)
    return Estimate(mean, mean - half, mean + half)


def unsampled(size: Tensor, count: Tensor) -> Tensor:
    """Return the finite population correction: by how much the error of a mean over a sample without replacement is
    smaller than that of one with replacement (Cochran, Sampling Techniques, 1977, chapter 2)."""
    return (1 - size / count).clamp(min=0).sqrt()


def of_finite_population(estimate: Estimate, size: int, count: int) -> Estimate:
    """Return the interval of the mean over `count` queries, from that of a larger population, of `size` of them."""
    value, low, high = estimate
    factor = unsampled(value.new_tensor(size), value.new_tensor(count))
    return dataclasses.replace(estimate, low=value + factor * (low - value), high=value + factor * (high - value))


def estimates(
    audit: Audit,
    averages: dict[str, tuple[dict[str, Tensor], Classes]],
    average: Average,
    confidence: float,
) -> dict[str, Estimate]:
    # averages: by the suffix of a level, scores by name and their classes
    """ "recall" (K,) and the exact value of each metric that is a mean of scores of ranks."""
    found = {"recall": recall_estimate(audit, len(next(iter(averages.values()))[1].codes), confidence)}
    for suffix, (scores, classes) in averages.items():
        for name, score in scores.items():
            if name + suffix in audit.exact and statistic_of(name) == "mean":
                of_level = audit._replace(exact={name: audit.exact[name + suffix]})
                found[name + suffix] = exact_estimate(name, score, of_level, classes, average, confidence)
    return found
