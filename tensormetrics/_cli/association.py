"""`tensormetrics association`: how biased are these word vectors?"""

from typing import Any

import click

from .names import ASSOCIATION, CORRECTIONS
from .options import Finite, answer, common_options, intervals


@click.command()
@click.argument("vectors")
@click.option(
    "--queries",
    metavar="FILE",
    show_default="the ten published WEAT tests",
    help='A .json list of {"target_sets": [["he", ...], ["she", ...]], "attribute_sets": [[...], [...]], '
    '"target_sets_names": ["male", "female"], "attribute_sets_names": [...]}.',
)
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    type=click.Choice(ASSOCIATION),
    default=("weat",),
    show_default=True,
    help="May be repeated; a query of more sets than a metric takes is split.",
)
@click.option(
    "--p-value",
    type=click.Choice(["exact", "approximate", "auto"]),
    show_default="none",
    help="Also p-values of permutation tests: all permutations (of two sets of 50 words together at most), 10,000 "
    "random ones, or exact where that is cheap.",
)
@click.option(
    "--correction",
    type=click.Choice(CORRECTIONS),
    show_default="none",
    help="Also p-values corrected for the number of queries, and which of them stay below 0.05: the chance of one "
    "false discovery by max-t (permutations drawn for all queries together) or holm, the share of false ones by bh.",
)
@click.option("--member", metavar="NAME", help="Which file of a .zip with several, such as glove.6B.100d.txt.")
@click.option(
    "--words",
    metavar="FILE",
    help="The words of the rows of a .npz or .safetensors file, one to a line, or .json; .npz may hold them itself.",
)
@click.option("--lowercase", is_flag=True, help="Look words up in lower case where they are not found as they stand.")
@click.option(
    "--lost",
    type=Finite(0, 1),
    metavar="SHARE",
    default=0.2,
    show_default=True,
    help="A query is not scored if more of a set's words are unknown.",
)
@intervals("bootstrap samples of the words of each set; with --compare of the queries", compared="VECTORS")
@common_options
def association(**options: Any) -> int:
    """Association of sets of words in VECTORS: a word2vec file, text or binary, or one without a header, as GloVe's,
    also in .gz or .zip; fastText's .bin; .npz; .safetensors. Only the words of the queries are kept in memory.

    \b
    tensormetrics association vectors.txt --p-value auto --correction max-t
    tensormetrics association glove.6B.zip --member glove.6B.100d.txt
    tensormetrics association vectors.bin.gz --queries mine.json --metric weat --metric rnd --json scores.json
    """
    return answer("association", **options)
