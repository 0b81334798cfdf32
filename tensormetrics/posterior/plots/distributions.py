"""Pictures of posteriors and of differences of posteriors."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from torch import Tensor

from ...core.results.plots import LINE, inches, lines_of, wrapped
from .drawing import Look, Mark, Outline, interval_of, one_scale, only_lowest_ticks, outline, x_range

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PARTS: Mapping[str, Mapping[str, Any]] = {  # part of a picture -> matplotlib keywords
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
REGIONS: Mapping[str, Mapping[str, Any]] = {  # with a region of equivalence
    "negative": {"facecolor": "xkcd:salmon", "edgecolor": "white", "hatch": "////", "linewidth": 0},
    "rope": {"color": "xkcd:silver", "linewidth": 0},
    "positive": {"color": "xkcd:faded green", "linewidth": 0},
    "rope_edges": {"color": "black", "linewidth": 0.8, "linestyle": ":"},
    "proportions": {},
}
ROW_HEIGHT, REGIONS_HEIGHT = 0.625, 1.5  # inches


class Shown(NamedTuple):
    """Samples of one value of a metric, or of a difference, under a name."""

    name: str
    samples: Tensor  # (S,)
    observed: Tensor | float | None = None


def plot_distributions(
    distributions: Sequence[tuple],
    metric: str,
    bounds: tuple[float, float],
    confidence: float = 0.95,
    *,
    title: str | None = None,
    centre: int | None = None,
    rope: float | None = None,
    precision: int = 4,
    **options: Any,
) -> "tuple[Figure, list[Axes]]":
    """Plot each distribution in an axes, with its median and highest density interval.

    Args:
        distributions: Tuples of a name, samples ``(S,)`` and optionally the observed value.
        metric: Label of the x axis.
        bounds: Smallest and largest value of the metric.
        confidence: Mass of the intervals.
        title: Text above the axes.
        centre: Index of the distribution whose median is the center of the x axis.
        rope: Differences up to it are equivalent: the area is divided at -rope and rope, and the shares are written
            above it.
        precision: Digits of `rope` and, less two, decimals of the shares.
        **options: Options of `drawing.Look`.

    Returns:
        The figure and an axes for each distribution.

    Raises:
        ImportError: Without matplotlib.
        ValueError: If there is nothing to plot, or an option is unknown.

    Example:
        >>> draws = torch.linspace(0.8, 0.9, 100)
        >>> plot_distributions([("cnn", draws)], "Accuracy", (0, 1))[0].savefig("accuracy.png")
    """
    look = Look(parts=PARTS if rope is None else {**PARTS, **REGIONS}, **options)
    shown = [Shown(*distribution) for distribution in distributions]
    names = [wrapped(distribution.name) for distribution in shown]
    outlines = [outline(distribution.samples, bounds, look) for distribution in shown]
    row = max(ROW_HEIGHT if rope is None else REGIONS_HEIGHT, LINE * lines_of(names) + 0.12)
    figure, axes = look.axes(len(shown), (max(6.3, 4.5 + inches(names)), max(len(shown) * row + 0.2, 2.5)))
    intervals = [interval_of(distribution.samples, confidence) for distribution in shown]
    points = [None if distribution.observed is None else float(distribution.observed) for distribution in shown]
    xlim = look.xlim or x_range(outlines, intervals, bounds, points)
    if centre is not None and look.xlim is None and np.isfinite(intervals[centre][0]):
        median = intervals[centre][0]
        half_width = max(median - xlim[0], xlim[1] - median)
        xlim = max(median - half_width, bounds[0]), min(median + half_width, bounds[1])
    label_options = {"rotation": 0, "ha": "right", "va": "center", "fontsize": look.fontsize, "labelpad": 6}
    for ax, name, distribution, curve, mark, point in zip(axes, names, shown, outlines, intervals, points, strict=True):
        look.draw("base", ax.axhline, 0, clip_on=False)
        ax.set_ylabel("")
        look.draw("name", ax.set_ylabel, name, **label_options)
        if len(curve.x):
            if rope is not None:
                _draw_regions(look, ax, curve, distribution.samples, rope, precision, xlim)
            _draw_curve(look, ax, curve, mark, xlim, f"{100 * confidence:g}% HDI", rope is None)
            if point is not None:
                keywords = {"clip_on": look.xlim is not None, "zorder": 5, "label": "observed"}
                look.draw("observed", ax.plot, [point], [0], **keywords)
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
    return figure, axes


def _draw_curve(
    look: Look, ax: Any, curve: Outline, mark: Mark, xlim: tuple[float, float], interval: str, has_area: bool
) -> None:
    median, low, high = mark
    if np.isfinite(low) and np.isfinite(high):
        area = curve.between(low, high)
        if has_area:
            look.draw("area", ax.fill_between, area.x, area.y, label=interval)
        for end in low, high:
            look.draw("interval", ax.plot, [end, end], [0, curve.height(end)], label="" if has_area else interval)
    look.draw("edge", ax.plot, curve.x, curve.y)
    look.draw("median", ax.plot, [median, median], [0, curve.height(median)], label="median")
    if visible := [end for end in (curve.x[0], curve.x[-1]) if xlim[0] <= end <= xlim[1]]:
        look.draw("extrema", ax.plot, visible, [0] * len(visible), label="sampled range")


def _draw_regions(
    look: Look, ax: Any, curve: Outline, samples: Tensor, rope: float, precision: int, xlim: tuple[float, float]
) -> None:
    """Fill the area below, in and above the region of equivalence, and write the shares of the samples above it."""
    defined = samples[~samples.isnan()].double()
    zero = float(np.clip(-xlim[0] / (xlim[1] - xlim[0]), 0.3, 0.7))
    ends = curve.x[0], -rope, rope, curve.x[-1]
    regions = (
        ("negative", defined < -rope, 0.0, "left", "smaller"),
        ("rope", defined.abs() <= rope, zero, "center", "equivalent"),
        ("positive", defined > rope, 1.0, "right", "greater"),
    )
    for (part, is_there, x, align, text), start, stop in zip(regions, ends, ends[1:], strict=False):
        start, stop = max(start, curve.x[0]), min(stop, curve.x[-1])
        if start < stop:
            area = curve.between(start, stop)
            look.draw(part, ax.fill_between, area.x, area.y)
        share = f"{float(is_there.double().mean()):.{max(precision - 2, 0)}%} {text}"
        keywords = {"transform": ax.transAxes, "ha": align, "va": "bottom", "fontsize": look.fontsize}
        look.draw("proportions", ax.text, x, 1.02, share, **keywords)
    for end in (-rope, rope):
        if xlim[0] <= end <= xlim[1]:  # the legend lists what is seen
            look.draw("rope_edges", ax.axvline, end, label=f"equivalence: ±{rope:.{precision}g}")
