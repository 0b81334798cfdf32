"""Claim: DeLong's test of models in batches, and power and items of many comparisons at once, equal scipy's and
statsmodels' and take less time. Rivals: Sun & Xu's algorithm on `scipy.stats.rankdata`, `TTestPower` of statsmodels.

Neither scipy nor statsmodels has DeLong's test: the rival is the published algorithm on their ranks. Rivals take turns
in one process; times are the minimum CPU seconds of several turns.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from _common import Table, arguments
from scipy import stats
from statsmodels.stats.power import TTestPower

from tensormetrics.uncertainty import plan
from tensormetrics.uncertainty.functional import delong

DEVICES = ("cpu",)
NEEDS = ("scipy", "statsmodels")
TURNS = {False: 5, True: 2}
DELONG_SIZES = {False: [(1, 2, 100_000), (200, 2, 1000), (1, 20, 20_000)], True: [(20, 2, 1000)]}  # sets, models, items
PLAN_SIZES = {False: 200, True: 20}


def sun_xu(preds: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    # preds: (M, N)  target: (N,)  ->  areas (M,), covariance (M, M)
    positive, negative = preds[:, target == 1], preds[:, target == 0]
    m, n = positive.shape[1], negative.shape[1]
    ranks = stats.rankdata(np.concatenate([positive, negative], 1), axis=1)
    of_positives = (ranks[:, :m] - stats.rankdata(positive, axis=1)) / n
    of_negatives = 1 - (ranks[:, m:] - stats.rankdata(negative, axis=1)) / m
    return of_positives.mean(1), np.cov(of_positives) / m + np.cov(of_negatives) / n


def min_seconds(calls: list[Callable[[], Any]], turns: int) -> tuple[list[Any], list[float]]:
    """Return the results of several calls and their minimum CPU seconds over interleaved turns."""
    answers, seconds = [None] * len(calls), [float("inf")] * len(calls)
    for _ in range(turns):
        for index, call in enumerate(calls):
            start = time.process_time()
            answers[index] = call()
            seconds[index] = min(seconds[index], time.process_time() - start)
    return answers, seconds


def timed(name: str, ours: float, rival: float) -> tuple[str, ...]:
    return name, f"{1000 * ours:.3g}", f"{1000 * rival:.3g}", f"{rival / ours:.1f}"


def delong_rows(is_quick: bool) -> Iterator[tuple[str, ...]]:
    for sets, models, items in DELONG_SIZES[is_quick]:
        generator = torch.Generator().manual_seed(0)
        target = (torch.rand(sets, items, generator=generator) < 0.3).long()
        preds = torch.randn(sets, models, items, generator=generator) + target[:, None]
        arrays = preds.double().numpy(), target.numpy()

        def rival(arrays: Any = arrays) -> list[tuple[np.ndarray, np.ndarray]]:
            return [sun_xu(*pair) for pair in zip(*arrays, strict=True)]

        (result, pairs), seconds = min_seconds([lambda p=preds, t=target: delong(p, t), rival], TURNS[is_quick])
        for index, (area, covariance) in enumerate(pairs):
            np.testing.assert_allclose(result.auroc[index], area, rtol=0, atol=1e-12)
            np.testing.assert_allclose(result.covariance[index], covariance, rtol=0, atol=1e-12)
        yield timed(f"DeLong, {sets} sets of {models} models, {items:,} items", *seconds)


def plan_rows(is_quick: bool) -> Iterator[tuple[str, ...]]:
    test, count = TTestPower(), PLAN_SIZES[is_quick]
    ratios = np.geomspace(0.01, 0.8, count)
    items = np.maximum((np.linspace(0.5, 5, count) / ratios) ** 2, 3).astype(int)  # scipy has NaN for more

    def power() -> torch.Tensor:
        return plan(sd=1.0, difference=torch.from_numpy(ratios), items=torch.from_numpy(items)).power

    def needed() -> torch.Tensor:
        return plan(sd=1.0, difference=torch.from_numpy(ratios), power=0.8).items

    def rival_power() -> list[float]:
        return [test.power(ratio, n, 0.05) for ratio, n in zip(ratios, items, strict=True)]

    def rival_needed() -> list[float]:
        return [float(np.squeeze(test.solve_power(ratio, alpha=0.05, power=0.8))) for ratio in ratios]

    (ours, theirs), seconds = min_seconds([power, rival_power], TURNS[is_quick])
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)
    yield timed(f"power of {count} comparisons", *seconds)
    (ours, theirs), seconds = min_seconds([needed, rival_needed], TURNS[is_quick])
    assert np.abs(np.asarray(ours) - np.ceil(theirs)).max() <= 1  # the root lies within rounding of an integer
    yield timed(f"items of {count} comparisons", *seconds)


def main() -> None:
    options = arguments(__doc__, DEVICES)
    table = Table(
        options,
        "Tests and plans of evaluations",
        ("what", "ours ms", "rival ms", "ratio"),
        packages=("scipy", "statsmodels"),
    )
    table.add(delong_rows(options.quick))
    table.add(plan_rows(options.quick))
    table.finish()


if __name__ == "__main__":
    main()
