"""`AccuracyCalculator`: computes many scores of embeddings by name."""

import functools
import operator
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, cast

import torch
from torch import Tensor
from typing_extensions import Unpack

from ...core.arguments import checks
from ...core.metric.distributed import raise_on_all_ranks as raise_on_all_ranks
from ...core.resampling.intervals import interval as intervals
from ...core.resampling.intervals import with_values
from ...core.resampling.resampling import Joined, combine
from ...core.resampling.weights import ItemNames, check_draws
from ...core.results.estimates import Estimate, check_confidence
from ...core.results.score_table import ScoreTable
from ..clusters.kmeans import TorchKMeans, sharded_clusters
from ..inputs import RetrievalInputs, as_inputs, is_rank_local
from ..ranking.ranking import TIES, RankingOptions, Ties
from ..ranking.sharded import tiles_of
from ..relevance import Gains, Ignore
from ..scores.embedding_metric import EmbeddingMetric, QueryIds, StoreOptions
from ..scores.query_metric import (
    ON_LONE,
    Classes,
    OnLone,
    averaged,
    items_of_several,
    query_scores,
    read_status,
    relevant_counts,
    scored_queries,
)
from ..search.distance import DEFAULT, DistanceName
from ..search.knn import TorchKNN
from ..sources.state import SECONDS
from .audit import Auditor, draw_scored_queries, estimates, finite_population_interval
from .knn_labels import EQUALITY, average_of
from .methods import Evaluate, MetricMethods, default_device
from .metric_names import CENTROID, CLUSTERING, Depth, RankScore, checked_k, needed_depth, rank_score
from .scoring import CalculatorResult, Clustering, Evaluation, Keep, QueryScorer, centroid_scores, levels_of
from .search import Neighbors, RankSearch
from .streaming import Partial, as_stream


class AccuracyCalculator(MetricMethods, EmbeddingMetric[ScoreTable[Estimate]]):
    """Many scores of nearest neighbors and clusters from one search: means over queries, higher is better.

    Lone queries (no other item has their label) are left out. `update(embeddings, labels)` and `compute()` score every
    item against all others; `get_accuracy` scores one set against another at once. After a call, `class_labels` are
    the classes of the scored queries and `last` holds the values before averaging. A method `calculate_x` of a
    subclass adds the metric x: it receives the arguments that it names (see `get_accuracy`). Values are in [0, 1],
    but AMI and ARI may be negative; `mean_rank` and `median_rank`, of which less is better, are at least 1.

    Args:
        include: names of metrics; default AMI, NMI, mean_average_precision, mean_average_precision_at_r,
            mean_reciprocal_rank, precision_at_1, r_precision. The error for an unknown name lists all. Metrics have
            their default options: mean_average_precision_at_10 divides by R, as `AveragePrecision(10)`, which has
            other denominators.
        exclude: names to leave out; wins over include.
        avg_of_avgs: average over classes of the means over their queries.
        return_per_class: return the mean of each class, in the order of `class_labels`.
        k: number of neighbors retrieved; deeper references count as not found, and ndcg is ndcg_at_k. None: all;
            "max_bin_count": the largest number of relevant references; with a smaller integer r_precision and MAP@R
            are lower bounds.
        label_comparison_fn: `(x, y)` for pairs of labels, (n,) or (n, L) each, to (n,) bool; default equality.
            With another function, or with gains, scores of clusters and class means are a NotImplementedError.
        device: device of the computation. Default: `update` keeps rows where they are; `get_accuracy` takes the
            device of a CUDA input, else the current CUDA device, else the CPU.
        knn_func: `(query, k, reference, ref_includes_query) -> (distances, indices)`, default `TorchKNN`.
        kmeans_func: `(x, n_clusters) -> (N,)` integers, default `TorchKMeans`.
        distance, exact, memory_budget: options of the default `TorchKNN`; the budget also bounds the scoring, so that
            floating-point memory-mapped rows passed to `get_accuracy` on a CPU may be larger than the memory. So may
            integer references if the metrics can be computed in blocks, as for `open_embeddings`. In addition, scores
            take up to 72 bytes for each reference; in blocks, 8 for its label.
        ties: order at equal distance: "index", "optimistic" (relevant references first) or "pessimistic" (last).
        ignore, gains: references that are no candidates, and graded relevance; as in `positive_ranks`.
        label_levels: labels are (N, L), one level in each column; names of metrics end in `_level{i}`.
        keep: "all" keeps in `last` also the ranks of the relevant references that were searched; "neighbors" keeps
            `last.neighbors`, the k nearest candidates of each query: `indices`, `distances` and `relevance` (bool, or
            the gains).
        progress: show a progress bar of the scored queries also where stderr is no terminal, and from the start.
        audit, audit_seed: number of queries that are also searched exactly to measure the error of a knn_func that is
            not exact, default none, and the seed by which they are drawn; see `audit_report`.
        on_lone: lone queries are left out ("exclude"), count as 0 ("zero", not for ranks), or are a ValueError
            ("error").
        kwargs: store_dtype, in which embeddings are kept (default their dtype), and options of every metric, such as
            process_group.

    >>> x, labels = torch.tensor([[0.0], [0.1], [5.0], [5.1], [0.3]]), torch.tensor([0, 0, 1, 1, 1])
    >>> calculator = AccuracyCalculator(include=("precision_at_1", "mean_average_precision"))
    >>> calculator.update(x, labels)  # batch by batch
    >>> calculator.compute()["precision_at_1"]
    tensor(0.8000, dtype=torch.float64)
    >>> calculator.get_accuracy(x, labels)  # in one call, as in pytorch-metric-learning
    {'mean_average_precision': 0.8833333333333334, 'precision_at_1': 0.8}
    """

    higher_is_better = True

    def __init__(
        self,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        avg_of_avgs: bool = False,
        return_per_class: bool = False,
        k: Depth = None,
        label_comparison_fn: Callable[[Tensor, Tensor], Tensor] | None = None,
        device: torch.device | str | None = None,
        knn_func: Callable[[Tensor, int, Tensor, bool], tuple[Tensor, Tensor]] | None = None,
        kmeans_func: Callable[[Tensor, int], Any] | None = None,
        *,
        distance: DistanceName | Callable[[Tensor, Tensor], Tensor] = "l2",
        exact: bool = True,
        ties: Ties = "index",
        on_lone: OnLone = "exclude",
        memory_budget: int | None = None,
        ignore: Ignore | None = None,
        gains: Gains | None = None,
        label_levels: bool = False,
        keep: Keep = "scores",
        progress: bool = False,
        audit: int | None = None,
        audit_seed: int = 0,
        **kwargs: Unpack[StoreOptions],
    ) -> None:
        flags = {"avg_of_avgs": avg_of_avgs, "return_per_class": return_per_class}
        for name, value in {**flags, "label_levels": label_levels, "progress": progress}.items():
            checks.check_flag(name, value)
        functions = {"label_comparison_fn": label_comparison_fn, "knn_func": knn_func, "kmeans_func": kmeans_func}
        for name, function in functions.items():
            checks.check_type(name, function, Callable | None, "a function")
        checks.check_int("audit_seed", audit_seed, 0)
        custom = label_comparison_fn not in (None, EQUALITY)
        super().__init__(label_columns=custom or callable(gains) or label_levels, device=device, **kwargs)
        if knn_func is not None and distance != DEFAULT:
            raise ValueError(f"distance: got {distance!r} together with a knn_func; give the distance to the knn_func")
        if knn_func is not None and not exact:
            raise ValueError("exact: got False together with a knn_func; give exact=False to the knn_func")
        checks.check_choice("ties", ties, TIES)
        checks.check_choice("on_lone", on_lone, ON_LONE)
        if custom and gains is not None:
            raise ValueError("gains and label_comparison_fn: got both, wanted one; a gain above 0 means relevant")
        default = TorchKNN(distance, exact=exact, memory_budget=memory_budget)
        self.average = average_of(avg_of_avgs, return_per_class)
        self.avg_of_avgs, self.return_per_class = avg_of_avgs, return_per_class
        self.k, self.on_lone = checked_k(k), on_lone
        self.label_comparison_fn = label_comparison_fn or EQUALITY
        self.comparison = label_comparison_fn if custom else None
        self.ignore, self.gains, self.label_levels = ignore, gains, label_levels
        self.knn_func = knn_func or default
        self.kmeans_func = kmeans_func or TorchKMeans()
        self.memory_budget = default.memory_budget
        self.search = RankSearch(self.knn_func, self.comparison, ties, self.memory_budget)
        self.scorer = QueryScorer(self.search, self.k, keep, progress)
        self.auditor = None if audit is None else Auditor(audit, audit_seed, self.search, self.k)
        keyword = self.function_keyword
        self.methods = tuple(name.removeprefix(keyword) for name in dir(type(self)) if name.startswith(keyword))
        self.selected = self.current = self.methods
        self.selected = self.current = self._select(include, exclude)

    @property
    def last(self) -> CalculatorResult | None:
        """Values of the latest call before averaging; None before the first call and after a change of the rows."""
        return None if self._items is None else self._items.result

    @property
    def class_labels(self) -> Tensor | tuple[Tensor, ...] | None:
        """Classes of the queries that the latest call scored; None if `last` is."""
        return None if self._items is None else self._items.class_labels

    def rows_may_stay(self) -> bool:
        names, kmeans = self.selected, self.kmeans_func
        clustering = type(kmeans) is TorchKMeans and kmeans.spreads and not self._overrides("get_cluster_labels")
        supported = {CENTROID, *(CLUSTERING if clustering else ())}
        may_stay = all(self._is_built_in(name) and (rank_score(name) or name in supported) for name in names)
        may_stay &= self.search.counted is not None and self.scorer.keep != "neighbors"
        return may_stay and self.ignore is None and is_rank_local(self.gains)

    @torch.no_grad()
    def compute(self) -> dict[str, Tensor]:
        """Compute the value of each metric by name: () float64, or with `return_per_class` (C,) for means over queries.

        If the rows are on several ranks, metrics of ranks leave them there: blocks of rows are exchanged, and each rank
        scores its local queries. So do class means and clusters of the default k-means, by sums of the rows of each
        rank; labels, clusters and scores, 8 bytes a row each, are on all ranks. User-defined metrics, other searches,
        and k-means by other functions or from sampled rows ("k-means++", `max_points_per_centroid`) need all rows on
        every rank, with a warning above 1 GB.
        If ranks differ in an option, all raise a ValueError that names it; if one fails, the others raise a
        RuntimeError that names the rank, and the group remains usable.
        """
        inputs, queries = self.stored_inputs(lambda inputs: self._direct_ranking(inputs) is not None)
        inputs = inputs.with_options(ignore=self.ignore, gains=self.gains)
        functions = self.original_function_dict
        evaluated = self._evaluate if inputs.status is None else self._evaluate_directly
        values, self._items = evaluated(tuple(functions), inputs, functools.partial(self._call, functions), queries)
        return {name: torch.as_tensor(v, dtype=torch.float64, device=inputs.query.device) for name, v in values.items()}

    @checks.names_arguments
    @torch.no_grad()
    def get_accuracy(
        self,
        query: Any,
        query_labels: Any,
        reference: Any = None,
        reference_labels: Any = None,
        ref_includes_query: bool = False,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        *,
        self_index: Any = None,
        query_cameras: Any = None,
        reference_cameras: Any = None,
        gains: Any = None,
        groups: Any = None,
        sample_queries: int | None = None,
        sample_seed: int = 0,
        checkpoint: str | os.PathLike | None = None,
        checkpoint_seconds: float = SECONDS,
        group: torch.distributed.ProcessGroup | None = None,
    ) -> dict[str, float]:
        # query: (Q, D)  query_labels: (Q,)  reference: (N, D)  reference_labels: (N,); tensors, arrays or lists
        """Score queries against references (default: each other); a float by name.

        With `return_per_class` means over queries are lists.
        `ref_includes_query=True`: the references begin with the queries, which are no neighbors of themselves.
        `self_index` (Q,) is the general form: the index of the reference that is the query itself, -1 = none.
        `query_cameras` (Q,), `reference_cameras` (N,): relevant references of the query's group, such as pictures of
        one camera, are left out. `gains`: as in `positive_ranks`, for this call. `groups` (Q,), integers or names:
        queries of one group are reweighted together by `interval` and `compare`.

        `sample_queries`: number of queries, drawn without replacement by `sample_seed`, that are scored against all
        references; all other arguments still cover all queries. The values estimate those of all queries, and
        `interval` is that of a finite population: it has no width if all are drawn. Scores of clusters need all
        queries: a ValueError.

        `reference=open_embeddings(...)`, or another `EmbeddingSource`, is read in blocks: once if k or the metrics need
        few neighbors, else twice. `checkpoint` is then a file to which partial counts are written every
        `checkpoint_seconds`: the same call resumes from it, with the same bits, after any interruption; a file of other
        options, rows or labels is a ValueError. With a `group`, such as `torch.distributed.group.WORLD`, all its
        processes make this call with the same arguments; each reads its part of the blocks and keeps a separate file
        (`checkpoint` and ".rank0", ...), and all return the result of a single process. The number of processes must be
        the same when they resume.

        A method `calculate_x` may name query, query_labels, reference, reference_labels, ref_includes_query and
        label_comparison_fn; if x is in `requires_knn()`, also knn_labels (Q, k), knn_distances, knn_indices,
        label_counts (labels, numbers of matching references), lone_query_labels and not_lone_query_mask; if x is in
        `requires_clustering()`, also cluster_labels (Q,). Of one that returns a number for each query, (Q,), the value
        is their mean over the scored queries, with an interval.
        """
        with nullcontext() if group is None else raise_on_all_ranks(group):
            functions = self.get_function_dict(include, exclude)
            self.current = names = tuple(functions)
            device = self.placed or default_device(query)
            gains = self.gains if gains is None else gains
            if reference is None and reference_cameras is None:
                reference_cameras = query_cameras
            args = {"query": query, "query_labels": query_labels, "reference": reference}
            args |= {"reference_labels": reference_labels, "ref_includes_query": ref_includes_query}
            options = {"self_index": self_index, "cameras": (query_cameras, reference_cameras), "gains": gains}
            sampling = {} if sample_queries is None else {"sample_queries": sample_queries, "sample_seed": sample_seed}
            partial = Partial(checkpoint, checkpoint_seconds, group)
            args["reference"] = as_stream(names, args | options | sampling, self, device, partial)
            inputs = as_inputs(**args, device=device, columns=self.label_columns)
            inputs = inputs.with_options(**options, ignore=self.ignore)
            count, sample = len(inputs.query_labels), None
            if sample_queries is not None:
                unsupported = [name for name in names if self._needs_clusters(name)]
                sample = draw_scored_queries(count, sample_queries, sample_seed, device, unsupported)
                inputs = inputs.select_queries(sample)
            index = torch.arange(count, device=device) if sample is None else sample
            queries = QueryIds(ItemNames(index), sample, count).grouped(groups)
            evaluate = lambda args: self._get_accuracy(functions, **args)  # noqa: E731
            values, evaluation = self._evaluate(names, inputs, evaluate, queries)
            evaluation = evaluation._replace(population=None if sample is None else count)
        with self._lock:
            # A cached value of `compute` may be of other rows: clear it, so that `compute` evaluates them again.
            self._computed, self._items = None, evaluation
        return values

    def interval(
        self,
        *,
        confidence: float = 0.95,
        replicates: int | None = None,
        seed: int | None = None,
        groups: Any = None,
    ) -> ScoreTable[Estimate]:
        # groups: (Q,) integers or names, or a mapping from ids to these
        """Return an `Estimate` by name for the means over queries of the latest call; see `Metric.interval`.

        That call is `get_accuracy`, if no row was added since, else `compute`.

        Queries of one class share their references, so that intervals without `groups` are too narrow: `groups=labels`
        is recommended. Groups passed to `update` and `get_accuracy` need not be repeated. They are in the order in
        which the rows were passed, even if `ids` reorder these; or pass a mapping from id to group, above all on
        several processes. After a call with `sample_queries`, intervals are for the values of all its queries; with
        groups they also account for groups and queries other than these.
        Scores of clusters, medians and methods of one number have none.
        """
        confidence = check_confidence(confidence)
        result = self._estimates(self._resampled("interval", replicates, seed, groups), confidence)
        evaluation = self._latest()
        if not (evaluation.population is None or groups is not None or evaluation.queries.names.groups is not None):
            size = len(evaluation.queries.names.ids)
            result = {name: finite_population_interval(x, size, evaluation.population) for name, x in result.items()}
        return ScoreTable.by_name(result, self._direction, type(self).__name__)

    def _estimates(self, resampled: Any, confidence: float) -> dict[str, Estimate]:
        values = {
            name: averaged(score, classes, self.average)
            for means, classes in self._latest().means().values()
            for name, score in means.items()
        }
        return with_values(intervals(resampled, confidence), values)

    def audit_report(self, *, confidence: float = 0.95) -> dict[str, Estimate]:
        """Estimate the error of an approximate search in the latest call, from the queries drawn by `audit`.

        "recall" (K,): the fraction of the k nearest references among the k retrieved ones, for k = 1, ..., K <= 1000.
        Metric name: the value of an exact search, to be compared with the approximate value, for means over queries;
        clusters, medians and user-defined metrics have none. RuntimeError if nothing was audited.
        """
        confidence = check_confidence(confidence)
        evaluation = self._latest() if self.auditor and (self.last or self.update_called) else None
        if evaluation is None or evaluation.result.audit is None:
            raise RuntimeError(
                "audit_report: nothing was audited; give AccuracyCalculator audit=1000 and score something"
            )
        return estimates(evaluation, self.average, confidence)

    def _latest(self) -> Evaluation:
        """Return the evaluation of the latest call; call `compute` if the current rows have no evaluation."""
        with self._lock:
            if self._items is None:
                self.compute()
            return cast(Evaluation, self._items)

    @torch.no_grad()
    def _resampled(
        self, purpose: str, replicates: int | None = None, seed: int | None = None, groups: Any = None
    ) -> Joined:
        evaluation, options = self._latest(), check_draws(replicates, seed)
        names = evaluation.queries.grouped(groups).names
        levels = []
        for suffix, (means, classes) in evaluation.means().items():
            if not means:
                raise ValueError(
                    f"include: got {evaluation.names}, wanted at least one mean over queries for the {purpose}"
                )
            ranges = {name: self._range(name.removesuffix(suffix), scores) for name, scores in means.items()}
            items = items_of_several(means, names, evaluation.labels[suffix], classes, self.average, ranges)
            levels.append(items.resampled(*options))
        return combine(levels, functools.partial(functools.reduce, operator.or_))

    def _direction(self, name: str) -> bool | None:
        return not name.startswith("mean_rank")

    def __getstate__(self) -> dict[str, Any]:
        # A copy could not recompute the results of `get_accuracy`: its rows are not kept.
        return {**super().__getstate__(), "_computed": self._computed, "_items": self._items}

    def _evaluate(
        self, names: tuple[str, ...], inputs: RetrievalInputs, evaluate: Evaluate, queries: QueryIds
    ) -> tuple[dict[str, Any], Evaluation]:
        """Return the values of the metrics, once for each level of labels, and their evaluation."""
        neighbors = Neighbors(self.knn_func, inputs)
        levels = dict(levels_of(inputs)) if self.label_levels else {"": inputs}
        with torch.autocast(inputs.query.device.type, enabled=False):
            relevant = {
                suffix: relevant_counts(level, self.comparison, self.memory_budget) for suffix, level in levels.items()
            }
        longest = {suffix: int(counts.max()) if len(counts) else 0 for suffix, counts in relevant.items()}
        values, evaluations = {}, {}
        # The level that needs the most neighbors comes first: the others reuse its search.
        for suffix in sorted(levels, key=longest.__getitem__, reverse=True):
            args, evaluations[suffix] = self._metric_args(names, levels[suffix], relevant[suffix], neighbors, queries)
            values[suffix] = evaluate(args)
        evaluations = {suffix: evaluations[suffix] for suffix in levels}
        evaluation = Evaluation.of_levels(evaluations) if self.label_levels else evaluations[""]
        return {name + suffix: value for suffix in levels for name, value in values[suffix].items()}, evaluation

    def _direct_ranking(self, inputs: RetrievalInputs) -> RankingOptions | None:
        """Return the ranking of all queries by kernels that leave checks to the end, if it is enough for all values."""
        is_plain = self.auditor is None and not self.label_levels and self.gains is None and self.ignore is None
        is_plain &= all(self._is_built_in(name) and rank_score(name) for name in self.selected)
        return self.scorer.direct_ranking(inputs) if is_plain else None

    def _evaluate_directly(
        self, names: tuple[str, ...], inputs: RetrievalInputs, evaluate: Evaluate, queries: QueryIds
    ) -> tuple[dict[str, Any], Evaluation]:
        """Return what `_evaluate` does, for scores of ranks whose values are checked at the end, with one wait."""
        ranked = {name: cast(RankScore, rank_score(name)) for name in names}
        tiles = tiles_of(inputs, cast(RankingOptions, self._direct_ranking(inputs)))
        table, relevant = query_scores([score.function for score in ranked.values()], tiles, inputs)
        lone, classes = relevant == 0, Classes(inputs.query_labels, relevant, self.on_lone)
        if self.on_lone == "zero":
            table = table.masked_fill(lone, 0)
        scores = dict(zip(names, table, strict=True))
        options = {"label_comparison_fn": self.label_comparison_fn, "query_labels": inputs.query_labels}
        values = evaluate({"scores": scores, "classes": classes, **options})
        longest = read_status(inputs.status, relevant, self.on_lone)
        if longest:
            needed_depth(ranked, self.k, longest, len(inputs.reference) - inputs.all_shared())  # warns of lower bounds
        result = CalculatorResult(scores, lone, None)
        return values, Evaluation(names, result, {"": (scores, classes)}, {"": inputs.query_labels}, queries)

    def _metric_args(
        self, names: tuple[str, ...], inputs: RetrievalInputs, relevant: Tensor, neighbors: Neighbors, queries: QueryIds
    ) -> tuple[dict[str, Any], Evaluation]:
        # relevant: (Q,)
        """Return the arguments of the metric functions, such as scores, neighbors and clusters, and the evaluation."""
        includes = bool(inputs.shared) and inputs.all_shared()
        args = {
            **{name: getattr(inputs, name) for name in ("query", "reference", "query_labels", "reference_labels")},
            "ref_includes_query": includes,
            "label_comparison_fn": self.label_comparison_fn,
        }
        lone, built_in = relevant == 0, [name for name in names if self._is_built_in(name)]
        ranked = {name: score for name in built_in if (score := rank_score(name))}
        needs_tables = any(name in self.requires_knn() for name in names if name not in built_in)
        needs_neighbors = needs_tables or CENTROID in built_in or bool(ranked)
        with torch.autocast(inputs.query.device.type, enabled=False):
            scored = scored_queries(lone, self.on_lone) if needs_neighbors or not len(lone) else ~lone
            if needs_tables:
                args |= self._neighbor_args(inputs, includes, neighbors)
            if self.auditor and isinstance(self.k, int):  # recall at k is reported, even if the scores need fewer
                neighbors.indices(min(self.k, len(inputs.reference_labels) - inputs.all_shared()))
            scores, ranks, nearest = self.scorer(ranked, inputs, relevant, neighbors)
            if CENTROID in built_in:
                scores = scores | {CENTROID: centroid_scores(inputs, self.search)}
            if self.on_lone == "zero":
                scores = {name: score.masked_fill(lone, 0) for name, score in scores.items()}
            args |= {"scores": scores, "classes": Classes(inputs.query_labels, scored)}
            if len(lone) and any(map(self._needs_clusters, names)):
                args["cluster_labels"] = (
                    self.get_cluster_labels(**args)
                    if inputs.layout is None
                    else sharded_clusters(self.kmeans_func, inputs, len(inputs.query_labels.unique(dim=0)))
                )
                args["clustering"] = Clustering(inputs.query_labels, args["cluster_labels"])
            audit = self.auditor(ranked, inputs, relevant, neighbors) if self.auditor and needs_neighbors else None
        result = CalculatorResult(scores, lone, args.get("cluster_labels"), ranks, audit, nearest)
        averages, labels = {"": (scores, args["classes"])}, {"": inputs.query_labels}
        return args, Evaluation(names, result, averages, labels, queries)
