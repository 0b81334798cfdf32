"""Scores of every query for AccuracyCalculator, and the value of each metric from its arguments."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, cast, get_args

import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.arguments.progress import progress_bar
from ..clusters.contingency import Contingency, as_contingency
from ..inputs import RetrievalInputs
from ..ranking.neighbor_ranks import direct_search
from ..ranking.positive_ranks import PositiveRanks, joined
from ..ranking.ranking import RankingOptions
from ..ranking.sharded import gathered_ranks
from ..scores.centroid import checked_centroids
from ..scores.embedding_metric import QueryIds
from ..scores.query_metric import Average, Classes, averaged, query_scores
from ..search.distance import DEFAULT, DISTANCES, Distance
from .knn_labels import EQUALITY, flat_equality, ranks_of_matches, relevant_of_counts
from .metric_names import CENTROID, CLUSTERING, Depth, RankScore, needed_depth, rank_score, statistic_of
from .search import Nearest, Neighbors, RankSearch, compare_labels

Keep = Literal["scores", "all", "neighbors"]
KEEP: tuple[Keep, ...] = get_args(Keep)


class Audit(NamedTuple):
    """Results of an exact search for a sample of the queries.

    queries: (A,) int64, indices of the queries, ascending.
    recall: (A, K) float64, recall of a query's k nearest references among the first k of the approximate search, for
        k = 1, ..., K; NaN without references.
    exact: metric -> (A,) float64, their exact scores.
    """

    queries: Tensor
    recall: Tensor
    exact: dict[str, Tensor]


class CalculatorResult(NamedTuple):
    """Results of the latest call before averaging. With `label_levels` the names of metrics end in `_level{i}`.

    scores: metric -> (Q,) float64, NaN for lone queries.
    lone: (Q,) bool, queries without relevant reference, or (L, Q).
    cluster_labels: (Q,) int64, or (L, Q); None if no metric needs them.
    ranks: of all relevant references that were searched, or a tuple of L; None unless keep="all".
    audit: results of an exact search for a sample of the queries; None unless requested.
    neighbors: `indices`, `distances` and `relevance` of the k nearest candidates, (Q, k) each, or a tuple of L;
        None unless keep="neighbors".
    """

    scores: dict[str, Tensor]
    lone: Tensor
    cluster_labels: Tensor | None
    ranks: PositiveRanks | tuple[PositiveRanks | None, ...] | None = None
    audit: Audit | None = None
    neighbors: Nearest | tuple[Nearest | None, ...] | None = None


class Evaluation(NamedTuple):
    """Results and queries of one call, for `last`, `interval` and `audit_report`.

    names: the requested metrics.
    averages: the scores that were averaged and their classes, by the suffix of a level, "" without levels.
    labels: (Q,) or (Q, L) of the queries, by the same suffixes.
    population: the number of queries that these were sampled from; None: they are no sample.
    """

    names: tuple[str, ...]
    result: CalculatorResult
    averages: dict[str, tuple[dict[str, Tensor], Classes]]
    labels: dict[str, Tensor]
    queries: QueryIds
    population: int | None = None

    @property
    def class_labels(self) -> Tensor | tuple[Tensor, ...]:
        """Classes of the scored queries, (C,) or (C, L), or a tuple of them, one for each level."""
        labels = tuple(classes.labels for _, classes in self.averages.values())
        return labels[0] if "" in self.averages else labels

    def means(self) -> dict[str, tuple[dict[str, Tensor], Classes]]:
        """Return the scores whose means are reported, by the names of the metrics, and their classes; by suffix."""
        return {
            suffix: ({name + suffix: x for name, x in scores.items() if statistic_of(name) == "mean"}, classes)
            for suffix, (scores, classes) in self.averages.items()
        }

    @classmethod
    def of_levels(cls, evaluations: "dict[str, Evaluation]") -> "Evaluation":
        """Merge the evaluations of all levels of labels, given by the suffix of their names."""
        first = next(iter(evaluations.values()))
        return first._replace(
            result=_of_levels({suffix: evaluation.result for suffix, evaluation in evaluations.items()}),
            averages={suffix: evaluation.averages[""] for suffix, evaluation in evaluations.items()},
            labels={suffix: evaluation.labels[""] for suffix, evaluation in evaluations.items()},
        )


class QueryScorer:
    """Scorer of all queries of one call by functions of their ranks, `scorer(ranked, inputs, relevant, neighbors)`."""

    def __init__(self, search: RankSearch, k: Depth, keep: Keep, progress: bool) -> None:
        checks.check_choice("keep", keep, KEEP)
        if keep == "neighbors" and k is None:
            raise ValueError("k: got None with keep='neighbors', wanted how many to keep, such as k=10")
        if keep == "neighbors" and search.ties != "index":
            raise ValueError(f"ties: got {search.ties!r} with keep='neighbors', wanted 'index', the order of neighbors")
        self.search, self.k, self.keep, self.progress = search, k, keep, progress

    def __call__(
        self, ranked: dict[str, RankScore], inputs: RetrievalInputs, relevant: Tensor, neighbors: Neighbors
    ) -> tuple[dict[str, Tensor], PositiveRanks | None, Nearest | None]:
        # relevant: (Q,)  ->  metric: (Q,) float64, NaN for lone queries; of all queries, None unless `keep` is "all" or
        # "neighbors": the ranks of all relevant references that were searched, and the k nearest candidates
        longest = int(relevant.max()) if len(relevant) else 0
        available = len(inputs.reference_labels) - inputs.all_shared()
        nearest = ranks = None
        if self.keep == "neighbors":
            k = min(self.k if isinstance(self.k, int) else longest, max(available, 0))
            nearest = self.search.nearest(inputs, k, neighbors)
        if ranked and longest:
            depth = needed_depth(ranked, self.k, longest, available)
            tiles = self.search.tiles(inputs, relevant, depth, neighbors)
            queries = len(inputs.query if inputs.layout else relevant)
            tiles = _with_progress(tiles, queries, not self.progress)
            if self.keep == "all":
                tiles = list(tiles)
                ranks = joined(tiles, queries, inputs.gains is not None, depth, relevant.device)
                ranks = gathered_ranks(ranks, inputs.layout)
            values, _ = query_scores([score.function for score in ranked.values()], tiles, inputs)
        else:
            values = torch.full((len(ranked), len(relevant)), torch.nan, dtype=torch.float64, device=relevant.device)
        return dict(zip(ranked, values, strict=True)), ranks, nearest

    def direct_ranking(self, inputs: RetrievalInputs) -> RankingOptions | None:
        """Return the ranking of all queries by kernels that leave checks to the end, if it is enough for all scores."""
        search = self.search
        is_plain = isinstance(self.k, int) and self.keep == "scores" and not self.progress
        is_float64 = torch.float64 in (inputs.query.dtype, inputs.reference.dtype)  # whose squares are checked too
        if not is_plain or is_float64 or search.counted is None:
            return None
        depth = min(cast(int, self.k), max(len(inputs.reference) - inputs.all_shared(), 1))
        ranking = RankingOptions(search.comparison, depth, search.ties, search.counted, True, search.memory_budget)
        return ranking if direct_search(inputs, ranking) else None


def _with_progress(
    tiles: Iterator[tuple[Any, PositiveRanks]], queries: int, transient: bool
) -> Iterator[tuple[Any, PositiveRanks]]:
    left = queries  # parts may be repeated
    with progress_bar(queries, "query", transient=transient) as progress:
        for rows, ranks in tiles:
            yield rows, ranks
            progress.advance(min(len(ranks.relevant), left))
            left -= min(len(ranks.relevant), left)


def centroid_scores(inputs: RetrievalInputs, search: RankSearch) -> Tensor:
    # ->  (Q,) float64
    if inputs.ignore is not None:
        name = "cameras" if isinstance(inputs.ignore, tuple) else "ignore"
        raise ValueError(f"{name}: {CENTROID} cannot leave them out; write exclude={(CENTROID,)!r}")
    return checked_centroids(inputs, distance_of_search(CENTROID, search.knn_func), search.memory_budget)


def distance_of_search(option: str, knn_func: Callable) -> Distance:
    """Return the distance of a search, for centroids and audits; Euclidean if it has no attribute `distance`."""
    name = getattr(knn_func, "distance", DEFAULT)
    if not isinstance(name, str) or name not in DISTANCES:
        raise ValueError(
            f"{option}: got a knn_func whose distance is {name!r}, wanted one of {', '.join(map(repr, DISTANCES))}; "
            + (f"write exclude={(CENTROID,)!r}" if option == CENTROID else f"leave out {option}")
        )
    return DISTANCES[name]


class Clustering:
    """Clusters of the queries, whose pairs with labels are counted once for all scores."""

    def __init__(self, labels: Tensor, clusters: Any) -> None:
        self.labels, self.clusters = labels, clusters

    @functools.cached_property
    def table(self) -> Contingency:
        return as_contingency(self.labels, torch.as_tensor(self.clusters, device=self.labels.device))


def built_in(
    name: str,
    average: Average,
    *,
    query_labels: Tensor,
    label_comparison_fn: Callable[[Tensor, Tensor], Tensor],
    scores: dict[str, Tensor] | None = None,
    classes: Classes | None = None,
    cluster_labels: Tensor | None = None,
    clustering: Clustering | None = None,
    knn_labels: Tensor | None = None,
    label_counts: Sequence | None = None,
    not_lone_query_mask: Tensor | None = None,
    ref_includes_query: bool = False,
    **kwargs: Any,
) -> Tensor:
    """Compute a metric from the scores of all queries or from clusters; when called by a subclass, from labels."""
    if name in CLUSTERING:
        if not len(query_labels):
            return torch.full((), torch.nan, dtype=torch.float64, device=query_labels.device)
        if clustering is not None and clustering.labels is query_labels and clustering.clusters is cluster_labels:
            return CLUSTERING[name](clustering.table)
        return CLUSTERING[name](query_labels, torch.as_tensor(cluster_labels, device=query_labels.device))
    statistic = statistic_of(name)
    if scores is not None and classes is not None and name in scores:
        return averaged(scores[name], classes, average, statistic)
    score = rank_score(name)
    if score is None or knn_labels is None:
        raise ValueError(f"{name}: got neither scores nor knn_labels, wanted one of them")
    relevant = None
    if label_counts is not None:
        relevant = relevant_of_counts(query_labels, label_counts, ref_includes_query, label_comparison_fn)
    comparison = flat_equality if label_comparison_fn is EQUALITY else label_comparison_fn
    values = score.function(ranks_of_matches(compare_labels(comparison, query_labels, knn_labels), relevant))
    scored = ~values.isnan() if not_lone_query_mask is None else not_lone_query_mask.to(values.device)
    return averaged(values, Classes(query_labels, scored), average, statistic)


def levels_of(inputs: RetrievalInputs) -> Iterator[tuple[str, RetrievalInputs]]:
    """Yield the suffix of each level of labels, and the inputs with the labels of that level."""
    labels = [
        column if column.ndim == 2 else column[:, None] for column in (inputs.query_labels, inputs.reference_labels)
    ]
    for i, (query_labels, reference_labels) in enumerate(zip(*(column.unbind(1) for column in labels), strict=True)):
        yield f"_level{i}", inputs._replace(query_labels=query_labels, reference_labels=reference_labels)


def _of_levels(results: dict[str, CalculatorResult]) -> CalculatorResult:
    """Merge the results of all levels of labels, given by the suffix of their names."""
    scores = {name + suffix: score for suffix, result in results.items() for name, score in result.scores.items()}
    clusters = [result.cluster_labels for result in results.values() if result.cluster_labels is not None]
    audits = {suffix: result.audit for suffix, result in results.items() if result.audit is not None}
    exact = {name + suffix: score for suffix, audit in audits.items() for name, score in audit.exact.items()}
    return CalculatorResult(
        scores,
        torch.stack([result.lone for result in results.values()]),
        torch.stack(clusters) if len(clusters) == len(results) else None,
        tuple(result.ranks if isinstance(result.ranks, PositiveRanks) else None for result in results.values()),
        next(iter(audits.values()))._replace(exact=exact) if audits else None,
        tuple(result.neighbors if isinstance(result.neighbors, Nearest) else None for result in results.values()),
    )
