"""The tables of a study.

All take (source, metric, class_label): the class, by its number or name, where the metric has one value for each.
Tables take `table_fmt` and `precision`: see `format_table`.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import torch

from ..comparison.listwise import expected_reward
from ..sampling.confusion_sums import Method
from ..sampling.errors import ConfigWarning, PosteriorWarning
from ..summaries.summary import PosteriorSummary, summarize
from ..summaries.table import format_table
from .comparisons import (
    compare_all_pairs,
    get_fold_comparison,
    get_listwise_comparison_result,
    get_pairwise_comparison,
    get_pairwise_random_comparison,
)
from .config import AGGREGATED, split_name
from .samples import Label, Samples, experiments_by_group, pooled_samples

SUMMARY_COLUMNS = {  # header -> field of PosteriorSummary
    "Observed": None,
    "Median": "median",
    "Mean": "mean",
    "SD": "sd",
    "Mode": "mode",
    "HDI": "hdi",
    "ETI": "eti",
    "MU": "metric_uncertainty",
    "Skew": "skew",
    "Kurt": "kurtosis",
    "MCSE": "mcse_mean",
    "NaN": "nan_fraction",
}
DEFAULT_COLUMNS = ["Median", "Mode", "HDI", "MU", "Skew", "Kurt"]


def report_metric_summaries(
    source: Samples,
    metric: str,
    class_label: Label = None,
    *,
    table_fmt: str = "github",
    precision: int = 4,
    columns: Sequence[str] | None = None,
) -> Any:
    """Report each experiment's posterior.

    `columns`: some of Observed, Median, Mean, SD, HDI, ...; an error names all. The default ends with NaN, the fraction
    of undefined samples, which all other columns leave out, if there are any.
    """
    if wrong := [column for column in columns or () if column not in SUMMARY_COLUMNS]:
        raise ValueError(f"columns: got {wrong[0]!r}, wanted some of {', '.join(SUMMARY_COLUMNS)}")
    return _summaries(source, metric, class_label, "posterior", columns, table_fmt, precision)


def report_random_metric_summaries(
    source: Samples, metric: str, class_label: Label = None, *, table_fmt: str = "github", precision: int = 4
) -> Any:
    """Report the posteriors of random classifiers with the experiments' prevalences."""
    return _summaries(source, metric, class_label, "random", None, table_fmt, precision)


def report_aggregated_metric_summaries(
    source: Samples, metric: str, class_label: Label = None, *, table_fmt: str = "github", precision: int = 4
) -> Any:
    """Report each group's pooled posterior, and the heterogeneity of its experiments."""
    rows = []
    for group in _warn_if_empty(experiments_by_group(source)):
        name = f"{group}/{AGGREGATED}"
        result = pooled_samples(source, metric, group)
        index = source.class_index(metric, class_label, [name])
        summary = summarize(result.values[:, index], source.ci_probability)
        between = result.heterogeneity_results
        rows.append(
            {"Group": group}
            | _cells(source, summary, DEFAULT_COLUMNS)
            | {
                "Kurtosis": summary.kurtosis,
                "Var. Within": between.within_experiment_variance[index],
                "Var. Between": between.between_experiment_variance[index],
                "I2": between.i2[index],
                "NaN": summary.nan_fraction,
            }
        )
    shown_headers = [header for header in _headers(source, DEFAULT_COLUMNS) if header != "Kurt"]
    headers = ["Group", *shown_headers, "Kurtosis", "Var. Within", "Var. Between", "I2", *_nan_header(rows)]
    return format_table(rows, headers, table_fmt, precision, percent=["I2"])


def report_pairwise_comparison(
    source: Samples,
    metric: str,
    class_label: Label = None,
    *,
    experiment_a: str,
    experiment_b: str,
    min_sig_diff: float | None = None,
    precision: int = 4,
    table_fmt: str | None = None,
) -> str:
    """Report one comparison in sentences; `table_fmt` is ignored, with a warning."""
    if table_fmt is not None:
        warnings.warn(
            f"table_fmt: got {table_fmt!r}, but one comparison is a text; report_pairwise_comparisons is a table",
            ConfigWarning,
            stacklevel=2,
        )
    pair = {"experiment_a": experiment_a, "experiment_b": experiment_b}
    comparison = get_pairwise_comparison(source, metric, class_label, **pair, min_sig_diff=min_sig_diff)
    return comparison.template_sentence(precision)


def report_pairwise_comparisons(
    source: Samples,
    metric: str,
    class_label: Label = None,
    *,
    min_sig_diff: float | None = None,
    table_fmt: str = "github",
    precision: int = 4,
) -> Any:
    """Report the comparisons of all pairs of experiments."""
    interval = f"{source.ci_probability:.1%} HDI"
    probabilities = "P(A > B)", "P(B > A)"
    headers = ["Experiment A", "Experiment B", "Median Δ", interval, *probabilities, "p_ROPE", "p_sig", "Favours"]
    if len(_warn_if_empty(source.list_experiments())) < 2:
        return format_table([], headers, table_fmt, precision)
    comparison = compare_all_pairs(source, metric, class_label, min_sig_diff=min_sig_diff)
    favours = comparison.favours
    assert favours is not None  # of each pair
    low, high = comparison.interval
    fractions = comparison.p_greater, comparison.p_less, comparison.p_rope, comparison.p_bi_sig, comparison.nan_fraction
    columns = comparison.median, low, high, *fractions
    rows = [
        dict(zip([*headers, "NaN"], (a, b, median, (low, high), *probabilities, better or "", undefined), strict=True))
        for a, b, (median, low, high, *probabilities, undefined), better in zip(
            comparison.lhs_name, comparison.rhs_name, torch.stack(columns, -1).tolist(), favours, strict=True
        )
    ]
    return format_table(rows, [*headers, *_nan_header(rows)], table_fmt, precision)


def report_pairwise_comparison_to_random(
    source: Samples,
    metric: str,
    class_label: Label = None,
    *,
    min_sig_diff: float | None = None,
    table_fmt: str = "github",
    precision: int = 4,
) -> Any:
    """Report the comparison of each experiment with a random classifier of its prevalence."""
    headers = ["Group", "Experiment", "Median Δ", "P(> random)", "ROPE", "p_ROPE", "p_sig"]
    rows = []
    for name in _warn_if_empty(source.list_experiments()):
        comparison = get_pairwise_random_comparison(
            source, metric, class_label, experiment=name, min_sig_diff=min_sig_diff
        )
        rope = (-comparison.min_sig_diff, comparison.min_sig_diff)
        fractions = comparison.p_rope, comparison.p_bi_sig, comparison.nan_fraction
        cells = *split_name(name), comparison.median, comparison.p_greater, rope, *fractions
        rows.append(dict(zip([*headers, "NaN"], cells, strict=True)))
    return format_table(rows, [*headers, *_nan_header(rows)], table_fmt, precision)


def report_listwise_comparison(
    source: Samples, metric: str, class_label: Label = None, *, table_fmt: str = "github", precision: int = 4
) -> Any:
    """Report the probability of each rank given the experiment; rows sum to 1."""
    _warn_if_empty(source.list_experiments())
    comparison = get_listwise_comparison_result(source, metric, class_label)
    ranks = [f"Rank {r + 1}" for r in range(len(comparison.experiment_names))]
    headers = ["Group", "Experiment", *ranks]
    p_ranks = comparison.p_rank_given_experiment.tolist()
    rows = [
        dict(zip(headers, (*split_name(name), *probabilities), strict=True))
        for name, probabilities in zip(comparison.experiment_names, p_ranks, strict=True)
    ]
    return format_table(rows, headers, table_fmt, precision, blank_below=10.0**-precision)


def report_expected_reward(
    source: Samples,
    metric: str,
    class_label: Label = None,
    *,
    rewards: Any = None,
    table_fmt: str = "github",
    precision: int = 2,
) -> Any:
    """Report the expected reward of each experiment, when ranks are rewarded; see `expected_reward`."""
    headers, rows = ["Group", "Experiment", "E[Reward]"], []
    if _warn_if_empty(source.list_experiments()):
        comparison = get_listwise_comparison_result(source, metric, class_label)
        expected_rewards = expected_reward(comparison.p_rank_given_experiment, rewards).tolist()
        rows = [
            dict(zip(headers, (*split_name(name), reward), strict=True))
            for name, reward in zip(comparison.experiment_names, expected_rewards, strict=True)
        ]
    return format_table(rows, headers, table_fmt, precision)


def report_fold_comparison(
    source: Samples,
    metric: str,
    class_label: Label = None,
    *,
    group_a: str,
    group_b: str,
    rho: float | None = None,
    min_sig_diff: float = 0.0,
    table_fmt: str = "github",
    precision: int = 4,
) -> Any:
    """Report the comparison of two models over the folds of a cross-validation."""
    comparison = get_fold_comparison(
        source, metric, class_label, group_a=group_a, group_b=group_b, rho=rho, min_sig_diff=min_sig_diff
    )
    row = {
        "Metric": source.titled(metric, class_label, [f"{group_a}/{AGGREGATED}"]),
        "Mean Δ": comparison.difference,
        "SD": comparison.details["sd"],
        "rho": comparison.details["rho"],
        "t": comparison.details["t"],
        "p": comparison.p_value,
        "p_better": comparison.p_better,
        "p_ROPE": comparison.p_rope,
        f"{source.ci_probability:.1%} interval": (comparison.low, comparison.high),
    }
    return format_table([row], list(row), table_fmt, precision)


def _summaries(
    source: Samples,
    metric: str,
    class_label: Label,
    method: Method,
    columns: Sequence[str] | None,
    table_fmt: str,
    precision: int,
) -> Any:
    names = _warn_if_empty(source.list_experiments())
    rows = []
    is_default = columns is None
    if columns is None:
        columns = ["Observed"] * (method == "posterior") + DEFAULT_COLUMNS
    if names:
        samples = torch.stack([source.column(metric, class_label, name, method) for name in names], -1)
        summary = summarize(samples, source.ci_probability)
        observed = [source.column(metric, class_label, name, "input")[0] for name in names]
        cells = {"Observed": torch.stack(observed), "NaN": summary.nan_fraction, **_cells(source, summary, columns)}
        for e, name in enumerate(names):
            group, experiment = split_name(name)
            row = {header: tuple(x[e] for x in v) if isinstance(v, tuple) else v[e] for header, v in cells.items()}
            rows.append({"Group": group, "Experiment": experiment, **row})
    headers = [*_headers(source, columns), *(_nan_header(rows) if is_default else ())]
    return format_table(rows, ["Group", "Experiment", *headers], table_fmt, precision)


def _nan_header(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the header of the fraction of undefined samples, which the other columns leave out, if any is above 0."""
    return ["NaN"] if any(float(row["NaN"]) != 0 for row in rows) else []


def _headers(source: Samples, columns: Sequence[str]) -> list[str]:
    return [f"{source.ci_probability:.1%} {column}" if column in ("HDI", "ETI") else column for column in columns]


def _cells(source: Samples, summary: PosteriorSummary, columns: Sequence[str]) -> dict[str, Any]:
    values = [getattr(summary, field) for column in columns if (field := SUMMARY_COLUMNS[column])]
    return dict(zip(_headers(source, [c for c in columns if c != "Observed"]), values, strict=True))


def _warn_if_empty(names: Any) -> Any:
    if not names:
        warnings.warn("the study has no experiments, so the report is empty", PosteriorWarning, stacklevel=3)
    return names
