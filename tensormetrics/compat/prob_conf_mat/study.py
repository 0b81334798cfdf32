"""Experiments, groups and studies under the names of prob_conf_mat, which call `posterior.Study` and print."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial, partialmethod, wraps
from inspect import Signature, signature
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ... import posterior
from ...posterior.metrics.parse import ConfusionMetricCollection
from ...posterior.metrics.quantity import ROOTS, Quantity
from ...posterior.plots.drawing import Look, interval_of
from ...posterior.sampling import rng as streams
from ...posterior.sampling.confusion_sums import Method
from ...posterior.study.aggregators import pool
from ...posterior.study.config import AGGREGATED, check_group, full_name, is_pooled, split_name
from ...posterior.study.samples import Label
from ...uncertainty.statistics.heterogeneity import HeterogeneityResult
from .plot_options import FOREST, plot_options
from .results import ListwiseComparisonResult, PairwiseComparisonResult, PosteriorSummary, report

Rows = list[dict[str, Any]]
OURS = {"num_samples": "replicates", "ci_probability": "confidence"}  # arguments of Study
THEIRS = {ours: theirs for theirs, ours in OURS.items()}


@dataclass(frozen=True, eq=False)
class ExperimentResult:
    """Samples of a metric for one experiment; with the method "input" its one observed value."""

    metric: Quantity
    values: Tensor  # (S, C), or (S, 1) for a metric with one value for all classes
    experiment: Any

    num_classes = property(lambda self: self.experiment.num_classes)
    is_multiclass = property(lambda self: self.metric.is_multiclass)
    bounds = property(lambda self: self.metric.bounds_of(self.num_classes))
    num_samples = property(lambda self: len(self.values))


@dataclass(frozen=True, eq=False)
class ExperimentAggregationResult(ExperimentResult):
    """Samples of a metric pooled over the experiments of a group."""

    aggregator: posterior.extend.ExperimentAggregator
    experiment_values: Tensor  # (S, M, C) or (S, M, 1)

    experiment_group = property(lambda self: self.experiment)

    @cached_property
    def heterogeneity_results(self) -> HeterogeneityResult:
        return posterior.functional.estimate_i2(self.experiment_values)


class ExperimentGroupResult(NamedTuple):
    """Aggregated and individual results of the experiments of a group, by metric."""

    aggregation_result: dict[Quantity, ExperimentAggregationResult]
    individual_experiment_results: dict[Quantity, list[ExperimentResult]]


class Experiment(posterior.Experiment):
    """A confusion matrix and the priors of its posterior, with a stream of random numbers."""

    def __init__(self, name: str, rng: streams.RNG, *arguments: Any, **options: Any) -> None:
        super().__init__(name, *arguments, **options)
        self.rng = rng

    def sample_metrics(
        self, metrics: Any, sampling_method: Method, num_samples: int
    ) -> dict[Quantity, ExperimentResult]:
        """Draw samples of each metric, in order."""
        collection = ConfusionMetricCollection(metrics)
        samples = self.samples(collection, sampling_method, num_samples, seed=self.rng.seed)
        pairs = zip(collection, samples, strict=True)
        return {metric: ExperimentResult(metric, values, self) for metric, values in pairs}

    def sample(self, sampling_method: Method, num_samples: int) -> dict[Quantity, ExperimentResult]:
        """Draw samples of all root quantities."""
        return self.sample_metrics([*ROOTS.values()], sampling_method, num_samples)

    sample_input = partialmethod(sample, "input", 1)
    sample_prior = partialmethod(sample, "prior")
    sample_posterior = partialmethod(sample, "posterior")
    sample_random_model = partialmethod(sample, "random")


class ExperimentGroup(dict[str, Experiment]):
    """Experiments of one kind by name, with equally many classes, that can be pooled."""

    def __init__(self, name: str, rng: streams.RNG) -> None:
        self.name, self.rng = name, rng

    num_experiments = property(dict.__len__)
    num_classes = property(lambda self: next(iter(self.values())).num_classes)

    def add_experiment(
        self, name: str, confusion_matrix: Any, prevalence_prior: Any = "perks", confusion_prior: Any = "balanced"
    ) -> None:
        added = Experiment(f"{self.name}/{name}", self.rng, confusion_matrix, prevalence_prior, confusion_prior)
        check_group(added, [other for key, other in self.items() if key != name])
        self[name] = added

    def sample_metrics(
        self,
        metrics: Any,
        sampling_method: Method,
        num_samples: int,
        metric_to_aggregator: Mapping[Quantity, posterior.extend.ExperimentAggregator],
    ) -> ExperimentGroupResult:
        """Draw samples of every experiment, and pool those of the metrics that have an aggregator."""
        drawn = [member.sample_metrics(metrics, sampling_method, num_samples) for member in self.values()]
        single = {metric: [results[metric] for results in drawn] for metric in ConfusionMetricCollection(metrics)}
        pooled = {}
        for metric, aggregator in metric_to_aggregator.items():
            values = [result.values for result in single[metric]]
            address = self.rng.seed, f"{self.name}/{AGGREGATED}/{sampling_method}/{metric.name}"
            together = pool(values, aggregator, metric.bounds_of(self.num_classes), *address)
            pooled[metric] = ExperimentAggregationResult(metric, together, self, aggregator, torch.stack(values, 1))
        return ExperimentGroupResult(pooled, single)


def reported(rows: Callable[..., Rows], precision: int = 4) -> Callable[..., Any]:
    """Return a method that prints the rows of another; it also takes `table_fmt` and `precision`."""

    @wraps(rows)
    def printed(*args: Any, table_fmt: str = "github", precision: int = precision, **options: Any) -> Any:
        return report(rows(*args, **options), table_fmt, precision)

    own = [p for p in signature(printed, follow_wrapped=False).parameters.values() if p.kind is p.KEYWORD_ONLY]
    printed.__signature__ = Signature([*signature(rows).parameters.values(), *own])  # type: ignore[attr-defined]
    return printed


def _named(name: str) -> dict[str, Any]:
    return dict(zip(("Group", "Experiment"), split_name(name), strict=True))


class Study(posterior.Study):
    """`posterior.Study` with reports, and the arguments `num_samples` and `ci_probability`."""

    num_experiment_groups = property(posterior.Study.__len__)
    num_experiments = property(lambda self: len(self.list_experiments()))
    num_samples = property(lambda self: self.replicates, lambda self, value: setattr(self, "replicates", value))
    ci_probability = property(lambda self: self.confidence, lambda self, value: setattr(self, "confidence", value))

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{OURS.get(name, name): value for name, value in options.items()})

    def to_dict(self) -> dict[str, Any]:
        return {THEIRS.get(name, name): value for name, value in super().to_dict().items()}

    def all_experiments(self) -> list[str]:
        return sorted(self.list_experiments())

    def __getitem__(self, name: str) -> Any:
        """Return a group, or an experiment of one."""
        group, _, member = name.partition("/")
        holder = ExperimentGroup(group, streams.RNG(self.seed))
        for key, source in self._group(group).items():
            holder[key] = Experiment.__new__(Experiment)
            vars(holder[key]).update(vars(source), rng=holder.rng)
        return holder[member] if member and self._experiment(group, member) else holder

    def get_metric_samples(
        self, metric: str | Quantity, experiment_name: str, sampling_method: Method = "posterior"
    ) -> ExperimentResult | ExperimentAggregationResult:
        """Return samples of a metric of the study for "group/experiment", or for "group/aggregated"."""
        values, quantity = self.samples(metric, experiment_name, sampling_method), self.find_metric(metric)
        group, name = split_name(experiment_name)
        holder = self[group]
        if name != AGGREGATED:
            return ExperimentResult(quantity, values, holder[name])
        aggregator = self._aggregators[quantity] or posterior.extend.get_experiment_aggregator("singleton")
        parts = torch.stack([self.samples(quantity, f"{group}/{key}", sampling_method) for key in holder], 1)
        return ExperimentAggregationResult(quantity, values, holder, aggregator, parts)

    def get_pairwise_comparison(
        self,
        metric: str,
        class_label: Label = None,
        *,
        experiment_a: str,
        experiment_b: str,
        min_sig_diff: float | None = None,
    ) -> PairwiseComparisonResult:
        """Compare two experiments by the difference a - b of a metric. Either may be "group/aggregated"."""
        a, b = full_name(experiment_a), full_name(experiment_b)
        if a == b:
            raise ValueError(f"experiment_a, experiment_b: got {a!r} twice, wanted two experiments")

        def difference(method: Method) -> Tensor:
            return self.column(metric, class_label, a, method) - self.column(metric, class_label, b, method)

        observed = None if is_pooled(a) or is_pooled(b) else difference("input")[0]
        title, draws = self.titled(metric, metric, class_label, a), (difference("posterior"), difference("random"))
        return PairwiseComparisonResult(title, draws[0], self.confidence, min_sig_diff, a, b, draws[1], observed)

    def get_pairwise_random_comparison(
        self, metric: str, class_label: Label = None, *, experiment: str, min_sig_diff: float | None = None
    ) -> PairwiseComparisonResult:
        """Compare an experiment with a random classifier of the same prevalence."""
        posterior, random = (self.column(metric, class_label, experiment, method) for method in ("posterior", "random"))
        title, name = self.titled(metric, metric, class_label, experiment), full_name(experiment)
        return PairwiseComparisonResult(title, posterior - random, self.confidence, min_sig_diff, name, "random")

    def get_listwise_comparsion_result(self, metric: str, class_label: Label = None) -> ListwiseComparisonResult:
        """Rank experiments by their posteriors."""
        samples = {name: self.column(metric, class_label, name) for name in self.list_experiments()}
        return ListwiseComparisonResult(samples, self.find_metric(metric))

    def _summaries(self, metric: str, class_label: Label, names: list[str], method: Method = "posterior") -> Rows:
        columns = {name: self.column(metric, class_label, name, method) for name in names}
        return [_named(name) | PosteriorSummary(x, self.confidence).as_dict() for name, x in columns.items()]

    @reported
    def report_metric_summaries(self, metric: str, class_label: Label = None) -> Rows:
        """Report each experiment's posterior."""
        observed = [self.column(metric, class_label, name, "input")[0] for name in self.list_experiments()]
        pairs = zip(observed, self._summaries(metric, class_label, self.list_experiments()), strict=True)
        return [{"Group": "", "Experiment": "", "Observed": value, **row} for value, row in pairs]

    @reported
    def report_random_metric_summaries(self, metric: str, class_label: Label = None) -> Rows:
        """Report the posteriors of random classifiers with the experiments' prevalences."""
        return self._summaries(metric, class_label, self.list_experiments(), "random")

    @reported
    def report_aggregated_metric_summaries(self, metric: str, class_label: Label = None) -> Rows:
        """Report each group's pooled posterior, and the heterogeneity of its experiments."""
        rows = self._summaries(metric, class_label, [f"{group}/{AGGREGATED}" for group in self._groups])
        for row in rows:
            name = f"{row['Group']}/{row.pop('Experiment')}"
            result, index = self.get_metric_samples(metric, name), self.class_index(metric, class_label, name)
            assert isinstance(result, ExperimentAggregationResult)
            i2, within, between = (x[index] for x in result.heterogeneity_results[:3])
            row |= {"Kurtosis": row.pop("Kurt"), "Var. Within": within, "Var. Between": between, "I2": i2}
        return rows

    def report_pairwise_comparison(
        self,
        metric: str,
        class_label: Label = None,
        *,
        experiment_a: str,
        experiment_b: str,
        min_sig_diff: float | None = None,
        precision: int = 4,
        table_fmt: str | None = None,
    ) -> str:
        """Report one comparison in sentences, whatever `table_fmt` is."""
        pair: dict[str, Any] = {"experiment_a": experiment_a, "experiment_b": experiment_b}
        result = self.get_pairwise_comparison(metric, class_label, **pair, min_sig_diff=min_sig_diff)
        return result.template_sentence(precision)

    @reported
    def report_pairwise_comparison_to_random(
        self, metric: str, class_label: Label = None, *, min_sig_diff: float | None = None
    ) -> Rows:
        """Report the comparison of each experiment with a random classifier of its prevalence."""
        rows = []
        for name in self.list_experiments():
            found = self.get_pairwise_random_comparison(metric, class_label, experiment=name, min_sig_diff=min_sig_diff)
            cells = {"Median Δ": found.diff_dist_summary.median, "P(> random)": (found.diff_dist > 0).double().mean()}
            rope = -found.min_sig_diff, found.min_sig_diff
            rows.append(_named(name) | cells | {"ROPE": rope, "p_ROPE": found.p_rope, "p_sig": found.p_bi_sig})
        return rows

    @reported
    def report_listwise_comparison(self, metric: str, class_label: Label = None) -> Rows:
        """Report the probability of each rank given the experiment; rows sum to 1."""
        result = self.get_listwise_comparsion_result(metric, class_label)
        shares = zip(result.experiment_names, result.p_rank_given_experiment, strict=True)
        return [_named(name) | {f"Rank {r}": share for r, share in enumerate(row, 1)} for name, row in shares]

    @partial(reported, precision=2)
    def report_expected_reward(self, metric: str, class_label: Label = None, rewards: Any = None) -> Rows:
        """Report the mean reward if rank r earns rewards[r - 1], and further ranks 0; None: 1 for the first rank."""
        rewards = [1.0] if rewards is None else [*rewards]
        result = self.get_listwise_comparsion_result(metric, class_label)
        p_ranks = result.p_rank_given_experiment[:, : len(rewards)]
        pairs = zip(result.experiment_names, p_ranks @ p_ranks.new_tensor(rewards), strict=True)
        return [_named(name) | {"E[Reward]": reward} for name, reward in pairs]

    def plot_metric_summaries(self, metric: str, class_label: Label = None, **options: Any) -> Any:
        return self.plot(metric, class_label, **plot_options(options))[0]

    def plot_experiment_aggregation(
        self, metric: str, class_label: Label = None, *, experiment_group: str, **options: Any
    ) -> Any:
        names = [f"{experiment_group}/{name}" for name in (*self._group(experiment_group), AGGREGATED)]
        return self.plot(metric, class_label, experiments=names, centre=-1, **plot_options(options))[0]

    def plot_pairwise_comparison(
        self,
        metric: str,
        class_label: Label = None,
        *,
        experiment_a: str,
        experiment_b: str,
        min_sig_diff: float | None = None,
        **options: Any,
    ) -> Any:
        pair: dict[str, Any] = {"experiment_a": experiment_a, "experiment_b": experiment_b}
        result = self.get_pairwise_comparison(metric, class_label, **pair, min_sig_diff=min_sig_diff)
        pair = {"experiments": [experiment_a], "minus": experiment_b, "rope": float(result.min_sig_diff)}
        return self.plot(metric, class_label, **pair, **plot_options(options))[0]

    def plot_forest_plot(
        self, metric: str, class_label: Label = None, *, agg_offset: float = 1, precision: int = 4, **options: Any
    ) -> Any:
        """Plot the intervals of all experiments in rows, and below each group the pooled interval."""
        look = Look(parts=FOREST, **plot_options(options))
        rows = [(g, f"{key}/{name}") for g, key in enumerate(self._groups) for name in (*self._group(key), AGGREGATED)]
        ys = {name: row + agg_offset * g for row, (g, name) in enumerate(rows)}
        figure, (ax,) = look.axes(1, (8.0, 1 + 0.3 * max(ys.values(), default=0)))
        for name, y in ys.items():
            median, low, high = interval_of(self.column(metric, class_label, name), self.confidence)
            look.draw("interval", ax.plot, [low, high], [y, y])
            look.draw("aggregate" if is_pooled(name) else "median", ax.plot, [median], [y])
            if is_pooled(name):
                look.draw("aggregate_line", ax.axvline, median, zorder=1)
            text = f"{median:.{precision}f} [{low:.{precision}f}, {high:.{precision}f}]"
            look.draw("info", ax.text, 1.02, y, text, transform=ax.get_yaxis_transform(), va="center")
        ax.set_yticks([])
        look.draw("name", ax.set_yticks, [*ys.values()], [*ys], fontsize=look.fontsize)
        ax.invert_yaxis()
        ax.set_xlabel(self.titled(self.find_metric(metric).full_name, metric, class_label, [*ys][0]))
        look.finish(figure, [ax])
        return figure
