"""The command `demo`: a training run that metrics of three domains evaluate."""

from pathlib import Path
from typing import Annotated

import click

from ...core.results.plots import figure_class
from ..interruption import leaving_at_once
from ..option_types import BadInput, Device, Option, PositiveInt
from ..output import find_device


def demo(
    *,
    output: Annotated[Path, Option(type=click.Path(path_type=Path, file_okay=False))] = Path("."),
    epochs: PositiveInt = 12,
    seed: Annotated[int, Option(type=click.IntRange(-(2**63), 2**64 - 1))] = 0,
    device: Device | None = None,
) -> int:
    """Train on handwritten digits and evaluate every metric after each epoch.

    Args:
        output: Write report.json and report.png to this folder. [default: the current one]
        epochs: Number of epochs.
        seed (N): Seed of the weights and the batches.
    """
    torch_device = find_device(device)
    _make(output)
    click.echo(f"training a network on handwritten digits for {epochs} epochs, on {torch_device}", err=True)
    try:
        with leaving_at_once():
            from ..demo import run  # requires scikit-learn

        figure_class()  # raises for a missing extra before the training, not after it
        return run(torch_device, epochs=epochs, seed=seed, out=output)
    except ModuleNotFoundError as error:
        raise BadInput(f"{error}; install it with: pip install 'tensormetrics[demo]'") from error
    except ImportError as error:
        raise BadInput(str(error)) from error


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"--output: {folder} cannot be made: {error.strerror}") from error
