"""Ranked lists of documents, by trec_eval's measures."""

from typing import Any

from ...retrieval import Qrels, Run, evaluate_run
from ...retrieval.runs.measures import SUMMED
from ...uncertainty.results.table import Table
from ..inputs import existing, naming
from ..output import publish
from .scores import Comparisons, Scores

SAME_ITEMS = "feed both with the same ids (or, without ids, the same order)"  # of the library
HINTS = {SAME_ITEMS: "write --complete, which counts a query that a run lacks as 0", "metrics: ": "--metric: "}


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
    compare: str | None,
    rope: float | None,
    device: str | None,
    **outputs: Any,
) -> int:
    evaluated = {}
    for file in filter(None, (run, compare)):
        with naming({"run, qrels: ": f"{file} and {qrels}: "}, metrics="--metric"):
            evaluated[file] = evaluate_run(
                Run.read(existing(file)),
                Qrels.read(existing(qrels)),
                metrics,
                relevance_level=level,
                complete=complete,
                judged_only=judged_only,
            )
    options: dict[str, Any] = {"confidence": confidence, "replicates": replicates}
    run_scores = evaluated[run]
    values, estimates = run_scores.summary(), {}
    if replicates and not values.keys() <= {*SUMMED}:
        with naming():
            estimates = run_scores.interval(**options)
    scores = Scores(values, estimates, confidence)
    tables = [scores.table("metric")]
    answer: dict[str, Any] = {
        "files": {"run": run, "qrels": qrels, **({"compare": compare} if compare else {})},
        "queries": len(run_scores.queries),
        "metrics": scores.answer(),
        "per_query": {},
    }
    if compare:
        pairs = {"": (run_scores, evaluated[compare])}
        comparisons = Comparisons.of(pairs, (run, compare), HINTS, rope=rope, **options)
        tables.append(comparisons.table("metric"))
        answer["comparison"] = comparisons.answer()
    if per_query:
        columns = run_scores.values.values()
        rows = {query: [float(column[i]) for column in columns] for i, query in enumerate(run_scores.queries)}
        tables.append(Table(list(rows), list(values), list(rows.values()), index="query"))
        answer["per_query"] = {query: dict(zip(values, row, strict=True)) for query, row in rows.items()}
    return publish(tables, answer, scores.draw, values.values(), **outputs)
