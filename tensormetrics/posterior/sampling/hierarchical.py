"""A prior that the classes share: how right a model is of one class tells something of the others.

The rate of right answers of class i is Beta(m r, m (1 - r)), r the mean of all classes and m how alike they are. Both
are drawn from their posterior: r has Jeffreys' law, 1 / sqrt(m), the spread of the classes, a half-Cauchy one of scale
1 (Gelman 2006, doi:10.1214/06-BA117A). Given them, the rate is Beta(right + m r, wrong + m (1 - r)).
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ..._exact_sums import cumulative_mass
from ...uncertainty.engine.philox import WORD, philox4x32
from . import operators
from .dirichlet import normalised, stream_keys

SIDE = 48  # of the grid on which r and m lie
REFINED = 5  # times, each to the part of the grid where the density is above NOTHING
NOTHING = 1e-7  # of the largest
MANY = 1e12  # items of a class: more say no more of r and m, and their gamma functions would be known to no digit
BUDGET = 2**22  # logarithms of gamma functions at a time


def sample_splits(
    right: Tensor, wrong: Tensor, replicates: int, *, seed: int, names: Sequence[str], method: str, start: int
) -> Tensor:  # (S, E, C, 2), summing to 1
    """Shares of right and wrong answers in the rows of E matrices; `right` and `wrong` (E, C) count them.

    Samples are functions of their address, numbered from `start`; see `sample_log_gamma`.
    """
    keys = stream_keys(seed, names, method, "hierarchy", right.device)
    sample = torch.arange(start, start + replicates, device=right.device)
    place = sample & WORD, sample >> 32
    found = []
    for r, w, key in zip(right, wrong, keys.unbind(), strict=True):
        words = philox4x32((*place, torch.zeros_like(sample), 0), key.unbind())
        mean, size = _hyperparameters(r, w, words)
        own = torch.stack(philox4x32((*place, torch.ones_like(sample), 0), key.unbind())[:2], 1)  # a key a sample
        alpha = torch.stack(
            [r + (size * mean)[:, None], w + (size * (1 - mean))[:, None]], -1
        ).contiguous()  # (S, C, 2)
        logs = alpha.new_empty(*alpha.shape, 1)
        operators.log_gamma(logs, alpha, own.contiguous(), 0)
        found.append(normalised(logs)[0])
    return torch.stack(found, 1)


def _hyperparameters(right: Tensor, wrong: Tensor, words: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    # right, wrong: (C,)  words: four of (S,)  ->  r and m (S,)
    fewer = (MANY / (right + wrong)).clamp(max=1)
    right, wrong = right * fewer, wrong * fewer
    box = right.new_tensor([[0.0, 1.0], [0.0, 1.0]])
    for _ in range(REFINED):
        edges, log_density = _grid(right, wrong, box)
        likely = log_density > log_density.max() + math.log(NOTHING)
        box = torch.stack([_span(likely.any(1 - axis), edge) for axis, edge in enumerate(edges)])
    edges, log_density = _grid(right, wrong, box)
    mass = cumulative_mass((log_density - log_density.max()).exp().flatten())
    u, *jitter = ((word + 0.5) / 2.0**32 for word in words[:3])
    cell = torch.searchsorted(mass, u * mass[-1]).clamp(max=SIDE * SIDE - 1)
    at = [cell // SIDE, cell % SIDE]
    a, b = (edge[k] + (edge[k + 1] - edge[k]) * inside for edge, k, inside in zip(edges, at, jitter, strict=True))
    return _mean(a), _size(b)


def _span(likely: Tensor, edges: Tensor) -> Tensor:
    # likely: (SIDE,)  edges: (SIDE + 1,)  ->  (2,), what holds all likely cells and one more on each side
    place = torch.arange(SIDE, device=likely.device)
    first = place.masked_fill(~likely, SIDE).amin() - 1
    last = place.masked_fill(~likely, -1).amax() + 2
    return edges[torch.stack([first, last]).clamp(0, SIDE)]


def _grid(right: Tensor, wrong: Tensor, box: Tensor) -> tuple[list[Tensor], Tensor]:
    # ->  edges of the cells, two of (SIDE + 1,), and the logarithm of the density within them (SIDE, SIDE)
    steps = torch.linspace(0, 1, SIDE + 1, dtype=right.dtype, device=right.device)
    edges = [low + (high - low) * steps for low, high in box]
    mean, size = _mean((edges[0][:-1] + edges[0][1:]) / 2)[:, None], _size((edges[1][:-1] + edges[1][1:]) / 2)
    a, b = size * mean, size * (1 - mean)
    alike = len(right) * (torch.lgamma(size) - torch.lgamma(a) - torch.lgamma(b))
    total = torch.zeros_like(a)
    for r, w in zip(*(side.split(max(1, BUDGET // SIDE**2)) for side in (right, wrong)), strict=True):
        r, w = r[:, None, None], w[:, None, None]
        total += (torch.lgamma(a + r) + torch.lgamma(b + w) - torch.lgamma(size + (r + w))).sum(0)
    return edges, total + alike


def _mean(u: Tensor) -> Tensor:
    # of a uniform number: Jeffreys' law, Beta(1/2, 1/2)
    return (u * (math.pi / 2)).sin().square()


def _size(u: Tensor) -> Tensor:
    # of a uniform number: 1 / sqrt(m) has the half-Cauchy law
    return (u * (math.pi / 2)).tan().square().reciprocal()
