"""The door: names of metrics in, a dictionary of numbers out."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import _checks
from ._door import (
    CENTROID,
    CLUSTERING,
    NAMES,
    as_numbers,
    as_sides,
    called,
    default_device,
    is_known,
    needed_depth,
    rank_score,
)
from ._embeddings import EmbeddingMetric, Sides
from ._knn_labels import EQUALITY as EQUALITY
from ._knn_labels import average_of, flat_equality, ranks_of_matches, relevant_of_counts
from ._knn_labels import get_label_match_counts as get_label_match_counts
from ._knn_labels import get_lone_query_labels as get_lone_query_labels
from ._knn_labels import get_unique_labels as get_unique_labels
from ._knn_labels import mean_average_precision as mean_average_precision
from ._knn_labels import mean_reciprocal_rank as mean_reciprocal_rank
from ._knn_labels import precision_at_k as precision_at_k
from ._knn_labels import r_precision as r_precision
from ._ranking import ON_LONE, Classes, averaged, query_scores, relevant_counts, scored_queries
from ._search import Search, compared
from .centroid import nearest_centroid
from .kmeans import TorchKMeans
from .knn import TorchKNN
from .ranks import TIES
from .uncertainty import Interval, Test, bootstrap, paired_randomisation


class Result(NamedTuple):
    """What the latest call found, before averaging.

    scores: metric -> (Q,) float64, NaN for lone queries.
    lone: (Q,) bool, queries without relevant reference.
    cluster_labels: (Q,) int64, None if no metric asked for them.
    """

    scores: dict[str, Tensor]
    lone: Tensor
    cluster_labels: Tensor | None


class AccuracyCalculator(EmbeddingMetric):
    """Do nearest neighbours share labels? Do clusters? Means over queries, in [0, 1], higher is better.

    Lone queries (no other item has their label) are left out. `update(embeddings, labels)` and `compute()` score every
    item against all others; `get_accuracy` scores one set against another at once. After a call, `class_labels` are
    the classes of the scored queries and `last` holds what was averaged. A method `calculate_x` of a subclass adds
    the metric x: it is given the arguments it names (see `get_accuracy`).

    Args:
        include: names of metrics; default AMI, NMI, mean_average_precision, mean_average_precision_at_r,
            mean_reciprocal_rank, precision_at_1, r_precision. `NAMES` lists all.
        exclude: names to leave out; wins over include.
        avg_of_avgs: average over classes of the means over their queries.
        return_per_class: these means themselves, in the order of `class_labels`.
        k: neighbours retrieved; what lies deeper counts as not found. None: all; "max_bin_count": the largest number
            of relevant references; with a smaller integer r_precision and MAP@R are lower bounds.
        label_comparison_fn: `(x, y)` for pairs of labels, (n,) or (n, L) each, to (n,) bool; default equality.
        device: where to; default a CUDA input's own device, else the current CUDA device, else the CPU.
        knn_func: `(query, k, reference, ref_includes_query) -> (distances, indices)`, default `TorchKNN`.
        kmeans_func: `(x, n_clusters) -> (N,)` integers, default `TorchKMeans`.
        distance, exact, memory_budget: of the default `TorchKNN`; the budget also bounds the scoring.
        ties: the order at equal distance: "index", "optimistic" (relevant ones first) or "pessimistic" (last).
        on_lone: lone queries are left out ("exclude"), count as 0 ("zero"), or are a ValueError ("error").
    """

    higher_is_better = True
    function_keyword = "calculate_"

    def __init__(
        self,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        avg_of_avgs: bool = False,
        return_per_class: bool = False,
        k: int | str | None = None,
        label_comparison_fn: Callable[[Tensor, Tensor], Tensor] | None = None,
        device: torch.device | str | None = None,
        knn_func: Callable[[Tensor, int, Tensor, bool], tuple[Tensor, Tensor]] | None = None,
        kmeans_func: Callable[[Tensor, int], Any] | None = None,
        *,
        distance: str | Callable[[Tensor, Tensor], Tensor] = "l2",
        exact: bool = True,
        ties: str = "index",
        on_lone: str = "exclude",
        memory_budget: int | None = None,
        **kwargs: Any,
    ) -> None:
        custom = label_comparison_fn not in (None, EQUALITY)
        super().__init__(label_columns=custom, device=device, **kwargs)
        if k is not None and k != "max_bin_count":
            try:
                k = _checks.integer_at_least("k", k, 1)
            except ValueError:
                raise ValueError(f"k must be an integer >= 1, None or 'max_bin_count', got {k!r}") from None
        if knn_func is not None and distance != "l2":
            raise ValueError(f"distance: got {distance!r} together with a knn_func; give the distance to the knn_func")
        if knn_func is not None and not exact:
            raise ValueError("exact: got False together with a knn_func; give exact=False to the knn_func")
        _checks.one_of("ties", ties, TIES)
        _checks.one_of("on_lone", on_lone, ON_LONE)
        default = TorchKNN(distance, exact=exact, memory_budget=memory_budget)
        self.average = average_of(avg_of_avgs, return_per_class)
        self.avg_of_avgs, self.return_per_class = avg_of_avgs, return_per_class
        self.k, self.on_lone = k, on_lone
        self.label_comparison_fn = label_comparison_fn or EQUALITY
        self.comparison = label_comparison_fn if custom else None
        self.knn_func = knn_func or default
        self.kmeans_func = kmeans_func or TorchKMeans()
        self.memory_budget = default.memory_budget
        self.class_labels: Tensor | None = None
        self.last: Result | None = None
        self.search = Search(self.knn_func, self.comparison, ties, self.memory_budget)
        keyword = self.function_keyword
        self.methods = tuple(name.removeprefix(keyword) for name in dir(type(self)) if name.startswith(keyword))
        self.selected = self.current = self.methods
        self.selected = self.current = self._select(include, exclude)

    @torch.no_grad()
    def compute(self) -> dict[str, Tensor]:
        """Metric name -> () float64, or (C,) with `return_per_class`."""
        sides = self.kept()
        values = called(self.original_function_dict, self._given(self.selected, sides))
        return {name: torch.as_tensor(v, dtype=torch.float64, device=sides.query.device) for name, v in values.items()}

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
        query_groups: Any = None,
        reference_groups: Any = None,
    ) -> dict[str, float]:
        # query: (Q, D)  query_labels: (Q,)  reference: (N, D)  reference_labels: (N,); tensors, arrays or lists
        """Metric name -> float (list with `return_per_class`), queries against references (default: each other).

        `ref_includes_query=True`: the references begin with the queries, which are no neighbours of themselves.
        `query_groups` (Q,), `reference_groups` (N,): relevant references of the query's group, such as pictures of
        one camera, are left out.

        A method `calculate_x` may name query, query_labels, reference, reference_labels, ref_includes_query and
        label_comparison_fn; if x is in `requires_knn()`, also knn_labels (Q, k), knn_distances, knn_indices,
        label_counts (labels, numbers of matching references), lone_query_labels and not_lone_query_mask; if x is in
        `requires_clustering()`, also cluster_labels (Q,).
        """
        self.current = self._select(include, exclude)
        device = self.placed or default_device(query)
        groups = query_groups, reference_groups
        sides = as_sides(
            query, query_labels, reference, reference_labels, ref_includes_query, groups, device, self.label_columns
        )
        given = self._given(self.current, sides, (query, query if reference is None else reference))
        return self._get_accuracy(self.curr_function_dict, **given)

    def interval(self, name: str, **options: Any) -> Interval:
        """Confidence interval of a micro average of the latest call; options as in `bootstrap`."""
        return bootstrap(self._latest(name), **options)

    def compare(self, other: "AccuracyCalculator", name: str, **options: Any) -> Test:
        """Is this model better than the other on the same queries? Of the latest calls, as `paired_randomisation`."""
        return paired_randomisation(self._latest(name), other._latest(name), **options)

    def _latest(self, name: str) -> Tensor:
        # ->  (Q,) float64
        scores = self.last.scores if self.last else {}
        if name not in scores:
            raise ValueError(f"name: got {name!r}, wanted a metric of neighbours of the latest call: {list(scores)}")
        return scores[name]

    def reset(self) -> None:
        super().reset()
        self.last = None
        self.search.forget()

    @property
    def original_function_dict(self) -> dict[str, Callable]:
        """Metric -> the function that computes it, as selected by the constructor."""
        return {name: self._function(name) for name in self.selected}

    @property
    def curr_function_dict(self) -> dict[str, Callable]:
        """The same for the latest call of `get_accuracy`."""
        return {name: self._function(name) for name in self.current}

    def get_function_dict(self, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> dict[str, Callable]:
        """Metric -> the function that computes it; include is by default what the constructor selected."""
        return {name: self._function(name) for name in self._select(include, exclude)}

    def get_curr_metrics(self) -> list[str]:
        """The names that the latest call of `get_accuracy` returned."""
        return list(self.current)

    def check_primary_metrics(self, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> None:
        """TypeError unless both are lists or tuples, ValueError unless all names are known."""
        for argument, names in (("include", include), ("exclude", exclude)):
            if not isinstance(names, list | tuple):
                raise TypeError(f"{argument}: got {names!r}, wanted a list or tuple of metric names")
            for name in names:
                if not (name in self.methods or is_known(name)):
                    known = ", ".join(dict.fromkeys((*self.methods, *NAMES)))
                    raise ValueError(f"{argument}: got {name!r}, wanted names among {known}")

    def description(self) -> str:
        return "avg_of_avgs" if self.avg_of_avgs else ""

    def requires_knn(self) -> list[str]:
        """The methods that are given neighbours; extend it for your own."""
        return [
            "mean_average_precision",
            "mean_average_precision_at_r",
            "mean_reciprocal_rank",
            "precision_at_1",
            "r_precision",
        ]

    def requires_clustering(self) -> list[str]:
        """The methods that are given clusters; extend it for your own."""
        return ["AMI", "NMI"]

    def determine_k(self, bin_counts: Tensor, num_reference_embeddings: int, ref_includes_query: bool) -> int:
        """How many neighbours `knn_labels` has; bin_counts as in `label_counts`."""
        available = num_reference_embeddings - int(ref_includes_query)
        if self.k != "max_bin_count":
            return available if self.k is None else min(self.k, available)
        largest = int(torch.as_tensor(bin_counts).max()) if len(bin_counts) else 0
        return max(largest - int(ref_includes_query), 0)

    def get_cluster_labels(self, query: Tensor, query_labels: Tensor, **kwargs: Any) -> Tensor:
        # query: (Q, D)  query_labels: (Q,)  ->  (Q,) int64
        clusters = self.kmeans_func(query, len(query_labels.unique(dim=0)))
        return torch.as_tensor(clusters, device=query.device)

    def calculate_AMI(self, **kwargs: Any) -> Tensor:
        return self._value("AMI", **kwargs)

    def calculate_NMI(self, **kwargs: Any) -> Tensor:
        return self._value("NMI", **kwargs)

    def calculate_mean_average_precision(self, **kwargs: Any) -> Tensor:
        return self._value("mean_average_precision", **kwargs)

    def calculate_mean_average_precision_at_r(self, **kwargs: Any) -> Tensor:
        return self._value("mean_average_precision_at_r", **kwargs)

    def calculate_mean_reciprocal_rank(self, **kwargs: Any) -> Tensor:
        return self._value("mean_reciprocal_rank", **kwargs)

    def calculate_precision_at_1(self, **kwargs: Any) -> Tensor:
        return self._value("precision_at_1", **kwargs)

    def calculate_r_precision(self, **kwargs: Any) -> Tensor:
        return self._value("r_precision", **kwargs)

    def _get_accuracy(self, function_dict: dict[str, Callable], **kwargs: Any) -> dict[str, Any]:
        return as_numbers(called(function_dict, kwargs))

    def _select(self, include: Sequence[str], exclude: Sequence[str]) -> tuple[str, ...]:
        self.check_primary_metrics(include, exclude)
        wanted = dict.fromkeys(include or self.selected)
        names = (*(name for name in self.methods if name in wanted), *(w for w in wanted if w not in self.methods))
        chosen = tuple(name for name in names if name not in exclude)
        if not chosen:
            raise ValueError(f"exclude: got {exclude!r}, which leaves none of {', '.join(wanted)}")
        if self.on_lone == "zero" and (ranks := {"mean_rank", "median_rank"}.intersection(chosen)):
            raise ValueError(f"on_lone: got 'zero', which is better than any {min(ranks)}; wanted 'exclude' or 'error'")
        if self.comparison is not None:
            if unable := [name for name in chosen if self._needs_clusters(name) or name == CENTROID]:
                raise NotImplementedError(
                    f"label_comparison_fn: {', '.join(unable)} cannot use it; write exclude={tuple(unable)!r}"
                )
        return chosen

    def _needs_clusters(self, name: str) -> bool:
        return name in CLUSTERING or name in self.requires_clustering()

    def _is_own(self, name: str) -> bool:
        # Computed from ranks or clusters, and not by a subclass.
        method = self.function_keyword + name
        return getattr(type(self), method, None) is getattr(AccuracyCalculator, method, None)

    def _function(self, name: str) -> Callable:
        return getattr(self, self.function_keyword + name, None) or functools.partial(self._value, name)

    def _value(
        self,
        name: str,
        *,
        query_labels: Tensor,
        scores: dict[str, Tensor] | None = None,
        classes: Classes | None = None,
        cluster_labels: Tensor | None = None,
        knn_labels: Tensor | None = None,
        label_counts: Sequence | None = None,
        not_lone_query_mask: Tensor | None = None,
        ref_includes_query: bool = False,
        **kwargs: Any,
    ) -> Tensor:
        """A built-in metric, from what `_given` has computed, or for a subclass from labels alone."""
        if name in CLUSTERING:
            if not len(query_labels):
                return torch.full((), torch.nan, dtype=torch.float64, device=query_labels.device)
            return CLUSTERING[name](query_labels, torch.as_tensor(cluster_labels, device=query_labels.device))
        statistic = score.statistic if (score := rank_score(name)) else "mean"
        if scores is not None and name in scores:
            return averaged(scores[name], classes, self.average, statistic)
        relevant = None
        if label_counts is not None:
            relevant = relevant_of_counts(query_labels, label_counts, ref_includes_query, self.label_comparison_fn)
        match = compared(self.comparison or flat_equality, query_labels, knn_labels)
        values = score.function(ranks_of_matches(match, relevant))
        scored = ~values.isnan() if not_lone_query_mask is None else not_lone_query_mask.to(values.device)
        return averaged(values, Classes.of(query_labels, scored), self.average, statistic)

    def _given(self, names: tuple[str, ...], sides: Sides, sources: tuple = ()) -> dict[str, Any]:
        """What the functions of `names` are given: the sides, scores of all queries, neighbours and clusters."""
        includes = bool(sides.shared) and sides.shared == len(sides.query)
        given = {
            **{name: getattr(sides, name) for name in ("query", "reference", "query_labels", "reference_labels")},
            "ref_includes_query": includes,
            "label_comparison_fn": self.label_comparison_fn,
        }
        own = [name for name in names if self._is_own(name)]
        neighbours = any(name in self.requires_knn() and name not in own for name in names)
        clusters = any(map(self._needs_clusters, names)) and len(sides.query) > 0
        with torch.autocast(sides.query.device.type, enabled=False):
            relevant = relevant_counts(sides, self.comparison, None, self.memory_budget)
            lone = relevant == 0
            needed = neighbours or CENTROID in own or any(map(rank_score, own)) or not len(lone)
            scored = scored_queries(lone, self.on_lone) if needed else ~lone
            if neighbours:
                given |= self._neighbour_arguments(sides, includes)
            scores = self._scores(own, sides, relevant, sources)
            if self.on_lone == "zero":
                scores = {name: score.masked_fill(lone, 0) for name, score in scores.items()}
            given |= {"scores": scores, "classes": Classes.of(sides.query_labels, scored)}
            if clusters:
                given["cluster_labels"] = self.get_cluster_labels(**given)
        self.class_labels = given["classes"].labels
        self.last = Result(scores, lone, given.get("cluster_labels"))
        return given

    def _neighbour_arguments(self, sides: Sides, includes: bool) -> dict[str, Any]:
        counts = get_label_match_counts(sides.query_labels, sides.reference_labels, self.label_comparison_fn)
        lone_labels, mask = get_lone_query_labels(sides.query_labels, counts, includes, self.label_comparison_fn)
        return {
            "label_counts": counts,
            "lone_query_labels": lone_labels,
            "not_lone_query_mask": mask,
            **self.search.tables(sides, self.determine_k(counts[1], len(sides.reference), includes)),
        }

    def _scores(self, names: list[str], sides: Sides, relevant: Tensor, sources: tuple) -> dict[str, Tensor]:
        # relevant: (Q,)  ->  (Q,) float64 each, NaN for lone queries
        ranked = {name: score for name in names if (score := rank_score(name))}
        longest = int(relevant.max()) if len(relevant) else 0
        if ranked and longest:
            depth = needed_depth(ranked, self.k, longest, len(sides.reference) - (sides.shared == len(sides.query)))
            tiles = self.search.tiles(sides, relevant, depth, sources)
            values = query_scores([score.function for score in ranked.values()], tiles, sides.query)
        else:
            values = torch.full((len(ranked), len(relevant)), torch.nan, dtype=torch.float64, device=relevant.device)
        scores = dict(zip(ranked, values, strict=True))
        if CENTROID in names:
            if sides.groups:
                raise ValueError(f"groups: {CENTROID} cannot leave them out; write exclude={(CENTROID,)!r}")
            distance = getattr(self.knn_func, "distance", "l2")
            scores[CENTROID] = nearest_centroid(
                *sides[:4], self_index=sides.self_index(), distance=distance, memory_budget=self.memory_budget
            )
        return scores
