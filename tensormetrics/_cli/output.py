"""What all commands share: where to compute, and how answers are printed, written and drawn."""

import io
import json
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch

from .._files import written
from .._plots import COLORS, FONT, LINE, broken, dress, figure_class, legend_below, lines_of, name_rows, new_axes
from .._version import __version__
from .inputs import BadInput, naming

UNSCORED = 3  # the status of an answer that is all NaN
STDOUT = Path("-")
FIGURES = (".png", ".svg", ".pdf")


def find_device(name: str | None) -> torch.device:
    name = name or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros((), device=device).item()
    except (RuntimeError, AssertionError) as error:  # torch raises AssertionError where it was built without CUDA
        reason = str(error).splitlines()[0].partition(". ")[0]
        raise BadInput(f"--device: got {name!r}, which cannot be used here: {reason}") from error
    return device


def common_options(command: Callable) -> Callable:
    for option in (
        click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", callback=_figure_file,
                     help="Draw the scores into a .png, .svg or .pdf file."),
        click.option("--json", "json_file", type=click.Path(path_type=Path), metavar="FILE", callback=_writable,
                     help="Write everything that was computed; - prints it in place of the tables."),
        click.option("--device", metavar="NAME", help="Such as cpu or cuda:1; default the GPU where there is one."),
    ):  # fmt: skip
        command = option(command)
    return command


def _writable(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    """Found out before the work, not after it."""
    if path is None or path == STDOUT:
        return path
    if path.is_dir():
        raise BadInput(f"{path}: cannot be written: this is a folder")
    if not path.parent.is_dir():
        raise BadInput(f"{path}: cannot be written: there is no folder {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise BadInput(f"{path}: cannot be written: permission denied")
    return path


def _figure_file(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    if path is None:
        return None
    if path.suffix not in FIGURES:
        raise BadInput(f"{path}: got a file of type {path.suffix!r}, wanted one of {', '.join(FIGURES)}")
    try:
        figure_class()
    except ImportError as error:
        raise BadInput(f"--plot: {error}") from error
    return _writable(context, option, path)


class OutputFailed(click.ClickException):
    """Ends the command with status 1 and one line."""


@contextmanager
def stdout_aside() -> Iterator[None]:
    """What is printed inside goes to stderr, whoever prints it: Python, a library or a compiler."""
    sys.stdout.flush()
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)


def on_a_terminal() -> bool:
    return sys.stderr.isatty()


def publish(
    command: str,
    tables: Iterable[str],
    answer: dict[str, Any],
    draw: Callable[[], Any],
    values: Iterable[float],
    *,
    json_file: Path | None,
    plot: Path | None,
) -> int:
    """Print, write and draw, once all of it is there; the status of the command, by whether a value is a number."""
    report = {"command": command, "version": __version__, "torch": torch.__version__, **answer}
    text = json.dumps(_plain(report), indent=1, allow_nan=False)
    files = {json_file: f"{text}\n".encode()} if json_file not in (None, STDOUT) else {}
    if plot is not None:
        image = io.BytesIO()
        with naming():
            draw().savefig(image, format=plot.suffix[1:], dpi=150)
        files[plot] = image.getvalue()
    click.echo(text if json_file == STDOUT else "\n\n".join(tables))
    for path, content in files.items():
        try:
            with written(path) as file:
                file.write(content)
        except OSError as error:
            raise OutputFailed(f"{path}: cannot be written: {error.strerror}") from error
        click.echo(f"wrote {path}", err=True)
    status = status_of(values)
    if status:
        warnings.warn("nothing could be scored: every value is NaN", stacklevel=1)
    return status


def status_of(values: Iterable[float]) -> int:
    return UNSCORED if all(map(math.isnan, values)) else 0


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Columns of text; the first is aligned to the left, numbers have four digits."""
    cells = [list(head), *([_cell(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(
            text.ljust(width) if not i else text.rjust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    )


def percent(share: float) -> str:
    return f"{share * 100:.10g}%"


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4f}" if not value or 1e-3 <= abs(value) < 1e6 or not math.isfinite(value) else f"{value:.3e}"
    if isinstance(value, tuple):
        return "[{}, {}]".format(*map(_cell, value))
    return "" if value is None else str(value)


def _plain(value: Any) -> Any:
    """JSON has no NaN and no infinity: null and a word stand for them."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def draw_scores(
    values: Mapping[str, float],
    intervals: Mapping[str, tuple[float, float]],
    classes: Mapping[str, Sequence[float]] | None = None,
    confidence: float = 0.95,
) -> Any:
    """A line for each score: a point with its interval, and a small mark for the value of each class."""
    color, names = COLORS[0], list(map(broken, values))
    figure, (ax,) = new_axes(None, (7, 1.1 + len(values) * max(0.35, LINE * lines_of(names) + 0.1)))
    dress(ax, grid="x")
    for y, (name, value) in enumerate(values.items()):
        if math.isnan(value):
            across = ax.get_yaxis_transform()
            ax.text(0.5, y, "undefined", fontsize=FONT, transform=across, ha="center", va="center")
            continue
        if name in intervals:
            label = f"{100 * confidence:g}% interval"
            ax.plot(intervals[name], [y, y], "-", color=color, linewidth=2, clip_on=False, label=label)
        if spread := (classes or {}).get(name):
            ax.plot(spread, [y] * len(spread), "|", color="0.45", markersize=9, clip_on=False, label="one class")
        ax.plot(value, y, "o", color=color, clip_on=False, label="score", zorder=3)
        ax.annotate(f"{value:.3f}", (value, y), (0, 6), textcoords="offset points", ha="center", fontsize=FONT - 1)
    name_rows(ax, names)
    ax.set_xlabel("Score")
    if shown := [x for line in ax.lines for x in np.asarray(line.get_xdata()).tolist() if math.isfinite(x)]:
        margin = 0.05 * (max(shown) - min(shown)) or 0.05
        right = max(shown) + margin
        ax.set_xlim(min(shown) - margin, min(right, 1) if max(shown) <= 1 else right)
    legend_below(figure, [ax])
    return figure
