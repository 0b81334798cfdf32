"""Simulated looks at a mean during its measurement: rates of misses, and of differences between equal models."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from tensormetrics import compare, interval
from tensormetrics.core.numbers.student import t_quantile

SETS = 2000
LOOKS = [*range(25, 501, 25)]  # twenty


class Row(NamedTuple):
    kind: str
    draw: Callable[[np.random.Generator, tuple[int, int]], np.ndarray]
    mean: float


ROWS = [
    *(
        Row(f"right or wrong, .{tenths}", lambda rng, shape, p=tenths / 10: rng.random(shape) < p, tenths / 10)
        for tenths in (5, 8, 9)
    ),
    Row("right or wrong, .99", lambda rng, shape: rng.random(shape) < 0.99, 0.99),
    Row("uniform", lambda rng, shape: rng.random(shape), 0.5),
    Row("Beta(.3, 3)", lambda rng, shape: rng.beta(0.3, 3, shape), 0.3 / 3.3),
]


class Fractions(NamedTuple):
    missed: float  # at any look
    missed_by_t: float  # by the t interval of each look
    width: float  # with all items
    width_of_t: float


def sequence_of(row: Row, sets: int | None) -> Fractions:
    scores = torch.from_numpy(row.draw(np.random.default_rng(0), (sets or SETS, LOOKS[-1])).astype(float))
    path = interval(scores, bounds=(0, 1), anytime=True, looks=LOOKS)
    low, high = t_intervals(scores)
    return Fractions(
        missed(path.low, path.high, row.mean),
        missed(low, high, row.mean),
        float((path.high - path.low)[:, -1].mean()),
        float((high - low)[:, -1].mean()),
    )


def equal_models(rate: float, p_equal: float, sets: int | None) -> tuple[float, float]:
    """Return the rates of p <= .05 at any look at two equal models, of `compare` and of a t test."""
    rng = np.random.default_rng(1)
    shape = sets or SETS, LOOKS[-1]
    a, b = (rng.random((2, *shape)) < rate).astype(float)
    b = np.where(rng.random(shape) < p_equal, a, b)
    path = compare(torch.from_numpy(a), torch.from_numpy(b), anytime=True, looks=LOOKS)
    low, high = t_intervals(torch.from_numpy(a - b))
    return float((path.p_value <= 0.05).any(1).double().mean()), missed(low, high, 0.0)


def t_intervals(scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    # scores: (S, N)  ->  (S, looks) each
    parts = [scores[:, :look] for look in LOOKS]
    means = torch.stack([part.mean(1) for part in parts], 1)
    errors = torch.stack([part.std(1) / part.shape[1] ** 0.5 for part in parts], 1)
    quantiles = torch.tensor([t_quantile(0.975, look - 1) for look in LOOKS], dtype=torch.float64)
    return means - quantiles * errors, means + quantiles * errors


def missed(low: torch.Tensor, high: torch.Tensor, truth: float) -> float:
    return float(((low > truth) | (high < truth)).any(1).double().mean())
