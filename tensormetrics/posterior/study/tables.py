"""Tables of a study: experiments in several metrics, and comparisons of all pairs of experiments."""

import operator
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import torch
from torch.utils._pytree import tree_map

from ...core.arguments import checks
from ...core.results.estimates import Comparison, Estimate
from ...core.results.table import Table, pairs_table
from ...uncertainty.comparison import compare as compare_metrics
from ...uncertainty.pairs.model_tables import correct_comparisons
from ...uncertainty.statistics.sample_comparison import compare_samples
from ...uncertainty.statistics.samples import estimate
from .config import full_name, is_pooled, paired, split_name
from .confusion_posterior import ConfusionPosterior
from .samples import Label, StudySamples


def table(
    source: StudySamples,
    metrics: str | Sequence[str] | None,
    class_label: Label,
    experiments: Sequence[str] | None,
) -> Table:
    """Return the table of experiments; see `Study.table`."""
    names = source.list_experiments() if experiments is None else [*map(full_name, experiments)]
    if not names:
        raise ValueError("the study has no experiments; add some by add_experiment")
    selected = [metrics] if isinstance(metrics, str) else [*source.metrics] if metrics is None else metrics
    columns: dict[str, bool | None] = {}
    rows: dict[str, dict[str, Any]] = {short: {} for short in short_names(names)}
    for metric in selected:
        direction = source.find_metric(metric).higher_is_better
        for row, name in zip(rows, names, strict=True):
            for column, label in _labels(source, metric, class_label, name).items():
                rows[row][column] = _estimate(source, metric, label, name)
                columns[column] = direction
    for column in [*columns]:
        fractions = {row: cells[column].details["nan_fraction"] for row, cells in rows.items() if column in cells}
        if any(fractions.values()):
            columns[f"{column} NaN"] = None
            for row, fraction in fractions.items():
                rows[row][f"{column} NaN"] = fraction
    return Table(list(rows), columns, [{**dict.fromkeys(columns), **row} for row in rows.values()])


def compare(
    source: StudySamples,
    metrics: str | Sequence[str] | None,
    class_label: Label,
    baseline: str | None,
    rope: float | None,
    correction: str,
) -> Table:
    """Compare pairs of experiments: by common items if there are any, else by posteriors; see `Study.compare`."""
    names = source.list_experiments()
    if len(names) < 2:
        raise ValueError(f"the study has {len(names)} experiments, a comparison needs at least 2")
    short = dict(zip(names, short_names(names), strict=True))
    if baseline is not None:
        baseline = full_name(baseline)
        checks.check_choice("baseline", baseline, names)
    pairs = [*combinations(names, 2)] if baseline is None else [(name, baseline) for name in names if name != baseline]
    columns: dict[str, tuple[Any, Label]]
    if metrics is None or isinstance(metrics, list | tuple):
        labels = {metric: _labels(source, metric, class_label, names[0]) for metric in metrics or source.metrics}
        columns = {name: (metric, label) for metric, found in labels.items() for name, label in found.items()}
    else:
        columns = {str(metrics): (metrics, class_label)}
    are_paired = dict(zip(pairs, paired([(source[a], source[b]) for a, b in pairs]), strict=True))
    compared: dict[tuple[str, str], dict[str, Comparison]] = {(short[a], short[b]): {} for a, b in pairs}
    for column, (metric, label) in columns.items():
        with_items = {name: _with_items(source, metric, name) for name in names if source[name].items}
        for (a, b), is_paired in are_paired.items():
            if is_paired:
                options = {"confidence": source.ci_probability, "seed": source.seed, "rope": rope}
                (comparison,) = compare_metrics(with_items[a], with_items[b], **options).values()
                if comparison.difference.ndim:
                    comparison = tree_map(operator.itemgetter(source.class_index(metric, label, b)), comparison)
            else:
                comparison = _compare_posteriors(source, metric, label, a, b, rope)
            compared[short[a], short[b]][column] = comparison
    return pairs_table(correct_comparisons(compared, correction), [*columns])


def short_names(names: Sequence[str]) -> list[str]:
    """Return "experiment" for the only experiment of its group, "experiment/experiment", and other names unchanged."""
    return [group if group == experiment else name for name in names for group, experiment in [split_name(name)]]


def _with_items(source: StudySamples, metric: str, name: str) -> ConfusionPosterior:
    """Return a metric that was updated with the items of an experiment."""
    experiment, zero_division = source[name], source.zero_division
    assert experiment.items is not None
    C, (_, cells, groups) = experiment.num_classes, experiment.items
    updated = ConfusionPosterior(C, source.find_metric(metric).name, zero_division=zero_division).to(cells.device)
    ids = torch.arange(len(cells), device=cells.device)
    updated.update(cells % C, cells // C, ids=ids, **({} if groups is None else {"groups": groups}))
    return updated


def _compare_posteriors(
    source: StudySamples, metric: str, class_label: Label, a: str, b: str, rope: float | None
) -> Comparison:
    draws, observed = (
        [source.column(metric, class_label, name, method).double() for name in (a, b)]
        for method in ("posterior", "input")
    )
    return compare_samples(
        *draws,
        observed=(observed[0] - observed[1])[0],
        confidence=source.ci_probability,
        rope=rope,
        higher_is_better=source.find_metric(metric).higher_is_better is not False,
    )


def _labels(source: StudySamples, metric: str, class_label: Label, name: str) -> dict[str, Label]:
    """Return the columns of a metric, each with its class."""
    if source.find_metric(metric).is_multiclass:
        return {metric: None}
    if class_label is not None:
        return {f"{metric}/{class_label}": class_label}
    experiment = source[name]
    names = experiment.labels or range(experiment.num_classes)
    return {f"{metric}/{label}": index for index, label in enumerate(names)}


def _estimate(source: StudySamples, metric: str, label: Label, name: str) -> Estimate:
    draws = source.column(metric, label, name)
    median, low, high = estimate(draws, source.ci_probability)
    observed = median if is_pooled(name) else source.column(metric, label, name, "input")[0].double()
    return Estimate(
        observed,
        torch.where(observed < low, observed, low),
        torch.where(observed > high, observed, high),
        confidence=source.ci_probability,
        method="posterior (hdi)",
        name=metric,
        details={"median": median, "nan_fraction": float(draws.isnan().double().mean())},
    )
