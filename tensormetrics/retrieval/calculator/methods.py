"""The interface of pytorch-metric-learning: the metrics of AccuracyCalculator by name, and what a subclass extends."""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...core.resampling.means import UNBOUNDED
from ..clusters.kmeans import TorchKMeans
from ..inputs import RetrievalInputs
from ..relevance import Comparison, Gains, Ignore
from ..scores.query_metric import Average, OnLone, averaged
from .knn_labels import get_label_match_counts, get_lone_query_labels
from .metric_names import CENTROID, CLUSTERING, NAMES, Depth, is_supported
from .scoring import QueryScorer, built_in
from .search import Neighbors, RankSearch

Evaluate = Callable[[dict[str, Any]], dict[str, Any]]  # values of metrics by name, from their arguments
NEIGHBOR_METRICS = (
    "mean_average_precision",
    "mean_average_precision_at_r",
    "mean_reciprocal_rank",
    "precision_at_1",
    "r_precision",
)


def calculate_method(name: str) -> Callable[..., Tensor]:
    """Create the method `calculate_{name}`, which a subclass may override or call."""

    def calculate(self: Any, **args: Any) -> Tensor:
        return self._value(name, **args)

    calculate.__name__ = f"calculate_{name}"
    return calculate


class MetricMethods:
    """Base class of metrics by name: methods `calculate_x`, also of subclasses, and the table of `metric_names`."""

    function_keyword = "calculate_"

    average: Average
    avg_of_avgs: bool
    comparison: Comparison | None
    gains: Gains | None
    ignore: Ignore | None
    k: Depth
    kmeans_func: Callable[[Tensor, int], Any]
    label_comparison_fn: Comparison
    label_levels: bool
    memory_budget: int | None
    methods: tuple[str, ...]  # names that have a method
    on_lone: OnLone
    scorer: QueryScorer
    search: RankSearch
    selected: tuple[str, ...]  # by the constructor
    current: tuple[str, ...]  # in the latest call of `get_accuracy`

    calculate_AMI = calculate_method("AMI")
    calculate_NMI = calculate_method("NMI")
    calculate_mean_average_precision = calculate_method("mean_average_precision")
    calculate_mean_average_precision_at_r = calculate_method("mean_average_precision_at_r")
    calculate_mean_reciprocal_rank = calculate_method("mean_reciprocal_rank")
    calculate_precision_at_1 = calculate_method("precision_at_1")
    calculate_r_precision = calculate_method("r_precision")

    @property
    def original_function_dict(self) -> dict[str, Callable]:
        """Functions of the metrics that the constructor selected, by name."""
        return self._functions(self.selected)

    @property
    def curr_function_dict(self) -> dict[str, Callable]:
        """Functions of the metrics of the latest call of `get_accuracy`, by name."""
        return self._functions(self.current)

    def get_function_dict(self, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> dict[str, Callable]:
        """Return the functions of metrics by name; `include` defaults to the selection of the constructor."""
        return self._functions(self._select(include, exclude))

    def get_curr_metrics(self) -> list[str]:
        """Return the names of the metrics of the latest call of `get_accuracy`."""
        return list(self.current)

    def check_primary_metrics(self, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> None:
        """Raise a TypeError unless both are lists or tuples, a ValueError unless all names are supported."""
        for option, names in (("include", include), ("exclude", exclude)):
            if not isinstance(names, list | tuple):
                raise TypeError(f"{option}: got {names!r}, wanted a list or tuple of metric names")
            for name in names:
                if not (name in self.methods or is_supported(name)):
                    supported = ", ".join(dict.fromkeys((*self.methods, *NAMES)))
                    raise ValueError(f"{option}: got {name!r}, wanted names among {supported}")

    def description(self) -> str:
        return "avg_of_avgs" if self.avg_of_avgs else ""

    def requires_knn(self) -> list[str]:
        """Return the metrics that need neighbors; a subclass extends the list for its metrics."""
        return [*NEIGHBOR_METRICS]

    def requires_clustering(self) -> list[str]:
        """Return the metrics that need clusters; a subclass extends the list for its metrics."""
        return ["AMI", "NMI"]

    def determine_k(self, bin_counts: Tensor, num_reference_embeddings: int, ref_includes_query: bool) -> int:
        """Return the number of neighbors in `knn_labels`; bin_counts as in `label_counts`."""
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

    def _neighbor_args(self, inputs: RetrievalInputs, includes: bool, neighbors: Neighbors) -> dict[str, Any]:
        counts = get_label_match_counts(inputs.query_labels, inputs.reference_labels, self.label_comparison_fn)
        lone_labels, mask = get_lone_query_labels(inputs.query_labels, counts, includes, self.label_comparison_fn)
        return {
            "label_counts": counts,
            "lone_query_labels": lone_labels,
            "not_lone_query_mask": mask,
            **self.search.tables(inputs, self.determine_k(counts[1], len(inputs.reference), includes), neighbors),
        }

    def _get_accuracy(self, function_dict: dict[str, Callable], **kwargs: Any) -> dict[str, Any]:
        return to_floats(self._call(function_dict, kwargs))

    def _call(self, functions: dict[str, Callable], args: dict[str, Any]) -> dict[str, Any]:
        """Call each function with the arguments that it names; average its scores of queries, and keep them."""
        values: dict[str, Any] = {}
        for name, function in functions.items():
            parameters = inspect.signature(function).parameters
            takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
            value = function(**(args if takes_all else {key: args[key] for key in parameters if key in args}))
            scores, labels = args.get("scores"), args["query_labels"]  # no scores are kept in the peer's interface
            if scores is not None and name not in scores and getattr(value, "shape", None) == labels.shape[:1]:
                scores[name] = torch.as_tensor(value, dtype=torch.float64, device=labels.device)
                value = averaged(scores[name], args["classes"], self.average)
            values[name] = value
        return values

    def _select(self, include: Sequence[str], exclude: Sequence[str]) -> tuple[str, ...]:
        self.check_primary_metrics(include, exclude)
        requested = dict.fromkeys(include or self.selected)
        names = dict.fromkeys([*filter(requested.__contains__, self.methods), *requested])
        selected = tuple(name for name in names if name not in exclude)
        if not selected:
            raise ValueError(f"exclude: got {exclude!r}, which leaves none of {', '.join(requested)}")
        if self.on_lone == "zero" and (ranks := {"mean_rank", "median_rank"}.intersection(selected)):
            raise ValueError(f"on_lone: got 'zero', which is better than any {min(ranks)}; wanted 'exclude' or 'error'")
        unsupported = tuple(name for name in selected if name == CENTROID or self._needs_clusters(name))
        for option, value in (("label_comparison_fn", self.comparison), ("gains", self.gains)):
            if value is not None and unsupported:
                raise NotImplementedError(
                    f"{option}: {', '.join(unsupported)} cannot use it; write exclude={unsupported!r}"
                )
        return selected

    def _needs_clusters(self, name: str) -> bool:
        return name in CLUSTERING or name in self.requires_clustering()

    def _is_built_in(self, name: str) -> bool:
        # Computed from ranks or clusters, not by a method of a subclass.
        return not self._overrides(self.function_keyword + name)

    def _range(self, name: str, scores: Tensor) -> tuple[float, float]:
        if not self._is_built_in(name) and not ((scores == 0) | (scores == 1) | scores.isnan()).all():
            return UNBOUNDED
        return (1.0, torch.inf) if name.startswith("mean_rank") else (0.0, 1.0)

    def _functions(self, names: Sequence[str]) -> dict[str, Callable]:
        value_function = functools.partial(functools.partial, self._value)
        return {name: getattr(self, self.function_keyword + name, None) or value_function(name) for name in names}

    def _value(self, name: str, **args: Any) -> Tensor:
        return built_in(name, self.average, **{"label_comparison_fn": self.label_comparison_fn} | args)

    def _overrides(self, method: str) -> bool:
        return getattr(type(self), method, None) is not getattr(MetricMethods, method, None)


def to_floats(values: dict[str, Any]) -> dict[str, Any]:
    """Convert tensors to floats and lists of floats, by one transfer to the host."""
    tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
    result, flat = dict(values), []
    if tensors:
        device = next(iter(tensors.values())).device
        flat = torch.cat([tensor.to(device, torch.float64).flatten() for tensor in tensors.values()]).tolist()
    for name, tensor in tensors.items():
        result[name], flat = (flat[: tensor.numel()], flat[tensor.numel() :]) if tensor.ndim else (flat[0], flat[1:])
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in result.items()}


def default_device(rows: Any) -> torch.device:
    """Return the device of the rows, if that is no CPU, else the current CUDA device if there is one."""
    if isinstance(rows, Tensor) and rows.device.type != "cpu":
        return rows.device
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
