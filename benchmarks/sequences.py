"""Claim: a confidence sequence of 100,000 observations takes less than a fifth of the time of a grid of 1,000 means in
NumPy, and less than that of the same definition by bisection in NumPy.

confseq, the package of the authors of the method, compiles C++ against Boost and was not available, so that it is not
timed. Values are asserted to be equal to those of bisection, and within a step of those of the grid, before all are
timed in turns.
"""

import math
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from _common import Table, arguments

from tensormetrics import interval

DEVICES = ("cpu",)
SIZES = {False: (100_000, 200, 7), True: (5_000, 20, 2)}  # observations, simulated sets, turns


def stakes_of(x: np.ndarray, confidence: float) -> np.ndarray:
    t = np.arange(1, len(x) + 1)
    means = (0.5 + np.cumsum(x)) / (t + 1)
    variances = (0.25 + np.cumsum((x - means) ** 2)) / (t + 1)
    earlier = np.concatenate([[0.25], variances[:-1]])
    return np.sqrt(2 * math.log(2 / (1 - confidence)) / (earlier * t * np.log(t + 1)))


def is_out(x: np.ndarray, stakes: np.ndarray, mean: float, confidence: float) -> bool:
    """Return whether bets on larger scores have ruled the mean out (Waudby-Smith & Ramdas 2023, theorem 3)."""
    capital = np.cumsum(np.log1p(np.minimum(stakes, 1 / (2 * mean)) * (x - mean)))
    return max(capital.max(), 0) >= math.log(2 / (1 - confidence))


def by_bisection(x: np.ndarray, confidence: float = 0.95) -> float:
    stakes, low, high = stakes_of(x, confidence), 0.0, 1.0
    for _ in range(60):
        mean = (low + high) / 2
        low, high = (mean, high) if is_out(x, stakes, mean, confidence) else (low, mean)
    return low


def by_grid(x: np.ndarray, confidence: float = 0.95) -> float:
    stakes, grid = stakes_of(x, confidence), np.arange(1, 1000) / 1000
    return max((mean for mean in grid if is_out(x, stakes, mean, confidence)), default=0.0)


def ends(method: Callable[[np.ndarray], float], scores: np.ndarray) -> np.ndarray:
    return np.array([(method(x), 1 - method(1 - x)) for x in scores])


def seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def times(scores: np.ndarray, turns: int) -> tuple[str, ...]:
    tensor = torch.from_numpy(scores)
    calls = (
        lambda: interval(tensor, bounds=(0, 1), anytime=True),
        lambda: ends(by_bisection, scores),
        lambda: ends(by_grid, scores[:1]),
    )
    timings = [[seconds(call) for call in calls] for _ in range(turns)]
    ours, bisection, grid = (1000 * statistics.median(column) for column in zip(*timings, strict=True))
    ratio = statistics.median(b / a for a, b, _ in timings)
    return (
        f"{ours:.0f}",
        f"{bisection:.0f}",
        f"{ratio:.1f}",
        f"{grid * len(scores):,.0f}",
        f"{grid * len(scores) / ours:.0f}",
    )


def rows(observations: int, sets: int, turns: int) -> Iterator[tuple[str, ...]]:
    rng = np.random.default_rng(0)
    cases = {
        "one sequence": rng.random((1, observations)),
        f"{sets} sequences": (rng.random((sets, observations // 100)) < 0.8).astype(float),
    }
    for name, scores in cases.items():
        estimate = interval(torch.from_numpy(scores), bounds=(0, 1), anytime=True)
        bounds = np.stack([estimate.low, estimate.high], 1)
        assert np.allclose(bounds, ends(by_bisection, scores), rtol=0, atol=1e-9), name
        assert np.allclose(bounds[:1], ends(by_grid, scores[:1]), rtol=0, atol=1.01e-3), name
        yield name, f"{scores.shape[1]:,}", *times(scores, turns)


def main() -> None:
    options = arguments(__doc__, DEVICES)
    columns = ("scores in [0, 1]", "observations each", "ms", "ms of bisection", "ratio", "ms of a grid", "ratio")
    notes = "Medians of turns; the grid is timed on one sequence."
    table = Table(options, "Confidence sequences", columns, notes)
    table.add(rows(*SIZES[options.quick]))
    table.finish()


if __name__ == "__main__":
    main()
