"""The samples of a study: experiments in groups, metrics, and a bounded cache of draws."""

import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.arguments.repr import keywords
from ...uncertainty.statistics.samples import check_probability
from ..metrics.parse import find_metric
from ..metrics.quantity import Quantity
from ..metrics.registry import ExperimentAggregator, check_zero_division, get_experiment_aggregator
from ..sampling.confusion_sums import METHODS, Method
from ..sampling.dirichlet import DTYPES
from ..sampling.errors import ConfigError, ConfigWarning
from . import config as config
from .aggregators import pool
from .experiment import Experiment

Label = int | str | None
MAX_REPLICATES = 10**9


class StudySamples:
    """Experiments in groups, metrics, and samples of both; see `Study`."""

    @checks.names_arguments
    def __init__(
        self,
        seed: int | None = None,
        replicates: int = 10_000,
        confidence: float = 0.95,
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
        self._groups: dict[str, dict[str, Experiment]] = {}
        self._metrics: dict[str, dict[str, Any]] = {}
        self._aggregators: dict[Quantity, ExperimentAggregator | None] = {}
        self._samples: OrderedDict[tuple, Tensor] = OrderedDict()
        self._ignored: set[tuple] = set()  # class labels of metrics that have none
        self.seed, self.replicates, self.confidence = config.checked_seed(seed), replicates, confidence
        self.experiments = {} if experiments is None else experiments
        self.metrics = {} if metrics is None else metrics

    def __repr__(self) -> str:
        names = "seed", "replicates", "confidence", "device", "dtype", "memory_limit", "zero_division"
        options = {name: getattr(self, name) for name in names}
        experiments = [f"\n  {name}: {self[name].num_predictions:g} items" for name in self.list_experiments()]
        metrics = f"\n  metrics: {', '.join(self._metrics) or 'none'}"
        return f"Study({keywords(type(self).__init__, options)}){''.join(experiments)}{metrics}"

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "seed":
            value = checks.check_int(name, value, 0)
        elif name == "replicates" and (value := checks.check_int(name, value, 1)) > MAX_REPLICATES:
            raise ValueError(f"replicates: got {value}, wanted at most {MAX_REPLICATES}")
        elif name == "confidence":
            check_probability(name, value)
        super().__setattr__(name, value)

    @property
    def experiments(self) -> dict[str, dict[str, dict[str, Any]]]:
        """The argument of the constructor, as numbers and lists."""
        return {
            group: {name: dict(experiment.config) for name, experiment in members.items()}
            for group, members in self._groups.items()
        }

    @experiments.setter
    def experiments(self, experiments: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> None:
        with self._all_or_nothing():
            self._groups = {}
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
        num_classes - 1; tables and plots call them by these names, and `class_label` may be one of them. Experiments
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
            others = (other for members in self._groups.values() for other in members.values())
            config.check_items(full_name, data.items, len(data.confusion_matrix), others)
        priors: dict[str, Any] = {
            "prevalence_prior": "perks" if prevalence_prior is None else prevalence_prior,
            "confusion_prior": "balanced" if confusion_prior is None else confusion_prior,
        }
        members = self._groups.get(group, {})
        if name in members:
            _warn(f"experiment {full_name!r} is there already; it is overwritten")
        options: dict[str, Any] = {"items": data.items, "labels": data.labels, "device": self.device}
        try:
            experiment = Experiment(full_name, data.confusion_matrix, **priors, **options)
        except ValueError as error:
            text = str(error)
            raise type(error)(text if full_name in text else f"experiment {full_name!r}: {text}") from None
        config.check_group(experiment, [other for key, other in members.items() if key != name])
        experiment.truth_digest, experiment.config = data.truth_digest, config.to_json(data.config | priors)
        self._groups[group] = {**members, name: experiment}

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

    def samples(self, metric: str | Quantity, experiment: str, method: Method = "posterior") -> Tensor:
        """Return samples of a metric for "group/experiment", or pooled ones for "group/aggregated".

        Args:
            metric: A metric of the study, by any of its names.
            experiment: Name of an experiment or of the aggregate of a group.
            method: Distribution, as in `sample_sums`: "posterior", "prior", "random" or "input", the observed value.

        Shape:
            - Output: ``(S, C)``, or ``(S, 1)`` for a metric with one value for all classes

        Returns:
            The samples, on the device and in the dtype of the study. They depend on its seed and the name alone.

        Raises:
            ValueError: If a name is unknown, or a group of several experiments has no aggregation for this metric.
        """
        checks.check_choice("method", method, METHODS)
        quantity = self.find_metric(metric)
        group, name = config.split_name(experiment)
        members = self._group(group)
        if name != config.AGGREGATED:
            return self._sampled(self._experiment(group, name), quantity, method)
        if method == "input":
            raise ValueError(f"group {group!r}: the input has no aggregate; ask for an experiment's own values")
        aggregator = self._aggregators[quantity]
        if aggregator is None and len(members) > 1:
            raise ValueError(
                f"group {group!r} has {len(members)} experiments and metric {quantity.name!r} no aggregation; "
                f"write add_metric({quantity.name!r}, aggregation='fe')"
            )

        def pooled() -> Tensor:
            parts = [self._sampled(member, quantity, method) for member in members.values()]
            bounds = quantity.bounds_of(next(iter(members.values())).num_classes)
            name = f"{group}/{config.AGGREGATED}/{method}/{quantity.name}"
            return pool(parts, aggregator or get_experiment_aggregator("singleton"), bounds, self.seed, name)

        draws = self.seed, self.replicates, method, quantity.name
        return self._cached((*members.values(), aggregator, *draws), pooled)

    def find_metric(self, metric: str | Quantity) -> Quantity:
        """Return a metric of the study, by any of its names."""
        quantity = find_metric(metric, self.zero_division)
        if quantity not in self._aggregators:
            raise config.unknown("metric", metric if isinstance(metric, str) else metric.name, self._metrics)
        return quantity

    def column(
        self, metric: str | Quantity, class_label: Label, experiment: str, method: Method = "posterior"
    ) -> Tensor:
        """Return the samples (S,) of one value of a metric, of the class with this name or number if it needs one."""
        return self.samples(metric, experiment, method)[:, self.class_index(metric, class_label, experiment)]

    def class_index(self, metric: str | Quantity, class_label: Label, experiment: str) -> int:
        """Return the index of a class of an experiment; 0 for a metric with one value for all classes."""
        quantity = self.find_metric(metric)
        if quantity.is_multiclass:
            if class_label not in (None, 0) and (quantity.name, class_label) not in self._ignored:
                self._ignored.add((quantity.name, class_label))  # warned of once, however many samples a table reads
                _warn(f"metric {quantity.name!r} has one value for all classes; class_label {class_label!r} is ignored")
            return 0
        C, names = self._classes(experiment)
        if class_label in names:
            return names.index(class_label)
        if isinstance(class_label, int) and not isinstance(class_label, bool) and 0 <= class_label < C:
            return class_label
        raise ValueError(
            f"class_label: got {class_label!r} for metric {quantity.name!r}, wanted "
            f"{', '.join(map(repr, names))}{' or ' * bool(names)}0 to {C - 1} for experiment {experiment!r}"
        )

    def titled(self, title: str, metric: str, class_label: Label, experiment: str) -> str:
        """Return a title with the name of the class if each class has a value."""
        if self.find_metric(metric).is_multiclass:
            return title
        index, (_, names) = self.class_index(metric, class_label, experiment), self._classes(experiment)
        return f"{title}, class {names[index] if names else index}"

    def _classes(self, experiment: str) -> tuple[int, tuple[str, ...]]:
        """Return the number of classes of an experiment, and their names if one of its group has them."""
        members = self._group(config.split_name(experiment)[0]).values()
        return next(iter(members)).num_classes, next((member.labels for member in members if member.labels), ())

    def list_experiments(self) -> list[str]:
        """List the names "group/experiment", group by group, in the order of insertion."""
        return [f"{group}/{name}" for group, members in self._groups.items() for name in members]

    def __getitem__(self, name: str) -> Experiment:
        return self._experiment(*config.split_name(name))

    def _group(self, name: str) -> dict[str, Experiment]:
        if name not in self._groups:
            raise config.unknown("group", name, self._groups)
        return self._groups[name]

    def _experiment(self, group: str, name: str) -> Experiment:
        members = self._group(group)
        if name not in members:
            raise config.unknown("experiment", f"{group}/{name}", sorted(self.list_experiments()))
        return members[name]

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def num_classes(self) -> int:
        """The number of classes that all experiments share; ConfigError if they differ."""
        sizes = sorted({self[name].num_classes for name in self.list_experiments()})
        if len(sizes) != 1:
            raise ConfigError(f"num_classes: experiments have {sizes or 'no'} classes, wanted one number for all")
        return sizes[0]

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        before = dict(vars(self))
        try:
            yield
        except BaseException:
            vars(self).update(before)
            raise

    def _sampled(self, experiment: Experiment, metric: Quantity, method: Method) -> Tensor:
        draws = experiment, self.seed, self.replicates, method

        def draw() -> Tensor:
            # One pass over the draws computes all metrics of the study that are not cached, as far as memory allows.
            metrics, free_bytes = [metric], self.memory_limit // 2
            for other in self._aggregators:
                free_bytes -= self.replicates * self.dtype.itemsize * experiment.num_classes
                if free_bytes > 0 and other is not metric and (*draws, other.name) not in self._samples:
                    metrics.append(other)
            scratch = {"dtype": self.dtype, "memory_limit": self.memory_limit // 4}
            results = experiment.samples(metrics, method, self.replicates, seed=self.seed, **scratch)
            for other, values in zip(metrics[1:], results[1:], strict=True):
                self._store((*draws, other.name), values)
            return results[0]

        return self._cached((*draws, metric.name), draw)

    def _cached(self, key: tuple, make: Callable[[], Tensor]) -> Tensor:
        if key not in self._samples:
            self._store(key, make())
        self._samples.move_to_end(key)
        return self._samples[key]

    def _store(self, key: tuple, values: Tensor) -> None:
        self._samples[key] = values
        used = sum(cached.nbytes for cached in self._samples.values())
        while used > self.memory_limit * 3 // 4 and len(self._samples) > 1:
            used -= self._samples.popitem(last=False)[1].nbytes


def _warn(text: str) -> None:
    warnings.warn(text, ConfigWarning, stacklevel=3)
