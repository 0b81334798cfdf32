"""Metrics that AccuracyCalculator computes by name, and the number of neighbors that each needs."""

import functools
import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from torch import Tensor

from ...core.arguments import checks
from ..clusters.cluster_accuracy import cluster_accuracy
from ..clusters.mutual_info import adjusted_mutual_info, completeness, homogeneity, normalized_mutual_info, v_measure
from ..clusters.pair_counts import adjusted_rand, fowlkes_mallows
from ..ranking.positive_ranks import PositiveRanks
from ..scores.average_precision import average_precision, average_precision_at_r
from ..scores.ndcg import ndcg
from ..scores.position import first_rank, inverse_negative_penalty, ranking_auroc
from ..scores.precision import precision, r_precision
from ..scores.query_metric import Statistic, log
from ..scores.recall import hit_rate, recall
from ..scores.reciprocal_rank import reciprocal_rank

Depth = int | Literal["max_bin_count"] | None  # number of neighbors retrieved: k, the size of the largest class, all


class RankScore(NamedTuple):
    """A score of ranks, the deepest rank that it uses (k, "relevant" or None: all), and the statistic over queries."""

    function: Callable[[PositiveRanks], Tensor]
    depth: int | Literal["relevant"] | None = None
    statistic: Statistic = "mean"


RANK_SCORES = {
    "mean_auroc": RankScore(ranking_auroc),
    "mean_average_precision": RankScore(average_precision),
    "mean_average_precision_at_r": RankScore(average_precision_at_r, "relevant"),
    "mean_inp": RankScore(inverse_negative_penalty),
    "mean_rank": RankScore(first_rank),
    "mean_reciprocal_rank": RankScore(reciprocal_rank),
    "median_rank": RankScore(first_rank, None, "median"),
    "ndcg": RankScore(ndcg),
    "r_precision": RankScore(r_precision, "relevant"),
}
SCORES_AT_K: dict[str, Callable[..., Tensor]] = {
    "hit_rate": hit_rate,
    "mean_average_precision": average_precision,
    "ndcg": ndcg,
    "precision": precision,
    "recall": recall,
}
CENTROID = "nearest_centroid_accuracy"
CLUSTERING = {
    "AMI": adjusted_mutual_info,
    "ARI": adjusted_rand,
    "FMI": fowlkes_mallows,
    "NMI": normalized_mutual_info,
    "cluster_accuracy": cluster_accuracy,
    "completeness": completeness,
    "homogeneity": homogeneity,
    "v_measure": v_measure,
}
NAMES = (*sorted((*RANK_SCORES, *CLUSTERING, CENTROID)), *(f"{name}_at_{{k}}" for name in SCORES_AT_K))


def rank_score(name: str) -> RankScore | None:
    """Return the score of ranks of this name, such as "ndcg" or "ndcg_at_10"; None if there is no such score."""
    if (at_k := re.fullmatch(r"(\w+)_at_([1-9]\d*)", name)) and at_k[1] in SCORES_AT_K:
        k = int(at_k[2])
        return RankScore(functools.partial(SCORES_AT_K[at_k[1]], k=k), k)
    return RANK_SCORES.get(name)


def statistic_of(name: str) -> Statistic:
    """Return the statistic of a metric over the scores of queries: "mean" or "median"."""
    score = rank_score(re.sub(r"_level\d+$", "", name))
    return score.statistic if score else "mean"


def is_supported(name: Any) -> bool:
    return isinstance(name, str) and (name in CLUSTERING or name == CENTROID or rank_score(name) is not None)


def checked_k(k: Any) -> Depth:
    if k is None or k == "max_bin_count":
        return k
    try:
        return checks.check_int("k", k, 1)
    except ValueError:
        raise ValueError(f"k must be an integer >= 1, None or 'max_bin_count', got {k!r}") from None


def needed_depth(ranked: dict[str, RankScore], k: Depth, longest: int, available: int) -> int | None:
    """Return the number of neighbors that the scores need; None: the ranks of all relevant references.

    longest: the largest number of relevant references; available: the number of references of a query.
    """
    depths = {name: longest if score.depth == "relevant" else score.depth for name, score in ranked.items()}
    finite = [depth for depth in depths.values() if depth is not None]
    needed = max(finite) if len(finite) == len(depths) else None
    if k is None:
        return needed
    limit = longest if k == "max_bin_count" else k
    if limit > available:
        log.info("k=%d is cut to the %d references of a query", limit, available)
    truncated = {name: depth for name, depth in depths.items() if depth is not None and limit < min(depth, available)}
    if truncated:
        log.warning(
            "k=%d is below the %d neighbors that are looked at by %s: lower bounds; write k=None",
            limit,
            max(truncated.values()),
            " and ".join(truncated),
        )
    return min(limit, available, *([] if needed is None else [needed]))
