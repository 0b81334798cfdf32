"""`RunMetric`: trec_eval's measures of pairs of query and document, batch by batch."""

import math
from collections.abc import Mapping, Sequence, Sized
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Unpack

from ...core.arguments import checks
from ...core.metric.base import Metric, Options
from ...core.resampling.means import resampled_means
from ...core.resampling.resampling import Resampled
from ...core.resampling.weights import ItemNames, check_draws, units
from .evaluate import RunScores
from .measures import SUMMED, measures
from .ranking import Hits

OPTIONAL = "doc_ids", "groups"  # columns that all rows have, or none
EMPTY_TARGET_ACTIONS = "neg", "pos", "skip", "error"


class _Evaluated(NamedTuple):
    """Scores of queries, with their groups and numbers of relevant documents for intervals and comparisons."""

    scores: RunScores
    groups: Tensor | None  # (Q,)
    relevant: Tensor  # (Q,) relevant documents


class RunMetric(Metric):
    """Scores of ranked documents, such as those of a reranker or a recommender, by trec_eval's names and rules.

    Each row is a document of a query: its score, its relevance and the number of its query, as in torchmetrics'
    retrieval metrics. The rows of a query may be in any batch and on any rank; a relevant document counts as missed
    only if its row is passed. Results equal those of `evaluate_run` for the same run, which also ranks by scores
    rounded to float32; documents of negative scores count, unlike in RetrievalMAP of torchmetrics. `compute` returns
    the mean over the queries by name (for counts such as "num_rel" the sum), in [0, 1], higher is better; `interval`
    and `compare` resample queries.

    The measures are computed on the host, to which `compute` copies the rows.

    Args:
        metrics: Names of measures, as in `evaluate_run`: "map", "ndcg_cut_10", "recip_rank", "P_10", "recall_100" ...
        relevance_level: Minimum target of a relevant document; nDCG uses targets as gains, negative ones as 0.
        empty_target_action: Score of a query without relevant documents: 0 ("neg", as in trec_eval), 1 ("pos"), left
            out ("skip"), or a ValueError ("error").
        top_k: Documents after this rank are not retrieved; None for all.
        ignore_index: Rows of this target are left out.

    Shape of `update`:
        - preds: ``(N,)`` scores, the highest is the first; -inf ranks last, NaN is an error
        - target: ``(N,)`` bool or integer
        - indexes: ``(N,)`` integer, the number of each row's query
        - doc_ids: ``(N,)`` integer; at equal scores the greater one comes first, without them the earlier row
        - groups: ``(N,)`` integers or names, equal for dependent queries

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
        for name, column in columns.items():
            checks.shape(name, column, len(columns["preds"]))
            if name != "preds":
                checks.integral(name, column.long() if column.dtype == torch.bool else column)
        checks.floating("preds", columns["preds"])
        if groups is not None:
            columns["groups"] = units("groups", groups, len(columns["preds"]), columns["preds"].device)
        self._check_optional({**dict.fromkeys(OPTIONAL, ()), **columns})
        for name, column in columns.items():
            self.append_rows(name, column if name == "preds" else column.long())

    def compute(self) -> dict[str, Tensor]:
        """Compute the value of each measure by name, () float64."""
        evaluated = self._evaluate()
        self._items = evaluated
        means = {
            name: value.sum() if name in SUMMED else value.mean() for name, value in evaluated.scores.values.items()
        }
        return {name: value.to(self.preds.device) for name, value in means.items()}

    def per_query(self) -> RunScores:
        """Return the scores of each query, in the order of their numbers."""
        self.compute()
        return self._items.scores

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
        evaluated: _Evaluated = self._items or self._evaluate()
        means = {name: value for name, value in evaluated.scores.values.items() if name not in SUMMED}
        if not means:
            raise ValueError(f"metrics: got {', '.join(self.measures)}, wanted at least one mean for an interval")
        device = self.preds.device
        names = ItemNames.of(torch.tensor(evaluated.scores.queries, dtype=torch.int64, device=device), None, device)
        names = names._replace(groups=evaluated.groups)
        scores = torch.stack([*means.values()], 1).to(device)
        target = evaluated.relevant.to(device)
        sums = resampled_means(scores, names, *check_draws(replicates, seed), bounds=(0.0, 1.0), target=target)
        return sums.take(read=lambda values: dict(zip(means, values.unbind(-1), strict=True)))

    def _evaluate(self) -> _Evaluated:
        rows = {name: getattr(self, name).cpu().numpy() for name in ("preds", "target", "indexes", "doc_ids", "groups")}
        for name in OPTIONAL:  # ranks may differ
            if len(rows[name]) not in (0, len(rows["preds"])):
                raise ValueError(
                    f"{name}: got {len(rows[name])} for {len(rows['preds'])} rows; give them always or never"
                )
        if self.ignore_index is not None:
            is_valid = rows["target"] != self.ignore_index
            rows = {name: column[is_valid] if len(column) else column for name, column in rows.items()}
        query_ids, first, query = np.unique(rows["indexes"], return_index=True, return_inverse=True)
        hits = self._hits(rows, query_ids, query)
        groups = None
        if len(rows["groups"]):
            groups = rows["groups"][first]
            if wrong := (rows["groups"] != groups[query]).nonzero()[0].tolist():
                raise ValueError(f"groups: got several for query {query_ids[query[wrong[0]]]}, wanted one")
        is_scored = self._scored_queries(hits, query_ids)
        values = {}
        for name, measure in self.measures.items():
            value = measure(hits)
            if self.empty_target_action == "pos" and name not in SUMMED:
                value = np.where(hits.relevant == 0, 1.0, value)
            values[name] = torch.from_numpy(value[is_scored])
        scores = RunScores(query_ids[is_scored].tolist(), values, self.relevance_level)
        device = self.preds.device
        scored_groups = None if groups is None else torch.from_numpy(groups[is_scored]).to(device)
        return _Evaluated(scores, scored_groups, torch.from_numpy(hits.relevant[is_scored]).long())

    def _hits(self, rows: dict[str, np.ndarray], query_ids: np.ndarray, query: np.ndarray) -> Hits:
        scores = rows["preds"].astype(np.float32)
        if np.isnan(scores).any():
            raise ValueError(f"preds: got NaN for query {query_ids[query[np.isnan(scores).argmax()]]}, wanted numbers")
        ties = ~rows["doc_ids"] if len(rows["doc_ids"]) else np.arange(len(scores))
        order = np.lexsort((ties, -scores, query))
        if len(rows["doc_ids"]):
            by_document = np.lexsort((rows["doc_ids"], query))
            pairs = np.stack([query, rows["doc_ids"]], 1)[by_document]
            is_repeated = (pairs[1:] == pairs[:-1]).all(1)
            if is_repeated.any():
                repeated, document = pairs[1:][is_repeated][0]
                raise ValueError(f"doc_ids: query {query_ids[repeated]} has document {document} twice")
        query, gain = query[order], rows["target"][order]
        documents = np.bincount(query, minlength=len(query_ids))
        rank = np.arange(1, len(query) + 1) - (np.cumsum(documents) - documents)[query]
        depth = self.top_k or max(len(query), 1)
        is_hit = rank <= depth
        retrieved = np.minimum(documents, depth)
        return Hits(query[is_hit], rank[is_hit], gain[is_hit], retrieved, query, gain, self.relevance_level)

    def _scored_queries(self, hits: Hits, query_ids: np.ndarray) -> np.ndarray:
        # ->  (Q,) bool
        is_empty = hits.relevant == 0
        if self.empty_target_action == "error" and is_empty.any():
            raise ValueError(
                f"target: query {query_ids[is_empty.argmax()]} has no relevant document; write "
                "empty_target_action='neg', 'pos' or 'skip'"
            )
        return ~is_empty if self.empty_target_action == "skip" else np.ones_like(is_empty)
