"""A training run under the eyes of three domains."""

from pathlib import Path

from ..._plots import figure_class
from ..inputs import BadInput
from ..interruption import leaving_at_once
from ..output import find_device


def answer(out: Path | None, epochs: int, seed: int, device: str | None) -> int:
    place = find_device(device)
    try:
        with leaving_at_once():
            from ... import _demo  # which wants scikit-learn

        if out is not None:
            figure_class()  # a missing extra is found before the training, not after it
            _make(out)
        return _demo.run(place, epochs=epochs, seed=seed, out=out)
    except ModuleNotFoundError as error:
        raise BadInput(f"{error}; install it with: pip install 'tensormetrics[demo]'") from error
    except ImportError as error:
        raise BadInput(str(error)) from error


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"--out: {folder} cannot be made: {error.strerror}") from error
