"""`tensormetrics posterior`: how sure are these scores?"""

from typing import Any

import click

from .names import POSTERIOR, POSTERIOR_AVERAGES
from .options import Finite, answer, common_options


@click.command(epilog=f"Metrics: {POSTERIOR}. Averages over classes, after @: {POSTERIOR_AVERAGES}.")
@click.argument("matrices", nargs=-1, metavar="[MATRIX]...")
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME",
    default=("acc", "f1@macro", "mcc"),
    show_default=True,
    help="Such as mcc, tpr (one value per class), f1@macro or fbeta+beta=2@macro; may be repeated; names stand below.",
)
@click.option(
    "--paired",
    metavar="FILE",
    help="A .csv of items on which models are compared item by item: a header, then rows of the true label "
    "and each model's answer.",
)
@click.option("--compare", is_flag=True, help="Also all pairs of experiments, and who is best; --plot draws how far.")
@click.option(
    "--rope",
    type=Finite(0),
    metavar="X",
    show_default="a tenth of the scores' spread",
    help="With --compare: differences below X do not matter.",
)
@click.option(
    "--width",
    type=Finite(0, min_open=True),
    metavar="X",
    help="Also how many items in all, like those at hand, make the interval X wide.",
)
@click.option(
    "--prior",
    metavar="NUMBER|NAME",
    default="balanced",
    show_default=True,
    help="Counts added to the cells: balanced, one for the whole table, half of it right; hierarchical, "
    "by which classes tell of each other, for 5 to 20 items a class; perks, one for each row; to "
    "every cell a number, jeffreys (1/2) or laplace (1). 0: what was not seen is impossible.",
)
@click.option(
    "--zero-division",
    type=click.Choice(["0", "1", "nan"]),
    metavar="0|1|nan",
    show_default="0 for f1, fbeta and p4, nan for others",
    help="What a score is where it is undefined, as the precision of a class that is never predicted.",
)
@click.option(
    "--replicates",
    type=click.IntRange(1),
    metavar="N",
    default=10_000,
    show_default=True,
    help="Draws from each posterior.",
)
@click.option(
    "--confidence",
    type=Finite(0, 1, min_open=True),
    metavar="SHARE",
    default=0.95,
    show_default=True,
    help="Probability of the intervals, which are of highest density.",
)
@click.option("--seed", type=click.IntRange(0), metavar="N", default=0, show_default=True, help="Of the draws.")
@common_options
def posterior(**options: Any) -> int:
    """Credible intervals of the scores of confusion matrices, each a MATRIX of counts: rows are the truth, columns the
    predictions.

    Files: .csv, with commas, semicolons or tabs, where a first row and a first column of class names may stand; also
    .npy, .npz, .pt, .safetensors and .jsonl. An experiment is called by its file, after its folder where there are
    several.

    \b
    tensormetrics posterior mlp.csv cnn.csv --compare --rope 0.01
    tensormetrics posterior --paired answers.csv --metric acc --compare --plot acc.png
    """
    return answer("posterior", **options)
