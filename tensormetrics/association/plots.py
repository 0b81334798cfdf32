"""Figures of scores and rankings. They are returned, not shown; matplotlib's global state stays as it is."""

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _checks
from .ranking import check_table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 24  # characters to a line of a label
LINE, CHARACTER = 0.2, 0.09  # inches


def plot_queries_results(results: "pd.DataFrame", by: str = "query", ax: "Axes | None" = None) -> "Figure":
    """Bars of scores: a group for each query and a colour for each model, with `by="model"` the other way round."""
    check_table("results", results)
    _checks.one_of("by", by, ("query", "model"))
    table = results if by == "query" else results.T
    bars, groups = table.shape
    labels, legend = list(map(_broken, table.columns)), list(map(_broken, table.index))
    upright = groups > 8  # for more labels side by side no screen is wide enough
    label = LINE * (1 + max(map(_lines, labels))) if upright else _inches(labels)
    across = 1.5 + _inches(legend) + groups * max(label, 0.2 * bars)
    below = _inches(labels) if upright else LINE * max(map(_lines, labels))
    figure, ax = _axes(ax, max(6.0, across), max(4.0 + below, _legend_height(legend)))
    width = 0.8 / bars
    for i, (name, color) in enumerate(zip(legend, _colors(bars), strict=True)):
        places = np.arange(groups) + (i - (bars - 1) / 2) * width
        ax.bar(places, table.iloc[i].to_numpy(float), width, color=color, label=name)
    ax.axhline(0, color="black", linewidth=0.8)
    ax.set_xticks(np.arange(groups), labels, rotation=90 if upright else 0)
    ax.set_ylabel("Bias measure")
    _legend(ax, "Model" if by == "query" else "Query")
    return figure


def plot_ranking(ranking: "pd.DataFrame", use_metric_as_facet: bool = False, ax: "Axes | None" = None) -> "Figure":
    """Bars of ranks: a bar for each model, the least total on top, stacked by metric or in a panel for each metric."""
    check_table("ranking", ranking)
    table = ranking.loc[ranking.sum(axis=1).sort_values(ascending=False, kind="stable").index]
    models, metrics = table.shape
    if use_metric_as_facet and ax is not None:
        raise ValueError("ax: got an Axes for one panel per metric, wanted None")
    height = max(1.5 + 0.45 * models, _legend_height(list(map(_broken, table.columns))))
    if use_metric_as_facet:
        figure, _ = _axes(None, 2.5 + 2.5 * metrics, height, panels=metrics)
        panels = figure.axes
    else:
        figure, ax = _axes(ax, 8.0, height)
        panels = [ax] * metrics
    left = np.zeros(models)
    for panel, name, color in zip(panels, table.columns, _colors(metrics), strict=True):
        ranks = np.nan_to_num(table[name].to_numpy(float))
        panel.barh(np.arange(models), ranks, left=left, color=color, label=_broken(name))
        if use_metric_as_facet:
            panel.set_title(_broken(name), fontsize="medium")
            panel.set_xlabel("Ranking")
        else:
            left = left + ranks
    panels[0].set_yticks(np.arange(models), list(map(_broken, table.index)))
    if not use_metric_as_facet:
        ax.set_xlabel("Ranking")
        _legend(ax, "Metric")
    return figure


def plot_ranking_correlations(
    correlation_matrix: "pd.DataFrame", title: str = "", ax: "Axes | None" = None
) -> "Figure":
    """A heat map of correlations between -1 and 1, each with its value."""
    check_table("correlation_matrix", correlation_matrix)
    size = len(correlation_matrix)
    figure, ax = _axes(ax, 3.5 + size, 2.5 + 0.8 * size)
    values = correlation_matrix.to_numpy(float)
    image = ax.imshow(values, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        ax.text(column, row, f"{value:.2f}", ha="center", va="center", color="white" if abs(value) > 0.6 else "black")
    slant = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
    ax.set_xticks(np.arange(values.shape[1]), list(map(_broken, correlation_matrix.columns)), **slant)
    ax.set_yticks(np.arange(size), list(map(_broken, correlation_matrix.index)))
    ax.figure.colorbar(image, ax=ax, label="Correlation")
    ax.set_title(title)
    return figure


def _axes(ax: "Axes | None", width: float, height: float, panels: int = 1) -> "tuple[Figure, Axes]":
    """The given axes with their figure, or the first of new ones, whose figure keeps room for its labels."""
    if ax is not None:
        return ax.figure, ax
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError('plots need matplotlib; write pip install "tensormetrics[plot]"') from None
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1, panels, sharey=True, squeeze=False)
    return figure, axes[0, 0]


def _colors(number: int) -> list[Any]:
    from matplotlib import colormaps

    if number <= 20:
        return list(colormaps["tab10" if number <= 10 else "tab20"].colors[:number])
    return list(colormaps["turbo"](np.linspace(0.05, 0.95, number)))


def _legend(ax: "Axes", title: str) -> None:
    ax.legend(title=title, loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0)


def _inches(labels: list[str]) -> float:
    """The width of the longest line, and a little more."""
    return CHARACTER * (2 + max(len(line) for label in labels for line in label.split("\n")))


def _lines(label: str) -> int:
    return label.count("\n") + 1


def _legend_height(labels: list[str]) -> float:
    return 1 + sum(LINE * (_lines(label) + 0.4) for label in labels)


def _broken(name: Any) -> str:
    """A label in lines: a break after "wrt", and wherever a line is long."""
    lines = str(name).replace(" wrt ", " wrt\n").split("\n")
    return "\n".join(part for line in lines for part in textwrap.wrap(line, WIDTH) or [""])
