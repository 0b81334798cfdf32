"""Coverage of intervals of ratings, from simulated battles between models of known strengths.

Outcomes are drawn from Davidson's model with nu = .6. The last two models are equal and the best: one is a copy of the
other with separate battles. "Two orders": each prompt is judged in both orders, with equal outcomes with a probability
of .7, and prompts are groups; the answer that is shown first has an advantage of .3.
"""

import math
import warnings
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch

from tensormetrics.uncertainty import Ratings

STRENGTHS = torch.tensor([-1.0, -0.6, -0.2, 0.2, 0.9, 0.9], dtype=torch.float64)
NU = 0.6
AHEAD = 0.3
P_EQUAL = 0.7
ELO = 400 / math.log(10)
SETS = 200
SIZES = 5, 10, 20  # battles of a pair
TWO_MODELS = 10, 20, 50  # battles
RATES = 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98  # true chances that the first of two models wins


class Row(NamedTuple):
    kind: str
    battles: int  # of a pair
    in_two_orders: bool

    def models(self, sets: int) -> Iterator[Ratings]:
        generator = torch.Generator().manual_seed(self.battles)
        pairs = torch.combinations(torch.arange(len(STRENGTHS))).repeat_interleave(self.battles, 0)
        for index in range(sets):
            turned = torch.rand(len(pairs), generator=generator) < 0.5
            first, second = pairs.T.where(~turned, pairs.T.flip(0))
            outcome = self.outcomes(first, second, generator)
            metric = Ratings(len(STRENGTHS))
            units = torch.arange(len(first)) + index * len(first)  # different weights in each set
            if self.in_two_orders:
                again = self.outcomes(second, first, generator)
                is_equal = torch.rand(len(first), generator=generator) < P_EQUAL
                metric.update(second, first, (1 - outcome).where(is_equal, again), groups=units)
            metric.update(first, second, outcome, **{"groups" if self.in_two_orders else "ids": units})
            yield metric

    def outcomes(self, first: torch.Tensor, second: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        half = (STRENGTHS[first] - STRENGTHS[second] + AHEAD * self.in_two_orders) / 2
        odds = torch.stack([(-half).exp(), torch.full_like(half, NU), half.exp()], 1)
        return torch.multinomial(odds, 1, generator=generator)[:, 0].double() / 2


class Fractions(NamedTuple):
    """Fractions of sets, and a mean width."""

    ratings: float
    width: float
    differences: float
    copy_differs: float  # p_value <= .05
    best_hold: float  # both best models are among the `best`
    ranks_hold: float  # all intervals of ranks are right


def rows() -> list[Row]:
    return [Row(kind, size, two) for kind, two in (("independent", False), ("two orders", True)) for size in SIZES]


def fractions_of(row: Row, sets: int | None) -> Fractions:
    truth = 1000 + ELO * (STRENGTHS - STRENGTHS.mean())
    first = 1 + (truth[:, None] < truth - 1e-9).sum(1)
    last = len(truth) - (truth[:, None] > truth + 1e-9).sum(1)
    results = []
    for metric in row.models(sets or SETS):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            table = metric.compare()
        ratings = table.models.columns["rating"]
        pairs = torch.combinations(torch.arange(len(truth)))
        differences = table.columns["difference"]
        expected = truth[pairs[:, 0]] - truth[pairs[:, 1]]
        ranks = torch.tensor([*table.ranks.values()])
        results.append([
            holds(ratings.low, truth, ratings.high),
            float((ratings.high - ratings.low).mean()),
            holds(differences.low, expected, differences.high),
            float(table.columns["p"][-1] <= 0.05),
            float({"4", "5"} <= {*table.best}),
            float(((ranks[:, 0] <= first) & (ranks[:, 1] >= last)).all()),
        ])  # fmt: skip
    return Fractions(*torch.tensor(results, dtype=torch.float64).mean(0).tolist())


def holds(low: torch.Tensor, truth: torch.Tensor, high: torch.Tensor) -> float:
    return float(((low <= truth) & (truth <= high)).double().mean())


def position_effects(sets: int | None) -> list[tuple[int, float, float]]:
    """Return the battles of a pair, and the coverage and mean width of intervals of the position effect."""
    results = []
    for size in SIZES:
        row = Row("no effect", size, False)
        ends = [tuple(map(float, metric.position_effect())) for metric in row.models(sets or SETS)]
        covered = sum(low <= 0 <= high for _, low, high in ends) / len(ends)
        results.append((size, covered, sum(high - low for _, low, high in ends) / len(ends)))
    return results


def two_models(battles: int) -> list[tuple[float, float]]:
    """Return the coverage of `compare` of two models and of Jeffreys' interval, summed over all outcomes, by RATES."""
    import scipy.stats

    won = np.arange(battles + 1)
    jeffreys = scipy.stats.beta.ppf([[0.025], [0.975]], won + 0.5, battles - won + 0.5)
    jeffreys[0, 0], jeffreys[1, -1] = 0, 1
    ends = np.array([_compared_chances(battles, k) for k in won]).T
    chances = [scipy.stats.binom.pmf(won, battles, rate) for rate in RATES]
    return [
        tuple(float(mass[(low <= rate) & (rate <= high)].sum()) for low, high in (ends, jeffreys))
        for rate, mass in zip(RATES, chances, strict=True)
    ]


def _compared_chances(battles: int, won: int) -> list[float]:
    metric = Ratings(["a", "b"], scale="logit")
    metric.update(["a"] * battles, ["b"] * battles, [1] * won + [0] * (battles - won))
    comparison = metric.compare("a", "b")
    return torch.stack([comparison.low, comparison.high]).sigmoid().tolist()
