"""Errors of scores by an approximate search, estimated from a random sample of queries that is searched exactly."""

import dataclasses
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.numbers.philox import MASK_32, philox4x32, philox_key
from ...core.numbers.student import t_quantiles_of
from ...core.results.estimates import Estimate
from ..inputs import RetrievalInputs
from ..scores.query_metric import Average, Classes, averaged
from ..search.knn import TorchKNN
from .metric_names import Depth, RankScore
from .scoring import Audit, Evaluation, QueryScorer, distance_of_search
from .search import Neighbors, RankSearch

MAX_RECALL_DEPTH = 1000  # number of neighbors for which recall is reported
UNBOUNDED = "mean_rank"


def draw_queries(
    count: int, size: int, seed: int, device: torch.device | str = "cpu", purpose: Literal["audit", "score"] = "audit"
) -> Tensor:
    # ->  (A,) int64 ascending, A = min(size, count)
    """Draw a random sample of `count` queries without replacement.

    It consists of the queries with the smallest random integers of Philox, with the index of a query as counter.
    """
    index = torch.arange(count, device=device)
    high, low, *_ = philox4x32((index & MASK_32, index >> 32, 0, 0), philox_key(seed, "queries", purpose, "order"))
    key = (high << 31) ^ low  # below 2^63
    return key.argsort(stable=True)[:size].sort().values


def draw_scored_queries(count: int, size: int, seed: int, device: torch.device, unsupported: Sequence[str]) -> Tensor:
    # ->  (A,) int64 ascending
    """Draw the queries that are scored, out of `count`; raise a ValueError for metrics that need all queries."""
    if unsupported:
        raise ValueError(
            f"sample_queries: {', '.join(unsupported)} {'needs' if len(unsupported) == 1 else 'need'} the clusters of "
            f"all queries; write exclude={(*unsupported,)!r}"
        )
    size = checks.check_int("sample_queries", size, 1)
    return draw_queries(count, size, checks.check_int("sample_seed", seed, 0), device, "score")


class Auditor:
    """Exact search of a sample of the queries, by the distance of an approximate search."""

    def __init__(self, size: int, seed: int, search: RankSearch, k: Depth) -> None:
        if search.counted is not None:
            raise ValueError("audit: got some queries with the exact search, wanted a knn_func that is not exact")
        self.size = checks.check_int("audit", size, 1)
        self.seed, self.k = checks.check_int("audit_seed", seed, 0), k
        self.knn = TorchKNN(distance_of_search("audit", search.knn_func).name, memory_budget=search.memory_budget)
        self.search = RankSearch(self.knn, search.comparison, "index", search.memory_budget)

    def __call__(
        self, ranked: dict[str, RankScore], inputs: RetrievalInputs, relevant: Tensor, neighbors: Neighbors
    ) -> Audit:
        # relevant: (Q,)
        queries = draw_queries(len(relevant), self.size, self.seed, relevant.device)
        sample = inputs.select_queries(queries)
        # The depth for all queries, not for the sample.
        k = max(int(relevant.max()), 1) if self.k == "max_bin_count" and len(relevant) else self.k
        scorer = QueryScorer(self.search, k, "scores", False)
        exact = Neighbors(self.knn, sample)
        scores, *_ = scorer(ranked, sample, relevant[queries], exact)
        depth = min(neighbors.depth, MAX_RECALL_DEPTH)
        return Audit(queries, recall_at_each_k(exact.indices(depth), neighbors.indices(depth)[queries]), scores)


def recall_at_each_k(exact: Tensor, approximate: Tensor) -> Tensor:
    # exact, approximate: (A, K) int64, nearest first, -1 = none  ->  (A, K) float64
    """Return the fraction of the first k of one that is among the first k of the other, for every k."""
    if not exact.shape[1]:
        return exact.double()
    ordered, exact_rank = exact.sort(1)
    index = torch.searchsorted(ordered, approximate.contiguous()).clamp(max=exact.shape[1] - 1)
    in_both = (approximate >= 0) & (ordered.gather(1, index) == approximate)
    # A reference that occurs in both lists counts from the larger of its two ranks on.
    later_rank = torch.maximum(exact_rank.gather(1, index), torch.arange(exact.shape[1], device=exact.device))
    hits = torch.zeros_like(exact).scatter_add_(1, later_rank, in_both.long()).cumsum(1)
    return hits.double() / (exact >= 0).cumsum(1)


def recall_estimate(audit: Audit, count: int, confidence: float) -> Estimate:
    # ->  (K,) each
    """Estimate the recall of the search at every k, over all queries."""
    valid = ~audit.recall.isnan()
    mean = audit.recall.nanmean(0)
    deviation = (audit.recall - mean).where(valid, 0)
    estimate = interval_around(mean, deviation, valid.sum(0), 0.5, mean.new_tensor(count), confidence)
    return Estimate(*(value.clamp(0, 1) for value in estimate))


def exact_estimate(
    name: str, scores: Tensor, audit: Audit, classes: Classes, average: Average, confidence: float
) -> Estimate:
    # scores: (Q,) float64 of the approximate search  ->  () each, or (C,) for "class"
    """Estimate the value of an exact search: the approximate mean plus the mean difference in the sample.

    The interval is that of a mean over a sample without replacement, by Student's t distribution (Cochran, Sampling
    Techniques, 1977, chapter 2 and 7.2), with two more queries that differ by 1 and -1: a sample without differences
    does not prove that the scores are equal.
    """
    approximate, queries = averaged(scores, classes, average), audit.queries
    scored, codes = (classes.codes >= 0) & ~scores.isnan(), classes.codes.clamp(min=0)
    class_counts = torch.bincount(codes[scored], minlength=max(len(classes.labels), 1))
    difference = (audit.exact[name] - scores[queries]).nan_to_num()[:, None]  # (A, 1)
    if average == "class":
        weight = torch.nn.functional.one_hot(codes, len(class_counts))[queries] * scored[queries, None]
        size, count = weight.sum(0), class_counts
    else:  # weights with a mean of 1 over all queries
        indicator = scored.double()
        weight = indicator / class_counts[codes] / (class_counts > 0).sum()
        weight = indicator / indicator.sum() if average == "micro" else weight
        weight = (weight.nan_to_num() * len(scores))[queries, None]
        size, count = torch.full_like(class_counts[:1], len(queries)), torch.full_like(class_counts[:1], len(scores))
    mean = (difference * weight).sum(0) / size
    deviation = difference * weight - mean * (weight > 0) if average == "class" else difference * weight - mean
    bounded = not name.startswith(UNBOUNDED)
    estimate = interval_around(mean, deviation, size, float(bounded), count.double(), confidence)
    estimate = Estimate(*(approximate + (value if average == "class" else value[0]) for value in estimate))
    return Estimate(*(value.clamp(0, 1) for value in estimate)) if bounded else estimate


def interval_around(
    mean: Tensor, deviation: Tensor, size: Tensor, extreme: float, count: Tensor, confidence: float
) -> Estimate:
    # mean: (C,)  deviation: (A, C) from it  size, count: (C,) of sample and population; two more deviate by +-extreme
    variance = (deviation.square().sum(0) + 2 * extreme**2) / (size - 1).clamp(min=1)
    t = t_quantiles_of((1 + confidence) / 2, (size - 1).long().clamp(min=1))
    half = t * (variance / size).sqrt() * population_correction(size, count)
    return Estimate(mean, mean - half, mean + half)


def population_correction(size: Tensor, count: Tensor) -> Tensor:
    """Return the finite population correction.

    It is the standard error of a mean over a sample without replacement, divided by that of a sample with replacement
    (Cochran, Sampling Techniques, 1977, chapter 2).
    """
    return (1 - size / count).clamp(min=0).sqrt()


def finite_population_interval(estimate: Estimate, size: int, count: int) -> Estimate:
    """Scale the interval of a mean for an infinite population to `count` queries, `size` of them sampled."""
    value, low, high = estimate
    factor = population_correction(value.new_tensor(size), value.new_tensor(count))
    return dataclasses.replace(estimate, low=value + factor * (low - value), high=value + factor * (high - value))


def estimates(evaluation: Evaluation, average: Average, confidence: float) -> dict[str, Estimate]:
    """Estimate "recall" (K,) and the exact value of each metric that is a mean of scores of ranks."""
    audit, averages = evaluation.result.audit, evaluation.means().values()
    assert audit is not None  # checked by the caller
    result = {"recall": recall_estimate(audit, len(next(iter(averages))[1].codes), confidence)}
    for means, classes in averages:
        for name in filter(audit.exact.__contains__, means):
            result[name] = exact_estimate(name, means[name], audit, classes, average, confidence)
    return result
