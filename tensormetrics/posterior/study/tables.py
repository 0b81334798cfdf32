"""Tables of a study: experiments in several metrics, and comparisons of all pairs of experiments."""

from collections.abc import Sequence
from typing import Any

import torch

from ...core.results.estimates import Estimate
from ...core.results.table import Table, pairs_table
from ...uncertainty.pairs.model_tables import correct_comparisons
from ..summaries.summary import summarize
from .comparisons import compare_experiments
from .config import split_name
from .samples import Label, Samples


def table(source: Samples, metrics: str | Sequence[str] | None = None, class_label: Label = None) -> Table:
    """Return a table of a row for each experiment and a column for each metric: observed scores with their HDI.

    Args:
        source: Samples of the experiments.
        metrics: Names of metrics, by default all of the study.
        class_label: Name or number of a class, for metrics of one value per class; by default they fill a column for
            each class, such as "tpr/cat".

    Returns:
        A `Table` of `Estimate`s; an end that lies beyond the observed score is moved to it. Columns such as "ppv/cat
        NaN" are the fractions of undefined samples, which intervals leave out, where some are above 0.

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
    names = source.list_experiments()
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
    source: Samples,
    metric: str,
    class_label: Label = None,
    *,
    rope: float | None = None,
    correction: str = "holm",
) -> Table:
    """Compare all pairs of experiments.

    Experiments of the same `items` are compared as two metrics are, by `tensormetrics.compare`, others by
    `compare_samples` of their posteriors. The results differ: if the models differ on 1 of 30 items, the first has
    p = 1 and P(better) = 0.75, the second p = 0.36 and P(better) = 0.82, because the posterior of a matrix does not
    contain that the models agree on the other 29 items.

    Args:
        source: Samples of the experiments.
        metric: Name of a metric.
        class_label: Name or number of a class, for a metric of one value per class.
        rope: Differences up to it do not matter in practice.
        correction: Correction of the p-values of several pairs, see `correct_p_values`.

    Returns:
        A `Table` of a row for each pair: difference, p-values, probability that the first is better, verdict.

    Raises:
        ValueError: If the study has fewer than two experiments, or an option is out of range.
    """
    names = source.list_experiments()
    if len(names) < 2:
        raise ValueError(f"the study has {len(names)} experiments, a comparison needs at least 2")
    short = dict(zip(names, short_names(names), strict=True))
    comparisons = compare_experiments(source, metric, class_label, rope=rope)
    pairs = {(short[a], short[b]): {metric: comparison} for (a, b), comparison in comparisons.items()}
    return pairs_table(correct_comparisons(pairs, correction), [metric])


def short_names(names: Sequence[str]) -> list[str]:
    """Return "experiment" for the only experiment of its group, "experiment/experiment", and other names unchanged."""
    return [group if group == experiment else name for name in names for group, experiment in [split_name(name)]]


def _labels(source: Samples, metric: str, class_label: Label, name: str) -> dict[str, Label]:
    """Return the columns of a metric, each with its class."""
    if source.find_metric(metric).is_multiclass:
        return {metric: None}
    if class_label is not None:
        return {f"{metric}/{class_label}": class_label}
    experiment = source[name]
    names = experiment.labels or range(experiment.num_classes)
    return {f"{metric}/{label}": index for index, label in enumerate(names)}


def _estimate(source: Samples, metric: str, label: Label, name: str) -> Estimate:
    posterior = summarize(source.column(metric, label, name), source.ci_probability)
    observed = source.column(metric, label, name, "input")[0].double()
    low, high = (end.double() for end in posterior.hdi)
    return Estimate(
        observed,
        torch.where(observed < low, observed, low),
        torch.where(observed > high, observed, high),
        confidence=source.ci_probability,
        method="posterior (hdi)",
        name=metric,
        details={"median": posterior.median, "nan_fraction": float(posterior.nan_fraction)},
    )
