"""`tensormetrics retrieval`: do nearest neighbours share labels?"""

from typing import Any

import click
from click.core import ParameterSource

from .names import DISTANCES, RETRIEVAL, RETRIEVAL_OF_NEIGHBOURS, TIES
from .options import Finite, answer, common_options, intervals


@click.command(epilog=f"Metrics: {RETRIEVAL}.")
@click.argument("embeddings")
@click.argument("labels", required=False)
@click.option("--reference", metavar="FILE", help="Embeddings to search in; default EMBEDDINGS themselves.")
@click.option("--reference-labels", metavar="FILE", help="Their labels.")
@click.option(
    "--gains",
    metavar="FILE",
    help="What is relevant, in place of equal labels: query, reference and gain to a line, or TREC's judgements.",
)
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME",
    default=("AMI", "NMI", *RETRIEVAL_OF_NEIGHBOURS),
    show_default="AMI, NMI and five of neighbours, or with --gains these five and ndcg",
    help="May be repeated; names stand below.",
)
@click.option(
    "--k",
    metavar="N",
    show_default="all",
    help="Neighbours per query, or max_bin_count: as many as the largest class has.",
)
@click.option(
    "--knn", type=click.Choice(["torch", "faiss", "keops"]), default="torch", show_default=True, help="Who searches."
)
@click.option("--distance", type=click.Choice(DISTANCES), default="l2", show_default=True)
@click.option(
    "--ties",
    type=click.Choice(TIES),
    default="index",
    show_default=True,
    help="Which comes first at equal distance: the earlier row, the relevant one, or the other one.",
)
@click.option(
    "--average",
    type=click.Choice(["micro", "macro"]),
    default="micro",
    show_default=True,
    help="The mean over queries, or over classes of their means.",
)
@click.option("--levels", is_flag=True, help="LABELS has several columns, (N, L), of which each is scored.")
@click.option(
    "--cameras", metavar="FILE", help="One per row: relevant references of the query's own camera are left out."
)
@click.option("--reference-cameras", metavar="FILE", help="Those of the references.")
@click.option("--ids", metavar="FILE", help="One per row: of rows with the same id the first counts.")
@click.option("--reference-ids", metavar="FILE", help="Those of the references, which --gains may name.")
@click.option(
    "--groups",
    metavar="FILE",
    show_default="the labels",
    help="One per row: queries that are reweighted together in intervals.",
)
@click.option("--per-class", is_flag=True, help="Also a table with a row for each class.")
@click.option("--index", metavar="FACTORY", help="Of faiss, such as IVF4096,Flat; default Flat, which is exact.")
@click.option("--audit", type=click.IntRange(1), metavar="N", help="What the index costs, by N queries.")
@click.option("--state", type=click.Path(dir_okay=False), metavar="FILE", help="Of partial counts, to go on from.")
@click.option(
    "--state-seconds",
    type=Finite(0),
    default=120,
    show_default=True,
    metavar="N",
    help="Between two writes of the state.",
)
@click.option(
    "--compare-reference", metavar="FILE", help="With --compare and --reference: the references by the second model."
)
@intervals("reweightings of whole groups of queries", compared="EMBEDDINGS")
@common_options
def retrieval(**options: Any) -> int:
    """Score EMBEDDINGS (N rows) by their LABELS (N): do nearest neighbours share them, do clusters?

    Files: .npy, .npz, .pt, .safetensors, .csv and .jsonl, with pyarrow also .parquet, .arrow and .feather; `file:name`
    picks one array or column of several. A pattern, 'embeddings-*.parquet:column', means the files of such names, one
    after the other. Labels are integers, or words in a .txt, .csv or .jsonl file, one per line, or a column; so are
    cameras, ids and groups.

    --gains FILE has a query, a reference and a gain above 0 to a line (.csv and .tsv with any of , ; and tabs, else by
    spaces; with a heading or without), or `query 0 document gain`. They are named by --ids and --reference-ids, or are
    rows, from 0 on. LABELS may then be left out, or say which queries are of one class.

    A .npy file may be larger than a CPU's memory, and so may be references in several files, in tables, or scored with
    --state: these are read in blocks. With --state a run that was killed goes on from where it was.

    Under torchrun each rank reads and holds a part of the rows, and the answer is that of one process. With --state
    FILE each reads a part of the references in blocks, and keeps FILE.rank0, FILE.rank1, ...

    \b
    tensormetrics retrieval embeddings.npy labels.txt --replicates 1000 --plot scores.png
    tensormetrics retrieval large.npy labels.txt --metric precision_at_1 --compare small.npy --rope 0.01
    tensormetrics retrieval queries.npy --reference docs.npy --gains qrels.tsv --ids q.txt --reference-ids d.txt
    tensormetrics retrieval queries.npz:x queries.npz:y --reference base.npy --reference-labels base.csv
    tensormetrics retrieval q.npy q.txt --reference 'base-*.npy' --reference-labels base.txt --k 10 --state counts.pt
    """
    context = click.get_current_context()
    if options["gains"] and context.get_parameter_source("metrics") is ParameterSource.DEFAULT:
        options["metrics"] = context.params["metrics"] = (*RETRIEVAL_OF_NEIGHBOURS, "ndcg")  # clusters know no gains
    return answer("retrieval", **options)
