"""`tensormetrics scores`: how sure are scores of items, and which model is better?"""

from typing import Any

import click

from .options import Finite, answer, common_options


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--metric",
    metavar="NAME",
    show_default="the only one",
    help="Metric or scorer of a log, or column of a table.",
)
@click.option("--filter", "answer_filter", metavar="NAME", help="Of the answers in a log of lm-evaluation-harness.")
@click.option("--ids", metavar="COLUMN", help="Names of the items; default those of the log, or the column id.")
@click.option("--groups", metavar="COLUMN", help="What items belong to, such as documents: they share a weight.")
@click.option(
    "--on-missing",
    type=click.Choice(["error", "drop", "zero"]),
    default="error",
    show_default=True,
    help="What items are that some file lacks: an error, left out, or counted as 0.",
)
@click.option("--lower-is-better", is_flag=True, help="Of losses and errors.")
@click.option(
    "--rope",
    type=Finite(0),
    metavar="X",
    show_default="none",
    help="With several files: differences up to X do not matter; how probable are such?",
)
@click.option(
    "--confidence",
    type=Finite(0, 1, min_open=True, max_open=True),
    metavar="SHARE",
    default=0.95,
    show_default=True,
    help="Of the intervals.",
)
@click.option(
    "--replicates",
    type=click.IntRange(2),
    default=1000,
    show_default=True,
    metavar="N",
    help="Reweightings of the items, or groups.",
)
@common_options
def scores(**options: Any) -> int:
    """Average the scores of items in FILE with an interval; compare those of two files item by item, and those of
    several also by rank. Files are logs of lm-evaluation-harness (samples_*.jsonl) or inspect_ai (JSON), or tables as
    CSV, TSV, JSON or JSONL.

    \b
    tensormetrics scores samples_gsm8k.jsonl --metric exact_match
    tensormetrics scores large.jsonl small.jsonl --metric exact_match --groups subject --rope 0.01
    tensormetrics scores large.csv middle.csv small.csv --metric acc --ids question
    """  # fmt: skip
    return answer("score_files", **options)
