"""The plots of a study: it has the samples, `plots` draws them.

They return a matplotlib Figure; `options` are those of `drawing.Look`.
"""

from typing import Any

from ..comparison.pairwise import short
from ..plots.distributions import ForestGroup, Shown, plot_difference, plot_distributions, plot_forest
from .comparisons import get_pairwise_comparison
from .config import AGGREGATED, unknown
from .samples import Label, Samples, experiments_by_group, pooled_samples


def plot_metric_summaries(source: Samples, metric: str, class_label: Label = None, **options: Any) -> Any:
    """Plot the posterior of every experiment."""
    names = source.list_experiments()
    shown = [_shown(source, short(name), metric, class_label, name) for name in names]
    return plot_distributions(shown, *_axis(source, metric, class_label, names), **options)


def plot_experiment_aggregation(
    source: Samples, metric: str, class_label: Label = None, *, experiment_group: str, **options: Any
) -> Any:
    """Plot the experiments of a group, and below them the pooled distribution."""
    groups = experiments_by_group(source)
    if experiment_group not in groups:
        raise unknown("group", experiment_group, groups)
    names, shown = _members(source, metric, class_label, experiment_group, groups[experiment_group])
    pooled = f"{experiment_group}/{AGGREGATED}"
    shown.append(Shown("Aggregated", source.column(metric, class_label, pooled)))
    title = f"{experiment_group}: {pooled_samples(source, metric, experiment_group).aggregator.full_name}"
    options = {"title": title, "centre": -1, **options}
    return plot_distributions(shown, *_axis(source, metric, class_label, names), **options)


def plot_pairwise_comparison(
    source: Samples,
    metric: str,
    class_label: Label = None,
    *,
    experiment_a: str,
    experiment_b: str,
    min_sig_diff: float | None = None,
    precision: int = 4,
    **options: Any,
) -> Any:
    """Plot the distribution of a difference."""
    comparison = get_pairwise_comparison(
        source, metric, class_label, experiment_a=experiment_a, experiment_b=experiment_b, min_sig_diff=min_sig_diff
    )
    title = source.find_metric(metric).full_name
    label = source.titled(metric, class_label, [experiment_a, experiment_b], title)
    return plot_difference(comparison, metric=label, precision=precision, **options)


def plot_forest_plot(source: Samples, metric: str, class_label: Label = None, **options: Any) -> Any:
    """Plot all experiments and the pooled distribution of each group. Options include `precision`, `gap` and `info`."""
    groups, all_names = [], source.list_experiments()
    for group, experiments in experiments_by_group(source).items():
        names, shown = _members(source, metric, class_label, group, experiments)
        pooled = pooled_samples(source, metric, group)
        index = source.class_index(metric, class_label, names)
        i2 = float(pooled.heterogeneity_results.i2[index])
        groups.append(ForestGroup(group, shown, pooled.values[:, index], i2))
    label, bounds, ci_probability = _axis(source, metric, class_label, all_names)
    return plot_forest(groups, label, ci_probability, bounds=bounds, **options)


def _members(
    source: Samples, metric: str, class_label: Label, group: str, experiments: list[str]
) -> tuple[list[str], list[Shown]]:
    """Return the full names of a group's experiments, and their distributions labeled by the short names."""
    names = [f"{group}/{name}" for name in experiments]
    shown = [_shown(source, label, metric, class_label, name) for label, name in zip(experiments, names, strict=True)]
    return names, shown


def _shown(source: Samples, label: str, metric: str, class_label: Label, name: str) -> Shown:
    observed = float(source.column(metric, class_label, name, "input")[0])
    return Shown(label, source.column(metric, class_label, name), observed)


def _axis(source: Samples, metric: str, class_label: Label, names: list[str]) -> tuple[str, tuple[float, float], float]:
    """Return the label of the x axis, the bounds of the metric, and the mass of intervals."""
    label = source.titled(metric, class_label, names, source.find_metric(metric).full_name)
    bounds = source.get_metric_samples(metric, names[0]).bounds if names else (0.0, 1.0)
    return label, bounds, source.ci_probability
