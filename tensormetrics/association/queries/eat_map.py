"""Figure of multilevel association tests, which is returned, not shown."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...core.arguments import checks
from ...core.results.estimates import Estimate
from ...core.results.plots import FONT, dress, ink, legend_outside, line_style, new_axes, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FIELDS = ("b", "neither", "a")  # attribute of a target, from negative to positive effect sizes


def plot_eat_map(
    results: Sequence[Estimate],
    ax: "Axes | None" = None,
    *,
    negligible: float = 0.2,
    title: str = "",
    figsize: tuple[float, float] | None = None,
) -> "tuple[Figure, Axes]":
    """Plot a point per result of `MLEAT().run_query`: x and y are the effect sizes of its first and second target.

    Nine fields show the attribute with which each target is associated, a, b or neither (an effect size of at most
    `negligible`): far from the diagonal the targets differ; in the corners of the diagonal both are associated with the
    same attribute. Results without a score are left out. `figsize` (inches) has a default. ValueError for results of
    other metrics and `negligible` below 0.
    Wolfe, Hiniker & Howe 2024, arXiv:2408.01966.

    >>> vectors = torch.tensor([[3.0, 1], [2, 1], [1, 2], [1, 3], [1, 0], [2, 1], [0, 1], [1, 1]])
    >>> model = WordEmbeddingModel.from_tensor(vectors, list("abcdefgh"))
    >>> query = Query([["a", "b"], ["c", "d"]], [["e", "f"], ["g", "h"]])
    >>> plot_eat_map([MLEAT().run_query(query, model)])[0].savefig("map.png")
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
    return figure, axes


def _point(result: Estimate) -> tuple[str, float, float]:
    keys = "effect_size_x", "effect_size_y"
    if "reason" not in result.details and not result.details.keys() >= {*keys}:
        raise ValueError("results: got one without the effect sizes of targets, wanted results of MLEAT().run_query")
    x, y = (float(result.details.get(key, math.nan)) for key in keys)
    return str(result.name), x, y
