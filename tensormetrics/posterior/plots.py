"""Pictures of posteriors, comparisons and pooled experiments: functions that take results and return a Figure.

`options` are those of `drawing.Look`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from .compare import PairwiseComparisonResult
from .drawing import Look, interval_of, only_lowest_ticks, outline, x_range

DISTRIBUTION = {
    "edge": {"color": "black", "linewidth": 1.0},
    "area": {"color": "xkcd:silver", "linewidth": 0},
    "median": {"color": "black", "linewidth": 1.0, "linestyle": "--"},
    "interval": {"color": "black", "linewidth": 1.0, "linestyle": "-"},
    "observed": {"color": "black", "marker": "D", "markersize": 5, "linestyle": ""},
    "extrema": {"color": "black", "marker": "|", "markersize": 12, "linestyle": ""},
    "base": {"color": "black", "linewidth": 0.8},
    "name": {},
}
DIFFERENCE = {
    "negative": {"facecolor": "xkcd:salmon", "edgecolor": "white", "hatch": "////", "linewidth": 0},
    "rope": {"color": "xkcd:silver", "linewidth": 0},
    "positive": {"color": "xkcd:faded green", "linewidth": 0},
    "rope_edges": {"color": "black", "linewidth": 0.8, "linestyle": ":"},
    **{part: DISTRIBUTION[part] for part in ("edge", "median", "observed", "extrema", "base")},
    "proportions": {},
}
FOREST = {
    "median": {"color": "black", "marker": "s", "markersize": 7, "linestyle": ""},
    "interval": {"color": "black", "linewidth": 1.0},
    "aggregate": {"color": "black", "marker": "D", "markersize": 9, "markerfacecolor": "white", "linestyle": ""},
    "aggregate_line": {"color": "black", "linewidth": 0.8, "linestyle": "--"},
    "name": {},
    "info": {"family": "monospace"},
    "header": {},
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
    ci_probability: float = 0.95,
    *,
    title: str | None = None,
    centre: int | None = None,
    **options: Any,
) -> Any:
    """One axes for each distribution, with its median and highest density interval.

    `centre`: the position of the one in whose middle the x axis has its own.
    """
    look = Look(parts=DISTRIBUTION, **options)
    figure, axes = look.axes(len(shown), (6.3, max(0.625 * len(shown), 2.5)), sharex=True, sharey=not look.normalize)
    outlines = [outline(found.samples, bounds, look) for found in shown]
    marks = [interval_of(found.samples, ci_probability) for found in shown]
    xlim = look.xlim or x_range(outlines, [m for m, _, _ in marks], [h - low for _, low, h in marks], bounds)
    if centre is not None and look.xlim is None and np.isfinite(marks[centre][0]):
        middle = marks[centre][0]
        reach = max(middle - xlim[0], xlim[1] - middle)
        xlim = max(middle - reach, bounds[0]), min(middle + reach, bounds[1])
    for ax, found, curve, (median, low, high) in zip(axes, shown, outlines, marks, strict=True):
        look.draw("base", ax.axhline, 0)
        ax.set_ylabel("")
        look.draw(
            "name", ax.set_ylabel, found.name, rotation=0, ha="right", va="center", fontsize=look.fontsize, labelpad=6
        )
        if not len(curve.x):
            ax.text(0.5, 0.4, "undefined", transform=ax.transAxes, ha="center", fontsize=look.fontsize)
            continue
        if np.isfinite(low) and np.isfinite(high):
            inside = curve.between(low, high)
            look.draw("area", ax.fill_between, inside.x, inside.y)
            for end in low, high:
                look.draw("interval", ax.plot, [end, end], [0, curve.at(end)])
        look.draw("edge", ax.plot, curve.x, curve.y)
        look.draw("median", ax.plot, [median, median], [0, curve.at(median)])
        look.draw("extrema", ax.plot, [curve.x[0], curve.x[-1]], [0, 0])
        if found.observed is not None:
            look.draw("observed", ax.plot, [found.observed], [0], clip_on=False, zorder=5)
    only_lowest_ticks(axes, xlim)
    axes[-1].set_xlabel(metric, fontsize=look.fontsize)
    if title:
        axes[0].set_title(title, fontsize=look.fontsize + 1)
    return figure


def plot_difference(result: PairwiseComparisonResult, *, precision: int = 4, **options: Any) -> Any:
    """The distribution of a difference: what lies below, within and above the region of practical equivalence."""
    look = Look(parts=DIFFERENCE, **options)
    figure, (ax,) = look.axes(1, (6.3, 2.52))
    curve = outline(result.diff_dist, (-np.inf, np.inf), look)
    low, high = (float(end) for end in result.interval)
    median, rope = float(result.median), float(result.min_sig_diff)
    xlim = look.xlim or x_range([curve], [median], [high - low], (-np.inf, np.inf))
    look.draw("base", ax.axhline, 0)
    if len(curve.x):
        least, most = curve.x[0], curve.x[-1]
        areas = ("negative", least, min(most, -rope)), ("rope", -rope, rope), ("positive", max(least, rope), most)
        for part, start, stop in areas:
            start, stop = max(start, least), min(stop, most)
            if start < stop:
                inside = curve.between(start, stop)
                look.draw(part, ax.fill_between, inside.x, inside.y)
        look.draw("edge", ax.plot, curve.x, curve.y)
        look.draw("median", ax.plot, [median, median], [0, curve.at(median)])
        look.draw("extrema", ax.plot, [least, most], [0, 0])
    for end in (-rope, rope):
        look.draw("rope_edges", ax.axvline, end)
    if result.observed_diff is not None:
        look.draw("observed", ax.plot, [float(result.observed_diff)], [0], clip_on=False, zorder=5)
    only_lowest_ticks([ax], xlim)
    zero = float(np.clip(-xlim[0] / (xlim[1] - xlim[0]), 0.3, 0.7))
    shares = (0.0, "left", result.p_sig_neg), (zero, "center", result.p_rope), (1.0, "right", result.p_sig_pos)
    words = "{} smaller", "{} equivalent", "{} greater"
    for (x, align, share), text in zip(shares, words, strict=True):
        percent = f"{float(share):.{max(precision - 2, 0)}%}"
        where = {"transform": ax.transAxes, "ha": align, "va": "bottom", "fontsize": look.fontsize}
        look.draw("proportions", ax.text, x, 1.02, text.format(percent), **where)
    ax.set_xlabel(f"{result.metric}: {result.lhs_name} − {result.rhs_name}", fontsize=look.fontsize)
    return figure


class ForestGroup(NamedTuple):
    name: str
    shown: Sequence[Shown]
    pooled: Tensor  # (S,)
    i2: float


def plot_forest(
    groups: Sequence[ForestGroup],
    metric: str,
    ci_probability: float = 0.95,
    *,
    precision: int = 4,
    gap: float = 1.0,
    info: bool = True,
    **options: Any,
) -> Any:
    """The intervals of all experiments below each other, and below each group's the pooled one.

    `gap` is the room around a group in rows; `info` writes median, interval and its width on the right.
    """
    look = Look(parts=FOREST, **options)
    rows = [
        [*group.shown, *([Shown("Aggregate", group.pooled)] if group.pooled is not None else [])] for group in groups
    ]
    lengths = [len(shown) for shown in rows]
    size = 6.3, max(0.28 * (sum(lengths) + 2 * len(groups) + 1), 2.5)
    ratios = {"height_ratios": [length + gap for length in lengths]}
    figure, axes = look.axes(len(groups), size, sharex=True, gridspec_kw=ratios)
    ends = []
    for ax, group, shown in zip(axes, groups, rows, strict=True):
        marks = [interval_of(found.samples, ci_probability) for found in shown]
        names, texts = [], []
        for y, (found, (median, low, high)) in enumerate(zip(shown, marks, strict=True)):
            pooled = found.samples is group.pooled
            look.draw("interval", ax.plot, [low, high], [y, y], zorder=2)
            look.draw("aggregate" if pooled else "median", ax.plot, [median], [y], zorder=3)
            if pooled:
                look.draw("aggregate_line", ax.axvline, median, zorder=1)
            share = f" (I² = {group.i2:.0%})" if pooled and np.isfinite(group.i2) else ""
            names.append(found.name + share)
            numbers = [f"{x:.{precision}f}" for x in (median, low, high, high - low)]
            texts.append("{}  [{}, {}]  {}".format(*numbers))
            ends += [low, high]
        right = ax.twinx()
        right.tick_params(labelsize=look.fontsize)
        for side in (ax, right):
            side.set_ylim(len(shown) - 1 + (1 + gap) / 2, -(1 + gap) / 2)
            side.tick_params(axis="y", length=0)
            for spine in ("top", "left", "right"):
                side.spines[spine].set_visible(False)
        ax.tick_params(axis="x", bottom=ax is axes[-1], labelbottom=ax is axes[-1])
        for side in (ax, right):
            side.spines["bottom"].set_visible(ax is axes[-1])
        ax.set_yticks([])
        right.set_yticks([])
        look.draw("name", ax.set_yticks, range(len(names)), names, fontsize=look.fontsize)
        if info:
            look.draw("info", right.set_yticks, range(len(texts)), texts, fontsize=look.fontsize)
        ax.set_title(group.name, fontsize=look.fontsize, fontweight="bold", loc="left")
        if info and ax is axes[0]:
            header = f"Median, {ci_probability:.1%} HDI, MU"
            where = {"transform": ax.transAxes, "fontsize": look.fontsize}
            look.draw("header", ax.text, 1.02, 1.0, header, va="bottom", **where)
    finite = [end for end in ends if np.isfinite(end)] or [0.0, 1.0]
    margin = 0.05 * (max(finite) - min(finite)) or 0.01
    axes[-1].set_xlim(look.xlim or (min(finite) - margin, max(finite) + margin))
    axes[-1].set_xlabel(metric, fontsize=look.fontsize)
    return figure
