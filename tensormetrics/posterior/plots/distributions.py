"""Pictures of posteriors, comparisons and pooled experiments: functions that take results and return a Figure.

`options` are those of `drawing.Look`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from ...core.results.plots import LINE, dress, inches, lines_of, wrapped
from ..comparison.pairwise import PairwiseComparisonResult, short
from .drawing import Look, Mark, Outline, interval_of, one_scale, only_lowest_ticks, outline, x_range

Parts = dict[str, dict[str, Any]]  # part of a picture -> matplotlib keywords
DISTRIBUTION: Parts = {
    "edge": {"color": "black", "linewidth": 1.0},
    "area": {"color": "xkcd:silver", "linewidth": 0},
    "median": {"color": "black", "linewidth": 1.0, "linestyle": "--"},
    "interval": {"color": "black", "linewidth": 1.0, "linestyle": "-"},
    "observed": {"color": "black", "marker": "D", "markersize": 5, "linestyle": ""},
    "extrema": {"color": "black", "marker": "|", "markersize": 12, "linestyle": ""},
    "base": {"color": "black", "linewidth": 0.8},
    "name": {},
    "legend": {},
}
DIFFERENCE: Parts = {
    "negative": {"facecolor": "xkcd:salmon", "edgecolor": "white", "hatch": "////", "linewidth": 0},
    "rope": {"color": "xkcd:silver", "linewidth": 0},
    "positive": {"color": "xkcd:faded green", "linewidth": 0},
    "rope_edges": {"color": "black", "linewidth": 0.8, "linestyle": ":"},
    **{part: DISTRIBUTION[part] for part in ("edge", "median", "interval", "observed", "extrema", "base")},
    "proportions": {},
    "legend": {},
}
FOREST: Parts = {
    "median": {"color": "black", "marker": "s", "markersize": 7, "linestyle": ""},
    "interval": {"color": "black", "linewidth": 1.0},
    "aggregate": {"color": "black", "marker": "D", "markersize": 9, "markerfacecolor": "white", "linestyle": ""},
    "aggregate_line": {"color": "black", "linewidth": 0.8, "linestyle": "--"},
    "name": {},
    "info": {"family": "monospace"},
    "header": {"family": "monospace"},
    "legend": {},
}


class Shown(NamedTuple):
    """Samples of one value of a metric, under a name."""

    name: str
    samples: Tensor  # (S,)
    observed: float | None = None


def plot_distributions(
    shown: Sequence[Shown],
    metric: str,
    bounds: tuple[float, float],
    confidence: float = 0.95,
    *,
    title: str | None = None,
    centre: int | None = None,
    **options: Any,
) -> Any:
    """Plot each distribution in an axes, with its median and highest density interval.

    `centre`: the index of the distribution whose median is the center of the x axis. `options` are those of
    `drawing.Look`.

    >>> study = Study(seed=0, metrics={"acc": {}})
    >>> study.add_experiment("mlp", [[90, 10], [12, 88]])
    >>> study.add_experiment("cnn", [[95, 5], [10, 90]])
    >>> study.plot_metric_summaries("acc", title="Two models").savefig("both.png")  # which calls this
    """
    look = Look(parts=DISTRIBUTION, **options)
    names = [wrapped(distribution.name) for distribution in shown]
    outlines = [outline(distribution.samples, bounds, look) for distribution in shown]
    size = max(6.3, 4.5 + inches(names)), max(len(shown) * max(0.625, LINE * lines_of(names) + 0.12) + 0.2, 2.5)
    figure, axes = look.axes(len(shown), size)
    intervals = [interval_of(distribution.samples, confidence) for distribution in shown]
    xlim = look.xlim or x_range(outlines, intervals, bounds, [distribution.observed for distribution in shown])
    if centre is not None and look.xlim is None and np.isfinite(intervals[centre][0]):
        xlim = _centered(xlim, intervals[centre][0], bounds)
    label_options = {"rotation": 0, "ha": "right", "va": "center", "fontsize": look.fontsize, "labelpad": 6}
    for ax, name, distribution, curve, mark in zip(axes, names, shown, outlines, intervals, strict=True):
        look.draw("base", ax.axhline, 0, clip_on=False)
        ax.set_ylabel("")
        look.draw("name", ax.set_ylabel, name, **label_options)
        if len(curve.x):
            _draw_curve(look, ax, curve, mark, xlim, f"{100 * confidence:g}% HDI")
            _draw_observed(look, ax, distribution.observed)
        else:
            ax.text(0.5, 0.4, "undefined", transform=ax.transAxes, ha="center", fontsize=look.fontsize)
    only_lowest_ticks(axes, xlim)
    if not look.normalize and one_scale(outlines):
        peak = max((curve.y.max() for curve in outlines if len(curve.y)), default=1.0)
        for ax in axes:
            ax.set_ylim(-0.05 * peak, 1.05 * peak)
    line_width = look.characters(axes[-1], names)
    axes[-1].set_xlabel(wrapped(metric, line_width))
    if title:
        axes[0].set_title(wrapped(title, line_width), fontsize=look.fontsize + 1)
    look.finish(figure, axes)
    return figure


def _centered(xlim: tuple[float, float], center: float, bounds: tuple[float, float]) -> tuple[float, float]:
    half_width = max(center - xlim[0], xlim[1] - center)
    return max(center - half_width, bounds[0]), min(center + half_width, bounds[1])


def _draw_curve(look: Look, ax: Any, curve: Outline, mark: Mark, xlim: tuple[float, float], interval: str) -> None:
    median, low, high = mark
    if np.isfinite(low) and np.isfinite(high):
        area = curve.between(low, high)
        look.draw("area", ax.fill_between, area.x, area.y, label=interval)
        for end in low, high:
            look.draw("interval", ax.plot, [end, end], [0, curve.height(end)])
    look.draw("edge", ax.plot, curve.x, curve.y)
    look.draw("median", ax.plot, [median, median], [0, curve.height(median)], label="median")
    _draw_extrema(look, ax, curve, xlim)


def _draw_extrema(look: Look, ax: Any, curve: Outline, xlim: tuple[float, float]) -> None:
    if visible := [end for end in (curve.x[0], curve.x[-1]) if xlim[0] <= end <= xlim[1]]:
        look.draw("extrema", ax.plot, visible, [0] * len(visible), label="sampled range")


def _draw_observed(look: Look, ax: Any, observed: float | None) -> None:
    if observed is not None:
        options = {"clip_on": look.xlim is not None, "zorder": 5, "label": "observed"}
        look.draw("observed", ax.plot, [observed], [0], **options)


def plot_difference(
    result: PairwiseComparisonResult, *, metric: str | None = None, precision: int = 4, **options: Any
) -> Any:
    """Plot the distribution of a difference, divided by the region of practical equivalence.

    `metric`: the name on the x axis, by default that of the result. `precision`: digits of the region and, less two,
    decimals of the percentages. `options` are those of `drawing.Look`.

    >>> study = Study(seed=0, metrics={"acc": {}})
    >>> study.add_experiment("mlp", [[90, 10], [12, 88]])
    >>> study.add_experiment("cnn", [[95, 5], [10, 90]])
    >>> comparison = study.get_pairwise_comparison("acc", experiment_a="cnn", experiment_b="mlp")
    >>> plot_difference(comparison, title="A and B").savefig("difference.png")
    """
    left, right = map(short, result.pair)
    look = Look(parts=DIFFERENCE, **options)
    figure, (ax,) = look.axes(1, (6.3, 3.1))
    curve = outline(result.diff_dist, (-np.inf, np.inf), look)
    median, (low, high) = float(result.median), (float(end) for end in result.interval)
    rope = float(result.min_sig_diff)
    observed = None if result.observed_diff is None else float(result.observed_diff)
    xlim = look.xlim or x_range([curve], [(median, low, high)], (-np.inf, np.inf), [observed])
    look.draw("base", ax.axhline, 0, clip_on=False)
    if len(curve.x):
        minimum, maximum = curve.x[0], curve.x[-1]
        areas = (
            ("negative", minimum, min(maximum, -rope)),
            ("rope", -rope, rope),
            ("positive", max(minimum, rope), maximum),
        )
        for part, start, stop in areas:
            start, stop = max(start, minimum), min(stop, maximum)
            if start < stop:
                area = curve.between(start, stop)
                look.draw(part, ax.fill_between, area.x, area.y)
        look.draw("edge", ax.plot, curve.x, curve.y)
        look.draw("median", ax.plot, [median, median], [0, curve.height(median)], label="median")
        ends = {"label": f"{100 * result.ci_probability:g}% HDI"}
        look.draw("interval", ax.vlines, [low, high], 0, [curve.height(low), curve.height(high)], **ends)
        _draw_extrema(look, ax, curve, xlim)
    region = {"label": f"equivalence: ±{rope:.{precision}g}"}
    for end in (-rope, rope):
        if xlim[0] <= end <= xlim[1]:  # the legend lists what is seen
            look.draw("rope_edges", ax.axvline, end, **region)
    _draw_observed(look, ax, observed)
    only_lowest_ticks([ax], xlim)
    zero = float(np.clip(-xlim[0] / (xlim[1] - xlim[0]), 0.3, 0.7))
    proportions = (0.0, "left", result.p_sig_neg), (zero, "center", result.p_rope), (1.0, "right", result.p_sig_pos)
    templates = "{} smaller", "{} equivalent", "{} greater"
    for (x, align, proportion), text in zip(proportions, templates, strict=True):
        percent = f"{float(proportion):.{max(precision - 2, 0)}%}"
        text_options = {"transform": ax.transAxes, "ha": align, "va": "bottom", "fontsize": look.fontsize}
        look.draw("proportions", ax.text, x, 1.02, text.format(percent), **text_options)
    label = f"{metric or result.metric}: {left} − {right}"
    ax.set_xlabel(wrapped(label, look.characters(ax)))
    look.finish(figure, [ax])
    return figure


class ForestGroup(NamedTuple):
    name: str
    shown: Sequence[Shown]
    pooled: Tensor  # (S,)
    i2: float


def plot_forest(
    groups: Sequence[ForestGroup],
    metric: str,
    confidence: float = 0.95,
    *,
    bounds: tuple[float, float] = (-np.inf, np.inf),
    precision: int = 4,
    gap: float = 1.0,
    info: bool = True,
    **options: Any,
) -> Any:
    """Plot the intervals of all experiments in rows, and below each group the pooled interval.

    `gap` is the space around a group in rows; `info` writes median, interval and its width on the right, with
    `precision` decimals. `options` are those of `drawing.Look`.

    >>> study = Study(seed=0, metrics={"acc": {"aggregation": "fe"}})
    >>> for fold, right in enumerate((88, 90)):
    ...     study.add_experiment(f"mlp/fold {fold}", [[right, 100 - right], [12, 88]])
    >>> study.plot_forest_plot("acc").savefig("forest.png")  # which calls this
    """
    look = Look(parts=FOREST, **options)
    blocks = [_rows(group, confidence) for group in groups]
    names = [row.name for rows in blocks for row in rows]
    mass = f"{100 * confidence:g}% HDI"
    header, *texts = _columns(("Median", mass, "Width"), [row.mark for rows in blocks for row in rows], precision)
    lengths = [len(rows) for rows in blocks]
    height = max(0.28, LINE * lines_of(names)) * (sum(lengths) + gap * len(blocks)) + 0.28 * (len(blocks) + 2)
    size = max(6.3, 3.2 + inches(names) + inches([header]) * info), max(height, 2.5)
    ratios = {"height_ratios": [length + gap for length in lengths]}
    figure, axes = look.axes(len(groups), size, gridspec_kw=ratios)
    line_width = look.characters(axes[-1], names, [header * info])
    for ax, group, rows in zip(axes, groups, blocks, strict=True):
        _draw_rows(look, ax, rows, mass)
        right = _frame_group(look, ax, rows, gap, ax is axes[-1])
        group_texts, texts = texts[: len(rows)], texts[len(rows) :]
        ticks = {"fontsize": look.fontsize}
        if info:
            look.draw("info", right.set_yticks, range(len(rows)), group_texts, **ticks)
        if info and ax is axes[0]:
            placement = {"xycoords": "axes fraction", "xytext": (10, 2), "textcoords": "offset points"}
            look.draw("header", ax.annotate, header, (1, 1), va="bottom", **placement, **ticks)
        bold = {"fontsize": look.fontsize, "fontweight": "bold"}  # and wider
        ax.set_title(wrapped(group.name, max(line_width - 4, 10)), loc="left", **bold)
    ends = [end for rows in blocks for row in rows for end in row.mark if np.isfinite(end)] or [0.0, 1.0]
    margin = 0.05 * (max(ends) - min(ends)) or 0.01
    xlim = max(min(ends) - margin, bounds[0]), min(max(ends) + margin, bounds[1])
    for ax in axes:
        ax.set_xlim(look.xlim or xlim)
    axes[-1].locator_params(axis="x", nbins=5)
    axes[-1].set_xlabel(wrapped(metric, line_width))
    look.finish(figure, axes)
    return figure


class _Row(NamedTuple):
    name: str
    mark: Mark
    pooled: bool


def _rows(group: ForestGroup, confidence: float) -> list[_Row]:
    rows = [_Row(wrapped(name), interval_of(samples, confidence), False) for name, samples, _ in group.shown]
    heterogeneity = f" (I² = {group.i2:.0%})" if np.isfinite(group.i2) else ""
    return [*rows, _Row("Aggregate" + heterogeneity, interval_of(group.pooled, confidence), True)]


def _draw_rows(look: Look, ax: Any, rows: Sequence[_Row], mass: str) -> None:
    """Draw the medians and intervals of a group."""
    for y, (_, (median, low, high), pooled) in enumerate(rows):
        if np.isnan(median):
            text_options = {"transform": ax.get_yaxis_transform(), "fontsize": look.fontsize}
            ax.text(0.5, y, "undefined", ha="center", va="center", **text_options)
            continue
        look.draw("interval", ax.plot, [low, high], [y, y], zorder=2, label=mass)
        part, label = ("aggregate", "aggregate's median") if pooled else ("median", "median")
        look.draw(part, ax.plot, [median], [y], zorder=3, clip_on=look.xlim is not None, label=label)
        if pooled:
            look.draw("aggregate_line", ax.axvline, median, zorder=1)


def _frame_group(look: Look, ax: Any, rows: Sequence[_Row], gap: float, is_last: bool) -> Any:
    """Write the names of a group's rows on the left; return the axes whose ticks are on the right."""
    right = ax.twinx()
    dress(right, fontsize=look.fontsize, frame=["bottom"] if is_last else ())
    for axes in (ax, right):
        axes.set_ylim(len(rows) - 1 + (1 + gap) / 2, -(1 + gap) / 2)
        axes.set_yticks([])
        axes.tick_params(axis="y", length=0, pad=10)  # a marker at the end touches no text
    ax.tick_params(axis="x", bottom=is_last, labelbottom=is_last)
    look.draw("name", ax.set_yticks, range(len(rows)), [row.name for row in rows], fontsize=look.fontsize)
    return right


def _columns(head: tuple[str, str, str], marks: Sequence[Mark], precision: int) -> list[str]:
    """Return lines of equal width; an empty one where a median is undefined."""
    cells = [
        (f"{m:.{precision}f}", f"[{low:.{precision}f}, {high:.{precision}f}]", f"{high - low:.{precision}f}")
        for m, low, high in marks
    ]
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
    lines = ["  ".join(map(str.rjust, line, widths)) for line in (head, *cells)]
    return [lines[0], *("" if np.isnan(mark[0]) else line for mark, line in zip(marks, lines[1:], strict=True))]
