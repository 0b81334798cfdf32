"""`evaluate_run`: the door to the measures."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from .measures import SUMMED, measures
from .pairs import Qrels, Run
from .ranking import hits_of

Kind = TypeVar("Kind", Run, Qrels)


class RunScores(NamedTuple):
    """Scores of ranked lists: the queries, and for each measure a value for each of them, (Q,) float64."""

    queries: list[str]
    values: dict[str, Tensor]

    def summary(self) -> dict[str, float]:
        """The mean over the queries, as trec_eval prints it for `all`; of counts the sum."""
        return {name: float(value.sum() if name in SUMMED else value.mean()) for name, value in self.values.items()}


def evaluate_run(
    run: Run | str | PathLike | Mapping[str, Mapping[str, float]],
    qrels: Qrels | str | PathLike | Mapping[str, Mapping[str, int]],
    metrics: Sequence[str] = ("map", "ndcg_cut_10", "recip_rank", "P_10", "recall_100"),
    *,
    relevance_level: int = 1,
    complete: bool = False,
    judged_only: bool = False,
) -> RunScores:
    """The measures of trec_eval for each query, by its names and rules: equal to it to the last digits.

    Files, dicts or `Run` and `Qrels`. Documents are ranked by score, rounded to float32, and of equal ones the greater
    name comes first. `relevance_level`: the least gain that is relevant (not for nDCG, which takes gains as they are,
    negative ones as 0). Queries that lack a run or judgements are left out; `complete` takes those of the judgements
    without a run, as 0. `judged_only` removes what was not judged from the lists. Values in [0, 1], higher is better;
    `num_` are counts. Time O(n log n), memory O(n). ValueError for other names of metrics, a document twice, a file
    that does not fit, and where run and judgements have no query in common.

        >>> scores = evaluate_run({"q": {"a": 3.0, "b": 2.0}}, {"q": {"b": 1}}, ["recip_rank", "P_1"])
        >>> scores.summary()
        {'recip_rank': 0.5, 'P_1': 0.0}
    """
    chosen = measures((metrics,) if isinstance(metrics, str) else tuple(metrics))
    if not chosen:
        raise ValueError("metrics: got none, wanted at least one name")
    run, qrels = _as(Run, run), _as(Qrels, qrels)
    queries, hits = hits_of(run, qrels, relevance_level, complete, judged_only)
    if not queries:
        some = ", ".join(repr(query) for side in (run, qrels) for query in side.queries[:2])
        raise ValueError(f"run, qrels: no query is in both; their names begin with {some or 'none'}")
    return RunScores(queries, {name: torch.from_numpy(measure(hits)) for name, measure in chosen.items()})


def _as(kind: type[Kind], given: Any) -> Kind:
    if isinstance(given, kind):
        return given
    return kind.read(given) if isinstance(given, str | PathLike) else kind(given)
