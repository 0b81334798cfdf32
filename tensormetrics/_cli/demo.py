"""`tensormetrics demo`: a training run under the eyes of three domains."""

from pathlib import Path

import click

from .._plots import figure_class
from .inputs import BadInput
from .interruption import leaving_at_once
from .output import find_device


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
@click.pass_context
def demo(context: click.Context, out: Path | None, epochs: int, seed: int, device: str | None) -> None:
    """Train on handwritten digits and watch every metric, epoch by epoch."""
    place = find_device(device)
    try:
        with leaving_at_once():
            from .. import _demo

        if out is not None:
            figure_class()  # a missing extra is found before the training, not after it
            _make(out)
        status = _demo.run(place, epochs=epochs, seed=seed, out=out)
    except ModuleNotFoundError as error:
        raise BadInput(f"{error}; install it with: pip install 'tensormetrics[demo]'") from error
    except ImportError as error:
        raise BadInput(str(error)) from error
    context.exit(status)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"--out: {folder} cannot be made: {error.strerror}") from error
