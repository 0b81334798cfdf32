"""Scores of every query in every model, as one table."""

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.arguments.progress import progress_bar
from ...core.resampling.corrections import CORRECTIONS as P_VALUE_CORRECTIONS
from ...core.resampling.corrections import correct_p_values
from ...core.results.estimates import Estimate
from ...core.results.table import Table
from ...core.results.text_tables import import_pandas
from ..embeddings.model import WordEmbeddingModel, check_model
from ..embeddings.query import Query, check_query
from ..metrics._call import check_template
from ..metrics.base import BaseMetric
from ..resampling.random import concrete_seed
from .plan import Plan, plan_queries, plan_subqueries
from .scoring import batched_scores, corrected_p_values, looped_scores

if TYPE_CHECKING:
    import pandas as pd

    Aggregation = Literal["sum", "avg", "abs_sum", "abs_avg"] | Callable[[pd.DataFrame], pd.Series]

CORRECTIONS = ("max-t", *P_VALUE_CORRECTIONS)
AGGREGATIONS = {
    "sum": "sum",
    "avg": "average",
    "abs_sum": "sum of abs values",
    "abs_avg": "average of abs values",
}


@dataclass(frozen=True, eq=False)
class QueryScores:
    """Scores of queries in models: `values` (models, queries) float64 and the `reasons` of NaN by (model, query)."""

    values: Tensor
    model_names: list[str]
    query_names: list[str]
    reasons: dict[tuple[str, str], str]
    correction: str | None = None  # correction of p-values over the queries of each model
    estimate: Estimate | None = None  # `values` with their intervals, of the same shape

    def to_dataframe(self) -> "pd.DataFrame":
        """Return a DataFrame with index `model_name` and columns `query_name`; `attrs["reasons"]` has the reasons.

        With intervals, the columns of each query are "value", "low" and "high", the fields of an `Estimate`.
        """
        pd = import_pandas()
        values, columns = self.values, pd.Index(self.query_names, name="query_name")
        if self.estimate is not None:
            values = torch.stack(list(self.estimate), -1).flatten(1)
            columns = pd.MultiIndex.from_product([columns, Estimate.tensors], names=["query_name", "field"])
        frame = pd.DataFrame(values.cpu().numpy(), pd.Index(self.model_names, name="model_name"), columns)
        frame.attrs["reasons"] = self.reasons
        if self.correction:
            frame.attrs["correction"] = self.correction
        return frame

    def table(self) -> Table:
        """Return a table with a row per model and a column per query; the caption has the reasons of NaN."""
        models, queries = range(len(self.model_names)), range(len(self.query_names))
        scores = self.values if self.estimate is None else self.estimate
        cells = [[scores[model, query] for query in queries] for model in models]
        caption = "; ".join(f"{model}, {query}: {reason}" for (model, query), reason in self.reasons.items())
        return Table(self.model_names, self.query_names, cells, caption=caption or None, index="model")


@overload
def run_queries(
    metric: BaseMetric | type[BaseMetric],
    queries: Sequence[Query],
    models: Sequence[WordEmbeddingModel],
    queries_set_name: str = ...,
    lost_vocabulary_threshold: float = ...,
    metric_params: dict[str, Any] = ...,
    generate_subqueries: bool = ...,
    aggregate_results: bool = ...,
    aggregation_function: "Aggregation" = ...,
    return_only_aggregation: bool = ...,
    warn_not_found_words: bool = ...,
    *,
    value: str = ...,
    correction: str | None = ...,
    intervals: bool = ...,
    as_dataframe: Literal[True] = ...,
) -> "pd.DataFrame": ...
@overload
def run_queries(
    metric: BaseMetric | type[BaseMetric],
    queries: Sequence[Query],
    models: Sequence[WordEmbeddingModel],
    queries_set_name: str = ...,
    lost_vocabulary_threshold: float = ...,
    metric_params: dict[str, Any] = ...,
    generate_subqueries: bool = ...,
    aggregate_results: bool = ...,
    aggregation_function: "Aggregation" = ...,
    return_only_aggregation: bool = ...,
    warn_not_found_words: bool = ...,
    *,
    value: str = ...,
    correction: str | None = ...,
    intervals: bool = ...,
    as_dataframe: Literal[False],
) -> QueryScores: ...
@checks.names_arguments
@torch.no_grad()
def run_queries(
    metric: BaseMetric | type[BaseMetric],
    queries: Sequence[Query],
    models: Sequence[WordEmbeddingModel],
    queries_set_name: str = "Unnamed queries set",
    lost_vocabulary_threshold: float = 0.2,
    metric_params: dict[str, Any] = {},  # noqa: B006
    generate_subqueries: bool = False,
    aggregate_results: bool = False,
    aggregation_function: "Aggregation" = "abs_avg",
    return_only_aggregation: bool = False,
    warn_not_found_words: bool = False,
    *,
    value: str = "result",
    correction: str | None = None,
    intervals: bool = False,
    as_dataframe: bool = True,
) -> "pd.DataFrame | QueryScores":
    """Score all queries in all models: a row per model, a column per query.

    `metric_params` are options of `run_query` (but `lost_vocabulary_threshold` and `warn_not_found_words`, which are
    arguments here); `value` is the key of its result to return, such as "p_value".
    `correction` corrects p-values for the number of queries per model and is stored in `attrs["correction"]`: "holm"
    and "bh" as in `uncertainty.correct_p_values`; "max-t" draws `p_value_iterations` permutations jointly for all
    queries and compares with the largest score of each draw (Westfall & Young 1993, step-down), which has more power
    than "holm" if queries share words: in a draw, a word has one random number in all queries.
    With `intervals=True` and `metric_params={"replicates": 1000}` each query has the columns "value", "low" and "high".
    `generate_subqueries` splits every query by the metric's template.
    A query that a model cannot score is NaN, with a reason in `attrs["reasons"][model name, query name]`.
    `aggregate_results` appends a column, with `queries_set_name` in its name: the `aggregation_function` "sum", "avg",
    "abs_sum" or "abs_avg" of the other columns, which skips NaN, or a function of the table. With
    `return_only_aggregation` it is the only column.
    `as_dataframe=False` returns `QueryScores`, with values on the device and a method `table()` for a `Table`.
    A metric that defines `measure` is computed in batches, a metric that overrides `run_query` query by query.
    TypeError and ValueError for invalid arguments, such as different queries of one name, before any work.

    >>> vectors = torch.tensor([[2.0, 1], [3, 1], [1, 2], [1, 3], [1, 0], [0, 1]])
    >>> model = WordEmbeddingModel.from_tensor(vectors, ["he", "him", "she", "her", "work", "home"])
    >>> targets = [["he", "him"], ["she", "her"]]
    >>> queries = [Query(targets, [[word]], ["male", "female"], [word]) for word in ("work", "home")]
    >>> run_queries(RND, queries, [model]).round(2).values.tolist()  # a row for the model, a column for each query
    [[-0.7, 0.7]]
    """
    metric = _checked_metric(metric)
    _check_lists(queries, models)
    for name, flag in (
        ("generate_subqueries", generate_subqueries),
        ("aggregate_results", aggregate_results),
        ("return_only_aggregation", return_only_aggregation),
        ("as_dataframe", as_dataframe),
        ("intervals", intervals),
    ):
        checks.check_flag(name, flag)
    if not isinstance(queries_set_name, str) or not queries_set_name:
        got = "an empty str" if queries_set_name == "" else f"a {type(queries_set_name).__name__}"
        raise TypeError(f"queries_set_name: got {got}, wanted a name")
    if not callable(aggregation_function):
        checks.check_choice("aggregation_function", aggregation_function, tuple(AGGREGATIONS))
    if aggregate_results and not as_dataframe:
        raise ValueError("aggregate_results: got True with as_dataframe=False, wanted a table to append a column to")
    if return_only_aggregation and not as_dataframe:
        raise ValueError("return_only_aggregation: got True with as_dataframe=False, wanted as_dataframe=True")
    if as_dataframe:
        import_pandas()  # fail before the work if it is missing
    options = _options(
        metric_params, lost_vocabulary_threshold=lost_vocabulary_threshold, warn_not_found_words=warn_not_found_words
    )
    _check_value_is_for(correction, intervals, value, aggregate_results or return_only_aggregation)
    plan = _plan(metric, queries, generate_subqueries)
    scores = _score(metric, plan, models, options, value, correction == "max-t", intervals)
    if correction is not None:
        if correction != "max-t":
            scores = replace(scores, values=correct_p_values(scores.values, correction))
        scores = replace(scores, correction=correction)
    if not as_dataframe:
        return scores
    table = scores.to_dataframe()
    if not (aggregate_results or return_only_aggregation):
        return table
    name = f"{metric.metric_short_name}: {queries_set_name}"
    return _aggregated(table, name, aggregation_function, return_only_aggregation)


def _check_value_is_for(correction: str | None, intervals: bool, value: str, aggregated: bool) -> None:
    if intervals and (value != "result" or aggregated):
        raise ValueError("intervals: got True with another value or an aggregate, wanted value='result' alone")
    if correction is not None:
        checks.check_choice("correction", correction, CORRECTIONS)
        if value != "p_value":
            raise ValueError(f"correction: got {correction!r} with value={value!r}, wanted value='p_value'")


def _options(metric_params: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    """Merge arguments of `run_queries` and `metric_params` to the options of `run_query`."""
    if not isinstance(metric_params, dict):
        raise TypeError(f"metric_params: got a {type(metric_params).__name__}, wanted a dict of options of run_query")
    if repeated := sorted(arguments.keys() & metric_params):
        raise TypeError(f"metric_params: got {repeated}, which are arguments of run_queries")
    return arguments | metric_params


def _check_sums_are_comparable(metric: BaseMetric, models: Sequence[WordEmbeddingModel], value: str) -> None:
    """Raise a ValueError for sums over rows in several models with different numbers of rows per word."""
    several = [model.name for model in models if model._table.has_several_rows]
    if metric.unit == "row" and metric.sums_over_words and value in ("result", metric.metric_short_name.lower()):
        if len(models) > 1 and several:
            raise ValueError(
                f"unit: got 'row' for the sums of {metric.metric_short_name} in models with several rows a word, "
                f"{several[:3]}, and others; write unit='word', or take the effect size"
            )


def _score(
    metric: BaseMetric,
    plan: Plan,
    models: Sequence[WordEmbeddingModel],
    options: dict[str, Any],
    value: str,
    is_joint: bool,
    intervals: bool,
) -> QueryScores:
    keys = (value, "low", "high") if intervals else (value,)
    calls = None
    if type(metric).run_query is BaseMetric.run_query:
        bound = [metric.bind(plan.query(0), model, **options) for model in models]
        metric = bound[0][0]
        if intervals and not {"low", "high"} <= metric.result_keys.keys():
            short = metric.metric_short_name
            raise ValueError(f"intervals: {short} gives none so; write metric_params={{'replicates': 1000}} if it can")
        _check_value(metric, value)
        _check_sums_are_comparable(metric, models, value)
        calls = [call for _, call in bound] if metric.batched else None
    if is_joint:
        metric = _with_shared_draws(metric, calls is not None)
    rows, reasons = [], {}
    total = len(models) * len(plan.names)
    with progress_bar(total, "score", description=metric.metric_short_name, transient=True) as progress:
        for n, model in enumerate(models):
            if calls and is_joint:
                scores, why = corrected_p_values(metric, plan, calls[n], progress.advance)
            elif calls:
                scores, why = batched_scores(metric, plan, calls[n], keys, progress.advance)
            else:
                scores, why = looped_scores(metric, plan, model, options, keys, progress.advance)
            rows.append(scores)
            for i in scores[0].isnan().nonzero().squeeze(-1).tolist():
                reasons[model.name, plan.names[i]] = why.get(i, metric.no_score)
    device = rows[0].device
    values = torch.stack([row.to(device) for row in rows], 1)  # (K, models, queries)
    estimate = Estimate(*values) if intervals else None
    return QueryScores(values[0], [model.name for model in models], plan.names, reasons, estimate=estimate)


def _with_shared_draws(metric: BaseMetric, batched: bool) -> BaseMetric:
    """Return the metric with one stream of draws for all queries."""
    short, method = metric.metric_short_name, metric.p_value_method
    if not (batched and metric.has_p_value()):
        raise ValueError(f"correction: got 'max-t' for {short}, which draws no scores; write 'holm' or 'bh'")
    if not metric.calculate_p_value:
        raise ValueError("correction: got 'max-t' without p-values; write metric_params={'calculate_p_value': True}")
    if method == "exact":
        raise ValueError("correction: got 'max-t' with p_value_method='exact', wanted 'approximate': it draws")
    return metric._with({"p_value_seed": concrete_seed(None)}) if metric.p_value_seed is None else metric


def _checked_metric(metric: Any) -> BaseMetric:
    metric = metric() if isinstance(metric, type) and issubclass(metric, BaseMetric) else metric
    if not isinstance(metric, BaseMetric):
        raise TypeError(f"metric: got {metric!r}, wanted a metric of this package or a subclass of BaseMetric")
    return metric


def _check_lists(queries: Any, models: Any) -> None:
    for name, items, check in (("queries", queries, check_query), ("models", models, check_model)):
        if not isinstance(items, list | tuple | np.ndarray):
            raise TypeError(f"{name}: got a {type(items).__name__}, wanted a list")
        if not len(items):
            raise ValueError(f"{name}: got an empty list, wanted at least one")
        for i, item in enumerate(items):
            try:
                check(item)
            except TypeError as error:
                raise TypeError(f"{name}[{i}]: {error}") from None
    names = Counter(model.name for model in models)
    if repeated := [name for name, count in names.items() if count > 1]:
        raise ValueError(f"models: got {repeated} more than once, wanted distinct names")


def _plan(metric: BaseMetric, queries: Sequence[Query], generate_subqueries: bool) -> Plan:
    template, short = metric.metric_template, metric.metric_short_name
    if generate_subqueries:
        return plan_subqueries(queries, template, short)
    misfits = []
    for query in queries:
        try:
            check_template(query, template, short)
        except ValueError:
            misfits.append(query.query_name)
    if misfits:
        raise ValueError(
            f"queries: {misfits} do not have the sets that the template {template} of the metric {short} takes; "
            "write generate_subqueries=True to split larger ones"
        )
    return plan_queries(queries)


def _check_value(metric: BaseMetric, value: str) -> None:
    keys = ["result", *(key for key, kind in metric.result_keys.items() if kind is float)]
    if metric.result_keys and value not in keys:
        raise TypeError(f"value: got {value!r}, wanted one of the numbers {keys} of {metric.metric_short_name}")


def _aggregated(
    table: "pd.DataFrame", name: str, function: "str | Callable[[pd.DataFrame], pd.Series]", only: bool
) -> "pd.DataFrame":
    """Append the column "{name} {label} score" to the table, or return that column `only`."""
    if missing := int(table.isna().to_numpy().sum()):
        warnings.warn(f"{missing} of {table.size} scores are NaN and left out of the aggregate", stacklevel=3)
    values = table if callable(function) or function in ("sum", "avg") else table.abs()
    if callable(function):
        label, column = "custom aggregation", function(table)
    else:
        label = AGGREGATIONS[function]
        column = values.mean(axis=1) if function.endswith("avg") else values.sum(axis=1, min_count=1)
    column = column.rename(f"{name} {label} score").to_frame()
    result = column if only else table.join(column)
    result.attrs = table.attrs
    return result
