"""The map of association tests: what each target leans to, in a figure of nine fields."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import _checks
from ..._plots import FONT, broken, dress, ink, legend_beside, line_style, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FIELDS = ("b", "neither", "a")  # what a target leans to, from negative to positive


def plot_eat_map(
    results: Sequence[Mapping[str, Any]],
    ax: "Axes | None" = None,
    *,
    negligible: float = 0.2,
    title: str = "",
    figsize: tuple[float, float] | None = None,
) -> "Figure":
    """A point for each answer of `MLEAT().run_query`: across the effect size of its first target, upwards the second's.

    Nine fields say to which attribute each target leans, a, b or neither (an effect size of at most `negligible`): far
    from the diagonal the targets differ; in the corners of the diagonal both lean to the same. Answers without a score
    are left out. `figsize` (inches) has a default. ValueError for answers of other metrics and `negligible` below 0.
    Wolfe, Hiniker & Howe 2024, arXiv:2408.01966.

    >>> answer = {"query_name": "flowers and insects", "effect_size_x": 1.3, "effect_size_y": -0.9}
    >>> plot_eat_map([answer]).savefig("map.png")
    """
    _checks.number("negligible", negligible, "a number >= 0", lambda x: 0 <= x < math.inf)
    points = [_point(answer) for answer in results]
    figure, (axes,) = new_axes(ax, figsize or (6.5, 4.5))
    dress(axes)
    reach = 1.1 * max([2.0, *(abs(end) for _, *place in points for end in place if math.isfinite(end))])
    for draw in (axes.axvspan, axes.axhspan):
        draw(-negligible, negligible, color=ink(), alpha=0.08, linewidth=0)
    middles = np.array([-(reach + negligible) / 2, 0, (reach + negligible) / 2])
    for x, first in zip(middles, FIELDS, strict=True):
        for y, second in zip(middles, FIELDS, strict=True):
            words = f"x: {first}\ny: {second}"
            axes.annotate(words, (x, y), ha="center", va="center", fontsize=FONT - 1, alpha=0.5, zorder=0)
    drawn = 0
    for name, x, y in points:
        if math.isfinite(x) and math.isfinite(y):
            axes.plot([x], [y], label=broken(name), clip_on=False, **{**line_style(drawn), "linestyle": "none"})
            drawn += 1
    axes.set_xlim(-reach, reach)
    axes.set_ylim(-reach, reach)
    axes.set_xlabel("Effect size of target x, a rather than b")
    axes.set_ylabel("Effect size of target y, a rather than b")
    axes.set_title(title, fontsize=FONT + 1)
    if drawn:
        legend_beside(axes, "Query")
    return figure


def _point(answer: Mapping[str, Any]) -> tuple[str, float, float]:
    keys = "query_name", "effect_size_x", "effect_size_y"
    if lacking := [key for key in keys if key not in answer]:
        raise ValueError(f"results: got an answer without {lacking[0]}, wanted those of MLEAT().run_query")
    return str(answer[keys[0]]), float(answer[keys[1]]), float(answer[keys[2]])
