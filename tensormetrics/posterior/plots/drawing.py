"""Options, parts and outlines of distributions, for all plots of posteriors."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from ...core.arguments import checks
from ...core.results.plots import CHARACTER, FONT, dress, inches, is_dark, legend_below, new_axes
from ...uncertainty.statistics.density import kde
from ...uncertainty.statistics.samples import estimate, finite_part, histogram_bins, sort_samples

Mark = tuple[float, float, float]  # median, low, high


@dataclass(frozen=True, kw_only=True)
class Look:
    """The options of every plot.

    `title` is written above the figure; `figsize` (inches) is chosen by the labels unless it is given. `style` maps
    parts to matplotlib keywords, `hide` drops parts, `ax` draws into existing axes, one for each axes of the plot,
    without a legend. `method` is "kde", with `bw_adjust`, `cut` and `grid_samples`, or "hist", with `bins` ("auto", a
    number, or edges). With `normalize` every distribution is equally high; without it, only where one scale would
    flatten some. `xlim`, the limits of the x axis, is chosen by the distributions unless it is given; `background` is
    a color.
    """

    method: str = "kde"
    bw_adjust: float = 1.0
    cut: float = 1.0
    grid_samples: int = 200
    bins: str | int | Sequence[float] = "auto"
    normalize: bool = False
    title: str | None = None
    figsize: tuple[float, float] | None = None
    fontsize: float = FONT
    xlim: tuple[float, float] | None = None
    background: Any = None
    hide: Collection[str] = ()
    style: Mapping[str, Mapping[str, Any]] | None = None
    ax: Any = None
    parts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # of this plot: part -> default keywords

    def __post_init__(self) -> None:
        checks.check_choice("method", self.method, ("kde", "hist", "histogram"))
        checks.check_int("grid_samples", self.grid_samples, 2)
        if isinstance(self.bins, str):
            checks.check_choice("bins", self.bins, ("auto",))
        elif isinstance(self.bins, int):
            checks.check_int("bins", self.bins, 1)
        for name, parts in ("style", self.style or ()), ("hide", self.hide):
            for part in [parts] if isinstance(parts, str) else parts:
                if part not in self.parts:
                    raise ValueError(f"{name}: there is no part {part!r}, this plot has {', '.join(self.parts)}")

    def draw(self, part: str, method: Any, *args: Any, **keywords: Any) -> Any:
        """Call a method of matplotlib with the keywords of a part, unless it is hidden."""
        if part in self.hide:
            return None
        inverted = {"black": "white", "white": "black", "xkcd:silver": "0.35"} if is_dark() else {}
        part_options = {key: inverted.get(value, value) for key, value in self.parts[part].items()}
        return method(*args, **{**keywords, **part_options, **(self.style or {}).get(part, {})})

    def axes(self, rows: int, size: tuple[float, float], **grid: Any) -> tuple[Any, list[Any]]:
        """Return the figure, and one axes for each row."""
        if not rows:
            raise ValueError("there is nothing to plot: got no experiments, wanted at least one")
        figure, axes = new_axes(self.ax, self.figsize or size, rows, **grid)
        for ax in axes:
            dress(ax, fontsize=self.fontsize, frame=())
            if self.background is not None:
                ax.set_facecolor(self.background)
        if self.background is not None and self.ax is None:
            figure.set_facecolor(self.background)
        return figure, axes

    def finish(self, figure: Any, axes: Sequence[Any]) -> None:
        """Write the title, and below a new figure the legend."""
        if self.title and self.ax is None:
            figure.suptitle(self.title, fontsize=self.fontsize + 1)
        elif self.title:
            axes[0].set_title(self.title, fontsize=self.fontsize + 1)
        if self.ax is None:
            self.draw("legend", legend_below, figure, axes, fontsize=self.fontsize)

    def characters(self, ax: Any, *labels: Sequence[str]) -> int:
        """Return how many characters fit above or below an axes that has these labels on its left and right."""
        left = ax.figure.get_figwidth() - sum(map(inches, labels))
        width = left if self.ax is None else ax.bbox.width / ax.figure.dpi
        return max(int(width / CHARACTER * FONT / self.fontsize), 10)


class Outline(NamedTuple):
    """The curve of a distribution; empty where no sample is finite."""

    x: np.ndarray
    y: np.ndarray

    def height(self, x: float) -> float:
        return float(np.interp(x, self.x, self.y)) if len(self.x) else 0.0

    def between(self, low: float, high: float) -> "Outline":
        mask = (self.x > low) & (self.x < high)
        x = np.concatenate([[low], self.x[mask], [high]])
        return Outline(x, np.concatenate([[self.height(low)], self.y[mask], [self.height(high)]]))


def outline(samples: Tensor, bounds: tuple[float, float], look: Look) -> Outline:
    # samples: (S,)
    samples = samples[samples.isfinite()].double().cpu()
    if len(samples) == 0:
        return Outline(np.zeros(0), np.zeros(0))
    minimum, maximum = float(samples.min()), float(samples.max())
    if minimum == maximum:  # no density exists; draw a spike
        return Outline(np.array([minimum, minimum, minimum]), np.array([0.0, 1.0, 0.0]))
    if look.method == "kde":
        density = kde(
            samples,
            clip=bounds,
            boundary="reflect",
            bw_adjust=look.bw_adjust,
            cut=look.cut,
            grid_samples=look.grid_samples,
        )
        x, y = density.grid.numpy(), density.density.numpy()
        x, y = np.concatenate([x[:1], x, x[-1:]]), np.concatenate([[0.0], y, [0.0]])
    else:
        bins = look.bins
        if bins == "auto":
            ordered, n = sort_samples(samples, 0)
            bins = int(histogram_bins(ordered, finite_part(ordered, n)))
        heights, edges = np.histogram(samples.numpy(), bins=bins, density=True)
        x, y = np.repeat(edges, 2), np.concatenate([[0.0], np.repeat(heights, 2), [0.0]])
    return Outline(x, y / y.max() if look.normalize else y)


def one_scale(outlines: Sequence[Outline]) -> bool:
    """Return whether no outline is a spike, or so much flatter than another that it would look like a line."""
    peaks = [curve.y.max() if curve.x[0] < curve.x[-1] else np.inf for curve in outlines if len(curve.x)]
    return max(peaks, default=1.0) <= 4 * min(peaks, default=1.0)


def x_range(
    outlines: Sequence[Outline],
    marks: Sequence[Mark],
    bounds: tuple[float, float],
    points: Sequence[float | None] = (),
) -> tuple[float, float]:
    """Return the limits of the x axis: the outlines, within 5 of the narrowest intervals' widths of the medians.

    All intervals and `points` are shown.
    """
    shown = [curve for curve in outlines if len(curve.x)]
    if not shown:
        low, high = bounds
        return low if np.isfinite(low) else 0.0, high if np.isfinite(high) else 1.0
    low, high = min(curve.x[0] for curve in shown), max(curve.x[-1] for curve in shown)
    widths = np.array([end - start for _, start, end in marks])
    if max_distance := 5 * min(widths[np.isfinite(widths) & (widths > 0)], default=0.0):
        finite = [median for median, _, _ in marks if np.isfinite(median)]
        low, high = max(low, min(finite) - max_distance), min(high, max(finite) + max_distance)
    needed = [end for mark in marks for end in mark] + [point for point in points if point is not None]
    needed = [end for end in needed if np.isfinite(end)]
    return _with_margins(min([low, *needed]), max([high, *needed]), bounds)


def _with_margins(low: float, high: float, bounds: tuple[float, float]) -> tuple[float, float]:
    """Return a slightly wider range, clipped to the bounds; the bounds themselves if it covers half of them."""
    span = bounds[1] - bounds[0]
    if np.isfinite(span):
        if high - low > span / 2:
            return bounds
        low = bounds[0] if low - bounds[0] < 0.05 * span else low
        high = bounds[1] if bounds[1] - high < 0.05 * span else high
    margin = 0.02 * (high - low) or 0.01 * max(abs(low), 1.0)
    return low - margin * (low != bounds[0]), high + margin * (high != bounds[1])


def interval_of(samples: Tensor, confidence: float) -> Mark:
    """Return the median and the ends of the highest density interval as numbers."""
    median, low, high = estimate(samples, confidence)
    return float(median), float(low), float(high)


def only_lowest_ticks(axes: Sequence[Any], xlim: tuple[float, float]) -> None:
    margin = 0.01 * (xlim[1] - xlim[0])  # for markers at the ends
    for ax in axes:
        ax.set_xlim(xlim[0] - margin, xlim[1] + margin)
        ax.set_yticks([])
        ax.tick_params(axis="x", which="both", bottom=ax is axes[-1], labelbottom=ax is axes[-1])
