"""The plots of a study: it fetches the results, `plots` draws them."""

from typing import Any

from .compare import short
from .comparisons import Label
from .plots import ForestGroup, Shown, plot_difference, plot_distributions, plot_forest
from .study_config import AGGREGATED, unknown


class Figures:
    """The plots of a `Study`. They return a matplotlib Figure; `options` are those of `drawing.Look`."""

    def plot_metric_summaries(self, metric: str, class_label: Label = None, **options: Any) -> Any:
        """The posterior of every experiment."""
        names = self.list_experiments()
        shown = [self._shown(short(name), metric, class_label, name) for name in names]
        return plot_distributions(shown, *self._axis(metric, class_label, names), **options)

    def plot_experiment_aggregation(
        self, metric: str, class_label: Label = None, *, experiment_group: str, **options: Any
    ) -> Any:
        """The experiments of a group, and below them what they are pooled to."""
        if experiment_group not in self._groups:
            raise unknown("group", experiment_group, self._groups)
        names = [f"{experiment_group}/{name}" for name in self._groups[experiment_group].experiments]
        shown = [self._shown(name.partition("/")[2], metric, class_label, name) for name in names]
        pooled = f"{experiment_group}/{AGGREGATED}"
        shown.append(Shown("Aggregated", self.column(metric, class_label, pooled)))
        title = f"{experiment_group}: {self.get_metric_samples(metric, pooled).aggregator.full_name}"
        options = {"title": title, "centre": -1, **options}
        return plot_distributions(shown, *self._axis(metric, class_label, names), **options)

    def plot_pairwise_comparison(
        self,
        metric: str,
        class_label: Label = None,
        *,
        experiment_a: str,
        experiment_b: str,
        min_sig_diff: float | None = None,
        precision: int = 4,
        **options: Any,
    ) -> Any:
        """The distribution of a difference."""
        pair = {"experiment_a": experiment_a, "experiment_b": experiment_b, "min_sig_diff": min_sig_diff}
        found = self.get_pairwise_comparison(metric, class_label, **pair)
        title = self.find_metric(metric).full_name
        label = self.titled(metric, class_label, [experiment_a, experiment_b], title)
        return plot_difference(found, metric=label, precision=precision, **options)

    def plot_forest_plot(self, metric: str, class_label: Label = None, **options: Any) -> Any:
        """All experiments and what their groups are pooled to. Takes also `precision`, `gap` and `info`."""
        groups, every = [], self.list_experiments()
        for group, found in self._groups.items():
            names = [f"{group}/{name}" for name in found.experiments]
            pooled = self.get_metric_samples(metric, f"{group}/{AGGREGATED}")
            index = self.class_index(metric, class_label, names)
            groups.append(
                ForestGroup(
                    group,
                    [self._shown(name.partition("/")[2], metric, class_label, name) for name in names],
                    pooled.values[:, index],
                    float(pooled.heterogeneity_results.i2[index]),
                )
            )
        label, bounds, ci_probability = self._axis(metric, class_label, every)
        return plot_forest(groups, label, ci_probability, bounds=bounds, **options)

    def _shown(self, label: str, metric: str, class_label: Label, name: str) -> Shown:
        observed = float(self.column(metric, class_label, name, "input")[0])
        return Shown(label, self.column(metric, class_label, name), observed)

    def _axis(self, metric: str, class_label: Label, names: list[str]) -> tuple[str, tuple[float, float], float]:
        """The label of the x axis, the bounds of the metric, and the mass of intervals."""
        label = self.titled(metric, class_label, names, self.find_metric(metric).full_name)
        bounds = self.get_metric_samples(metric, names[0]).bounds if names else (0.0, 1.0)
        return label, bounds, self.ci_probability
