"""`tensormetrics trec`: how good are ranked lists of documents, by trec_eval's measures?"""

from pathlib import Path
from typing import Any

import click

from ..retrieval import Qrels, Run, bootstrap, evaluate_run
from ..retrieval.runs.measures import SUMMED
from .inputs import existing, naming
from .output import common_options, draw_scores, percent, publish, table


@click.command()
@click.argument("run")
@click.argument("qrels")
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME",
    default=("map", "ndcg_cut_10", "recip_rank", "P_10", "recall_100"),
    show_default=True,
    help="As trec_eval calls it; may be repeated. ndcg_cut, P, recall, success, map_cut stand for its usual depths.",
)
@click.option("--level", type=int, default=1, show_default=True, help="The least gain that is relevant.")
@click.option("--complete", is_flag=True, help="Queries of the judgements that RUN lacks count as 0.")
@click.option("--judged-only", is_flag=True, help="Leave documents without a judgement out of the lists.")
@click.option("--per-query", is_flag=True, help="Also each query's scores.")
@click.option(
    "--replicates",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    metavar="N",
    help="Intervals from N resamples of the queries; 0: none.",
)
@click.option(
    "--confidence",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.95,
    show_default=True,
    metavar="SHARE",
    help="Of the intervals.",
)
@common_options
def trec(
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
    **outputs: Path | None,
) -> int:
    """Score RUN (`query Q0 document rank score tag`) by the judgements QRELS (`query 0 document gain`, or BEIR's three
    columns with a heading), as trec_eval does.

    \b
    tensormetrics trec run.txt qrels.txt --metric ndcg_cut_10 --metric map
    """
    with naming(metrics="--metric"):
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
    tables = [table(head, ([name, value, intervals.get(name)][: len(head)] for name, value in values.items()))]
    each = {query: {name: float(found.values[name][i]) for name in values} for i, query in enumerate(found.queries)}
    if per_query:
        tables.append(table(["query", *values], ([query, *row.values()] for query, row in each.items())))
    answer: dict[str, Any] = {
        "files": {"run": run, "qrels": qrels},
        "queries": len(found.queries),
        "level": level,
        "complete": complete,
        "judged_only": judged_only,
        "replicates": replicates,
        "confidence": confidence,
        "metrics": {
            name: {"value": value, **dict(zip(("low", "high"), intervals.get(name, ()), strict=False))}
            for name, value in values.items()
        },
        "per_query": each if per_query else {},
    }
    return publish(
        "trec",
        tables,
        answer,
        lambda: draw_scores(values, intervals, {}, confidence=confidence),
        values.values(),
        **outputs,
    )
