"""Ranked lists of documents, by trec_eval's measures."""

from typing import Annotated, Any

from ...core.results.table import Table
from ...retrieval import Qrels, Run, evaluate_run
from ...retrieval.runs.measures import SUMMED
from ..inputs.text import existing
from ..names import TREC
from ..naming import naming
from ..option_types import Arguments, Option, Probability, Replicates, Rope, SecondModel
from ..output import publish
from ..score_tables import comparison_json, comparison_table, score_json, score_table


def trec(
    run: str,
    qrels: str,
    *,
    metrics: Annotated[tuple[str, ...], Option(name="--metric")] = TREC,
    option: Arguments = (),
    per_query: bool = False,
    compare: SecondModel | None = None,
    rope: Rope | None = None,
    replicates: Replicates = 1000,
    confidence: Probability = 0.95,
    **outputs: Any,
) -> int:
    """Score RUN by the judgements QRELS, as trec_eval does.

    A line of RUN is `query Q0 document rank score tag`, one of QRELS `query 0 document gain`, or BEIR's three columns
    with a heading.

    \b
    tensormetrics trec run.txt qrels.txt --metric ndcg_cut_10 --metric map
    tensormetrics trec dense.txt qrels.txt --compare bm25.txt --rope 0.01

    Args:
        metrics (NAME): Name in trec_eval, ranx or ir_measures (ndcg@10, map@100, mrr, recall@100); may be repeated.
            ndcg_cut, P, recall, success, map_cut denote all depths of trec_eval.
        option: Another argument of `evaluate_run`: relevance_level=2 (smallest relevant gain), complete=true (judged
            queries that are missing in RUN count as 0) or judged_only=true (without unjudged documents).
        per_query: Also print each query's scores.
        compare: RUN of a second model: also its scores and the paired differences.
        replicates: Intervals from N reweightings of the queries; 0: none.
    """
    judgements = Qrels.read(existing(qrels))
    evaluated = {}
    for file in filter(None, (run, compare)):
        with naming(**{"run, qrels": f"{file} and {qrels}"}):
            evaluated[file] = evaluate_run(Run.read(existing(file)), judgements, metrics, **option)
    options: dict[str, Any] = {"confidence": confidence, "replicates": replicates}
    run_scores = evaluated[run]
    values = run_scores.summary()
    estimates = dict(run_scores.interval(**options)) if replicates and not values.keys() <= {*SUMMED} else {}
    scores = score_table(values, estimates, confidence, "metric")
    tables = [scores]
    answer: dict[str, Any] = {
        "files": {"run": run, "qrels": qrels, **({"compare": compare} if compare else {})},
        "queries": len(run_scores.queries),
        "metrics": score_json(scores),
        "per_query": {},
    }
    if compare:
        pairs = {"": (run_scores, evaluated[compare])}
        tables.append(comparison_table(pairs, (run, compare), "metric", rope=rope, **options))
        answer["comparison"] = comparison_json(tables[-1])
    if per_query:
        columns = run_scores.values.values()
        rows = {query: [float(column[i]) for column in columns] for i, query in enumerate(run_scores.queries)}
        tables.append(Table(list(rows), list(values), list(rows.values()), index="query"))
        answer["per_query"] = {query: dict(zip(values, row, strict=True)) for query, row in rows.items()}
    return publish(tables, answer, scores, **outputs)
