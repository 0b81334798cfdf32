"""What all commands share: where to compute, and how answers are printed, written and drawn."""

import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import torch

from .._plots import COLORS, FONT, LINE, broken, dress, legend_below, lines_of, name_rows, new_axes
from .inputs import BadInput


def find_device(name: str | None) -> torch.device:
    try:
        device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # torch raises AssertionError where it was built without CUDA
        raise BadInput(f"--device: got {name!r}, which cannot be used here: {error}") from error
    return device


def common_options(command: Callable) -> Callable:
    for option in (
        click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Draw it (.png)."),
        click.option("--json", "json_file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
                     help="Write everything that was computed."),
        click.option("--device", help="Such as cpu or cuda:1; default the GPU where there is one."),
    ):  # fmt: skip
        command = option(command)
    return command


def on_a_terminal() -> bool:
    return sys.stderr.isatty()


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


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4f}" if not value or 1e-3 <= abs(value) < 1e6 or not math.isfinite(value) else f"{value:.3e}"
    if isinstance(value, tuple):
        return "[{}, {}]".format(*map(_cell, value))
    return "" if value is None else str(value)


def write_json(path: Path | None, command: str, answer: dict[str, Any]) -> None:
    if path is None:
        return
    report = {"command": command, "version": version("tensormetrics"), "torch": torch.__version__, **answer}
    _written(path, lambda: path.write_text(json.dumps(_plain(report), indent=1, allow_nan=False) + "\n"))


def _plain(value: Any) -> Any:
    """JSON has no NaN and no infinity: null and a word stand for them."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def save_figure(path: Path | None, draw: Callable[[], Any]) -> None:
    if path is None:
        return
    try:
        figure = draw()
    except ImportError as error:
        raise BadInput(f"--plot: {error}") from error
    _written(path, lambda: figure.savefig(path, dpi=150))


def _written(path: Path, write: Callable[[], Any]) -> None:
    try:
        write()
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: cannot be written: {error}") from error
    click.echo(f"wrote {path}", err=True)


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
            middle = {"transform": ax.get_yaxis_transform(), "ha": "center", "va": "center"}
            ax.text(0.5, y, "undefined", fontsize=FONT, **middle)
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
    if len(shown := [x for line in ax.lines for x in line.get_xdata() if math.isfinite(x)]):
        margin = 0.05 * (max(shown) - min(shown)) or 0.05
        right = max(shown) + margin
        ax.set_xlim(min(shown) - margin, min(right, 1) if max(shown) <= 1 else right)
    legend_below(figure, [ax])
    return figure
