"""A hierarchical prior: the accuracy of one class is evidence for that of the others.

The true positive rate of class i is Beta(m r, m (1 - r)) with the mean r and the concentration m. r and m are drawn
from their posterior: the prior of r is Jeffreys', that of 1 / sqrt(m), the scale of the differences between classes,
half-Cauchy with scale 1 (Gelman 2006, doi:10.1214/06-BA117A). Given r and m, the rate is
Beta(right + m r, wrong + m (1 - r)).
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ...core.numbers.exact_sums import cumulative_mass
from ...core.numbers.philox import MASK_32, philox4x32
from . import operators
from .dirichlet import normalised, stream_keys

GRID_SIZE = 48  # of the grid of r and m
REFINED = 5  # times, each to the part of the grid where the density is above NOTHING
NOTHING = 1e-7  # of the largest
MAX_ITEMS = 1e12  # of a class: more do not inform r and m, and their gamma functions would have no correct digit
BUDGET = 2**22  # logarithms of gamma functions at a time


def sample_splits(
    right: Tensor, wrong: Tensor, replicates: int, *, seed: int, names: Sequence[str], method: str, start: int
) -> Tensor:  # (S, E, C, 2), summing to 1
    """Draw fractions of right and wrong answers in the rows of E matrices; `right` and `wrong` (E, C) count them.

    Samples are functions of their address, numbered from `start`; see `sample_log_gamma`.
    """
    keys = stream_keys(seed, names, method, "hierarchy", right.device)
    sample = torch.arange(start, start + replicates, device=right.device)
    counter = sample & MASK_32, sample >> 32
    splits = []
    for r, w, key in zip(right, wrong, keys.unbind(), strict=True):
        random_bits = philox4x32((*counter, torch.zeros_like(sample), 0), key.unbind())
        mean, size = _hyperparameters(r, w, random_bits)
        # One key per sample.
        sample_keys = torch.stack(philox4x32((*counter, torch.ones_like(sample), 0), key.unbind())[:2], 1)
        alpha = torch.stack(
            [r + (size * mean)[:, None], w + (size * (1 - mean))[:, None]], -1
        ).contiguous()  # (S, C, 2)
        logs = alpha.new_empty(*alpha.shape, 1)
        operators.log_gamma(logs, alpha, sample_keys.contiguous(), 0)
        splits.append(normalised(logs)[0])
    return torch.stack(splits, 1)


def _hyperparameters(right: Tensor, wrong: Tensor, random_bits: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    # right, wrong: (C,)  random_bits: four of (S,)  ->  r and m (S,)
    factor = (MAX_ITEMS / (right + wrong)).clamp(max=1)
    right, wrong = right * factor, wrong * factor
    box = right.new_tensor([[0.0, 1.0], [0.0, 1.0]])
    for _ in range(REFINED):
        edges, log_density = _grid(right, wrong, box)
        likely = log_density > log_density.max() + math.log(NOTHING)
        box = torch.stack([_span(likely.any(1 - axis), edge) for axis, edge in enumerate(edges)])
    edges, log_density = _grid(right, wrong, box)
    mass = cumulative_mass((log_density - log_density.max()).exp().flatten())
    u, *jitter = ((bits + 0.5) / 2.0**32 for bits in random_bits[:3])
    cell = torch.searchsorted(mass, u * mass[-1]).clamp(max=GRID_SIZE * GRID_SIZE - 1)
    index = [cell // GRID_SIZE, cell % GRID_SIZE]
    a, b = (edge[k] + (edge[k + 1] - edge[k]) * u for edge, k, u in zip(edges, index, jitter, strict=True))
    return _mean(a), _size(b)


def _span(likely: Tensor, edges: Tensor) -> Tensor:
    # likely: (GRID_SIZE,)  edges: (GRID_SIZE + 1,)  ->  (2,), the ends of all likely cells and one more at either end
    index = torch.arange(GRID_SIZE, device=likely.device)
    first = index.masked_fill(~likely, GRID_SIZE).amin() - 1
    last = index.masked_fill(~likely, -1).amax() + 2
    return edges[torch.stack([first, last]).clamp(0, GRID_SIZE)]


def _grid(right: Tensor, wrong: Tensor, box: Tensor) -> tuple[list[Tensor], Tensor]:
    # ->  edges of the cells, two of (GRID_SIZE + 1,), and the log density within them (GRID_SIZE, GRID_SIZE)
    steps = torch.linspace(0, 1, GRID_SIZE + 1, dtype=right.dtype, device=right.device)
    edges = [low + (high - low) * steps for low, high in box]
    mean, size = _mean((edges[0][:-1] + edges[0][1:]) / 2)[:, None], _size((edges[1][:-1] + edges[1][1:]) / 2)
    a, b = size * mean, size * (1 - mean)
    constant = len(right) * (torch.lgamma(size) - torch.lgamma(a) - torch.lgamma(b))
    total = torch.zeros_like(a)
    for r, w in zip(*(counts.split(max(1, BUDGET // GRID_SIZE**2)) for counts in (right, wrong)), strict=True):
        r, w = r[:, None, None], w[:, None, None]
        total += (torch.lgamma(a + r) + torch.lgamma(b + w) - torch.lgamma(size + (r + w))).sum(0)
    return edges, total + constant


def _mean(u: Tensor) -> Tensor:
    # of a uniform number: Jeffreys' law, Beta(1/2, 1/2)
    return (u * (math.pi / 2)).sin().square()


def _size(u: Tensor) -> Tensor:
    # of a uniform number: 1 / sqrt(m) has the half-Cauchy law
    return (u * (math.pi / 2)).tan().square().reciprocal()
