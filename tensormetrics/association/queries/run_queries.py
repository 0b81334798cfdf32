"""Scores of every query in every model, as one table."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.arguments.progress import progress_bar
from ...core.resampling.corrections import CORRECTIONS as P_VALUE_CORRECTIONS
from ...core.resampling.corrections import correct_p_values
from ...core.results.estimates import Estimate
from ...core.results.table import Table
from ..embeddings.model import WordEmbeddingModel, check_model
from ..embeddings.query import Query, check_query
from ..metrics.base import BaseMetric, check_template
from .plan import QueryPlan, plan_queries, plan_subqueries
from .scoring import Progress, Reasons, corrected_p_values, scores_of_queries

CORRECTIONS = ("max-t", *P_VALUE_CORRECTIONS)


@checks.names_arguments
@torch.no_grad()
def run_queries(
    metric: BaseMetric | type[BaseMetric],
    queries: Sequence[Query],
    models: Sequence[WordEmbeddingModel],
    *,
    generate_subqueries: bool = False,
    value: str | None = None,
    correction: str | None = None,
) -> Table:
    """Score all queries in all models.

    A metric that defines `measure` is computed in batches, a metric that overrides `run_query` query by query.

    Args:
        metric: The metric, with its options.
        queries: Queries of distinct names.
        models: Models of distinct names.
        generate_subqueries: Whether every query is split by the metric's template.
        value: Number of the details of `run_query` that the cells show, such as ``"p_value"`` or ``"effect_size"``; by
            default the score, with its interval if the metric has `replicates`.
        correction: Shows p-values, corrected for the number of queries per model: ``"holm"`` and ``"bh"`` as in
            `uncertainty.correct_p_values`; ``"max-t"`` draws the metric's number of permutations jointly for all
            queries and compares with the largest score of each draw (Westfall & Young 1993, step-down), which has more
            power than "holm" if queries share words: in a draw, a word has one random number in all queries.

    Returns:
        A row for each model and a column for each query. Cells are estimates or numbers, NaN for a query that a model
        cannot score, with the reason in the caption.

    Raises:
        TypeError, ValueError: For invalid arguments, such as different queries of one name, before any work.

    Example:
        >>> vectors = torch.tensor([[2.0, 1], [3, 1], [1, 2], [1, 3], [1, 0], [0, 1]])
        >>> model = WordEmbeddingModel.from_tensor(vectors, ["he", "him", "she", "her", "work", "home"], "small")
        >>> targets = [["he", "him"], ["she", "her"]]
        >>> queries = [Query(targets, [[word]], ["male", "female"], [word]) for word in ("work", "home")]
        >>> print(run_queries(RND, queries, [model]))
        model  male and female wrt work  male and female wrt home
        small                    -0.697                     0.697
    """
    metric, plan = planned(metric, queries, models, generate_subqueries)
    if correction is not None and value not in (None, "p_value"):
        raise ValueError(f"value: got {value!r} with correction={correction!r}, wanted 'p_value'")
    if correction is not None:
        numbers, reasons = corrected(metric, plan, models, correction)
        cells: list[list[Any]] = numbers.tolist()
    else:
        columns, reasons = scored(metric, plan, models)
        if (value or "value") not in columns:
            names = ", ".join(name for name in columns if name not in ("value", "low", "high"))
            raise ValueError(f"value: got {value!r}, wanted one of {names} of {metric.metric_short_name}")
        numbers = columns[value or "value"]
        cells = numbers.tolist()
        if value is None and metric.has_intervals:
            ends = torch.stack([numbers, columns["low"], columns["high"]], -1).cpu()
            cells = [[Estimate(*cell, confidence=metric.confidence) for cell in row] for row in ends]
    rows = [model.name for model in models]
    for m, q in numbers.isnan().nonzero().tolist():
        reasons.setdefault((rows[m], plan.names[q]), metric.no_score)
    caption = "; ".join(f"{model}, {query}: {reason}" for (model, query), reason in reasons.items())
    return Table(rows, plan.names, cells, caption=caption or None, index="model")


def scored(
    metric: BaseMetric, plan: QueryPlan, models: Sequence[WordEmbeddingModel]
) -> tuple[dict[str, Tensor], dict[tuple[str, str], str]]:
    # ->  name: (models, queries) float64
    """Return "value", "low", "high" and the numbers in the details of `run_query`, and the reasons of missing scores.

    Reasons are by the names of the model and the query.
    """
    several = [model.name for model in models if model._table.has_several_rows]
    if metric.unit == "row" and metric.sums_over_words and len(models) > 1 and several:
        raise ValueError(
            f"unit: got 'row' for the sums of {metric.metric_short_name} in models with several rows a word, "
            f"{several[:3]}, and others; write unit='word', or take the effect size"
        )
    parts, reasons = _in_models(scores_of_queries, metric, plan, models)
    device, nan = models[0].vectors.device, torch.full((len(plan.names),), torch.nan, dtype=torch.float64, device="cpu")
    names = dict.fromkeys(name for part in ({"value": nan, "low": nan, "high": nan}, *parts) for name in part)
    columns = {name: torch.stack([part.get(name, nan).to(device) for part in parts]) for name in names}
    for m, q in columns["value"].isnan().nonzero().tolist():
        reasons.setdefault((models[m].name, plan.names[q]), metric.no_score)
    return columns, reasons


def corrected(
    metric: BaseMetric, plan: QueryPlan, models: Sequence[WordEmbeddingModel], correction: str
) -> tuple[Tensor, dict[tuple[str, str], str]]:
    # ->  (models, queries) float64
    """Return p-values corrected for the number of queries, and the reasons of missing ones."""
    checks.check_choice("correction", correction, CORRECTIONS)
    short = metric.metric_short_name
    if not metric.p_value:
        raise ValueError(f"correction: got {correction!r} without p-values; write {short}(p_value=True)")
    if correction != "max-t":
        columns, reasons = scored(metric, plan, models)
        if "p_value" not in columns:
            raise ValueError(f"correction: got {correction!r} for {short}, whose queries have no p-value")
        return correct_p_values(columns["p_value"], correction), reasons
    if not metric.batched or not metric.has_p_value():
        raise ValueError(f"correction: got 'max-t' for {short}, which draws no scores; write 'holm' or 'bh'")
    if metric.method == "exact":
        raise ValueError("correction: got 'max-t' with method='exact', wanted 'approximate': it draws")
    parts, reasons = _in_models(corrected_p_values, metric, plan, models)
    return torch.stack([part.to(models[0].vectors.device) for part in parts]), reasons


def _in_models(
    score: Callable[[BaseMetric, QueryPlan, WordEmbeddingModel, Progress], tuple[Any, Reasons]],
    metric: BaseMetric,
    plan: QueryPlan,
    models: Sequence[WordEmbeddingModel],
) -> tuple[list[Any], dict[tuple[str, str], str]]:
    parts, reasons = [], dict[tuple[str, str], str]()
    total = len(models) * len(plan.names)
    with progress_bar(total, "score", description=metric.metric_short_name, transient=True) as progress:
        for model in models:
            part, why = score(metric, plan, model, progress.advance)
            parts.append(part)
            reasons |= {(model.name, plan.names[i]): reason for i, reason in why.items()}
    return parts, reasons


def planned(metric: Any, queries: Any, models: Any, generate_subqueries: bool) -> tuple[BaseMetric, QueryPlan]:
    """Check the arguments of `run_queries`; return the metric and the plan of the queries."""
    metric = metric() if isinstance(metric, type) and issubclass(metric, BaseMetric) else metric
    if not isinstance(metric, BaseMetric):
        raise TypeError(f"metric: got {metric!r}, wanted a metric of this package or a subclass of BaseMetric")
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
    checks.check_flag("generate_subqueries", generate_subqueries)
    template, short = metric.metric_template, metric.metric_short_name
    if generate_subqueries:
        return metric, plan_subqueries(queries, template, short)
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
    return metric, plan_queries(queries)
