"""Comparison of two models on several data sets, each by cross-validation, and prediction for a new data set."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.arguments.checks import takes_arrays
from ...core.numbers.exact_sums import cumulative_mass, scatter_add
from ...core.numbers.student import log_t_pdf, t_cdf, t_quantiles
from ...core.results.estimates import Comparison, check_rope
from .samples import check_probability

TAILS = (1, 2, 4, 8, 16, 32, 64)  # degrees of freedom of the law of the data sets
GRID_SIZE = 40  # cells along each axis of the grid of mean and dispersion
NODES = 60  # quantiles of each of two distributions, over which their product is summed
REFINED = 4
NOTHING = 1e-6  # of the largest mass of a cell: those below it are left out


@takes_arrays
def compare_data_sets(
    a: Tensor,
    b: Tensor,
    rho: float | None = None,
    *,
    rope: float | None = None,
    confidence: float = 0.95,
    higher_is_better: bool = True,
) -> Comparison:
    """Compare two models by the results of a cross-validation on each of several data sets.

    The hierarchical model of Benavoli et al.: results of one data set are normal with one correlation, their means have
    a t distribution around a common mean. Priors: flat for means and standard deviations, Gamma(2, 1/10) for the
    degrees of freedom, at powers of two. The posterior is summed over a grid, without draws. With 3 data sets the
    average has the tails of a Cauchy distribution: its interval is some ten times as wide as the data.

    Args:
        a: Scores of a model, such as accuracies, of Q data sets with n results each.
        b: Scores of another one on the same data.
        rho: Correlation of the results of a data set, in [0, 1): test / (training + test) items of a fold. None: 1 / n.
        rope: Differences up to it do not matter in practice, in units of the scores; None: no such region.
        confidence: Mass of the interval, in (0, 1].
        higher_is_better: Whether "better" means higher scores.

    Shape:
        - a, b: ``(Q, n)``
        - Output: ``()``, float64

    Returns:
        The median of the difference a - b of the average data set; `p_value` is twice the smaller of the posterior's
        tails. `details` has the probabilities of a next data set, "p_next_better" (by more than `rope`), "p_next_rope"
        and "p_next_worse"; "p_likeliest_better", that the first of these is the largest; and "differences" (Q,), the
        posterior means of the observed data sets, which are shrunk towards each other.

    Raises:
        ValueError: For fewer than 3 data sets or 4 results each, data sets whose differences are all equal, and
            options out of range.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> b = 0.8 + 0.05 * torch.randn(4, 5, generator=generator)  # four data sets, five folds each
        >>> a = b + 0.02 + 0.03 * torch.randn(4, 5, generator=generator)
        >>> result = compare_data_sets(a, b, rope=0.01)
        >>> print(f"P(a practically better on the next) = {result.details['p_next_better']:.2f}")
        P(a practically better on the next) = 0.79

    References:
        Benavoli, Corani, Demsar & Zaffalon 2017, jmlr.org/papers/v18/16-305.html, 4.3
    """
    check_probability("confidence", confidence)
    checks.shape("a", a, "Q", "n")
    checks.shape("b", b, *a.shape)
    checks.same_device(a=a, b=b)
    check_rope(rope)
    sets, results = a.shape
    if sets < 3 or results < 4:
        raise ValueError(f"a, b: got shape {tuple(a.shape)}, wanted at least 3 data sets of 4 results each")
    rho = 1 / results if rho is None else rho
    checks.check_number("rho", rho, "None or a number in [0, 1)", lambda x: 0 <= x < 1)
    values = a.double() - b.double()
    unit = values.abs().amax()
    values = values / unit  # squares of very small or large differences would be 0 or infinite
    means = values.mean(1)
    # The standard deviation of a data set has a flat prior, which leaves one degree of freedom less.
    scales = (values.var(1) * (results - 1) / (results - 2) * (1 / results + rho / (1 - rho))).sqrt()
    if not (scales > 0).all():
        raise ValueError("a, b: got a data set whose differences are all equal or not finite, wanted differing ones")
    cells = _posterior(means, scales, results - 2)
    edges = torch.stack([torch.zeros_like(unit), *(sign * (rope or 0.0) / unit for sign in (-1, 1))])
    tails = [(1 - confidence) / 2, 0.5, (1 + confidence) / 2]
    (low, median, high), (p_below, *around_rope) = _quantiles_and_fractions(cells, means.new_tensor(tails), edges)
    steps = [(edge - cells.mean) / cells.dispersion for edge in edges[1:]]
    below, upto = (torch.stack([t_cdf(step, df) for df in TAILS]) for step in steps)
    fractions = torch.stack([below, upto - below, 1 - upto])  # of a next data set, in each cell (3, T, cells)
    likeliest = torch.nn.functional.one_hot(fractions.argmax(0), 3).movedim(-1, 0)
    worse, better = (0, 2) if higher_is_better else (2, 0)
    p_next = (cells.mass * fractions).sum((1, 2))
    return Comparison(
        difference=median * unit,
        low=low * unit,
        high=high * unit,
        p_value=2 * torch.minimum(p_below, 1 - p_below),
        p_better=1 - p_below if higher_is_better else p_below,
        p_rope=torch.full_like(p_below, torch.nan) if rope is None else around_rope[1] - around_rope[0],
        confidence=confidence,
        rope=rope,
        test="hierarchical t",
        higher_is_better=higher_is_better,
        details={
            "rho": rho,
            "p_next_better": p_next[better],
            "p_next_rope": p_next[1],
            "p_next_worse": p_next[worse],
            "p_likeliest_better": (cells.mass * likeliest).sum((1, 2))[better],
            "differences": cells.differences * unit,
        },
    )


class _Cells(NamedTuple):
    """Grid of the common mean and the dispersion around it.

    Cells are equidistant in the angles whose tangents are mean and dispersion: with Q data sets the density of the mean
    falls as slowly as its power 1 - Q, and dispersions are as large as the mean is far away.
    """

    center: Tensor  # ()
    size: Tensor  # ()
    angle: Tensor  # (cells,), of which `mean` is center + size tan(angle)
    mean: Tensor  # (cells,)
    dispersion: Tensor  # (cells,)
    mass: Tensor  # (T, cells), of sum 1
    differences: Tensor  # (Q,)


def _posterior(means: Tensor, scales: Tensor, df: int) -> _Cells:
    # means, scales: (Q,) of each data set, whose own posterior is Student's of df
    box = math.pi / 2 * means.new_tensor([[-1.0, 1.0], [0.0, 1.0]])
    for _ in range(REFINED):
        edges, cells = _grid(means, scales, df, box)
        mass = cells.mass.sum(0)
        likely = (mass > NOTHING * mass.max()).view(GRID_SIZE, GRID_SIZE)
        box = torch.stack([_span(likely.any(1 - axis), edge) for axis, edge in enumerate(edges)])
    return _grid(means, scales, df, box)[1]


def _span(likely: Tensor, edges: Tensor) -> Tensor:
    # likely: (GRID_SIZE,)  edges: (GRID_SIZE + 1,)  ->  (2,), ends of the likely cells and one more at either end
    (index,) = likely.nonzero(as_tuple=True)
    return edges[torch.stack([index[0] - 1, index[-1] + 2]).clamp(0, GRID_SIZE)]


def _grid(means: Tensor, scales: Tensor, df: int, box: Tensor) -> tuple[list[Tensor], _Cells]:
    # box: (2, 2), ends of both angles  ->  edges of the cells, (SIDE + 1,) of each angle, and the cells
    steps = torch.linspace(0, 1, GRID_SIZE + 1, dtype=means.dtype, device=means.device)
    edges = [low + (high - low) * steps for low, high in box]
    angle, dispersion_angle = torch.meshgrid(*((edge[:-1] + edge[1:]) / 2 for edge in edges), indexing="ij")
    angle, dispersion_angle = angle.flatten(), dispersion_angle.flatten()
    center, size = means.mean(), means.std() + scales.mean()
    mean = center + size * angle.tan()
    radius = torch.hypot(size, mean - center)
    dispersion = radius * dispersion_angle.tan()
    flat = 3 * radius.log() - 2 * dispersion_angle.cos().log()  # log derivatives: flat priors of both
    levels = (torch.arange(NODES, dtype=means.dtype, device=means.device) + 0.5) / NODES
    set_quantiles = t_quantiles(levels, df)
    log_mass, shrunken = [], []
    for tail in TAILS:
        common = mean[:, None] + dispersion[:, None] * t_quantiles(levels, tail)  # (cells, NODES)
        prior = math.log(tail) - tail / 10 + math.log(tail)  # Gamma(2, 1/10), in steps of the logarithm
        logs, firsts = flat + prior, []
        for set_mean, scale in zip(means, scales, strict=True):
            x = torch.cat([(set_mean + scale * set_quantiles).expand(len(mean), -1), common], 1)
            f = log_t_pdf((x - set_mean) / scale, df) - scale.log()
            g = log_t_pdf((x - mean[:, None]) / dispersion[:, None], tail) - dispersion.log()[:, None]
            weight = (f + g - torch.logaddexp(f, g)).exp()  # nodes of both distributions count equally
            total = weight.sum(1)
            logs = logs + (total / NODES).log()
            firsts.append((weight * x).sum(1) / total)
        log_mass.append(logs)
        shrunken.append(torch.stack(firsts))
    logs = torch.stack(log_mass)
    mass = (logs - logs.max()).exp()
    mass = mass / mass.sum()
    differences = (mass * torch.stack(shrunken, 1)).sum((1, 2))
    return edges, _Cells(center, size, angle, mean, dispersion, mass, differences)


def _quantiles_and_fractions(cells: _Cells, fractions: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    # fractions: (K,)  values: (V,)  ->  quantiles (K,), fractions at or below the values (V,)
    """Return quantiles and fractions of the common mean; mass is uniform in the angle within cells of one value."""
    centers, index = cells.angle.unique(return_inverse=True)
    width = centers.diff().mean()
    ends = torch.cat([centers[:1] - width / 2, centers + width / 2])
    mass = cumulative_mass(scatter_add(cells.mass.new_zeros(len(ends)), index + 1, cells.mass.sum(0)))
    mass = mass / mass[-1]
    quantiles = cells.center + cells.size * _interpolated(fractions, mass, ends).tan()
    return quantiles, _interpolated(((values - cells.center) / cells.size).atan(), ends, mass)


def _interpolated(x: Tensor, xs: Tensor, ys: Tensor) -> Tensor:
    # x: (K,)  xs, ys: (N,) ascending  ->  (K,), the ends of ys outside
    above = torch.searchsorted(xs, x).clamp(1, len(xs) - 1)
    step = (xs[above] - xs[above - 1]).clamp(min=torch.finfo(xs.dtype).tiny)
    return torch.lerp(ys[above - 1], ys[above], ((x - xs[above - 1]) / step).clamp(0, 1))
