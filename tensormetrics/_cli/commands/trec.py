"""Ranked lists of documents, by trec_eval's measures."""

from typing import Any

from ...retrieval import Qrels, Run, bootstrap, evaluate_run
from ...retrieval.runs.measures import SUMMED
from ..inputs import existing, naming
from ..output import Table, draw_scores, percent, publish


def answer(
    run: str,
    qrels: str,
    metrics: tuple[str, ...],
    level: int,
    complete: bool,
    judged_only: bool,
    per_query: bool,
    replicates: int,
    confidence: float,
    device: str | None,
    **outputs: Any,
) -> int:
    with naming({"run, qrels: ": f"{run} and {qrels}: "}, metrics="--metric"):
        found = evaluate_run(
            Run.read(existing(run)),
            Qrels.read(existing(qrels)),
            metrics,
            relevance_level=level,
            complete=complete,
            judged_only=judged_only,
        )
        values = found.summary()
        intervals = {}
        for name in found.values if replicates else ():
            if name not in SUMMED:
                interval = bootstrap(found.values[name], replicates, confidence)
                intervals[name] = (float(interval.low), float(interval.high))
    head = ["metric", "value", *([f"{percent(confidence)} interval"] if intervals else [])]
    tables = [Table.of(head, ([name, value, intervals.get(name)] for name, value in values.items()))]
    each = {query: {name: float(found.values[name][i]) for name in values} for i, query in enumerate(found.queries)}
    if per_query:
        tables.append(Table.of(["query", *values], ([query, *row.values()] for query, row in each.items())))
    answer: dict[str, Any] = {
        "files": {"run": run, "qrels": qrels},
        "queries": len(found.queries),
        "metrics": {
            name: {"value": value, **dict(zip(("low", "high"), intervals.get(name, ()), strict=False))}
            for name, value in values.items()
        },
        "per_query": each if per_query else {},
    }
    return publish(
        tables,
        answer,
        lambda size: draw_scores(values, intervals, {}, confidence=confidence, size=size),
        values.values(),
        **outputs,
    )
