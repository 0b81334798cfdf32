"""Studies: tables, comparisons and plots of the posteriors of many experiments, and files."""

import math
import operator
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from ...core.arguments import checks
from ...core.results.estimates import Comparison, Estimate
from ...core.results.table import Table, pairs_table
from ...uncertainty.comparison import compare as compare_metrics
from ...uncertainty.pairs.model_tables import correct_comparisons
from ...uncertainty.statistics.sample_comparison import compare_samples
from ...uncertainty.statistics.samples import estimate
from ..plots.distributions import Shown, plot_distributions
from ..sampling.errors import ConfigError
from . import config
from .config import full_name, is_pooled, paired, split_name
from .confusion_posterior import ConfusionPosterior
from .samples import Label, StudySamples

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Study(StudySamples):
    """Experiments "group/experiment" and metrics: samples, tables, comparisons and plots of their posteriors.

    Samples are drawn when asked for, and depend on `seed` and the experiment's name alone.

    Args:
        seed: Seed of the draws; None draws one, which a ConfigWarning names.
        replicates: Number of samples of each posterior.
        confidence: Mass of the intervals, in (0, 1].
        experiments: {group: {experiment: {"confusion_matrix": ..., other arguments of `add_experiment`}}}.
        metrics: Names of metrics, or {name: {} or {"aggregation": ..., its options}}, where "__default__" gives what
            entries without an aggregation have.
        device: Device of the samples.
        dtype: Dtype of the samples, torch.float32 or torch.float64.
        memory_limit: Bytes near which cached samples and scratch memory stay; dropped ones are drawn again, equal.
        zero_division: Value of undefined scores of all metrics; None: 0 for f1, fbeta and p4, nan for others.

    Raises:
        ConfigError: If an experiment or a metric is not described as above; it is a ValueError.
        ValueError: If a name is unknown or a number out of range.
        TypeError: If an argument is unknown.

    >>> study = Study(seed=0, metrics={"acc": {}})
    >>> study.add_experiment("mlp", [[90, 10], [12, 88]])
    >>> study.add_experiment("cnn", [[95, 5], [10, 90]])
    >>> print(study.table())
         acc
    mlp  0.890 [0.844, 0.930]
    cnn  0.925 [0.885, 0.958]
    >>> print(study.compare("acc").select("difference", "p_better"))
               difference               p_better
    mlp - cnn  -0.035 [-0.092, +0.023]     0.114
    """

    def table(
        self,
        metrics: str | Sequence[str] | None = None,
        class_label: Label = None,
        experiments: Sequence[str] | None = None,
    ) -> Table:
        """Return a table of a row for each experiment and a column for each metric: observed scores with their HDI.

        Args:
            metrics: Names of metrics, by default all of the study.
            class_label: Name or number of a class, for metrics of one value per class; by default they fill a column
                for each class, such as "tpr/cat".
            experiments: Names of experiments, or "group/aggregated" for a pooled posterior, whose score is its median;
                by default all experiments.

        Returns:
            A `Table` of `Estimate`s; an end that lies beyond the observed score is moved to it. Columns such as
            "ppv/cat NaN" are the fractions of undefined samples, which intervals leave out, where some are above 0.

        Raises:
            ValueError: If the study has no experiments, or a metric or class is unknown.

        Example:
            >>> study = Study(0, metrics={"acc": {}, "mcc": {}})
            >>> study.add_experiment("small", [[40, 10], [15, 35]])
            >>> study.add_experiment("large", [[45, 5], [8, 42]])
            >>> print(study.table())
                   acc                   mcc
            small  0.750 [0.661, 0.828]  0.503 [0.321, 0.653]
            large  0.870 [0.802, 0.932]  0.741 [0.608, 0.863]
        """
        names = self.list_experiments() if experiments is None else [*map(full_name, experiments)]
        if not names:
            raise ValueError("the study has no experiments; add some by add_experiment")
        selected = [metrics] if isinstance(metrics, str) else [*self.metrics] if metrics is None else metrics
        columns: dict[str, bool | None] = {}
        rows: dict[str, dict[str, Any]] = {short: {} for short in short_names(names)}
        for metric in selected:
            direction = self.find_metric(metric).higher_is_better
            for row, name in zip(rows, names, strict=True):
                for column, label in self._columns(metric, class_label, name).items():
                    rows[row][column] = self._estimate(metric, label, name)
                    columns[column] = direction
        for column in [*columns]:
            fractions = {row: cells[column].details["nan_fraction"] for row, cells in rows.items() if column in cells}
            if any(fractions.values()):
                columns[f"{column} NaN"] = None
                for row, fraction in fractions.items():
                    rows[row][f"{column} NaN"] = fraction
        return Table(list(rows), columns, [{**dict.fromkeys(columns), **row} for row in rows.values()])

    def interval(
        self, *, confidence: float | None = None, replicates: int | None = None, seed: int | None = None
    ) -> Table:
        """Return the `table` of all metrics, with another confidence, number of draws or seed if it is given."""
        others = {"confidence": confidence, "replicates": replicates, "seed": seed}
        given = {name: value for name, value in others.items() if value is not None}
        return (Study.from_dict({**Study.to_dict(self), **given}, device=self.device) if given else self).table()

    def compare(
        self,
        metrics: str | Sequence[str] | None = None,
        class_label: Label = None,
        *,
        baseline: str | None = None,
        rope: float | None = None,
        correction: str = "holm",
    ) -> Table:
        """Compare all pairs of experiments, or each with a baseline.

        Experiments of the same `items` are compared as two metrics are, by `tensormetrics.compare`, others by
        `compare_samples` of their posteriors. The results differ: if the models differ on 1 of 30 items, the first has
        p = 1 and P(better) = 0.75, the second p = 0.36 and P(better) = 0.82, because the posterior of a matrix does not
        contain that the models agree on the other 29 items.

        Args:
            metrics: Name of a metric, or several, by default all.
            class_label: Name or number of a class, for metrics of one value per class; by default all classes, if there
                are several metrics.
            baseline: Name of the experiment that is subtracted from each of the others.
            rope: Differences up to it do not matter in practice.
            correction: Correction of the p-values of several pairs, see `correct_p_values`.

        Returns:
            A `Table` of a row for each pair: difference, p-values, probability that the first is better, verdict; of
            several metrics a difference and a p-value each.

        Raises:
            ValueError: If the study has fewer than two experiments, or a name is unknown or an option out of range.
        """
        names = self.list_experiments()
        if len(names) < 2:
            raise ValueError(f"the study has {len(names)} experiments, a comparison needs at least 2")
        short = dict(zip(names, short_names(names), strict=True))
        if baseline is not None:
            baseline = full_name(baseline)
            checks.check_choice("baseline", baseline, names)
        pairs: list[tuple[str, str]] = [*combinations(names, 2)]
        if baseline is not None:
            pairs = [(name, baseline) for name in names if name != baseline]
        columns: dict[str, tuple[Any, Label]]
        if metrics is None or isinstance(metrics, list | tuple):
            labels = {metric: self._columns(metric, class_label, names[0]) for metric in metrics or self.metrics}
            columns = {name: (metric, label) for metric, found in labels.items() for name, label in found.items()}
        else:
            columns = {str(metrics): (metrics, class_label)}
        are_paired = dict(zip(pairs, paired([(self[a], self[b]) for a, b in pairs]), strict=True))
        compared: dict[tuple[str, str], dict[str, Comparison]] = {(short[a], short[b]): {} for a, b in pairs}
        for column, (metric, label) in columns.items():
            with_items = {name: self._with_items(metric, name) for name in names if self[name].items}
            for (a, b), is_paired in are_paired.items():
                if is_paired:
                    options = {"confidence": self.confidence, "seed": self.seed, "rope": rope}
                    (comparison,) = compare_metrics(with_items[a], with_items[b], **options).values()
                    if comparison.difference.ndim:
                        comparison = tree_map(operator.itemgetter(self.class_index(metric, label, b)), comparison)
                else:
                    comparison = self._compare_posteriors(metric, label, a, b, rope)
                compared[short[a], short[b]][column] = comparison
        return pairs_table(correct_comparisons(compared, correction), [*columns])

    def _with_items(self, metric: str, name: str) -> ConfusionPosterior:
        """Return a metric that was updated with the items of an experiment."""
        experiment, zero_division = self[name], self.zero_division
        assert experiment.items is not None
        C, (_, cells, groups) = experiment.num_classes, experiment.items
        updated = ConfusionPosterior(C, self.find_metric(metric).name, zero_division=zero_division).to(cells.device)
        ids = torch.arange(len(cells), device=cells.device)
        updated.update(cells % C, cells // C, ids=ids, **({} if groups is None else {"groups": groups}))
        return updated

    def _compare_posteriors(self, metric: str, class_label: Label, a: str, b: str, rope: float | None) -> Comparison:
        draws, observed = (
            [self.column(metric, class_label, name, method).double() for name in (a, b)]
            for method in ("posterior", "input")
        )
        return compare_samples(
            *draws,
            observed=(observed[0] - observed[1])[0],
            confidence=self.confidence,
            rope=rope,
            higher_is_better=self.find_metric(metric).higher_is_better is not False,
        )

    def _columns(self, metric: str, class_label: Label, name: str) -> dict[str, Label]:
        """Return the columns of a metric, each with its class."""
        if self.find_metric(metric).is_multiclass:
            return {metric: None}
        if class_label is not None:
            return {f"{metric}/{class_label}": class_label}
        experiment = self[name]
        names = experiment.labels or range(experiment.num_classes)
        return {f"{metric}/{label}": index for index, label in enumerate(names)}

    def _estimate(self, metric: str, label: Label, name: str) -> Estimate:
        draws = self.column(metric, label, name)
        median, low, high = estimate(draws, self.confidence)
        observed = median if is_pooled(name) else self.column(metric, label, name, "input")[0].double()
        return Estimate(
            observed,
            torch.where(observed < low, observed, low),
            torch.where(observed > high, observed, high),
            confidence=self.confidence,
            method="posterior (hdi)",
            name=metric,
            details={"median": median, "nan_fraction": float(draws.isnan().double().mean())},
        )

    def plot(
        self,
        metric: str,
        class_label: Label = None,
        *,
        experiments: Sequence[str] | None = None,
        minus: str | None = None,
        **options: Any,
    ) -> "tuple[Figure, list[Axes]]":
        """Plot the posterior of each experiment, or of its difference from that of another.

        Args:
            metric: Name of a metric.
            class_label: Name or number of a class, for a metric of one value per class.
            experiments: Names of experiments, or "group/aggregated" for a pooled posterior; by default all experiments.
            minus: Name of the experiment that is subtracted from all others.
            **options: Options of `plot_distributions`, such as `rope`, and of `drawing.Look`.

        Returns:
            The figure and an axes for each distribution.

        Raises:
            ImportError: Without matplotlib.
            ValueError: If there are no experiments, or a name or an option is unknown.

        Example:
            >>> study = Study(seed=0, metrics={"acc": {}})
            >>> study.add_experiment("mlp", [[90, 10], [12, 88]])
            >>> study.add_experiment("cnn", [[95, 5], [10, 90]])
            >>> study.plot("acc", title="Two models")[0].savefig("both.png")
            >>> study.plot("acc", minus="mlp", rope=0.01)[0].savefig("difference.png")
        """
        names = [*map(full_name, self.list_experiments() if experiments is None else experiments)]
        base = [] if minus is None else [full_name(minus)]
        names = [name for name in names if name not in base]
        shown = []
        for label, name in zip(short_names([*names]), names, strict=True):
            samples, observed = self._plotted(metric, class_label, name)
            for other in base:
                subtracted, point = self._plotted(metric, class_label, other)
                label = f"{label} − {short_names(base)[0]}"
                samples, observed = (
                    samples - subtracted,
                    None if observed is None or point is None else observed - point,
                )
            shown.append(Shown(label, samples, observed))
        quantity, title = self.find_metric(metric), metric
        bounds = (-math.inf, math.inf)
        if names:
            title = self.titled(quantity.full_name, metric, class_label, names[0])
            bounds = bounds if base else quantity.bounds_of(self._classes(names[0])[0])
        return plot_distributions(shown, title + ": difference" * bool(base), bounds, self.confidence, **options)

    def _plotted(self, metric: str, class_label: Label, name: str) -> tuple[Tensor, Tensor | None]:
        """Return the samples of one value, and the observed one, None for a pooled posterior."""
        observed = None if is_pooled(name) else self.column(metric, class_label, name, "input")[0]
        return self.column(metric, class_label, name), observed

    @property
    def fingerprint(self) -> str:
        """A digest of the result of `to_dict`."""
        return config.fingerprint(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "replicates": self.replicates,
            "confidence": self.confidence,
            "dtype": str(self.dtype).removeprefix("torch."),
            "experiments": self.experiments,
            "metrics": config.to_json(self.metrics),
        } | ({} if self.zero_division is None else {"zero_division": float(self.zero_division)})

    @classmethod
    def from_dict(cls, config_dict: Mapping[str, Any], **overrides: Any) -> "Study":
        """Build the study that `to_dict` described; `overrides` are arguments of the constructor."""
        arguments = {**config_dict, **overrides}
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


def short_names(names: Sequence[str]) -> list[str]:
    """Return "experiment" for the only experiment of its group, "experiment/experiment", and other names unchanged."""
    return [group if group == experiment else name for name in names for group, experiment in [split_name(name)]]
