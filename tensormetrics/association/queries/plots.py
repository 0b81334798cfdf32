"""Figures of scores, rankings and association tests.

They are returned, not shown; matplotlib's global state stays as it is.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.arguments import checks
from ...core.results.estimates import Estimate
from ...core.results.plots import (
    FONT,
    LINE,
    WIDTH,
    bar_style,
    dress,
    inches,
    ink,
    legend_outside,
    line_style,
    lines_of,
    name_rows,
    new_axes,
    wrapped,
)
from .ranking import check_table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS = 4  # side by side
SMALL = FONT - 1
LEVEL = 0.05  # below it a p-value survives
FIELDS = ("b", "neither", "a")  # attribute of a target, from negative to positive effect sizes


def plot_queries_results(
    results: "pd.DataFrame",
    by: str = "query",
    ax: "Axes | None" = None,
    *,
    kind: str = "bars",
    title: str = "",
    figsize: tuple[float, float] | None = None,
) -> "Figure":
    """Plot bars of scores: a group per query and a color per model, or the reverse with `by="model"`.

    `kind="lines"` draws a line instead of bars of one color: with `by="model"` a line for each query over the models,
    such as the layers of a language model.

    `results` is the result of `run_queries`, whose intervals become error bars; `figsize` (inches) depends on the
    labels by default. Corrected p-values (`attrs["correction"]`) get a line at .05, and a star if they are below it.

    >>> vectors = torch.tensor([[2.0, 1], [3, 1], [1, 2], [1, 3], [1, 0], [0, 1]])
    >>> model = WordEmbeddingModel.from_tensor(vectors, ["he", "him", "she", "her", "work", "home"])
    >>> targets = [["he", "him"], ["she", "her"]]
    >>> queries = [Query(targets, [[word]], ["male", "female"], [word]) for word in ("work", "home")]
    >>> plot_queries_results(run_queries(RND, queries, [model]), title="RND").savefig("rnd.png")
    """
    check_table("results", results)
    checks.check_choice("by", by, ("query", "model"))
    checks.check_choice("kind", kind, ("bars", "lines"))
    tables = [results]
    if results.columns.nlevels == 2:  # with intervals
        tables = [results.xs(field, axis=1, level=1) for field in Estimate.tensors]
    table, *bounds = tables if by == "query" else [frame.T for frame in tables]
    bars, groups = table.shape
    upright = groups > 8  # more horizontal labels do not fit on a screen
    labels = [wrapped(name, 40 if upright else WIDTH) for name in table.columns]
    legend = list(map(wrapped, table.index))
    label = LINE * (0.5 + lines_of(labels)) if upright else inches(labels)
    total_width = 1.2 + inches(legend) + groups * max(label, 0.12 * (bars + 1))
    below = inches(labels) if upright else LINE * lines_of(labels)
    figure, (ax,) = new_axes(ax, figsize or (max(6.0, total_width), max(3.2 + below, _legend_height(legend))))
    dress(ax, grid="y")
    ax.set_title(title, fontsize=FONT + 1)
    width = 0.8 / max(bars, 2) if kind == "bars" else 0.0  # a lone bar does not fill the axes
    positions = np.arange(groups) + (np.arange(bars)[:, None] - (bars - 1) / 2) * width
    values = table.to_numpy(float)
    errors = np.abs([bound.to_numpy(float) - values for bound in bounds])  # (2, bars, groups), or none
    for i, name in enumerate(legend):
        if kind == "bars":
            ax.bar(positions[i], values[i], width, label=name, **bar_style(i))
        else:
            ax.plot(positions[i], values[i], label=name, **line_style(i))
        if bounds:
            ax.errorbar(positions[i], values[i], errors[:, i], fmt="none", ecolor=ink(), elinewidth=0.8, capsize=2)
    for position in positions[np.isnan(values)]:
        ax.annotate(
            "no score", (position, 0), (0, 3), textcoords="offset points", rotation=90, ha="center", fontsize=SMALL
        )
    ax.axhline(0, color=ink(), linewidth=0.8)
    correction = results.attrs.get("correction")
    if correction:
        ax.axhline(LEVEL, color=ink(), linewidth=0.8, linestyle=":")
        for x, y in zip(positions[values < LEVEL], values[values < LEVEL], strict=True):
            ax.annotate("*", (x, y), (0, 1), textcoords="offset points", ha="center", fontsize=FONT)
    ax.set_xticks(np.arange(groups), labels, rotation=90 if upright else 0)
    ax.set_xlim(-0.6, groups - 0.4)
    ax.set_ylabel(f"p-value ({correction}), * below {LEVEL}" if correction else "Bias measure")
    legend_outside(ax, "Model" if by == "query" else "Query")
    return figure


def plot_ranking(
    ranking: "pd.DataFrame",
    use_metric_as_facet: bool = False,
    ax: "Axes | None" = None,
    *,
    title: str = "",
    figsize: tuple[float, float] | None = None,
) -> "Figure":
    """Plot bars of ranks: a bar per model, the smallest total on top, stacked by metric or in a panel per metric.

    `ranking` is a result of `create_ranking`; `figsize` (inches) depends on the labels by default.

    >>> import pandas as pd
    >>> scores = {"WEAT": [0.9, 0.2], "RND": [0.3, 0.4]}  # of two models
    >>> tables = [pd.DataFrame({name: values}, ["small", "large"]) for name, values in scores.items()]
    >>> plot_ranking(create_ranking(tables)).savefig("ranking.png")
    """
    check_table("ranking", ranking)
    table = ranking.loc[ranking.sum(axis=1).sort_values(kind="stable").index]
    models, metrics = table.shape
    if use_metric_as_facet and ax is not None:
        raise ValueError("ax: got an Axes for one panel per metric, wanted None")
    names, legend = list(map(wrapped, table.index)), list(map(wrapped, table.columns))
    height = 0.9 + models * max(0.3, LINE * (0.5 + lines_of(names)))
    if use_metric_as_facet:
        num_columns = min(metrics, PANELS)
        num_rows = -(-metrics // num_columns)
        size = inches(names) + 2.2 * num_columns, num_rows * (height + LINE * lines_of(legend))
        figure, panels = new_axes(None, figsize or size, num_rows, num_columns, sharey=True)
        figure.suptitle(title, fontsize=FONT + 1)
        for unused in panels[metrics:]:
            unused.remove()
        bars = [[i] for i in range(metrics)]
    else:
        size = inches(names) + inches(legend) + 4.5, max(height, _legend_height(legend))
        figure, panels = new_axes(ax, figsize or size)
        panels[0].set_title(title, fontsize=FONT + 1)
        bars = [list(range(metrics))]
    for panel, stacked in zip(panels, bars, strict=False):
        left = np.zeros(models)
        for i in stacked:
            ranks = np.nan_to_num(table.iloc[:, i].to_numpy(float))
            panel.barh(np.arange(models), ranks, left=left, label=legend[i], **bar_style(i))
            left = left + ranks
        for y, missing in enumerate(table.iloc[:, stacked].isna().sum(axis=1)):
            if missing:
                text = "no rank" if len(stacked) == 1 else f"{missing} missing"
                panel.annotate(text, (left[y], y), (3, 0), textcoords="offset points", va="center", fontsize=SMALL)
        dress(panel, grid="x")
        name_rows(panel, names)
        panel.locator_params(axis="x", nbins=6, integer=True)
        panel.set_xlabel("Rank" if len(stacked) == 1 else "Sum of ranks")
        if use_metric_as_facet:
            panel.set_title(legend[stacked[0]], fontsize=FONT)
    if not use_metric_as_facet:
        legend_outside(panels[0], "Metric")
    return figure


def plot_ranking_correlations(
    correlation_matrix: "pd.DataFrame",
    title: str = "",
    ax: "Axes | None" = None,
    *,
    figsize: tuple[float, float] | None = None,
) -> "Figure":
    """Plot a heat map of correlations between -1 and 1 with their values; undefined ones are hatched.

    `correlation_matrix` is a result of `calculate_ranking_correlations`; `figsize` (inches) depends on the labels by
    default.

    >>> import pandas as pd
    >>> scores = {"WEAT": [0.9, 0.2], "RND": [0.3, 0.4]}  # of two models
    >>> tables = [pd.DataFrame({name: values}, ["small", "large"]) for name, values in scores.items()]
    >>> correlations = calculate_ranking_correlations(create_ranking(tables))
    >>> plot_ranking_correlations(correlations).savefig("agreement.png")
    """
    check_table("correlation_matrix", correlation_matrix)
    rows, columns = (list(map(wrapped, names)) for names in (correlation_matrix.index, correlation_matrix.columns))
    size = inches(rows) + 0.8 * len(columns) + 1.2, 0.7 * inches(columns) + 0.6 * len(rows) + 0.8
    figure, (ax,) = new_axes(ax, figsize or size)
    dress(ax, frame=())
    ax.patch.set(hatch="////", edgecolor="0.8", linewidth=0)
    values = correlation_matrix.to_numpy(float)
    image = ax.imshow(values, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        text = f"{value:.2f}".replace("-", "−")
        color = "white" if abs(value) > 0.6 else "black"
        ax.text(column, row, text, ha="center", va="center", color=color, fontsize=FONT)
    ax.set_xticks(np.arange(values.shape[1]), columns, rotation=45, ha="right", rotation_mode="anchor")
    ax.set_yticks(np.arange(len(rows)), rows)
    bar = ax.figure.colorbar(image, ax=ax, ticks=(-1, -0.5, 0, 0.5, 1))
    dress(bar.ax, frame=())
    bar.set_label("Correlation", size=FONT)
    ax.set_title(title, fontsize=FONT + 1)
    return figure


def _legend_height(labels: list[str]) -> float:
    return 0.8 + sum(LINE * (lines_of([label]) + 0.4) for label in labels)


def plot_eat_map(
    results: Sequence[Mapping[str, Any]],
    ax: "Axes | None" = None,
    *,
    negligible: float = 0.2,
    title: str = "",
    figsize: tuple[float, float] | None = None,
) -> "Figure":
    """Plot a point per result of `MLEAT().run_query`: x and y are the effect sizes of its first and second target.

    Nine fields show the attribute with which each target is associated, a, b or neither (an effect size of at most
    `negligible`): far from the diagonal the targets differ; in the corners of the diagonal both are associated with the
    same attribute. Results without a score are left out. `figsize` (inches) has a default. ValueError for results of
    other metrics and `negligible` below 0.
    Wolfe, Hiniker & Howe 2024, arXiv:2408.01966.

    >>> answer = {"query_name": "flowers and insects", "effect_size_x": 1.3, "effect_size_y": -0.9}
    >>> plot_eat_map([answer]).savefig("map.png")
    """
    checks.check_number("negligible", negligible, "a number >= 0", lambda x: 0 <= x < math.inf)
    points = [_point(answer) for answer in results]
    figure, (axes,) = new_axes(ax, figsize or (6.5, 4.5))
    dress(axes)
    limit = 1.1 * max([2.0, *(abs(end) for _, *point in points for end in point if math.isfinite(end))])
    for draw in (axes.axvspan, axes.axhspan):
        draw(-negligible, negligible, color=ink(), alpha=0.08, linewidth=0)
    centers = np.array([-(limit + negligible) / 2, 0, (limit + negligible) / 2])
    for x, first in zip(centers, FIELDS, strict=True):
        for y, second in zip(centers, FIELDS, strict=True):
            text = f"x: {first}\ny: {second}"
            axes.annotate(text, (x, y), ha="center", va="center", fontsize=FONT - 1, alpha=0.5, zorder=0)
    num_shown = 0
    for name, x, y in points:
        if math.isfinite(x) and math.isfinite(y):
            axes.plot([x], [y], label=wrapped(name), clip_on=False, **{**line_style(num_shown), "linestyle": "none"})
            num_shown += 1
    axes.set_xlim(-limit, limit)
    axes.set_ylim(-limit, limit)
    axes.set_xlabel("Effect size of target x, a rather than b")
    axes.set_ylabel("Effect size of target y, a rather than b")
    axes.set_title(title, fontsize=FONT + 1)
    if num_shown:
        legend_outside(axes, "Query")
    return figure


def _point(answer: Mapping[str, Any]) -> tuple[str, float, float]:
    keys = "query_name", "effect_size_x", "effect_size_y"
    if missing := [key for key in keys if key not in answer]:
        raise ValueError(f"results: got a result without {missing[0]}, wanted results of MLEAT().run_query")
    return str(answer[keys[0]]), float(answer[keys[1]]), float(answer[keys[2]])
