"""Claim: Bradley-Terry strengths of 100 models from a million battles take less than a twentieth of the time of choix.

Rivals maximize the same likelihood; strengths are asserted to be equal before rivals are timed in turns. choix's
`opt_pairwise`, which has a prior, reads battles one by one and gets a tenth of them. The last rows have features that
choix lacks: ties, and intervals of 1,000 replicates.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import choix
import numpy as np
import torch
from _common import Table, arguments

from tensormetrics.uncertainty import Ratings
from tensormetrics.uncertainty.functional import bradley_terry

NEEDS = ("choix",)
DEVICES = ("cpu",)
SIZES = {False: (100, 1_000_000, 100_000, 5), True: (20, 20_000, 2_000, 2)}  # models, battles, of opt_pairwise, turns


def battles(models: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    # ->  (count,) each, winners and losers
    rng = np.random.default_rng(0)
    strengths = rng.normal(size=models)
    first = rng.integers(models, size=count)
    second = (first + rng.integers(1, models, size=count)) % models
    won = rng.random(count) < 1 / (1 + np.exp(strengths[second] - strengths[first]))
    return np.where(won, first, second), np.where(won, second, first)


def seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def in_turns(ours: Callable[[], Any], rival: Callable[[], Any], turns: int) -> tuple[str, str, str]:
    times = [(seconds(ours), seconds(rival)) for _ in range(turns)]
    our_time, rival_time = (statistics.median(column) for column in zip(*times, strict=True))
    ratio = statistics.median(b / a for a, b in times)
    return f"{1000 * our_time:.1f}", f"{1000 * rival_time:,.1f}", f"{ratio:.0f}" if ratio > 1 else f"{ratio:.2f}"


def strengths(models: int, winners: np.ndarray, losers: np.ndarray, prior_sd: float | None) -> np.ndarray:
    counts = np.bincount(winners * models + losers, minlength=models**2).reshape(models, models)
    return bradley_terry(torch.from_numpy(counts), prior_sd=prior_sd)[0].numpy()


def rows(models: int, count: int, subset: int, turns: int) -> Iterator[tuple[str, ...]]:
    winners, losers = battles(models, count)
    pairs = list(zip(winners.tolist(), losers.tolist(), strict=True))
    counts = np.bincount(winners * models + losers, minlength=models**2).reshape(models, models)

    def compared(
        name: str,
        num_battles: int,
        ours: Callable[[], np.ndarray],
        rival: Callable[[], np.ndarray],
        number_of_turns: int,
    ) -> tuple[str, ...]:
        result, other = ours(), rival()
        assert np.allclose(result, other - other.mean(), rtol=0, atol=1e-6), name
        return name, f"{num_battles:,}", *in_turns(ours, rival, number_of_turns)

    yield compared(
        "`ilsr_pairwise`, no prior",
        count,
        lambda: strengths(models, winners, losers, None),
        lambda: choix.ilsr_pairwise(models, pairs),
        turns,
    )
    yield compared(
        "`ilsr_pairwise_dense` of counts, no prior",
        count,
        lambda: bradley_terry(torch.from_numpy(counts), prior_sd=None)[0].numpy(),
        lambda: choix.ilsr_pairwise_dense(counts.astype(float)),
        turns,
    )
    yield compared(
        "`opt_pairwise`, prior of sd 3",
        subset,
        lambda: strengths(models, winners[:subset], losers[:subset], 3.0),
        lambda: choix.opt_pairwise(models, pairs[:subset], alpha=1 / 18, tol=1e-10),
        1,
    )
    yield "none: with ties", f"{count:,}", f"{1000 * with_ties(models, winners, losers, turns):.1f}", "", ""
    metric = Ratings(models)
    metric.update(torch.from_numpy(winners[:subset]), torch.from_numpy(losers[:subset]), torch.ones(subset))
    yield "none: with intervals", f"{subset:,}", f"{1000 * seconds(metric.interval):,.0f}", "", ""


def with_ties(models: int, winners: np.ndarray, losers: np.ndarray, turns: int) -> float:
    outcome = torch.ones(len(winners))
    outcome[::4] = 0.5

    def rated() -> None:
        metric = Ratings(models)
        metric.update(torch.from_numpy(winners), torch.from_numpy(losers), outcome)
        metric.compute()

    return statistics.median(seconds(rated) for _ in range(turns))


def main() -> None:
    options = arguments(__doc__, DEVICES)
    models = SIZES[options.quick][0]
    columns = ("choix", "battles", "ms", "ms of choix", "ratio")
    notes = f"{models} models; medians of turns."
    table = Table(options, "Ratings from battles", columns, notes, ("choix",))
    table.add(rows(*SIZES[options.quick]))
    table.finish()


if __name__ == "__main__":
    main()
