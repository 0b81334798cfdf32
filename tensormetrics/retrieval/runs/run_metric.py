"""`RunMetric`: trec_eval's measures of pairs of query and document, batch by batch."""

import math
from collections.abc import Callable, Mapping, Sequence, Sized
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from typing_extensions import Unpack

from ...core.arguments import checks
from ...core.metric.base import Metric, Options
from ...core.resampling.resampling import Resampled
from ...core.resampling.weights import ItemNames, units
from ...core.results.estimates import Estimate
from ...core.results.score_table import ScoreTable
from .evaluate import RunScores, resampled_queries
from .measures import FLAT, GEOMETRIC, SUMMED, means_of, measures
from .ranks import RankedRows, order_of_rows, starts_of

RELEVANT = "num_rel"
OPTIONAL = "doc_ids", "groups"  # columns that all rows have, or none
AGGREGATIONS: dict[str, Callable[..., Tensor]] = {
    "mean": torch.mean,
    "median": lambda values, dim: values.median(dim).values,
    "min": torch.amin,
    "max": torch.amax,
}
EMPTY_TARGET_ACTIONS = "neg", "pos", "skip", "error"


class _Evaluated(NamedTuple):
    """Values of queries, with what intervals and comparisons need."""

    queries: Tensor  # (Q,) int64
    values: dict[str, Tensor]  # (Q,) float64
    relevant: Tensor  # (Q,) float64, relevant documents
    groups: Tensor | None  # (Q,) int64


class RunMetric(Metric[ScoreTable[Estimate]]):
    """Scores of ranked documents, such as those of a reranker or a recommender, by trec_eval's names and rules.

    Each row is a document of a query: its score, its relevance and the number of its query, as in torchmetrics'
    retrieval metrics. The rows of a query may be in any batch and on any rank; a relevant document counts as missed
    only if its row is passed. Results equal those of `evaluate_run` for the same run, which also ranks by scores
    rounded to float32; documents of negative scores count, unlike in RetrievalMAP of torchmetrics. `compute` returns
    the mean over the queries by name (for counts such as "num_rel" the sum), in [0, 1], higher is better; `interval`
    and `compare` resample queries.

    Args:
        metrics: Names of measures, as in `evaluate_run`: "map", "ndcg_cut_10", "recip_rank", "P_10", "recall_100" ...
        relevance_level: Minimum target of a relevant document; nDCG uses targets as gains, negative ones as 0. Write a
            smaller one where gains are fractions.
        empty_target_action: Score of a query without relevant documents: 0 ("neg", as in trec_eval), 1 ("pos"), left
            out ("skip"), or a ValueError ("error").
        top_k: Documents after this rank are not retrieved; None for all.
        ignore_index: Rows of this target are left out.
        aggregation: What `compute` returns of the queries: their "mean", "median", "min" or "max", or a function of
            values and dimension, as in torchmetrics. Only a mean has an interval.

    Shape of `update`:
        - preds: ``(N,)`` or ``(B, N)``, scores, the highest is the first; -inf ranks last, NaN is an error
        - target: like `preds`, bool, integer or floating; NaN is an error
        - indexes: like `preds`, integer, the number of each row's query
        - doc_ids: like `preds`, integer; at equal scores the greater one comes first, without them the earlier row
        - groups: integers or names, one for each number in `preds`, equal for dependent queries

    Raises:
        ValueError: If a query has a document twice or several groups, or scores are NaN.

    Example:
        >>> metric = RunMetric(("map", "P_1"))
        >>> scores, relevant = torch.tensor([0.9, 0.5, 0.2, 0.8]), torch.tensor([0, 1, 1, 0])
        >>> metric.update(scores, relevant, indexes=torch.tensor([0, 0, 1, 1]))
        >>> {name: value.item() for name, value in metric.compute().items()}
        {'map': 0.5, 'P_1': 0.0}
    """

    higher_is_better = True
    plot_lower_bound: float | None = 0.0
    preds: Tensor
    target: Tensor
    indexes: Tensor
    doc_ids: Tensor
    groups: Tensor

    def __init__(
        self,
        metrics: str | Sequence[str] = ("map", "ndcg_cut_10"),
        *,
        relevance_level: int = 1,
        empty_target_action: Literal["neg", "pos", "skip", "error"] = "neg",
        top_k: int | None = None,
        ignore_index: int | None = None,
        aggregation: Literal["mean", "median", "min", "max"] | Callable[..., Tensor] = "mean",
        **kwargs: Unpack[Options],
    ) -> None:
        super().__init__(**kwargs)
        self.measures = measures(metrics)
        checks.check_choice("empty_target_action", empty_target_action, EMPTY_TARGET_ACTIONS)
        checks.check_number("relevance_level", relevance_level, "a number", math.isfinite)
        self.relevance_level, self.empty_target_action = relevance_level, empty_target_action
        self.top_k = None if top_k is None else checks.check_int("top_k", top_k, 1)
        if ignore_index is not None:
            checks.check_number("ignore_index", ignore_index, "None or an integer", lambda x: x.is_integer())
        self.ignore_index = ignore_index
        if not callable(aggregation):
            checks.check_choice("aggregation", aggregation, AGGREGATIONS)
        self.aggregation = aggregation
        for name in ("preds", "target", "indexes", "doc_ids", "groups"):
            self.add_rows(name)

    def update(
        self,
        preds: Tensor,
        target: Tensor,
        indexes: Tensor,
        doc_ids: Tensor | None = None,
        *,
        groups: Any = None,
    ) -> None:
        columns = {"preds": preds, "target": target, "indexes": indexes}
        columns |= {} if doc_ids is None else {"doc_ids": doc_ids}
        columns = {name: checks.as_tensor(column) for name, column in columns.items()}
        shape = columns["preds"].shape or ("N",)
        for name, column in columns.items():
            checks.shape(name, column, *shape)
            if name in ("indexes", "doc_ids") or column.is_complex():
                checks.integral(name, column)
        checks.floating("preds", columns["preds"])
        columns = {name: column.flatten() for name, column in columns.items()}
        if groups is not None:
            columns["groups"] = units("groups", groups, len(columns["preds"]), columns["preds"].device)
        self._check_optional({**dict.fromkeys(OPTIONAL, ()), **columns})
        for name, column in columns.items():
            is_integer = name != "preds" and not column.is_floating_point()
            self.append_rows(name, column.long() if is_integer else column)

    def compute(self) -> dict[str, Tensor]:
        """Compute the value of each measure by name, () float64."""
        self._items = self._evaluate()
        values, means = self._items.values, means_of(self._items.values)
        if self.aggregation == "mean":
            return means
        aggregate = self.aggregation if callable(self.aggregation) else AGGREGATIONS[self.aggregation]
        return means | {
            name: aggregate(x, dim=0) for name, x in values.items() if name not in (*SUMMED, GEOMETRIC) and len(x)
        }

    def per_query(self) -> RunScores:
        """Return the scores of each query, in the order of their numbers."""
        self.compute()
        values = {name: value.cpu() for name, value in self._items.values.items()}
        return RunScores(self._items.queries.tolist(), values, self.relevance_level)

    def _add_state(self, state: dict[str, Tensor]) -> None:
        self._check_optional(state)
        super()._add_state(state)

    def _check_optional(self, columns: Mapping[str, Sized]) -> None:
        """Raise a ValueError if only some rows have an optional column."""
        for name in OPTIONAL if len(self.preds) and len(columns["preds"]) else ():
            if (len(columns[name]) > 0) != (len(getattr(self, name)) > 0):
                got, expected = ("some", "none") if len(columns[name]) else ("none", "some")
                raise ValueError(f"{name}: got {got} after rows that have {expected}; give them always or never")

    def _direction(self, name: str) -> bool | None:
        return None if name in SUMMED else True

    def _resampled_sums(self, replicates: int | None, seed: int | None) -> Resampled:
        if self.aggregation != "mean":
            raise NotImplementedError(f"RunMetric: aggregation={self.aggregation!r} has no interval; write 'mean'")
        queries, values, relevant, groups = self._items or self._evaluate()
        names = ItemNames.of(queries, None, queries.device)._replace(groups=groups)
        return resampled_queries(values, names, "an interval", replicates, seed, relevant.long())

    def _evaluate(self) -> _Evaluated:
        rows = {name: getattr(self, name) for name in ("preds", "target", "indexes", *OPTIONAL)}
        for name in OPTIONAL:  # ranks may differ
            if len(rows[name]) not in (0, len(rows["preds"])):
                raise ValueError(
                    f"{name}: got {len(rows[name])} for {len(rows['preds'])} rows; give them always or never"
                )
        rows = {name: column for name, column in rows.items() if len(column)}
        if rows and self.ignore_index is not None:
            is_valid = rows["target"] != self.ignore_index
            rows = {name: column[is_valid] for name, column in rows.items()}
        if not rows or not len(rows["preds"]):
            none = torch.empty(0, dtype=torch.float64, device=self.device)
            return _Evaluated(none.long(), dict.fromkeys(self.measures, none), none, None)
        order, query = order_of_rows(rows["indexes"], rows["preds"].float(), rows.get("doc_ids"))
        number, position, start = starts_of(query)
        faults = _faults(rows, order, start)
        sizes = [number[-1], position.max(), *(fault.sum() for _, fault in faults.values())]
        queries, width, *counts = torch.stack(sizes).tolist()  # waits for the device
        for (message, (where, fault)), count in zip(faults.items(), counts, strict=True):
            if count:
                first = fault.nonzero()[0, 0]
                first = first if where is None else where[first]
                document = int(rows["doc_ids"][first]) if "doc_ids" in rows else None
                raise ValueError(message.format(query=int(rows["indexes"][first]), document=document))
        rank = position if self.top_k is None else position.masked_fill(position > self.top_k, 0)
        ranked = RankedRows(number, rank, rows["target"][order], position, queries + 1, None, width)
        values = ranked.values({**self.measures, RELEVANT: FLAT[RELEVANT]}, self.relevance_level)
        relevant = values[RELEVANT]
        values = {name: values[name] for name in self.measures}

        def first_of(column: Tensor) -> Tensor:  # (n,)  ->  (Q,), of columns that are equal in each query
            return column.new_empty(queries + 1).index_put_((number,), column)

        groups = first_of(rows["groups"][order]) if "groups" in rows else None
        return self._without_empty(_Evaluated(first_of(query), values, relevant, groups))

    def _without_empty(self, evaluated: _Evaluated) -> _Evaluated:
        """Treat queries without relevant documents as the option says."""
        queries, values, relevant, groups = evaluated
        if self.empty_target_action == "pos":
            filled = {n: x if n in SUMMED else x.masked_fill(relevant == 0, 1.0) for n, x in values.items()}
            return evaluated._replace(values=filled)
        if self.empty_target_action == "neg" or bool((relevant > 0).all()):
            return evaluated
        if self.empty_target_action == "error":
            raise ValueError(
                f"target: query {int(queries[relevant == 0][0])} has no relevant document; write "
                "empty_target_action='neg', 'pos' or 'skip'"
            )
        chosen = relevant > 0
        values = {name: value[chosen] for name, value in values.items()}
        return _Evaluated(queries[chosen], values, relevant[chosen], None if groups is None else groups[chosen])


def _faults(rows: dict[str, Tensor], order: Tensor, start: Tensor) -> dict[str, tuple[Tensor | None, Tensor]]:
    # order, start: (n,)  ->  message: (m,) rows, None for all in order, (m,) bool
    """Return what is wrong with rows, by the message of the error."""
    floats = [name for name in ("preds", "target") if rows[name].is_floating_point()]
    message = "{}: got NaN for query {{query}}, wanted numbers"
    faults: dict[str, tuple[Tensor | None, Tensor]] = {
        message.format(name): (None, rows[name].isnan()) for name in floats
    }
    if "doc_ids" in rows:
        by_name, query = order_of_rows(rows["indexes"], rows["doc_ids"])
        after = [column[1:] == column[:-1] for column in (query, rows["doc_ids"][by_name])]
        faults["doc_ids: query {query} has document {document} twice"] = by_name, after[0] & after[1]
    if "groups" in rows:
        group = rows["groups"][order]
        faults["groups: got several for query {query}, wanted one"] = order, group != group[start]
    return faults
