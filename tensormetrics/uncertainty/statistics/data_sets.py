"""Two models compared on several data sets, each by cross-validation: what of a data set that is yet to come?"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ... import _checks
from .samples import check_probability
from .student import log_t_pdf, t_cdf, t_quantiles

TAILS = (1, 2, 4, 8, 16, 32, 64)  # degrees of freedom of the law of the data sets
SIDE = 40  # of the grid of means and spreads
NODES = 60  # from each of two laws, on which a product of both is summed
REFINED = 4
NOTHING = 1e-6  # of the largest density: cells below it are left out


class DataSetComparison(NamedTuple):
    """The differences a - b: of the average data set, of the next one, and of each at hand. Tensors () but the last."""

    difference: Tensor  # of the average data set: median
    low: Tensor
    high: Tensor
    p_left: Tensor  # that for a next data set it is likeliest that b is better by more than min_sig_diff
    p_rope: Tensor  # that neither is
    p_right: Tensor  # that a is
    next_left: Tensor  # the probabilities of a next data set itself
    next_rope: Tensor
    next_right: Tensor
    differences: Tensor  # (Q,), means of the posterior, drawn together


def compare_data_sets(
    a: Tensor,  # (Q, n)
    b: Tensor,  # (Q, n)
    rho: float | None = None,
    min_sig_diff: float = 0.0,
    confidence: float = 0.95,
) -> DataSetComparison:
    """The hierarchical model of Q data sets with n results each of a cross-validation, such as accuracies.

    Results of one data set are normal with one correlation `rho` (test / (training + test) items of a fold, None:
    1 / n), their means Student's around a common mean. Priors: flat for means and spreads, Gamma(2, 1/10) for the
    degrees of freedom, at powers of two. The posterior is summed over a grid, without draws. `min_sig_diff` bounds the
    region of practical equivalence (rope), in units of the scores. ValueError for fewer than 3 data sets, or fewer than
    4 results each, and for data sets whose differences are all equal. Benavoli, Corani, Demsar & Zaffalon 2017,
    jmlr.org/papers/v18/16-305.html, 4.3.

    >>> generator = torch.Generator().manual_seed(0)
    >>> b = 0.8 + 0.05 * torch.randn(4, 5, generator=generator)  # four data sets, five folds each
    >>> a = b + 0.02 + 0.03 * torch.randn(4, 5, generator=generator)
    >>> found = compare_data_sets(a, b, min_sig_diff=0.01)
    >>> print(f"P(a practically better) = {found.p_right:.2f}")
    P(a practically better) = 0.91
    """
    check_probability("confidence", confidence)
    _checks.shape("a", a, "Q", "n")
    _checks.shape("b", b, *a.shape)
    _checks.same_device(a=a, b=b)
    _checks.number("min_sig_diff", min_sig_diff, "a number >= 0", lambda x: x >= 0)
    sets, results = a.shape
    if sets < 3 or results < 4:
        raise ValueError(f"a, b: got shape {tuple(a.shape)}, wanted at least 3 data sets of 4 results each")
    rho = 1 / results if rho is None else rho
    _checks.number("rho", rho, "None or a number in [0, 1)", lambda x: 0 <= x < 1)
    values = a.double() - b.double()
    unit = values.abs().amax()
    values = values / unit  # squares of very small or large differences would be 0 or infinite
    means = values.mean(1)
    # The spread of a data set has a flat prior, which leaves a degree of freedom less.
    scales = (values.var(1) * (results - 1) / (results - 2) * (1 / results + rho / (1 - rho))).sqrt()
    if not (scales > 0).all():
        raise ValueError("a, b: got a data set whose differences are all equal or not finite, wanted some spread")
    cells = _posterior(means, scales, results - 2)
    tails = [(1 - confidence) / 2, 0.5, (1 + confidence) / 2]
    low, middle, high = _quantiles(cells.mean, cells.mass, means.new_tensor(tails)) * unit
    edges = [(edge / unit - cells.mean) / cells.spread for edge in (-min_sig_diff, min_sig_diff)]
    below, upto = (torch.stack([t_cdf(edge, df) for df in TAILS]) for edge in edges)
    shares = torch.stack([below, upto - below, 1 - upto])  # of a next data set, in each cell (3, T, cells)
    likeliest = torch.nn.functional.one_hot(shares.argmax(0), 3).movedim(-1, 0)
    left, rope, right = (cells.mass * likeliest).sum((1, 2))
    following = (cells.mass * shares).sum((1, 2))
    next_left, next_rope, next_right = following
    differences = cells.differences * unit
    return DataSetComparison(middle, low, high, left, rope, right, next_left, next_rope, next_right, differences)


class _Cells(NamedTuple):
    """A grid of the common mean and the spread around it."""

    mean: Tensor  # (cells,)
    spread: Tensor  # (cells,)
    mass: Tensor  # (T, cells), of sum 1
    differences: Tensor  # (Q,)


def _posterior(means: Tensor, scales: Tensor, df: int) -> _Cells:
    # means, scales: (Q,) of each data set, whose own posterior is Student's of df
    size = (means.std() + scales.mean()).clamp(min=1e-300)
    box = torch.stack([torch.stack([means.min() - 8 * size, means.max() + 8 * size]), means.new_tensor([0.0, 1.0])])
    for _ in range(REFINED):
        edges, mean, spread, log_mass, _ = _grid(means, scales, df, size, box)
        likely = (log_mass.logsumexp(0) > log_mass.logsumexp(0).max() + math.log(NOTHING)).view(SIDE, SIDE)
        box = torch.stack([_span(likely.any(1 - axis), edge) for axis, edge in enumerate(edges)])
    _, mean, spread, log_mass, shrunken = _grid(means, scales, df, size, box)
    mass = (log_mass - log_mass.max()).exp()
    mass = mass / mass.sum()
    return _Cells(mean, spread, mass, (mass * shrunken).sum((1, 2)))


def _span(likely: Tensor, edges: Tensor) -> Tensor:
    # likely: (SIDE,)  edges: (SIDE + 1,)  ->  (2,), what holds all likely cells and one more on each side
    (place,) = likely.nonzero(as_tuple=True)
    return edges[torch.stack([place[0] - 1, place[-1] + 2]).clamp(0, SIDE)]


def _grid(
    means: Tensor, scales: Tensor, df: int, size: Tensor, box: Tensor
) -> tuple[list[Tensor], Tensor, Tensor, Tensor, Tensor]:
    # ->  edges, mean and spread (cells,), log mass (T, cells), means of the data sets' differences (Q, T, cells)
    steps = torch.linspace(0, 1, SIDE + 1, dtype=means.dtype, device=means.device)
    edges = [low + (high - low) * steps for low, high in box]
    mean, u = torch.meshgrid(*((edge[:-1] + edge[1:]) / 2 for edge in edges), indexing="ij")
    mean, angle = mean.flatten(), u.flatten() * (math.pi / 2)
    spread = size * angle.tan()
    flat = -2 * angle.cos().log()  # a flat prior of the spread, which is a tangent
    shares = (torch.arange(NODES, dtype=means.dtype, device=means.device) + 0.5) / NODES
    own = t_quantiles(shares, df)
    log_mass, shrunken = [], []
    for tail in TAILS:
        common = mean[:, None] + spread[:, None] * t_quantiles(shares, tail)  # (cells, NODES)
        prior = math.log(tail) - tail / 10 + math.log(tail)  # Gamma(2, 1/10), in steps of the logarithm
        logs, firsts = flat + prior, []
        for center, scale in zip(means, scales, strict=True):
            x = torch.cat([(center + scale * own).expand(len(mean), -1), common], 1)
            f = log_t_pdf((x - center) / scale, df) - scale.log()
            g = log_t_pdf((x - mean[:, None]) / spread[:, None], tail) - spread.log()[:, None]
            weight = (f + g - torch.logaddexp(f, g)).exp()  # of nodes from both laws alike
            total = weight.sum(1)
            logs = logs + (total / NODES).log()
            firsts.append((weight * x).sum(1) / total)
        log_mass.append(logs)
        shrunken.append(torch.stack(firsts))
    return edges, mean, spread, torch.stack(log_mass), torch.stack(shrunken, 1)


def _quantiles(values: Tensor, mass: Tensor, shares: Tensor) -> Tensor:
    # values: (cells,)  mass: (T, cells)  shares: (K,)  ->  (K,)
    """Of the distribution of the values, linear within the cells of one value."""
    distinct, place = values.unique(return_inverse=True)
    width = distinct.diff().mean()
    cumulated = mass.new_zeros(len(distinct)).index_add_(0, place, mass.sum(0)).cumsum(0)
    at = torch.searchsorted(cumulated, shares * cumulated[-1]).clamp(max=len(distinct) - 1)
    before = torch.where(at > 0, cumulated[at - 1], 0.0)
    inside = (shares * cumulated[-1] - before) / (cumulated[at] - before)
    return distinct[at] + width * (inside - 0.5)
