"""Intervals and comparisons of one value, one step at a time in numpy; an oracle for `uncertainty.engine`."""

from collections.abc import Callable
from itertools import product

import numpy as np

Read = Callable[[np.ndarray], float]


def influences(value: float, without: list[float]) -> np.ndarray:
    return (len(without) - 1) * np.nan_to_num(value - np.array(without))


def num_differing(influence: np.ndarray) -> int:
    scale = 1e-9 * np.abs(influence).max()
    return len(influence) - max(int((np.abs(influence - other) <= scale).sum()) for other in influence)


def moved_bound(mean_row, bound, share):
    return (1 - share) * mean_row + share * bound


def share_of_bound(influence, sizes, distance, comparison: bool) -> float:
    units, items = len(sizes), sizes.sum()
    differing = num_differing(influence)
    if differing < (min(5, -(-units // 2)) if comparison else 1):
        return 1.0
    factor = 3.0 if comparison else 3 * (1 + 20 / differing)
    effective = (sizes**2).sum() / items
    deviation = np.sqrt((influence**2).sum() / (units - 1))
    return min(1.0, factor * deviation * (items / units) / (effective * distance))


def jackknife_draws(value, draws, influence, scales=1.0):
    units = len(influence)
    error = np.sqrt((influence**2).sum() / (units * (units - 1)))
    spread = draws.std(ddof=1)
    return value + (draws - value) * (error / spread if spread > 0 else 1) * scales


def envelope(sets: list[np.ndarray], confidence: float) -> list[float]:
    tails = (1 - confidence) / 2, (1 + confidence) / 2
    ends = np.array([np.quantile(draws, tails) for draws in sets])
    return [ends[:, 0].min(), ends[:, 1].max()]


def interval(rows, sizes, weights, masses, read: Read, bounds, is_mean, value_range, confidence) -> list[float]:
    # rows: (U, K), a row for each unit  weights: (R, U)  masses: (2, R)
    value = read(rows.sum(0))
    low, high = envelope(interval_draws(rows, sizes, weights, masses, read, bounds, is_mean, value_range), confidence)
    return [min(low, value), max(high, value)]


def interval_draws(rows, sizes, weights, masses, read: Read, bounds, is_mean, value_range) -> list[np.ndarray]:
    value = read(rows.sum(0))
    influence = influences(value, [read(rows.sum(0) - row) for row in rows])
    replicates = np.array([read(weight @ rows) for weight in weights])
    scaled = np.clip(jackknife_draws(value, replicates, influence), *value_range)
    effective = (sizes**2).sum() / sizes.sum()
    ends = list(bounds)
    if is_mean:
        mean_row = rows.sum(0) / sizes.sum()
        shares = [share_of_bound(influence, sizes, abs(read(end) - value), False) for end in bounds]
        ends = [moved_bound(mean_row, end, share) for end, share in zip(bounds, shares, strict=True)]
    pseudo = [
        read(weight @ rows + effective * (low * ends[0] + high * ends[1]))
        for weight, low, high in zip(weights, *masses, strict=True)
    ]
    return [scaled, np.array(pseudo)]


def comparison(
    a, b, sizes, weights, masses, scales, read: Read, bounds, is_mean, width, confidence, halves, side="two-sided"
):
    # a, b: (U, K)  weights, halves: (R, U)  ->  low, high, p_value, p_better
    def difference(x, y):
        return read(x) - read(y)

    value = difference(a.sum(0), b.sum(0))
    influence = influences(value, [difference(a.sum(0) - x, b.sum(0) - y) for x, y in zip(a, b, strict=True)])
    replicates = np.array([difference(weight @ a, weight @ b) for weight in weights])
    jackknifed = np.clip(jackknife_draws(value, replicates, influence, scales), -width, width)
    effective = (sizes**2).sum() / sizes.sum()
    pairs = [(bounds[0], bounds[1]), (bounds[1], bounds[0])]  # a at its worst and b at its best; the reverse
    if is_mean:
        moved = []
        for of_a, of_b in pairs:
            share = share_of_bound(influence, sizes, abs(difference(of_a, of_b) - value), True)
            means = a.sum(0) / sizes.sum(), b.sum(0) / sizes.sum()
            moved.append((moved_bound(means[0], of_a, share), moved_bound(means[1], of_b, share)))
        pairs = moved
    pseudo = np.array([
        difference(
            weight @ a + effective * (low * pairs[0][0] + high * pairs[1][0]),
            weight @ b + effective * (low * pairs[0][1] + high * pairs[1][1]),
        )
        for weight, low, high in zip(weights, *masses, strict=True)
    ])  # fmt: skip
    sets = [jackknifed, pseudo]
    return statement(value, sets, swaps(a, b, difference, is_mean, halves), (-width, width), confidence, side)


def comparison_with(rows, sizes, weights, masses, read: Read, bounds, value_range, number, confidence, halves, side):
    # of a mean  ->  low, high, p_value, p_better
    value = read(rows.sum(0))
    sets = interval_draws(rows, sizes, weights, masses, read, bounds, True, value_range)
    if (sizes == 1).all() and np.isin(rows[:, 0], (0, 1)).all():
        from scipy.stats import binomtest

        right, count = int(rows[:, 0].sum()), len(rows)
        tails = [binomtest(right, count, number, alternative=tail).pvalue for tail in ("greater", "less")]
    else:
        constant = np.stack([number * sizes, sizes], 1)
        tails = swaps(rows, constant, lambda x, y: read(x) - read(y), True, halves)
    ends = value_range[0] - number, value_range[1] - number
    return statement(value - number, [draws - number for draws in sets], tails, ends, confidence, side)


def statement(value, sets, tails, ends, confidence, side):
    # tails: p-values of a test, greater and less
    shares = [(draws > 0).mean() + (draws == 0).mean() / 2 for draws in sets]
    p_values = {}
    for name, tail, sign in (("greater", tails[0], 1), ("less", tails[1], -1)):
        against = [(1 + (sign * draws <= 0).sum()) / (1 + len(draws)) for draws in sets]
        p_values[name] = max(tail, *against, 0.0 if sign * value > 0 else 0.5)
    p_values["two-sided"] = min(1.0, 2 * min(p_values.values()))
    p_value = p_values[side]
    agree = (shares[0] - 0.5) * (shares[1] - 0.5) > 0
    better = min(shares, key=lambda share: abs(share - 0.5)) if agree else 0.5
    mid_p = 1 - abs(tails[0] - tails[1])
    low, high = envelope(sets, confidence if side == "two-sided" else 2 * confidence - 1)
    low, high = ends[0] if side == "less" else min(low, value), ends[1] if side == "greater" else max(high, value)
    if p_value > 1 - confidence:
        low, high = min(low, 0.0), max(high, 0.0)
    return low, high, p_value, float(np.clip(better, mid_p / 2, 1 - mid_p / 2))


def swaps(a, b, difference, is_mean, halves) -> tuple[float, float]:
    # ->  chance of a difference at least as large, and of one at most as large, as the observed one
    observed = difference(a.sum(0), b.sum(0))
    differs = (a != b).any(1)
    gaps = (a - b)[differs]
    one_size = is_mean and (a[:, 1] == b[:, 1]).all() and len({*np.abs(gaps[:, 0]).round(12)}) <= 1
    random = not one_size and differs.sum() > 12
    if random:
        chosen = np.concatenate([halves, 1 - halves, np.zeros((1, len(a))), np.ones((1, len(a)))])
    elif one_size and differs.sum() > 12:
        from scipy.stats import binom

        above = int((gaps[:, 0] > 0).sum())
        return binom.sf(above - 1, len(gaps), 0.5), binom.cdf(above, len(gaps), 0.5)
    else:
        chosen = np.zeros((2 ** differs.sum(), len(a)))
        chosen[:, differs] = list(product((0, 1), repeat=int(differs.sum())))
    drawn = np.array([difference(a.sum(0) + half @ (b - a), b.sum(0) - half @ (b - a)) for half in chosen])
    return float((drawn >= observed - 1e-10).mean()), float((drawn <= observed + 1e-10).mean())
