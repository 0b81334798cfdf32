"""Studies: experiments in groups and metrics, with reports, comparisons and plots."""

import inspect
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.arguments.repr import keywords
from ..metrics.parse import find_metric
from ..metrics.quantity import Quantity
from ..metrics.registry import ExperimentAggregator, check_zero_division, get_experiment_aggregator
from ..sampling.confusion_sums import METHODS, Method
from ..sampling.dirichlet import DTYPES
from ..sampling.errors import ConfigError, ConfigWarning
from ..sampling.rng import RNG
from . import comparisons, figures, reports, tables
from . import config as config
from .experiment import Experiment, ExperimentAggregationResult, ExperimentGroup, ExperimentResult
from .samples import Label, Result

CachedResult = TypeVar("CachedResult", bound=Result)


class Study:
    """Experiments "group/experiment" and metrics; reports and plots of their posteriors and comparisons.

    `experiments`: {group: {experiment: {"confusion_matrix": ..., other arguments of `add_experiment`}}}; `metrics`:
    {metric string: {} or {"aggregation": ..., its options}}, where "__default__" gives what entries without an
    aggregation have; or a list of metric strings. `seed=None` draws a seed. Samples are drawn when asked for, on
    `device`, and depend on `seed` and the experiment's name alone. Cached samples and scratch memory stay near
    `memory_limit` bytes; dropped samples are drawn again, equal. `zero_division` as in `get_metric`, for all metrics.

    Bad arguments raise a ValueError, often a ConfigError, or a TypeError; a ConfigWarning names values that were chosen
    or converted.

    >>> study = Study(seed=0, metrics={"acc": {}})
    >>> study.add_experiment("mlp", [[90, 10], [12, 88]])
    >>> study.add_experiment("cnn", [[95, 5], [10, 90]])
    >>> print(study.report_metric_summaries("acc", columns=["Observed", "Median"]))
    | Group | Experiment | Observed | Median |
    | ----- | ---------- | -------- | ------ |
    | mlp   | mlp        |   0.8900 | 0.8896 |
    | cnn   | cnn        |   0.9250 | 0.9238 |
    >>> print(study.report_pairwise_comparison("acc", experiment_a="cnn", experiment_b="mlp").splitlines()[1])
    P(cnn > mlp) = 88.58%, P(cnn < mlp) = 11.42%.
    """

    def __init__(
        self,
        seed: int | None = None,
        num_samples: int | None = config.NUM_SAMPLES,
        ci_probability: float | None = config.CI_PROBABILITY,
        experiments: Mapping[str, Mapping[str, Mapping[str, Any]]] | None = None,
        metrics: Mapping[str, Mapping[str, Any]] | Sequence[str] | str | None = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float32,
        memory_limit: int = 2**30,
        zero_division: float | None = None,
    ) -> None:
        checks.check_choice("dtype", dtype, DTYPES)
        if zero_division is not None:
            check_zero_division(zero_division)
        self.zero_division = zero_division
        self.device, self.dtype = config.checked_device(device), dtype
        self.memory_limit = checks.check_int("memory_limit", memory_limit, 1)
        self._groups: dict[str, ExperimentGroup] = {}
        self._metrics: dict[str, dict[str, Any]] = {}
        self._aggregators: dict[Quantity, ExperimentAggregator | None] = {}
        self._described: dict[str, dict[str, dict[str, Any]]] = {}
        self._samples: OrderedDict[tuple, Result] = OrderedDict()
        self._ignored: set[tuple] = set()  # class labels of metrics that have none
        self.seed, self.num_samples, self.ci_probability = seed, num_samples, ci_probability
        self.experiments = {} if experiments is None else experiments
        self.metrics = {} if metrics is None else metrics

    def __repr__(self) -> str:
        names = "seed", "num_samples", "ci_probability", "device", "dtype", "memory_limit"
        options = {name: getattr(self, name) for name in names} | {"zero_division": self.zero_division}
        groups = self._groups.values()
        members = (member for group in groups for member in group.experiments.values())
        experiments = [f"\n  {member.name}: {member.num_predictions:g} items" for member in members]
        metrics = f"\n  metrics: {', '.join(self._metrics) or 'none'}"
        return f"Study({keywords(type(self).__init__, options)}){''.join(experiments)}{metrics}"

    @property
    def seed(self) -> int:
        return self._seed

    @seed.setter
    def seed(self, seed: int | None) -> None:
        self._seed = config.checked_seed(seed)
        for group in self._groups.values():
            group.rng.seed = self._seed

    @property
    def num_samples(self) -> int:
        return self._num_samples

    @num_samples.setter
    def num_samples(self, num_samples: int | None) -> None:
        self._num_samples = config.checked_num_samples(num_samples)

    @property
    def ci_probability(self) -> float:
        return self._ci_probability

    @ci_probability.setter
    def ci_probability(self, ci_probability: float | None) -> None:
        self._ci_probability = config.checked_ci_probability(ci_probability)

    @property
    def experiments(self) -> dict[str, dict[str, dict[str, Any]]]:
        """The argument of the constructor, as numbers and lists."""
        return config.to_json(self._described)

    @experiments.setter
    def experiments(self, experiments: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> None:
        with self._all_or_nothing():
            self._groups, self._described = {}, {}
            for group, members in config.mapping("experiments", experiments).items():
                for name, options in config.mapping(f"experiments: group {group!r}", members).items():
                    full_name = f"{group}/{name}"
                    options = config.mapping(f"experiment {full_name!r}", options)
                    if unknown := [key for key in options if key not in config.EXPERIMENT_KEYS]:
                        valid = ", ".join(config.EXPERIMENT_KEYS)
                        raise ConfigError(
                            f"experiment {full_name!r}: unknown key {unknown[0]!r}, wanted some of {valid}"
                        )
                    self.add_experiment(full_name, **options)
        self._samples.clear()

    @property
    def metrics(self) -> dict[str, dict[str, Any]]:
        return {name: dict(options) for name, options in self._metrics.items()}

    @metrics.setter
    def metrics(self, metrics: Mapping[str, Mapping[str, Any]] | Sequence[str] | str) -> None:
        if isinstance(metrics, str):
            metrics = [metrics]
        if isinstance(metrics, list | tuple) and all(isinstance(name, str) for name in metrics):
            metrics = {name: {} for name in metrics}
        metrics = dict(config.mapping("metrics", metrics, " such as {'acc': {}}"))
        default = metrics.pop("__default__", {})
        with self._all_or_nothing():
            self._metrics, self._aggregators = {}, {}
            for name, options in metrics.items():
                options = config.mapping(f"metric {name!r}", default if options is None or options == {} else options)
                if options and "aggregation" not in options:
                    raise ConfigError(
                        f"metric {name!r}: got {sorted(options)} without 'aggregation', wanted that key too"
                    )
                self.add_metric(name, **options)

    def add_experiment(
        self,
        experiment_name: str,
        confusion_matrix: Any = None,
        prevalence_prior: Any = None,
        confusion_prior: Any = None,
        y_true: Any = None,
        y_pred: Any = None,
        *,
        num_classes: int | None = None,
        labels: Any = None,
        items: str | Literal[False] | None = None,
        groups: Any = None,
    ) -> None:
        """Add "group/experiment", or "name" for "name/name", from its confusion matrix or from its labels.

        Priors are those of `sample_sums`; None means "perks" and "balanced", with which intervals of the accuracy cover
        it for any number of classes. With 0, events that were never observed are impossible. `labels` are the classes
        in the order of the matrix, by default those of y_true and y_pred, sorted, or with `num_classes` 0 to
        num_classes - 1; reports and plots call them by these names, and `class_label` may be one of them. Experiments
        of a group have the same. `items` names the test set: experiments of one name have the same y_true, and
        comparisons pair what they predict. A comparison of experiments with the same y_true and without items warns;
        items=False says that these differ. `groups` (N,), integers or names, are the documents, patients or speakers of
        the items of y_true and y_pred: intervals resample groups.
        """
        group, name = config.split_name(experiment_name)
        full_name = f"{group}/{name}"
        if config.AGGREGATED in (group, name):
            raise ConfigError(f"experiment {full_name!r}: {config.AGGREGATED!r} is the name of the aggregate")
        data = config.read_experiment(full_name, confusion_matrix, y_true, y_pred, num_classes, labels, items, groups)
        if data.items is not None:
            others = (other for other_group in self._groups.values() for other in other_group.experiments.values())
            config.check_items(full_name, data.items, len(data.confusion_matrix), others)
        priors = {
            "prevalence_prior": "perks" if prevalence_prior is None else prevalence_prior,
            "confusion_prior": "balanced" if confusion_prior is None else confusion_prior,
        }
        members = self._described.setdefault(group, {})
        if name in members:
            _warn(f"experiment {full_name!r} is there already; it is overwritten")
        holder = self._groups.get(group) or ExperimentGroup(group, RNG(self.seed))
        try:
            options = {"items": data.items, "labels": data.labels, "device": self.device}
            holder.add_experiment(name, data.confusion_matrix, **priors, **options).truth_digest = data.truth_digest
        except ValueError as error:
            if not members:
                del self._described[group]
            raise type(error)(_naming(full_name, error)) from None
        self._groups[group] = holder
        members[name] = config.to_json(data.config | priors)

    def add_metric(self, metric: str | Quantity, aggregation: str | None = None, **aggregation_options: Any) -> None:
        """Add a metric, and how experiments of a group are pooled: see `get_experiment_aggregator`."""
        quantity = find_metric(metric, self.zero_division)
        name = metric if isinstance(metric, str) else metric.name
        aggregator, described = None, {}
        if aggregation is not None:
            aggregator = get_experiment_aggregator(aggregation, **aggregation_options)
            described = {"aggregation": aggregation, **aggregation_options}
        elif aggregation_options:
            raise ValueError(f"metric {name!r}: got {sorted(aggregation_options)} without an aggregation, wanted both")
        self._metrics[name], self._aggregators[quantity] = described, aggregator

    def get_metric_samples(
        self, metric: str | Quantity, experiment_name: str, sampling_method: Method = "posterior"
    ) -> Result:
        """Return samples of a metric of the study for "group/experiment", or for "group/aggregated"."""
        checks.check_choice("sampling_method", sampling_method, METHODS)
        quantity = self.find_metric(metric)
        group, name = config.split_name(experiment_name)
        if group not in self._groups:
            raise config.unknown("group", group, self._groups)
        holder = self._groups[group]
        if name != config.AGGREGATED:
            return self._sampled(self._experiment(group, name), quantity, sampling_method)
        members = tuple(holder.experiments.values())
        aggregator = self._aggregators[quantity]

        def pool() -> ExperimentAggregationResult:
            parts = [self._sampled(experiment, quantity, sampling_method) for experiment in members]
            return holder.aggregate(quantity, aggregator, parts, sampling_method)

        return self._cached((members, aggregator, self.seed, self.num_samples, sampling_method, quantity.name), pool)

    def find_metric(self, metric: str | Quantity) -> Quantity:
        """Return a metric of the study, by any of its names."""
        quantity = find_metric(metric, self.zero_division)
        if quantity not in self._aggregators:
            raise config.unknown("metric", metric if isinstance(metric, str) else metric.name, self._metrics)
        return quantity

    def column(
        self, metric: str | Quantity, class_label: Label, experiment: str, method: Method = "posterior"
    ) -> Tensor:
        """Return the samples (S,) of one value of a metric."""
        result = self.get_metric_samples(metric, experiment, method)
        return result.values[:, self.class_index(metric, class_label, [experiment])]

    def class_index(self, metric: str | Quantity, class_label: Label, experiments: Sequence[str]) -> int:
        """Return the index of a class of these experiments; 0 for a metric with one value for all classes."""
        quantity = self.find_metric(metric)
        if not quantity.is_multiclass:
            index = 0
            for name in experiments:
                index = self._group(config.split_name(name)[0]).class_index(class_label, quantity.name, name)
            return index
        if class_label not in (None, 0) and (quantity.name, class_label) not in self._ignored:
            self._ignored.add((quantity.name, class_label))  # warned of once, however many samples a report reads
            warnings.warn(
                f"metric {quantity.name!r} has one value for all classes; class_label {class_label!r} is ignored",
                ConfigWarning,
                stacklevel=3,
            )
        return 0

    def titled(self, metric: str, class_label: Label, experiments: Sequence[str], title: str | None = None) -> str:
        """Return `title`, by default the metric's name, with the name of the class if each class has a value."""
        title = metric if title is None else title
        if self.find_metric(metric).is_multiclass:
            return title
        index = self.class_index(metric, class_label, experiments)
        groups = [self._group(config.split_name(name)[0]) for name in experiments]
        labels = next((group.labels for group in groups if group.labels), None)
        return f"{title}, class {labels[index] if labels else index}"

    def paired(self, pairs: Sequence[Sequence[str]]) -> list[bool]:
        """Return which pairs of experiments have samples of the same items; warn of pairs that might have."""
        pooled = f"/{config.AGGREGATED}"
        return config.paired(
            [
                [None if name.endswith(pooled) else self._experiment(*config.split_name(name)) for name in pair]
                for pair in pairs
            ]
        )

    # Reports, comparisons and figures are functions of a study; see `Samples`.
    get_pairwise_comparison = comparisons.get_pairwise_comparison
    get_pairwise_random_comparison = comparisons.get_pairwise_random_comparison
    compare_all_pairs = comparisons.compare_all_pairs
    table = tables.table
    compare = tables.compare
    get_listwise_comparison_result = comparisons.get_listwise_comparison_result
    get_fold_comparison = comparisons.get_fold_comparison
    report_metric_summaries = reports.report_metric_summaries
    report_random_metric_summaries = reports.report_random_metric_summaries
    report_aggregated_metric_summaries = reports.report_aggregated_metric_summaries
    report_pairwise_comparison = reports.report_pairwise_comparison
    report_pairwise_comparisons = reports.report_pairwise_comparisons
    report_pairwise_comparison_to_random = reports.report_pairwise_comparison_to_random
    report_listwise_comparison = reports.report_listwise_comparison
    report_expected_reward = reports.report_expected_reward
    report_fold_comparison = reports.report_fold_comparison
    plot_metric_summaries = figures.plot_metric_summaries
    plot_experiment_aggregation = figures.plot_experiment_aggregation
    plot_pairwise_comparison = figures.plot_pairwise_comparison
    plot_forest_plot = figures.plot_forest_plot

    def list_experiments(self) -> list[str]:
        """List the names "group/experiment", group by group, in the order of insertion."""
        return [f"{group}/{name}" for group, members in self._groups.items() for name in members.experiments]

    def all_experiments(self) -> list[str]:
        """List the names "group/experiment", sorted."""
        return sorted(f"{group}/{name}" for group, members in self._described.items() for name in members)

    def __getitem__(self, key: str) -> Experiment | ExperimentGroup:
        if not isinstance(key, str):
            raise TypeError(f"study[...]: got {key!r}, wanted a string 'group' or 'group/experiment'")
        group, _, name = key.partition("/")
        return self._experiment(group, name) if name else self._group(group)

    def _group(self, name: str) -> ExperimentGroup:
        if name not in self._groups:
            raise config.unknown("group", name, self._groups)
        return self._groups[name]

    def _experiment(self, group: str, name: str) -> Experiment:
        holder = self._group(group)
        if name not in holder.experiments:
            raise config.unknown("experiment", f"{group}/{name}", self.all_experiments())
        return holder[name]

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def num_experiment_groups(self) -> int:
        return len(self)

    @property
    def num_experiments(self) -> int:
        return sum(map(len, self._groups.values()))

    @property
    def num_classes(self) -> int:
        """The number of classes that all experiments share; ConfigError if they differ."""
        sizes = sorted({group.num_classes for group in self._groups.values()})
        if len(sizes) != 1:
            raise ConfigError(f"num_classes: experiments have {sizes or 'no'} classes, wanted one number for all")
        return sizes[0]

    @property
    def fingerprint(self) -> str:
        """A digest of the result of `to_dict`."""
        return config.fingerprint(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "num_samples": self.num_samples,
            "ci_probability": self.ci_probability,
            "dtype": config.dtype_name(self.dtype),
            "experiments": self.experiments,
            "metrics": config.to_json(self.metrics),
        } | ({} if self.zero_division is None else {"zero_division": float(self.zero_division)})

    @classmethod
    def from_dict(cls, described: Mapping[str, Any], **overrides: Any) -> "Study":
        """Build the study that `to_dict` described; `overrides` are arguments of the constructor."""
        arguments = {**described, **overrides}
        valid = list(inspect.signature(cls).parameters)
        if unknown := [key for key in arguments if key not in valid]:
            raise ConfigError(f"study: unknown key {unknown[0]!r}, wanted some of {', '.join(valid)}")
        if isinstance(dtype := arguments.get("dtype"), str):
            arguments["dtype"] = config.DTYPES.get(dtype, dtype)
        return cls(**arguments)

    def save(self, path: str | Path) -> None:
        """Write a .json, .toml or .yaml file from which `load` gets the same draws."""
        config.write(self.to_dict(), path)

    @classmethod
    def load(cls, path: str | Path, **overrides: Any) -> "Study":
        """Read a study that `save` wrote; ConfigError, which names the file, for other content."""
        described = config.read(path)
        try:
            return cls.from_dict(described, **overrides)
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{path}: {error}") from None

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        names = "_groups", "_described", "_metrics", "_aggregators"
        before = [getattr(self, name) for name in names]
        try:
            yield
        except BaseException:
            for name, content in zip(names, before, strict=True):
                setattr(self, name, content)
            raise

    def _sampled(self, experiment: Experiment, metric: Quantity, method: Method) -> ExperimentResult:
        draws = experiment, self.seed, self.num_samples, method

        def draw() -> ExperimentResult:
            # One pass over the draws computes all metrics of the study that are not cached, as far as memory allows.
            metrics, free_bytes = [metric], self.memory_limit // 2
            for other in self._aggregators:
                free_bytes -= self.num_samples * self.dtype.itemsize * experiment.num_classes
                if free_bytes > 0 and other is not metric and (*draws, other.name) not in self._samples:
                    metrics.append(other)
            scratch = {"dtype": self.dtype, "memory_limit": self.memory_limit // 4}
            results = experiment.sample_metrics(metrics, method, self.num_samples, **scratch)
            for other in metrics[1:]:
                self._store((*draws, other.name), results[other])
            return results[metric]

        return self._cached((*draws, metric.name), draw)

    def _cached(self, key: tuple, make: Callable[[], CachedResult]) -> CachedResult:
        if key not in self._samples:
            self._store(key, make())
        self._samples.move_to_end(key)
        return cast(CachedResult, self._samples[key])

    def _store(self, key: tuple, result: Result) -> None:
        self._samples[key] = result
        used = sum(cached.nbytes for cached in self._samples.values())
        while used > self.memory_limit * 3 // 4 and len(self._samples) > 1:
            used -= self._samples.popitem(last=False)[1].nbytes


def _naming(name: str, error: Exception) -> str:
    text = str(error)
    return text if name in text else f"experiment {name!r}: {text}"


def _warn(text: str) -> None:
    warnings.warn(text, ConfigWarning, stacklevel=3)
