"""NumPy oracle of the intervals and comparisons of `uncertainty.engine`, for a single value."""

from collections.abc import Callable
from itertools import product

import numpy as np

Read = Callable[[np.ndarray], float]


def influences(value: float, leave_one_out: list[float]) -> np.ndarray:
    return (len(leave_one_out) - 1) * np.nan_to_num(value - np.array(leave_one_out))


def num_differing(influence: np.ndarray) -> int:
    scale = 1e-9 * np.abs(influence).max()
    return len(influence) - max(int((np.abs(influence - other) <= scale).sum()) for other in influence)


def shift_bound(mean_row, bound, bound_weight):
    return (1 - bound_weight) * mean_row + bound_weight * bound


def compute_bound_weight(influence, sizes, distance, comparison: bool) -> float:
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
    draws_sd = draws.std(ddof=1)
    return value + (draws - value) * (error / draws_sd if draws_sd > 0 else 1) * scales


def envelope(sets: list[np.ndarray], confidence: float) -> list[float]:
    tails = (1 - confidence) / 2, (1 + confidence) / 2
    ends = np.array([np.quantile(draws, tails) for draws in sets])
    return [ends[:, 0].min(), ends[:, 1].max()]


def interval(rows, sizes, weights, masses, read: Read, bounds, is_mean, value_range, confidence) -> list[float]:
    # rows: (U, K), one per unit  weights: (R, U)  masses: (2, R)
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
        bound_weights = [compute_bound_weight(influence, sizes, abs(read(end) - value), False) for end in bounds]
        ends = [
            shift_bound(mean_row, end, bound_weight) for end, bound_weight in zip(bounds, bound_weights, strict=True)
        ]
    pseudo = [
        read(weight @ rows + effective * (low * ends[0] + high * ends[1]))
        for weight, low, high in zip(weights, *masses, strict=True)
    ]
    return [scaled, np.array(pseudo)]


def comparison(
    a,
    b,
    sizes,
    weights,
    masses,
    scales,
    read: Read,
    bounds,
    is_mean,
    width,
    confidence,
    swap_masks,
    alternative="two-sided",
):
    # a, b: (U, K)  weights, swap_masks: (R, U)  ->  low, high, p_value, p_better
    def difference(x, y):
        return read(x) - read(y)

    value = difference(a.sum(0), b.sum(0))
    influence = influences(value, [difference(a.sum(0) - x, b.sum(0) - y) for x, y in zip(a, b, strict=True)])
    replicates = np.array([difference(weight @ a, weight @ b) for weight in weights])
    masses = (
        masses[::-1] if (replicates + value).sum() < 0 else masses
    )  # so that the other order has the opposite draws
    jackknifed = np.clip(jackknife_draws(value, replicates, influence, scales), -width, width)
    effective = (sizes**2).sum() / sizes.sum()
    pairs = [(bounds[0], bounds[1]), (bounds[1], bounds[0])]  # the worst a with the best b, and the reverse
    if is_mean:
        shifted = []
        for of_a, of_b in pairs:
            bound_weight = compute_bound_weight(influence, sizes, abs(difference(of_a, of_b) - value), True)
            means = a.sum(0) / sizes.sum(), b.sum(0) / sizes.sum()
            shifted.append((shift_bound(means[0], of_a, bound_weight), shift_bound(means[1], of_b, bound_weight)))
        pairs = shifted
    pseudo = np.array([
        difference(
            weight @ a + effective * (low * pairs[0][0] + high * pairs[1][0]),
            weight @ b + effective * (low * pairs[0][1] + high * pairs[1][1]),
        )
        for weight, low, high in zip(weights, *masses, strict=True)
    ])  # fmt: skip
    sets = [jackknifed, pseudo]
    return comparison_statistics(
        value, sets, swap_p_values(a, b, difference, is_mean, swap_masks), (-width, width), confidence, alternative
    )


def comparison_with(
    rows, sizes, weights, masses, read: Read, bounds, value_range, constant, confidence, swap_masks, alternative
):
    # compares a mean  ->  low, high, p_value, p_better
    value = read(rows.sum(0))
    sets = interval_draws(rows, sizes, weights, masses, read, bounds, True, value_range)
    if (sizes == 1).all() and np.isin(rows[:, 0], (0, 1)).all():
        from scipy.stats import binomtest

        right, count = int(rows[:, 0].sum()), len(rows)
        tails = [*(binomtest(right, count, constant, alternative=tail).pvalue for tail in ("greater", "less")), True]
    else:
        constant_rows = np.stack([constant * sizes, sizes], 1)
        tails = swap_p_values(rows, constant_rows, lambda x, y: read(x) - read(y), True, swap_masks)
    ends = value_range[0] - constant, value_range[1] - constant
    return comparison_statistics(
        value - constant, [draws - constant for draws in sets], tails, ends, confidence, alternative
    )


def comparison_statistics(value, sets, tails, ends, confidence, alternative):
    # tails: p-values of a test, greater and less, and whether it is exact
    fractions_better = [(draws > 0).mean() + (draws == 0).mean() / 2 for draws in sets]
    p_values = {}
    for name, tail, sign in (("greater", tails[0], 1), ("less", tails[1], -1)):
        beyond = [(sign * draws <= 0).sum() for draws in sets]
        against = [(1 + hits) / (1 + len(sets[0])) for hits in beyond if hits or not tails[2]]
        p_values[name] = max(tail, *against, 0.0 if sign * value > 0 else 0.5)
    p_values["two-sided"] = min(1.0, 2 * min(p_values.values()))
    p_value = p_values[alternative]
    agree = (fractions_better[0] - 0.5) * (fractions_better[1] - 0.5) > 0
    better = min(fractions_better, key=lambda fraction: abs(fraction - 0.5)) if agree else 0.5
    mid_p = 1 - abs(tails[0] - tails[1])
    low, high = envelope(sets, confidence if alternative == "two-sided" else 2 * confidence - 1)
    low, high = (
        ends[0] if alternative == "less" else min(low, value),
        ends[1] if alternative == "greater" else max(high, value),
    )
    if p_value > 1 - confidence:
        low, high = min(low, 0.0), max(high, 0.0)
    return low, high, p_value, float(np.clip(better, mid_p / 2, 1 - mid_p / 2))


def swap_p_values(a, b, difference, is_mean, swap_masks) -> tuple[float, float, bool]:
    # ->  probabilities of a difference >= the observed one and <= the observed one, and whether they are exact
    observed = difference(a.sum(0), b.sum(0))
    differs = (a != b).any(1)
    row_differences = (a - b)[differs]
    one_size = is_mean and (a[:, 1] == b[:, 1]).all() and len({*np.abs(row_differences[:, 0]).round(12)}) <= 1
    random = not one_size and differs.sum() > 12
    if random:
        masks = np.concatenate([swap_masks, 1 - swap_masks, np.zeros((1, len(a))), np.ones((1, len(a)))])
    elif one_size and differs.sum() > 12:
        from scipy.stats import binom

        above = int((row_differences[:, 0] > 0).sum())
        return binom.sf(above - 1, len(row_differences), 0.5), binom.cdf(above, len(row_differences), 0.5), True
    else:
        masks = np.zeros((2 ** differs.sum(), len(a)))
        masks[:, differs] = list(product((0, 1), repeat=int(differs.sum())))
    null_differences = np.array([difference(a.sum(0) + mask @ (b - a), b.sum(0) - mask @ (b - a)) for mask in masks])
    above, below = null_differences >= observed - 1e-10, null_differences <= observed + 1e-10
    return float(above.mean()), float(below.mean()), not random
