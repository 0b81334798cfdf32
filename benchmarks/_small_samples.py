"""Coverage of intervals and error rates of comparisons for simulated data sets of few items or groups.

Each row of the tables is a `Scenario`: a distribution of scores, a number of items and optional groups. A batch of sets
is one metric with a value for each set: values share the weights of one draw, and each has its jackknife and
pseudo-items.

Details that the names of the rows leave open: each item is positive with the same probability, and the number of
positives in a name is its expectation; the number of items of a class is fixed; wrong answers fall to the other classes
with equal probabilities; false positives and false negatives are equally frequent. Groups have 10 items on average and
a normal random effect: scores are quantiles of normal variables of that correlation (ICC) within a group. In rows named
"beta-binomial" the right and wrong answers themselves have that correlation, which is stronger. The normal variables of
two models have a correlation of .7 on an item.
"""

import itertools
import warnings
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import scipy.special
import torch
from torch import Tensor

from tensormetrics.core.numbers.quantiles import equal_tailed_interval
from tensormetrics.core.resampling.draws import Bounds
from tensormetrics.core.resampling.intervals import interval
from tensormetrics.core.resampling.paired import comparisons, comparisons_with
from tensormetrics.core.resampling.resampling import UNKNOWN, Items, Resampled
from tensormetrics.core.resampling.statements import ALTERNATIVES, Question
from tensormetrics.uncertainty import UncertaintyWarning

SETS = 1000
BATCH = 100  # sets that share one draw of the weights
REPLICATES = 1000
BETWEEN_MODELS = 0.7  # correlation of the normal variables of two models' scores of an item
LEVELS = 0.8, 0.95, 0.99
TOLERANCE = 1e-9  # of rounding, where an end and the truth are the same number

Array = np.ndarray
Draw = Callable[[np.random.Generator, int], tuple[Array, ...]]  # sets -> rows (N, K, sets) of one metric, or of two


class Law(NamedTuple):
    """Distribution of scores, given by its quantiles."""

    quantile: Callable[[Array], Array]
    mean: float
    is_bounded: bool = True  # in [0, 1], as the metric declares


def right_or_wrong(rate: float) -> Law:
    return Law(lambda u: (u > 1 - rate).astype(float), rate)


def beta(a: float, b: float) -> Law:
    return Law(lambda u: scipy.special.betaincinv(a, b, u), a / (a + b))


UNIFORM = Law(lambda u: u, 0.5)
SKEWED = beta(0.3, 3)
NARROW = beta(20, 20)
LIKE_AP = Law(lambda u: np.where(u > 0.4, 1.0, u / 0.4), 0.8)
ZERO_HALF_OR_ONE = Law(lambda u: np.floor(3 * u) / 2, 0.5)
RECIPROCAL_RANKS = Law(lambda u: 1 / np.ceil(10 * u), float(np.mean(1 / np.arange(1, 11))))
LOG_NORMAL = Law(lambda u: np.exp(scipy.special.ndtri(u)), float(np.exp(0.5)), is_bounded=False)


class Read(NamedTuple):
    """Function that computes V values from K sums of V sets, and the bounds of an item's row."""

    width: int  # K
    value: Callable[[Tensor], Tensor]  # (..., K, V) -> (..., V)
    worst: tuple[float, ...] = ()
    best: tuple[float, ...] = ()


def _f1(sums: Tensor) -> Tensor:
    right, extra, missed = sums.unbind(-2)
    return 2 * right / (2 * right + extra + missed)


MEAN = Read(2, lambda sums: sums[..., 0, :] / sums[..., 1, :], (0.0, 1.0), (1.0, 1.0))
UNBOUNDED_MEAN = Read(2, MEAN.value)
F1 = Read(3, _f1, (0.0, 0.5, 0.5), (1.0, 0.0, 0.0))


def macro_f1(classes: int) -> Read:
    def value(sums: Tensor) -> Tensor:
        right, extra, missed = sums.unflatten(-2, (classes, 3)).unbind(-2)
        return (2 * right / (2 * right + extra + missed)).mean(-2)

    worst = (0.0, 0.5 / classes, 0.5 / classes) * classes
    return Read(3 * classes, value, worst, (1 / classes, 0.0, 0.0) * classes)


class Scenario(NamedTuple):
    """Row of a table."""

    kind: str  # of the data, as the table says it
    size: str
    draw: Draw
    truth: float  # the value, or difference
    read: Read = MEAN
    groups: Array | None = None  # (N,)
    sets: int = SETS
    is_far_from_ends: bool = False  # the value is between .1 and .9

    @property
    def name(self) -> str:
        return f"{self.kind}, {self.size}"


class Coverage(NamedTuple):
    """Fractions of sets, and mean widths, of the percentile interval of replicates (before) and the library's."""

    before: float
    after: float
    width_before: float
    width: float


class Tests(NamedTuple):
    """Results of comparisons of two models: before (percentile interval, random swaps) and of the library."""

    coverage: Coverage
    excludes_before: float  # fraction of sets whose percentile interval excludes 0
    swaps_significant: float  # fraction of p-values of the random swaps of at most .05
    significant: float  # the same of `p_value`
    gross_before: tuple[float, float]  # of the interval without 0 and p > .05; of p_better beyond .975 and p > .1
    contradictions: int  # of `comparisons`, at any of the levels


def sizes_of_groups(groups: int, is_equal: bool) -> Array:
    """Return the numbers of items: 10 each, or proportional to .6^g of up to 5 groups, g^-1.2 of more."""
    g = np.arange(1, groups + 1)
    fractions = np.ones(groups) if is_equal else 0.6**g if groups <= 5 else g**-1.2
    return np.maximum(np.round(10 * groups * fractions / fractions.sum()), 1).astype(int)


def _normals(generator: np.random.Generator, groups: Array | None, count: int, sets: int, icc: float) -> Array:
    # ->  (count, sets)
    """Draw standard normal variables that correlate by `icc` within a group."""
    normals = generator.standard_normal((count, sets))
    if groups is None:
        return normals
    return icc**0.5 * generator.standard_normal((groups.max() + 1, sets))[groups] + (1 - icc) ** 0.5 * normals


def _mean_rows(*scores: Array) -> tuple[Array, ...]:
    return tuple(np.stack([score, np.ones_like(score)], 1) for score in scores)


def scores(law: Law, count: int, groups: Array | None = None, icc: float = 0.0) -> Draw:
    """Draw the scores of one model."""

    def draw(generator: np.random.Generator, sets: int) -> tuple[Array, ...]:
        return _mean_rows(law.quantile(scipy.special.ndtr(_normals(generator, groups, count, sets, icc))))

    return draw


def beta_binomial(rate: float, groups: Array, icc: float) -> Draw:
    """Draw right and wrong answers of one model, whose rate has a beta distribution over groups."""
    a, b = (fraction * (1 / icc - 1) for fraction in (rate, 1 - rate))

    def draw(generator: np.random.Generator, sets: int) -> tuple[Array, ...]:
        chances = generator.beta(a, b, (groups.max() + 1, sets))[groups]
        return _mean_rows((generator.random((len(groups), sets)) < chances).astype(float))

    return draw


def pairs(laws: tuple[Law, Law], count: int, groups: Array | None = None, shift: float = 0.0, icc: float = 0.3) -> Draw:
    """Draw the scores of two models whose normal variables are moved apart by twice the `shift`."""

    def draw(generator: np.random.Generator, sets: int) -> tuple[Array, ...]:
        item, *models = (_normals(generator, groups, count, sets, icc) for _ in range(3))
        latents = (BETWEEN_MODELS**0.5 * item + (1 - BETWEEN_MODELS) ** 0.5 * model for model in models)
        signs = 1.0, -1.0
        return _mean_rows(*(
            law.quantile(scipy.special.ndtr(latent + sign * shift))
            for law, latent, sign in zip(laws, latents, signs, strict=True)
        ))  # fmt: skip

    return draw


def shift_of_uniform(difference: float) -> float:
    """Return the shift for which means of uniform scores have this difference."""
    return float(2**0.5 * scipy.special.ndtri(0.5 + difference / 2))


def discordant_pairs(count: int, discordance: float, difference: float = 0.0) -> Draw:
    """Draw two models' right and wrong answers, which differ on a fraction of the items."""

    def draw(generator: np.random.Generator, sets: int) -> tuple[Array, ...]:
        u = generator.random((count, sets))
        only_a, only_b = u < (discordance + difference) / 2, u > 1 - (discordance - difference) / 2
        both = generator.random((count, sets)) < 0.8
        return _mean_rows(
            *((only | (both & ~other)).astype(float) for only, other in ((only_a, only_b), (only_b, only_a)))
        )

    return draw


def detections(count: int, positives: int, *rates: float) -> Draw:
    """Draw the outcomes of one model, or two, whose F1 are the rates."""

    def draw(generator: np.random.Generator, sets: int) -> tuple[Array, ...]:
        is_positive = generator.random((count, sets)) < positives / count
        item = generator.standard_normal((count, sets))
        rows = []
        for rate in rates:
            noise = generator.standard_normal((count, sets))
            u = scipy.special.ndtr(BETWEEN_MODELS**0.5 * item + (1 - BETWEEN_MODELS) ** 0.5 * noise)
            is_wrong = u < np.where(is_positive, 1 - rate, (1 - rate) * positives / (count - positives))
            outcome = is_positive & ~is_wrong, ~is_positive & is_wrong, is_positive & is_wrong
            rows.append(np.stack(outcome, 1).astype(float))
        return tuple(rows)

    return draw


def classified(recalls: Array, items: int) -> tuple[Draw, float]:
    """Return how to draw classified items, equally many of each class, and the macro F1 of the population."""
    classes = len(recalls)
    target = np.repeat(np.arange(classes), items)

    def draw(generator: np.random.Generator, sets: int) -> tuple[Array, ...]:
        other = (target[:, None] + generator.integers(1, classes, (len(target), sets))) % classes
        is_right = generator.random((len(target), sets)) < recalls[target, None]
        predicted = np.where(is_right, target[:, None], other)
        rows = np.zeros((len(target), classes, 3, sets))
        item, sample = np.ogrid[: len(target), :sets]
        rows[item, target[:, None], 0, sample] = is_right
        rows[item, target[:, None], 2, sample] = ~is_right
        rows[item, predicted, 1, sample] = ~is_right
        return (rows.reshape(len(target), 3 * classes, sets),)

    extra = ((1 - recalls).sum() - (1 - recalls)) / (classes - 1)
    return draw, float((2 * recalls / (recalls + extra + 1)).mean())


def _resampled(rows: Array, scenario: Scenario, seed: int, is_pair: bool) -> Resampled:
    # rows: (N, K, V)
    read, (count, width, sets) = scenario.read, rows.shape
    bounds = None
    if read.worst:
        ends = (torch.tensor(end, dtype=torch.float64).repeat_interleave(sets) for end in (read.worst, read.best))
        bounds = Bounds(*ends, is_mean=read is MEAN)
    units = torch.arange(count) if scenario.groups is None else torch.from_numpy(scenario.groups)
    return Items(
        torch.from_numpy(rows).flatten(1),
        units,
        lambda sums: read.value(sums[..., 0, :].unflatten(-1, (width, sets))),
        bounds=bounds,
        range=(0.0, 1.0) if read.worst else UNKNOWN,
        mixes=is_pair,
    ).resampled(REPLICATES, seed)


def sampled_rows(scenario: Scenario, sets: int | None = None) -> Iterator[tuple[Array, ...]]:
    """Yield rows (N, K, BATCH) of one metric, or two, of every hundred sets."""
    generator = np.random.default_rng(zlib.crc32(scenario.name.encode()))
    for _ in range((sets or scenario.sets) // BATCH):
        yield scenario.draw(generator, BATCH)


def batches(scenario: Scenario, sets: int | None = None, is_compared: bool = False) -> Iterator[list[Resampled]]:
    """Yield one metric, or two, of a hundred values for every hundred sets."""
    for seed, metrics in enumerate(sampled_rows(scenario, sets)):
        yield [_resampled(rows, scenario, seed, is_compared or len(metrics) > 1) for rows in metrics]


def replicates(metrics: list[Resampled]) -> Tensor:
    # ->  (R, V)
    """Read the value, or the difference, in all replicates."""
    draws = [metric.read(metric.weighted) for metric in metrics]
    return draws[0] if len(draws) == 1 else draws[0] - draws[1]


def _coverage(ends: list[tuple[Tensor, ...]], truth: float) -> Coverage:
    # ends: (V,) each: low and high of the percentile interval, low and high of the library's
    low_before, high_before, low, high = (torch.cat(column) for column in zip(*ends, strict=True))

    def fraction(low: Tensor, high: Tensor) -> float:
        return float(((low <= truth + TOLERANCE) & (truth - TOLERANCE <= high)).double().mean())

    return Coverage(
        fraction(low_before, high_before),
        fraction(low, high),
        float((high_before - low_before).nanmean()),
        float((high - low).nanmean()),
    )


def intervals_of(scenario: Scenario, sets: int | None = None) -> Coverage:
    """Compute the coverage of simulated intervals of 95 % of one model's score."""
    ends = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncertaintyWarning)  # of few groups
        for (metric,) in batches(scenario, sets):
            estimate = interval(metric, 0.95)
            ends.append((*equal_tailed_interval(replicates([metric]), 0.95), estimate.low, estimate.high))
    return _coverage(ends, scenario.truth)


def _random_swaps(a: Resampled, b: Resampled) -> Tensor:
    # ->  (V,)
    """Return the p-value of random swaps, which the library used before for any number of units."""
    swap = b.half - a.half
    observed = a.read(a.observed) - b.read(b.observed)
    swapped = a.read(a.observed + swap) - b.read(b.observed - swap)
    hits = (swapped.abs() >= observed.abs() - 1e-10).sum(0)
    return (1 + hits) / (1 + len(swapped))


def comparisons_of(scenario: Scenario, sets: int | None = None, levels: tuple[float, ...] = (0.95,)) -> Tests:
    """Compute the results of simulated comparisons of two models; contradictions are counted at all levels."""
    ends, p_values, before = [], [], []
    contradictions = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncertaintyWarning)  # of few pairs
        for a, b in batches(scenario, sets):
            draws = replicates([a, b])
            low_before, high_before = equal_tailed_interval(draws, 0.95)
            p_before = _random_swaps(a, b)
            fraction = (draws > 0).double().mean(0) + (draws == 0).double().mean(0) / 2
            is_outside = (low_before > 0) | (high_before < 0)
            is_sure = (fraction < 0.025) | (fraction > 0.975)
            before.append(
                torch.stack([is_outside, p_before <= 0.05, is_outside & (p_before > 0.05), is_sure & (p_before > 0.1)])
            )
            for level in levels:
                comparison = comparisons(a, b, Question(level))
                low, high, p_value, p_better = comparison.low, comparison.high, comparison.p_value, comparison.p_better
                excludes = (low > 0) | (high < 0)
                is_sure = (p_better < 0.025) | (p_better > 0.975)
                contradictions += int(((excludes != (p_value <= 1 - level)) | (is_sure & (p_value > 0.1))).sum())
                if level == 0.95:
                    p_values.append(p_value)
                    ends.append((low_before, high_before, low, high))
    fractions = torch.cat(before, 1).double().mean(1).tolist()
    return Tests(
        coverage=_coverage(ends, scenario.truth),
        excludes_before=fractions[0],
        swaps_significant=fractions[1],
        significant=float((torch.cat(p_values) <= 0.05).double().mean()),
        gross_before=(fractions[2], fractions[3]),
        contradictions=contradictions,
    )


class NumberTests(NamedTuple):
    """Results of comparisons of one metric with the true value: fractions of p-values of at most .05."""

    significant: dict[str, float]  # by alternative
    contradictions: int  # at any of the levels and alternatives


def number_tests_of(scenario: Scenario, sets: int | None = None, levels: tuple[float, ...] = (0.95,)) -> NumberTests:
    """Compute the results of simulated comparisons of one model's score with the true one."""
    p_values: dict[str, list[Tensor]] = {alternative: [] for alternative in ALTERNATIVES}
    contradictions = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncertaintyWarning)  # of few groups
        for (metric,) in batches(scenario, sets, is_compared=True):
            for level, alternative in itertools.product(levels, ALTERNATIVES):
                comparison = comparisons_with(metric, scenario.truth, Question(level, alternative))
                excludes = (comparison.low > 0) | (comparison.high < 0)
                contradictions += int((excludes != (comparison.p_value <= 1 - level)).sum())
                if level == 0.95:
                    p_values[alternative].append(comparison.p_value)
    significant = {
        alternative: float((torch.cat(values) <= 0.05).double().mean()) for alternative, values in p_values.items()
    }
    return NumberTests(significant, contradictions)


ITEMS = 5, 10, 20, 30, 100
GROUPS = 3, 5, 10, 20
NUMBERS = 10, 30, 100  # items of scores that are compared with a number
LAWS = {
    "right or wrong, .5": right_or_wrong(0.5),
    "right or wrong, .8": right_or_wrong(0.8),
    "right or wrong, .9": right_or_wrong(0.9),
    "right or wrong, .97": right_or_wrong(0.97),
    "right or wrong, .99": right_or_wrong(0.99),
    "uniform": UNIFORM,
    "Beta(.3, 3)": SKEWED,
    "Beta(20, 20)": NARROW,
    "like average precision, 60 % at 1": LIKE_AP,
    "log-normal, range unknown": LOG_NORMAL,
}


def _short(x: float) -> str:
    return f"{x:g}".replace("0.", ".")


def _difference_text(difference: float) -> str:
    return f", difference {_short(difference)}" if difference else ""


def _of_items(kind: str, law: Law, counts: tuple[int, ...]) -> list[Scenario]:
    read, is_far = (MEAN, 0.1 <= law.mean <= 0.9) if law.is_bounded else (UNBOUNDED_MEAN, False)
    sets = 2 * SETS if kind.startswith("right or wrong") else SETS  # coverage is a step function there
    return [
        Scenario(kind, f"{n} items", scores(law, n), law.mean, read, is_far_from_ends=is_far and n >= 30, sets=sets)
        for n in counts
    ]


def grouped(num_groups: int, is_equal: bool) -> Array:
    # ->  (N,)
    """Return the group of each item."""
    return np.repeat(np.arange(num_groups), sizes_of_groups(num_groups, is_equal))


def _of_groups(kind: str, law: Law, icc: float, counts: tuple[int, ...]) -> list[Scenario]:
    rows = []
    for is_equal in (True, False):
        for num_groups in counts:
            groups = grouped(num_groups, is_equal)
            text = f"{kind}, ICC {_short(icc)}, {'equal' if is_equal else 'unequal'}"
            draw = scores(law, len(groups), groups, icc)
            rows.append(Scenario(text, f"{num_groups} groups", draw, law.mean, groups=groups, sets=2 * SETS))
    return rows


def _of_f1(cases: list[tuple[int, int]]) -> list[Scenario]:
    return [Scenario("F1 of .7", f"{p} of {n} positive", detections(n, p, 0.7), 0.7, F1) for p, n in cases]


def _of_macro_f1(kind: str, recalls: list[float], items: tuple[int, ...]) -> list[Scenario]:
    rows = []
    for count in items:
        draw, truth = classified(np.array(recalls), count)
        size = f"{len(recalls)} classes of {count} items"
        rows.append(Scenario(f"macro F1, {kind}", size, draw, truth, macro_f1(len(recalls)), sets=SETS // 2))
    return rows


def interval_rows() -> list[Scenario]:
    """Return the rows on which the constants of the method were chosen."""
    rows = [row for kind, law in LAWS.items() for row in _of_items(kind, law, ITEMS)]
    for kind, law, icc in (
        ("right or wrong, .7", right_or_wrong(0.7), 0.3),
        ("right or wrong, .7", right_or_wrong(0.7), 0.8),
        ("right or wrong, .95", right_or_wrong(0.95), 0.3),
        ("uniform", UNIFORM, 0.3),
    ):
        rows += _of_groups(kind, law, icc, GROUPS)
    rows += _of_f1([(5, 50), (10, 200), (50, 1000)])
    rows += _of_macro_f1("recall .6", [0.6] * 10, (5,)) + _of_macro_f1("recall .9", [0.9] * 10, (5, 10, 20))
    return rows + _of_macro_f1("eight of .99, two of .4", [0.99] * 8 + [0.4] * 2, (10,))


def held_out_interval_rows() -> list[Scenario]:
    """Return rows that were drawn up after the constants were chosen."""
    rows = []
    for rate in (0.05, 0.7, 0.85, 0.95, 0.995):
        rows += _of_items(f"right or wrong, {_short(rate)}", right_or_wrong(rate), (7, 15, 50))
    for kind, law in {
        "Beta(.5, .5)": beta(0.5, 0.5),
        "Beta(8, 1)": beta(8, 1),
        "0, 1/2 or 1": ZERO_HALF_OR_ONE,
        "reciprocal of a rank up to 10": RECIPROCAL_RANKS,
    }.items():
        rows += _of_items(kind, law, (7, 15, 50))
    for icc in (0.1, 0.5):
        rows += _of_groups("right or wrong, .85", right_or_wrong(0.85), icc, (4, 7, 15, 30))
    return rows + _of_f1([(6, 30), (8, 100), (10, 500)]) + _of_macro_f1("recall .7", [0.7] * 5, (8,))


def beta_binomial_rows() -> list[Scenario]:
    """Return groups of very unequal sizes whose answers are more alike than those of the other rows."""
    return [
        Scenario(
            f"beta-binomial, {_short(rate)}, ICC {_short(icc)}, unequal",
            f"{num_groups} groups",
            beta_binomial(rate, grouped(num_groups, False), icc),
            rate,
            groups=grouped(num_groups, False),
            sets=2 * SETS,
        )
        for rate, icc in ((0.7, 0.3), (0.7, 0.8), (0.95, 0.3), (0.85, 0.5))
        for num_groups in (5, 10, 20, 30)
    ]


def overflow_rows() -> list[Scenario]:
    """Return rows of more items than the store of units holds."""
    return [
        Scenario(f"right or wrong, {_short(rate)}", "1500 items", scores(right_or_wrong(rate), 1500), rate, sets=400)
        for rate in (0.999, 0.997)
    ]


def overflow_pair_rows() -> list[Scenario]:
    """Return a row of more pairs than the store of units holds."""
    kind = "right or wrong, .2 % discordant"
    return [Scenario(kind, "1500 pairs", discordant_pairs(1500, 0.002), 0.0, sets=400)]


def width_rows() -> list[Scenario]:
    """Return intervals of 200 items, which should be hardly wider than percentile intervals."""
    kinds = "uniform", "Beta(.3, 3)", "Beta(20, 20)", "right or wrong, .5", "right or wrong, .9"
    return [row for kind in kinds for row in _of_items(kind, LAWS[kind], (200,))]


def _binary_pairs(discordance: float, counts: tuple[int, ...], difference: float = 0.0) -> list[Scenario]:
    kind = f"right or wrong, {100 * discordance:.0f} % discordant"
    kind += _difference_text(difference)
    return [Scenario(kind, f"{n} pairs", discordant_pairs(n, discordance, difference), difference) for n in counts]


def _uniform_pairs(counts: tuple[int, ...], difference: float = 0.0) -> list[Scenario]:
    kind = "uniform" + _difference_text(difference)
    shift = shift_of_uniform(difference)
    return [Scenario(kind, f"{n} pairs", pairs((UNIFORM, UNIFORM), n, shift=shift), difference) for n in counts]


def _pairs_of_law(kind: str, law: Law, counts: tuple[int, ...]) -> list[Scenario]:
    read = MEAN if law.is_bounded else UNBOUNDED_MEAN
    return [Scenario(kind, f"{n} pairs", pairs((law, law), n), 0.0, read) for n in counts]


def _pairs_of_groups(
    kind: str, laws: tuple[Law, Law], is_equal: bool, counts: tuple[int, ...], difference: float = 0.0
) -> list[Scenario]:
    """Return rows of pairs in groups of correlation .3; uniform scores are shifted to the difference."""
    rows = []
    for num_groups in counts:
        groups = grouped(num_groups, is_equal)
        shift = shift_of_uniform(difference) if UNIFORM in laws else 0.0
        text = f"{kind}, {'equal' if is_equal else 'unequal'} groups"
        text += _difference_text(difference)
        draw = pairs(laws, len(groups), groups, shift)
        rows.append(Scenario(text, f"{num_groups} groups", draw, difference, groups=groups))
    return rows


def _f1_pairs(positives: int, count: int, difference: float = 0.0) -> list[Scenario]:
    kind = "F1" + _difference_text(difference)
    rates = 0.7 + difference / 2, 0.7 - difference / 2
    draw = detections(count, positives, *rates)
    return [Scenario(kind, f"{positives} of {count} positive", draw, difference, F1)]


def null_rows() -> list[Scenario]:
    """Return comparisons of equal models."""
    rows = _binary_pairs(0.1, (5, 10, 30, 100, 200)) + _binary_pairs(0.3, (5, 10, 30, 100, 200))
    rows += _uniform_pairs((5, 10, 30, 100))
    for is_equal in (True, False):
        rows += _pairs_of_groups("uniform", (UNIFORM, UNIFORM), is_equal, GROUPS)
    return rows + _f1_pairs(5, 50) + _f1_pairs(10, 200) + _f1_pairs(40, 200)


def unbounded_null_rows() -> list[Scenario]:
    """Return comparisons of equal models by scores without bounds."""
    return _pairs_of_law("log-normal, range unknown", LOG_NORMAL, (5, 10, 30, 100))


def number_rows() -> list[Scenario]:
    """Return scores that are compared with their true mean."""
    rows = [
        row for kind in ("right or wrong, .8", "Beta(.3, 3)", "uniform") for row in _of_items(kind, LAWS[kind], NUMBERS)
    ]
    rows += _of_groups("right or wrong, .8", right_or_wrong(0.8), 0.3, (5, 10, 20))
    return rows + _of_groups("Beta(.3, 3)", SKEWED, 0.3, (5, 10, 20))


def power_rows() -> list[Scenario]:
    """Return comparisons of models that differ."""
    rates = right_or_wrong(0.84), right_or_wrong(0.7)
    uniform = UNIFORM, UNIFORM
    return [
        *_uniform_pairs((10, 30), 0.14),
        *_binary_pairs(0.2, (30, 100), 0.14),
        *_pairs_of_groups("right or wrong", rates, True, (6, 10), 0.14),
        *_pairs_of_groups("uniform", uniform, True, (6, 10), 0.14),
        *_pairs_of_groups("uniform", uniform, False, (10, 20), 0.14),
        *_f1_pairs(40, 200, 0.12),
    ]


def held_out_pair_rows() -> list[Scenario]:
    """Return comparisons that were drawn up after the constants were chosen."""
    rows = _binary_pairs(0.04, (25, 60)) + _binary_pairs(0.2, (8, 25, 60)) + _binary_pairs(0.5, (8, 25, 60))
    rows += _binary_pairs(0.2, (25, 60), 0.1)
    rows += _pairs_of_law("like average precision", LIKE_AP, (8, 25, 60))
    rows += _pairs_of_law("Beta(.3, 3)", SKEWED, (8, 25, 60))
    rows += _uniform_pairs((8, 25), 0.1)
    answers = right_or_wrong(0.8), right_or_wrong(0.8)
    for is_equal in (True, False):
        rows += _pairs_of_groups("right or wrong", answers, is_equal, (4, 7, 15))
        rows += _pairs_of_groups("uniform", (UNIFORM, UNIFORM), is_equal, (4, 7, 15))
    return rows


def pair_width_rows() -> list[Scenario]:
    """Return comparisons of 200 pairs, whose intervals should be hardly wider than percentile intervals."""
    return _uniform_pairs((200,))


def peer_rows() -> list[Scenario]:
    """Return the rows on which other packages are tried."""
    rows = {row.name: row for row in interval_rows()}
    scenarios = [rows[f"right or wrong, .9, {n} items"] for n in (10, 30, 100)]
    return scenarios + [rows[f"right or wrong, .7, ICC .3, equal, {n} groups"] for n in (5, 10)]


def peer_pair_rows() -> list[Scenario]:
    """Return the comparisons on which other packages are tried."""
    return _binary_pairs(0.1, (10, 30, 100))
