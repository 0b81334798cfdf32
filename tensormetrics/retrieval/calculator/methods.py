"""The interface of pytorch-metric-learning: the metrics of AccuracyCalculator by name, and what a subclass extends."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..clusters.kmeans import TorchKMeans
from ..relevance import Comparison, Gains
from ..scores.query_metric import Average, OnLone
from .metric_names import CENTROID, CLUSTERING, NAMES, Depth, is_known
from .scoring import built_in
from .validation import as_numbers, called

OF_NEIGHBOURS = (
    "mean_average_precision",
    "mean_average_precision_at_r",
    "mean_reciprocal_rank",
    "precision_at_1",
    "r_precision",
)


def calculates(name: str) -> Callable[..., Tensor]:
    """The method `calculate_{name}`, which a subclass may override or call."""

    def calculate(self: Any, **given: Any) -> Tensor:
        return self._value(name, **given)

    calculate.__name__ = f"calculate_{name}"
    return calculate


class MetricMethods:
    """Metrics by name: methods `calculate_x` of this class and its subclasses, and the table of `metric_names`."""

    function_keyword = "calculate_"

    average: Average
    avg_of_avgs: bool
    comparison: Comparison | None
    gains: Gains | None
    k: Depth
    kmeans_func: Callable[[Tensor, int], Any]
    label_comparison_fn: Comparison
    methods: tuple[str, ...]  # names that have a method
    on_lone: OnLone
    selected: tuple[str, ...]  # by the constructor
    current: tuple[str, ...]  # in the latest call of `get_accuracy`

    calculate_AMI = calculates("AMI")
    calculate_NMI = calculates("NMI")
    calculate_mean_average_precision = calculates("mean_average_precision")
    calculate_mean_average_precision_at_r = calculates("mean_average_precision_at_r")
    calculate_mean_reciprocal_rank = calculates("mean_reciprocal_rank")
    calculate_precision_at_1 = calculates("precision_at_1")
    calculate_r_precision = calculates("r_precision")

    @property
    def original_function_dict(self) -> dict[str, Callable]:
        """Metric -> the function that computes it, as selected by the constructor."""
        return self._functions(self.selected)

    @property
    def curr_function_dict(self) -> dict[str, Callable]:
        """The same for the latest call of `get_accuracy`."""
        return self._functions(self.current)

    def get_function_dict(self, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> dict[str, Callable]:
        """Metric -> the function that computes it; include is by default what the constructor selected."""
        return self._functions(self._select(include, exclude))

    def get_curr_metrics(self) -> list[str]:
        """The names that the latest call of `get_accuracy` returned."""
        return list(self.current)

    def check_primary_metrics(self, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> None:
        """TypeError unless both are lists or tuples, ValueError unless all names are known."""
        for option, names in (("include", include), ("exclude", exclude)):
            if not isinstance(names, list | tuple):
                raise TypeError(f"{option}: got {names!r}, wanted a list or tuple of metric names")
            for name in names:
                if not (name in self.methods or is_known(name)):
                    known = ", ".join(dict.fromkeys((*self.methods, *NAMES)))
                    raise ValueError(f"{option}: got {name!r}, wanted names among {known}")

    def description(self) -> str:
        return "avg_of_avgs" if self.avg_of_avgs else ""

    def requires_knn(self) -> list[str]:
        """The methods that are given neighbours; extend it for your own."""
        return [*OF_NEIGHBOURS]

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
        kmeans = self.kmeans_func.clusters if isinstance(self.kmeans_func, TorchKMeans) else self.kmeans_func
        clusters = kmeans(query, len(query_labels.unique(dim=0)))
        return torch.as_tensor(clusters, device=query.device)

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
        unable = tuple(name for name in chosen if name == CENTROID or self._needs_clusters(name))
        for option, given in (("label_comparison_fn", self.comparison), ("gains", self.gains)):
            if given is not None and unable:
                raise NotImplementedError(f"{option}: {', '.join(unable)} cannot use it; write exclude={unable!r}")
        return chosen

    def _needs_clusters(self, name: str) -> bool:
        return name in CLUSTERING or name in self.requires_clustering()

    def _is_own(self, name: str) -> bool:
        # Computed from ranks or clusters, and not by a subclass.
        return not self._overrides(self.function_keyword + name)

    def _functions(self, names: Sequence[str]) -> dict[str, Callable]:
        of_table = functools.partial(functools.partial, self._value)
        return {name: getattr(self, self.function_keyword + name, None) or of_table(name) for name in names}

    def _value(self, name: str, **given: Any) -> Tensor:
        return built_in(name, self.average, **{"label_comparison_fn": self.label_comparison_fn} | given)

    def _overrides(self, method: str) -> bool:
        return getattr(type(self), method, None) is not getattr(MetricMethods, method, None)
