"""One confusion matrix with its posterior, and a group of them."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...uncertainty.statistics.heterogeneity import HeterogeneityResult, estimate_i2
from ..metrics.parse import ConfusionMetricCollection
from ..metrics.quantity import ROOTS, Quantity
from ..metrics.registry import ExperimentAggregator, get_experiment_aggregator
from ..metrics.sample_metrics import sample_metrics
from ..sampling.confusion_matrix import checked_labels, refuse_empty_rows, validate_confusion_matrix
from ..sampling.confusion_sums import Method
from ..sampling.dirichlet import HIERARCHICAL_WITH_ITEMS, confusion_prior_of, dirichlet_prior
from ..sampling.errors import ConfigError
from ..sampling.paired import PairedItems
from ..sampling.rng import RNG
from . import aggregators as aggregators  # registers them

Metrics = str | Quantity | Iterable[str | Quantity]


@dataclass(frozen=True, eq=False)
class _Result(ABC):
    metric: Quantity
    values: Tensor  # (S, C), or (S, 1) for a metric with one value for all classes

    @property
    @abstractmethod
    def num_classes(self) -> int: ...

    @property
    def is_multiclass(self) -> bool:
        return self.metric.is_multiclass

    @property
    def bounds(self) -> tuple[float, float]:
        return self.metric.bounds_of(self.num_classes)

    @property
    def num_samples(self) -> int:
        return len(self.values)

    @property
    def nbytes(self) -> int:
        return self.values.nbytes

    def numpy(self) -> np.ndarray:
        return self.values.cpu().numpy()


@dataclass(frozen=True, eq=False)
class ExperimentResult(_Result):
    """Samples of a metric for one experiment; with the method "input" its one observed value."""

    experiment: "Experiment"

    @property
    def num_classes(self) -> int:
        return self.experiment.num_classes


@dataclass(frozen=True, eq=False)
class ExperimentAggregationResult(_Result):
    """Samples of a metric pooled over the experiments of a group."""

    experiment_group: "ExperimentGroup"
    aggregator: ExperimentAggregator
    experiment_values: Tensor  # (S, M, C) or (S, M, 1)

    @property
    def num_classes(self) -> int:
        return self.experiment_group.num_classes

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + self.experiment_values.nbytes

    @cached_property
    def heterogeneity_results(self) -> HeterogeneityResult:
        return estimate_i2(self.experiment_values)


@dataclass(frozen=True, eq=False)
class ExperimentGroupResult:
    """Aggregated and individual results of the experiments of a group, by metric."""

    aggregation_result: dict[Quantity, ExperimentAggregationResult]
    individual_experiment_results: dict[Quantity, list[ExperimentResult]]


class Experiment:
    """A confusion matrix (rows are the truth) and the priors of its posterior; priors as in `sample_sums`.

    Draws are addressed by the seed of `rng` and `name`; those of the posterior also by the label of `items`, if given,
    which the matrix counts: experiments on the same items share what is random in them. ConfMatIOError, ConfigError:
    see `validate_confusion_matrix` and `dirichlet_prior`. `labels` are the names of the classes.

    >>> from tensormetrics.posterior.sampling.rng import RNG
    >>> experiment = Experiment("mlp", RNG(0), [[90, 10], [12, 88]])
    >>> ((metric, found),) = experiment.sample_metrics("acc", "posterior", 1000).items()
    >>> found.values.shape
    torch.Size([1000, 1])
    """

    truth_digest: bytes | None = None  # to find experiments with the same y_true; None if it is irrelevant

    def __init__(
        self,
        name: str,
        rng: RNG,
        confusion_matrix: Any,
        prevalence_prior: Any = "perks",
        confusion_prior: Any = "balanced",
        *,
        items: PairedItems | None = None,
        labels: Sequence[str] | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        self.name, self.rng = name, rng
        self.items = None if items is None else items._replace(cells=items.cells.to(device))
        self.confusion_matrix = validate_confusion_matrix(confusion_matrix, allow_empty_rows=True).to(device)
        C = self.num_classes
        try:
            self.labels = checked_labels(labels, C)
            self.prevalence_prior = dirichlet_prior(prevalence_prior, (C,), argument="prevalence_prior")
            self.confusion_prior = confusion_prior_of(confusion_prior, C)
        except ValueError as error:
            raise ConfigError(f"experiment {name!r}: {error}") from None
        if isinstance(self.confusion_prior, Tensor):
            refuse_empty_rows(self.confusion_matrix.cpu() + self.confusion_prior)
        elif items is not None:
            raise ConfigError(f"experiment {name!r}: {HIERARCHICAL_WITH_ITEMS}")

    @property
    def num_classes(self) -> int:
        return len(self.confusion_matrix)

    def __repr__(self) -> str:
        return f"Experiment({self.name!r}, items={self.num_predictions:g}, classes={self.num_classes})"

    @property
    def num_predictions(self) -> float:
        return float(self.confusion_matrix.sum())

    def sample_metrics(
        self, metrics: Metrics, sampling_method: Method, num_samples: int, **options: Any
    ) -> dict[Quantity, ExperimentResult]:
        """Draw samples of each metric, in order; `options` are those of `sample_metrics`."""
        collection = ConfusionMetricCollection(metrics)
        values = sample_metrics(
            self.confusion_matrix,
            collection,
            num_samples,
            method=sampling_method,
            prevalence_prior=self.prevalence_prior,
            confusion_prior=self.confusion_prior,
            seed=self.rng.seed,
            names=[self.name],
            items=self.items,
            **options,
        )
        return {
            metric: ExperimentResult(metric, result[:, 0], self)
            for metric, result in zip(collection, values, strict=True)
        }

    def sample(self, sampling_method: Method, num_samples: int) -> dict[Quantity, ExperimentResult]:
        """Draw samples of all root quantities."""
        return self.sample_metrics(list(ROOTS.values()), sampling_method, num_samples)

    def sample_input(self) -> dict[Quantity, ExperimentResult]:
        return self.sample("input", 1)

    def sample_prior(self, num_samples: int) -> dict[Quantity, ExperimentResult]:
        return self.sample("prior", num_samples)

    def sample_posterior(self, num_samples: int) -> dict[Quantity, ExperimentResult]:
        return self.sample("posterior", num_samples)

    def sample_random_model(self, num_samples: int) -> dict[Quantity, ExperimentResult]:
        return self.sample("random", num_samples)


class ExperimentGroup:
    """Experiments of one kind, with equally many classes, that can be pooled.

    >>> from tensormetrics.posterior.sampling.rng import RNG
    >>> group = ExperimentGroup("mlp", RNG(0))
    >>> for fold, right in enumerate((88, 90)):
    ...     _ = group.add_experiment(f"fold {fold}", [[right, 100 - right], [12, 88]])
    >>> sorted(group.experiments)
    ['fold 0', 'fold 1']
    """

    def __init__(self, name: str, rng: RNG) -> None:
        self.name, self.rng = name, rng
        self.experiments: dict[str, Experiment] = {}

    def add_experiment(
        self,
        name: str,
        confusion_matrix: Any,
        prevalence_prior: Any = "perks",
        confusion_prior: Any = "balanced",
        **options: Any,
    ) -> Experiment:
        full_name = f"{self.name}/{name}"
        experiment = Experiment(full_name, self.rng, confusion_matrix, prevalence_prior, confusion_prior, **options)
        others = {other.num_classes for key, other in self.experiments.items() if key != name}
        if others and experiment.num_classes not in others:
            raise ConfigError(
                f"experiment {full_name!r} has {experiment.num_classes} classes, the others of its group {others.pop()}"
            )
        others_labels = {other.labels for key, other in self.experiments.items() if key != name}
        label_sets = {experiment.labels, *others_labels} - {None}
        if len(label_sets) > 1:
            ours, theirs = experiment.labels, (label_sets - {experiment.labels}).pop()
            raise ConfigError(f"experiment {full_name!r} has the classes {ours}, the others of its group {theirs}")
        self.experiments[name] = experiment
        return experiment

    def __repr__(self) -> str:
        return f"ExperimentGroup({self.name!r}, experiments={[*self.experiments]})"

    def __getitem__(self, name: str) -> Experiment:
        return self.experiments[name]

    def __len__(self) -> int:
        return len(self.experiments)

    @property
    def num_experiments(self) -> int:
        return len(self)

    @property
    def num_classes(self) -> int:
        return next(iter(self.experiments.values())).num_classes

    @property
    def labels(self) -> tuple[str, ...] | None:
        """The names of the classes, if an experiment has them."""
        return next((experiment.labels for experiment in self.experiments.values() if experiment.labels), None)

    def class_index(self, class_label: int | str | None, metric: str, experiment: str) -> int:
        """Return the index of a class, by index or name; the error names the metric and the experiment."""
        C, labels = self.num_classes, self.labels or ()
        if class_label in labels:
            return labels.index(class_label)
        if isinstance(class_label, int) and not isinstance(class_label, bool) and 0 <= class_label < C:
            return class_label
        names = f"{', '.join(map(repr, labels))} or " if labels else ""
        raise ValueError(
            f"class_label: got {class_label!r} for metric {metric!r}, wanted {names}0 to {C - 1} for "
            f"experiment {experiment!r}"
        )

    def sample_metrics(
        self,
        metrics: Metrics,
        sampling_method: Method,
        num_samples: int,
        metric_to_aggregator: Mapping[Quantity, ExperimentAggregator] | None = None,
        **options: Any,
    ) -> ExperimentGroupResult:
        """Draw samples of every experiment, and pool those of the metrics that have an aggregator."""
        collection = ConfusionMetricCollection(metrics)
        single = [
            e.sample_metrics(collection, sampling_method, num_samples, **options) for e in self.experiments.values()
        ]
        individual = {metric: [results[metric] for results in single] for metric in collection}
        pooled = {
            metric: self.aggregate(metric, aggregator, individual[metric], sampling_method)
            for metric, aggregator in (metric_to_aggregator or {}).items()
        }
        return ExperimentGroupResult(pooled, individual)

    def aggregate(
        self,
        metric: Quantity,
        aggregator: ExperimentAggregator | None,
        results: list[ExperimentResult],
        sampling_method: Method = "posterior",
    ) -> ExperimentAggregationResult:
        """Pool the samples of a metric. Draws depend on metric and class, not on the order of calls."""
        if sampling_method == "input":
            raise ValueError(f"group {self.name!r}: the input has no aggregate; ask for an experiment's own values")
        if aggregator is None and len(results) > 1:
            raise ValueError(
                f"group {self.name!r} has {len(results)} experiments and metric {metric.name!r} no aggregation; "
                f"write add_metric({metric.name!r}, aggregation='fe')"
            )
        aggregator = aggregator or get_experiment_aggregator("singleton")
        samples = torch.stack([result.values.mT for result in results]).movedim(-1, 0)  # as they lie in memory
        bounds = metric.bounds_of(self.num_classes)
        name = f"{self.name}/aggregated/{sampling_method}/{metric.name}"
        root = RNG(self.rng.seed, name, device=samples.device)
        if aggregator.takes_classes:
            aggregator.rng = root
            pooled = aggregator(samples, bounds)
        else:
            columns = []
            for c, rng in enumerate(root.spawn(samples.shape[-1])):
                aggregator.rng = rng
                columns.append(aggregator(samples[..., c], bounds))
            pooled = torch.stack(columns, -1)
        return ExperimentAggregationResult(metric, pooled, self, aggregator, samples)
