"""`tensormetrics trec`: how good are ranked lists of documents, by trec_eval's measures?"""

from typing import Any

import click

from .options import answer, common_options, intervals


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
@intervals("resamples of the queries", compared="RUN")
@common_options
def trec(**options: Any) -> int:
    """Score RUN (`query Q0 document rank score tag`) by the judgements QRELS (`query 0 document gain`, or BEIR's three
    columns with a heading), as trec_eval does.

    \b
    tensormetrics trec run.txt qrels.txt --metric ndcg_cut_10 --metric map
    tensormetrics trec dense.txt qrels.txt --compare bm25.txt --rope 0.01
    """
    return answer("trec", **options)
