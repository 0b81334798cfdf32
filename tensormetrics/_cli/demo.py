"""`tensormetrics demo`: a training run under the eyes of three domains."""

from pathlib import Path
from typing import Any

import click

from .options import answer


@click.command()
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Write report.json and report.png there.")
@click.option("--epochs", type=click.IntRange(1), metavar="N", default=12, show_default=True, help="Of training.")
@click.option(
    "--seed",
    type=click.IntRange(-(2**63), 2**64 - 1),
    metavar="N",
    default=0,
    show_default=True,
    help="Of the weights and the batches.",
)
@click.option("--device", metavar="NAME", help="Such as cpu or cuda:1; default the GPU where there is one.")
def demo(**options: Any) -> int:
    """Train on handwritten digits and watch every metric, epoch by epoch."""
    return answer("demo", **options)
