"""Figures without global state, styles of series that differ in gray too, wrapped labels, and plots of values."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from ..arguments.labels import label_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FONT = 9.0  # points
LINE, CHARACTER = 0.16, 0.08  # inches, of text of that size
WIDTH = 28  # characters to a line of a label
# Four lightnesses, never equal in adjacent series, in two rows of hues.
COLORS = "#18366e", "#e07b20", "#1b7340", "#9accf0", "#5a1a5e", "#4f9fa8", "#a8322d", "#e8c95a"
ON_DARK = "#7fa8f5", "#e07b20", "#4fc47e", "#d5eafc", "#b07fd0", "#5fb7c0", "#ef7d76", "#f3dc86"
STROKES, MARKERS = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1))), "osv^DPX"
LEGEND = {"frameon": False, "fontsize": FONT, "title_fontsize": FONT}


def plot_values(
    steps: Sequence[Any],
    name: str,
    bounds: tuple[float | None, float | None] = (None, None),
    higher_is_better: bool | None = None,
    ax: "Axes | None" = None,
) -> "tuple[Figure, Axes]":
    """Plot scalars of one step as points in rows, of several steps as lines; intervals as bars. See `Metric.plot`.

    On axes that have series already, colors and rows continue after theirs.
    """
    rows = [dict(scalars(step, name)) for step in steps]
    names = list(dict.fromkeys(label for row in rows for label in row))
    labels = [wrapped(label_of(label)) for label in names]
    has_steps = len(rows) > 1
    size = (4.5, 3.0) if has_steps else (3.5 + inches(labels), 0.9 + LINE * len(names) * max(2, lines_of(labels) + 0.5))
    figure, (axes,) = new_axes(ax, size)
    first = len(axes.containers)
    for i, (key, label) in enumerate(zip(names, labels, strict=True), first):
        values, low, high = np.array([row.get(key, (math.nan,) * 3) for row in rows]).T
        positions = np.arange(len(rows)) if has_steps else np.array([i])
        style = {"label": label, **line_style(i)} if has_steps else line_style(first)
        _bars(axes, positions, values, low, high, is_row=not has_steps, **style)
    set_limits, set_label = (axes.set_ylim, axes.set_ylabel) if has_steps else (axes.set_xlim, axes.set_xlabel)
    low, high = bounds
    margin = 0.03 if low is None or high is None else 0.03 * (high - low)  # so that a point on a bound is fully visible
    set_limits(*(None if end is None else end + sign * margin for end, sign in zip(bounds, (-1, 1), strict=True)))
    subject = label_of(names[0]) if len(names) == 1 and not first else "score"
    set_label(wrapped(f"{subject}{direction_text(higher_is_better)}"))
    if has_steps:
        axes.set_xlabel("step")
        axes.locator_params(axis="x", integer=True)
        if first + len(names) > 1:
            legend_outside(axes)
    else:
        name_rows(axes, [text.get_text() for text in axes.get_yticklabels()][:first] + labels)
    dress(axes, grid="y" if has_steps else "x")
    return figure, axes


def _bars(axes: "Axes", at: Any, value: Any, low: Any, high: Any, *, is_row: bool = False, **style: Any) -> None:
    errors: Any = None if np.isnan(high - low).all() else np.stack([value - low, high - value])
    if is_row:
        axes.errorbar(value, at, xerr=errors, capsize=2, **style | {"linestyle": "none"})
    else:
        axes.errorbar(at, value, yerr=errors, capsize=2, **style)


def plot_curves(
    curves: "Mapping[str, tuple[np.ndarray, np.ndarray]]",
    names: tuple[str, str],
    ax: "Axes | None" = None,
) -> "tuple[Figure, Axes]":
    # curves: (n,) positive numbers and (n, 3) values with both ends each
    """Draw a line for each curve over a logarithmic axis, with intervals as bars. Points at 0 are left out."""
    figure, (axes,) = new_axes(ax, (4.5, 3.0))
    for i, (label, (x, rows)) in enumerate(curves.items(), first := len(axes.containers)):
        order = np.argsort(x[x > 0])
        x, (values, low, high) = x[x > 0][order], rows[x > 0][order].T
        _bars(axes, x, values, low, high, label=label, **line_style(i))
    axes.set_xscale("log")
    axes.set_xlabel(names[0])
    axes.set_ylabel(names[1])
    if first + len(curves) > 1:
        legend_outside(axes)
    dress(axes, grid="y")
    return figure, axes


def plot_panels(
    names: Sequence[str],
    panels: "Mapping[str, np.ndarray]",
    higher_is_better: Mapping[str, bool | None],
    ax: "Axes | Sequence[Axes] | None" = None,
) -> "tuple[Figure, list[Axes]]":
    # panels: (len(names), 3) each, numbers and both ends
    """Draw a panel for each column: a row for each name, with a point and its interval."""
    labels = [wrapped(name) for name in names]
    size = (inches(labels) + 2.5 * len(panels), 0.9 + LINE * len(names) * max(2, lines_of(labels) + 0.5))
    figure, axes = new_axes(ax, size, 1, len(panels), sharey=True)
    for i, (panel, (column, rows)) in enumerate(zip(axes, panels.items(), strict=True)):
        _bars(panel, range(len(names)), *rows.T, is_row=True, **line_style(0))
        panel.locator_params(axis="x", nbins=4)
        panel.set_xlabel(wrapped(f"{label_of(column)}{direction_text(higher_is_better.get(column))}"))
        dress(panel, grid="x")
        if i == 0:
            name_rows(panel, labels)
    return figure, axes


def direction_text(higher_is_better: bool | None) -> str:
    return {True: ", higher is better", False: ", lower is better", None: ""}[higher_is_better]


def steps_of(val: Any) -> Sequence[Any]:
    """Return the argument of `plot` as a list of results; a single result is one step, {name: list} a history."""
    if isinstance(val, Mapping) and val and all(map(_is_list, val.values())):
        steps = range(max(map(len, val.values())))
        return [{name: values[i] for name, values in val.items() if i < len(values)} for i in steps]
    return val if _is_list(val) else [val]


def _is_list(val: Any) -> bool:
    return isinstance(val, list | tuple) and not hasattr(val, "_fields")


def scalars(value: Any, name: str) -> Iterable[tuple[str, tuple[float, float, float]]]:
    """Yield each number of a metric's value with the ends of its interval, NaN without an interval."""
    if isinstance(value, Mapping):
        parts = {str(key): part for key, part in value.items()}
        ends = {key: (f"{key}/low", f"{key}/high") for key in parts}
        ends = {key: pair for key, pair in ends.items() if parts.keys() >= {*pair}}
        is_end = {end for pair in ends.values() for end in pair}
        for key, part in parts.items():
            if key in ends:
                columns = [_flat(parts[name]) for name in (key, *ends[key])]
                yield from named(key, np.stack(columns, 1))
            elif key not in is_end:
                yield from scalars(part, key)
    elif hasattr(value, "low") and hasattr(value, "high"):
        yield from named(name, np.stack([_flat(end) for end in value], 1))
    else:
        values = _flat(value)
        yield from named(name, np.stack([values, *[np.full(len(values), math.nan)] * 2], 1))


def _flat(value: Any) -> np.ndarray:
    # ->  (n,)
    return np.ravel(value.detach().cpu() if hasattr(value, "detach") else value)


def named(name: str, rows: np.ndarray) -> Iterable[tuple[str, tuple[float, float, float]]]:
    # rows: (n, 3)
    for i, row in enumerate(rows.tolist()):
        yield (name if len(rows) == 1 else f"{name}[{i}]"), tuple(row)


def figure_class() -> "type[Figure]":
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError('plots need matplotlib; write pip install "tensormetrics[plot]"') from None
    return Figure


def new_axes(
    ax: "Axes | Sequence[Axes] | None", size: tuple[float, float], rows: int = 1, columns: int = 1, **grid: Any
) -> "tuple[Figure, list[Axes]]":
    """Return the figure and its axes, or those of a new one, row by row, with a layout that fits labels."""
    if ax is None:
        figure = figure_class()(figsize=size, layout="constrained")
        return figure, list(figure.subplots(rows, columns, squeeze=False, **grid).flat)
    axes: list[Axes] = np.ravel(np.asarray(ax, dtype=object)).tolist()
    if len(axes) != rows * columns:
        raise ValueError(f"ax: got {len(axes)} axes, this plot has {rows * columns}")
    return cast("Figure", axes[0].figure), axes  # or what is drawn on like one, within a figure


def is_dark() -> bool:
    """Return whether matplotlib's style, such as "dark_background", has axes darker than a medium gray."""
    from matplotlib import colors, rcParams

    return float(np.dot(colors.to_rgb(rcParams["axes.facecolor"]), (0.2126, 0.7152, 0.0722))) < 0.4


def palette() -> tuple[str, ...]:
    return ON_DARK if is_dark() else COLORS


def ink() -> str:
    """Return the color of text and thin lines."""
    return "white" if is_dark() else "black"


def dress(
    ax: "Axes",
    *,
    fontsize: float = FONT,
    grid: Literal["x", "y"] | None = None,
    frame: Iterable[str] = ("left", "bottom"),
) -> None:
    """Set the font size, the visible spines, and faint grid lines along one axis."""
    ax.tick_params(labelsize=fontsize)
    for text in (ax.xaxis.label, ax.yaxis.label):
        text.set_fontsize(fontsize)
    for name, spine in ax.spines.items():
        spine.set_visible(name in frame)
    if grid:
        ax.set_axisbelow(True)
        ax.grid(axis=grid, color="0.3" if is_dark() else "0.88", linewidth=0.8)


def line_style(i: int) -> dict[str, Any]:
    """Return the style of the i-th line; the first 35 differ in gray too. Light thin lines are hard to see."""
    strong = [color for k, color in enumerate(palette()) if k % 4 != 3]
    stroke, marker = STROKES[i % len(STROKES)], MARKERS[i % len(MARKERS)]
    return {"color": strong[i % 6], "linestyle": stroke, "marker": marker, "markersize": 4, "linewidth": 1.2}


def legend_outside(ax: "Axes", title: str | None = None) -> None:
    if ax.get_legend_handles_labels()[0]:
        ax.legend(title=title, loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0, alignment="left", **LEGEND)


def legend_below(figure: "Figure", axes: "Iterable[Axes]", fontsize: float = FONT, **style: Any) -> None:
    """Draw one legend for all axes of a new figure, wrapped to its width."""
    entries = {label: handle for ax in axes for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    if entries:
        width = sum(inches([label]) + 0.45 for label in entries) * fontsize / FONT
        columns = -(-len(entries) // math.ceil(width / figure.get_figwidth()))
        style = {"loc": "outside lower center", "ncols": columns, **LEGEND, "fontsize": fontsize, **style}
        figure.legend(list(entries.values()), list(entries), **style)


def name_rows(ax: "Axes", names: Sequence[str]) -> None:
    """Label rows by names, the first on top."""
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.4, -0.6)


def wrapped(name: Any, width: int = WIDTH) -> str:
    """Wrap a label: a break after "wrt", and in long lines after a space, a slash or the like."""
    line_pattern = rf".{{1,{width}}}(?:(?<=[ /_:-])|$)|.{{1,{width}}}"
    lines = str(name).replace(" wrt ", "\u00a0wrt\n").split("\n")  # "wrt" stays with the word before it
    parts = [part.strip() for line in lines for part in re.findall(line_pattern, line) or [""]]
    return "\n".join(parts).replace("\u00a0", " ")


def lines_of(labels: Iterable[str]) -> int:
    return max((label.count("\n") + 1 for label in labels), default=1)


def inches(labels: Iterable[str]) -> float:
    """Return the width of the longest line, and a little more."""
    return CHARACTER * (2 + max((len(line) for label in labels for line in label.split("\n")), default=0))
