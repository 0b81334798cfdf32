"""Simulated evaluations of language models, for coverage.py: samples of answers, seeds that all questions share, and
comparisons at the margin of non-inferiority."""

import warnings
from typing import NamedTuple

import torch
from torch import Tensor

from tensormetrics import compare
from tensormetrics.uncertainty import PassAtK, UncertaintyWarning, variance_components
from tensormetrics.uncertainty.functional import delong

SETS = 400
NUMBERS = 10_000  # of the population's chance
PROBLEMS = 5, 10, 30, 100
K = 1, 4
LAWS = {"Beta(.5, .5)": (0.5, 0.5), "Beta(2, 8)": (2.0, 8.0), "Beta(6, 1)": (6.0, 1.0)}


class Table(NamedTuple):
    """Crossed table: items, seeds and standard deviations of items, seeds and the residual."""

    items: int
    seeds: int
    sd_items: float
    sd_seeds: float
    sd_rest: float


TABLES = (
    Table(1000, 3, 0.3, 0.02, 0.3),
    Table(50, 3, 0.3, 0.05, 0.3),
    Table(200, 3, 0.3, 0.0, 0.3),
    Table(10, 5, 0.3, 0.1, 0.2),
    Table(5, 3, 0.3, 0.1, 0.2),
    Table(100, 10, 0.1, 0.1, 0.3),
)
RANKED = ((20, 20), (6, 34), (40, 160), (100, 100))  # positives and negatives
MARGINS = 5, 10, 30, 100


class Independent(NamedTuple):
    """Two samples of other items: right or wrong with `rates`, or normal with standard deviations 1 and `sd`."""

    sizes: tuple[int, int]
    rates: tuple[float, float] | None = None
    sd: float = 1.0


INDEPENDENT_SETS = 1000
INDEPENDENT = (
    Independent((5, 5), (0.5, 0.5)),
    Independent((10, 10), (0.9, 0.9)),
    Independent((20, 50), (0.8, 0.8)),
    Independent((30, 30), (0.97, 0.97)),
    Independent((100, 100), (0.9, 0.8)),
    Independent((10, 200), (0.95, 0.7)),
    Independent((5, 5)),
    Independent((10, 10), sd=3.0),
    Independent((5, 50)),
    Independent((50, 5), sd=3.0),
    Independent((100, 30)),
)


def generator_of(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pass_at_k_coverage(law: tuple[float, float], problems: int, sets: int | None) -> dict[str, float]:
    """Return the fraction of sets whose interval holds the population's chance; 4 to 12 samples of each problem."""
    torch.manual_seed(0)
    beta = torch.distributions.Beta(*(torch.tensor(x, dtype=torch.float64) for x in law))
    generator, population = generator_of(problems), beta.sample((NUMBERS * 100,))
    truth = {f"{sign}{k}": float((1 - (1 - population) ** k if sign == "pass@" else population**k).mean())
             for sign in ("pass@", "pass^") for k in K}  # fmt: skip
    held = dict.fromkeys(truth, 0)
    count = sets or SETS
    for _ in range(count):
        chances = beta.sample((problems,))
        n = torch.randint(4, 13, (problems,), generator=generator)
        c = torch.distributions.Binomial(n.double(), chances).sample().long()
        for require in ("any", "all"):
            metric = PassAtK(K, require=require)
            metric.update(c, n, ids=torch.arange(problems))
            for name, (_, low, high) in metric.interval().items():
                held[name] += bool(low <= truth[name] <= high)
    return {name: hits / count for name, hits in held.items()}


def crossed_coverage(table: Table, sets: int | None) -> tuple[float, ...]:
    """Return the coverage of the mean over new items and seeds by the crossed t interval, and by items alone."""
    count, generator = 4 * (sets or SETS), generator_of(1)
    chunk = max(2**22 // (table.items * table.seeds), 1)
    item = torch.arange(table.items).repeat_interleave(table.seeds)
    seed = torch.arange(table.seeds).repeat(table.items)
    held = torch.zeros(2, dtype=torch.float64)

    def normal(sd: float, *shape: int) -> Tensor:
        return sd * torch.randn(*shape, generator=generator, dtype=torch.float64)

    for start in range(0, count, chunk):
        size = min(chunk, count - start)
        scores = normal(table.sd_items, size, table.items)[:, item] + normal(table.sd_seeds, size, table.seeds)[:, seed]
        scores = scores + normal(table.sd_rest, size, len(item))
        parts = variance_components(scores, item, seed)
        _, low, high = parts.interval()
        nested = variance_components(scores, item)
        width = 1.96 * nested.se()
        held[0] += ((low <= 0) & (high >= 0)).sum()
        held[1] += (nested.value.abs() <= width).sum()
    return tuple((held / count).tolist())


def delong_rejections(positives: int, negatives: int, sets: int | None) -> float:
    """Return the fraction of pairs of equal models with a p-value of at most .05."""
    generator, count = generator_of(2), 10 * (sets or SETS)
    target = (torch.arange(positives + negatives) < positives).long().expand(count, -1)
    shared = torch.randn(count, 1, positives + negatives, generator=generator)
    preds = shared + torch.randn(count, 2, positives + negatives, generator=generator) + target[:, None]
    return float((delong(preds, target).p_value[:, 0, 1] <= 0.05).double().mean())


def margin_rejections(items: int, sets: int | None) -> tuple[float, ...]:
    """Return the fractions of p_not_worse and p_equivalent of at most .05 for a difference at the margin."""
    generator, count = generator_of(3), 10 * (sets or SETS)
    differences = 0.1 * torch.randn(count, items, generator=generator, dtype=torch.float64) - 0.05
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncertaintyWarning)
        comparison = compare(differences, torch.zeros_like(differences), rope=0.05, replicates=8)
    assert comparison.p_not_worse is not None and comparison.p_equivalent is not None
    return tuple(float((p <= 0.05).double().mean()) for p in (comparison.p_not_worse, comparison.p_equivalent))


def independent_fractions(row: Independent, sets: int | None) -> tuple[float, float]:
    """Return how often the interval of two independent samples holds their difference, and p is at most .05."""
    generator, results = torch.Generator().manual_seed(0), []
    for _ in range(sets or INDEPENDENT_SETS):
        if row.rates is None:
            a, b = (torch.randn(n, generator=generator) * sd for n, sd in zip(row.sizes, (1.0, row.sd), strict=True))
        else:
            a, b = (torch.rand(n, generator=generator) < p for n, p in zip(row.sizes, row.rates, strict=True))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UncertaintyWarning)
            result = compare(a, b, paired=False)
        truth = 0.0 if row.rates is None else row.rates[0] - row.rates[1]
        results.append([float(result.low) <= truth <= float(result.high), float(result.p_value) <= 0.05])
    covered, significant = torch.tensor(results, dtype=torch.float64).mean(0).tolist()
    return covered, significant
