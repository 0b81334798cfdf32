"""Simulated sets at the edges of what intervals and tests can say: families of comparisons, margins of models that
hardly differ, clusterings, battles with one strong model, models that are alike, and looks at data that still grow."""

import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.stats
import torch
from _coverage_report import Cells, fraction
from _ranked_samples import average_precision_of
from torch import Tensor

from tensormetrics import compare, interval
from tensormetrics.retrieval import ClusterAccuracy, Completeness, Homogeneity, NormalizedMutualInfo, VMeasure
from tensormetrics.structured import evaluate
from tensormetrics.uncertainty import BinaryAUROC, BinaryAveragePrecision, BrierScore, Ratings
from tensormetrics.uncertainty.functional import binary_average_precision, delong

SETS, REPLICATES, MODELS = 1000, 300, 8
MARGINS = (  # rope, items, fraction of the other disagreements on each side
    *((0.05, 10, 0.0), (0.05, 30, 0.0), (0.05, 30, 0.02), (0.05, 100, 0.0), (0.1, 20, 0.0)),
    *((0.02, 30, 0.0), (0.02, 100, 0.0), (0.02, 100, 0.01), (0.02, 300, 0.01)),
)
CLUSTERINGS = (100, 3), (300, 3), (300, 10), (1000, 10), (5000, 20), (10_000, 50)  # items, classes
AGREEMENTS = 0.0, 0.5, 0.8, 0.95, 0.99
CLUSTER_METRICS = NormalizedMutualInfo, Homogeneity, Completeness, VMeasure, ClusterAccuracy
BATTLES, P_STRONG = (50, 100, 300), 0.95
CORRELATIONS, AREA, RANKED_ITEMS = (0.0, 0.5, 0.9, 0.95, 0.99), 0.85, 100  # of each class


def tables(sets: int | None) -> list[tuple[str, Cells, Iterator[Cells]]]:
    count = sets or SETS
    return [
        ("Families of 28 comparisons of eight equal models.",
         ("scores", "items", "any corrected p <= .05", "any p <= .05", "one model is `best`"), families(count)),
        ("Families of comparisons that all differ.", ("family", "all p <= .05", "mean share"), differing(count)),
        ("Right or wrong answers, a worse than b by `rope`.", ("rope", "items", "other disagreements",
         "`p_not_worse` <= .05", "`p_equivalent` <= .05", '"not worse" or "equivalent"'), margins(count)),
        ("Clusterings, a quarter of the sets: share of the intervals given that hold the truth, share of sets refused.",
         ("items, classes", "agreement", *(x.__name__ for x in CLUSTER_METRICS)), clusterings(count // 4)),
        ("Five models, one of which wins .95 of its battles.", ("battles", "its differences", "other ones",
         "undefeated", "it differs, p <= .05", "others differ, p <= .05"), strong(count)),
        ("Two models that are alike, 100 + 100 items.", ("metric", "correlation", "coverage", "equal: p <= .05",
         "different: p <= .05", "of the other method", "width / that of the other method"), alike(count)),
        ("Looks at scores of units that grow.", ("scores", "refused", "true mean missed at any look"), growing(count)),
        ("Brier scores of 5,000 items.", ("kept for the interval", "coverage", "mean width"), folded(count)),
    ]  # fmt: skip


def families(sets: int) -> Iterator[Cells]:
    for kind in ("right or wrong", "continuous"):
        for items in (20, 50, 200):
            rng, hits = np.random.default_rng(items), []
            for seed in range(sets):
                chances, noise = rng.uniform(0.4, 1, items), rng.random((MODELS, items))
                scores = (noise < chances).astype(float) if kind == "right or wrong" else chances + noise
                table = compare({f"m{i}": row for i, row in enumerate(scores)}, seed=seed)
                lowest = (float(min(table.columns[name])) for name in ("corrected p", "p"))
                hits.append([*(p <= 0.05 for p in lowest), len(table.best) == 1])
            yield kind, str(items), *map(fraction, np.mean(hits, 0))


def differing(sets: int) -> Iterator[Cells]:
    rows: dict[str, Callable[[int], Any]] = {
        "28 pairs of eight models, .2 to .8 right of 2,000 items": eight_models,
        "30 fields of 200 documents, each right in .9 and .55": thirty_fields,
        "45 pairs of 10 models with strengths .3 apart, 20,000 battles": ten_rated_models,
        "26 models of .7 beside a baseline of .4, 200 items": beside_baseline,
    }
    for name, p_values in rows.items():
        significant = np.array([[float(p) <= 0.05 for p in p_values(seed)] for seed in range(sets // 10)])
        yield name, fraction(significant.all(1).mean()), fraction(significant.mean())


def eight_models(seed: int) -> Any:
    base = np.random.default_rng(seed).random(2000)
    models = {f"m{i}": (base < 0.2 + 0.6 * i / 7) * 1.0 for i in range(MODELS)}
    return compare(models, seed=seed).columns["corrected p"]


def thirty_fields(seed: int) -> list[float]:
    generator, names = random.Random(seed), [f"f{i}" for i in range(30)]
    refs = [dict.fromkeys(names, "x") for _ in range(200)]
    good, bad = (
        [{name: "x" if generator.random() < rate else "y" for name in names} for _ in refs] for rate in (0.9, 0.55)
    )
    table = evaluate(good, refs, replicates=REPLICATES, seed=seed).compare(
        evaluate(bad, refs, replicates=REPLICATES, seed=seed)
    )
    return [float(table[name, "corrected p"]) for name in names]


def ten_rated_models(seed: int) -> Any:
    generator = torch.Generator().manual_seed(seed)
    pairs = torch.combinations(torch.arange(10)).repeat(20_000 // 45 + 1, 1)[:20_000]
    chances = (0.3 * (pairs[:, 0] - pairs[:, 1])).sigmoid()
    metric = Ratings(10)
    metric.update(*pairs.T, (torch.rand(len(pairs), generator=generator) < chances).double())
    return metric.compare(seed=seed).columns["corrected p"]


def beside_baseline(seed: int) -> list[float]:
    rng = np.random.default_rng(seed)
    models = {"base": (rng.random(200) < 0.4) * 1.0} | {f"m{i}": (rng.random(200) < 0.7) * 1.0 for i in range(26)}
    table = compare(models, baseline="base", seed=seed)
    return [float(table[name, "score p"]) for name in models if name != "base"]


def margins(sets: int) -> Iterator[Cells]:
    for rope, items, other in MARGINS:
        u = torch.rand(sets, items, generator=torch.Generator().manual_seed(items), dtype=torch.float64)
        a, b = (u < other).double(), ((u >= other) & (u < 2 * other + rope)).double()
        result = compare(a, b, rope=rope)
        shares = ((p <= 0.05).double().mean() for p in (result.p_not_worse, result.p_equivalent))
        claimed = np.isin(np.array(result.verdict), ("not worse", "equivalent")).mean()
        yield f"{rope:g}", str(items), f"{other:g}", *map(fraction, map(float, (*shares, claimed)))


def clustering_truths(classes: int, agreement: float) -> list[float]:
    """Return information and accuracy of a population whose cluster is the class with probability `agreement`."""
    cells = np.full((classes, classes), (1 - agreement) / classes**2) + np.eye(classes) * agreement / classes
    information = float((cells * np.log(cells.clip(1e-300) * classes**2)).sum() / np.log(classes))
    return [information] * 4 + [agreement + (1 - agreement) / classes]


def clusterings(sets: int) -> Iterator[Cells]:
    for items, classes in CLUSTERINGS:
        for agreement in AGREEMENTS:
            shares = (clustering_shares(kind, items, classes, agreement, sets) for kind in CLUSTER_METRICS)
            cells = (f"{fraction(held) if refused < 1 else '-'}, {fraction(refused)}" for held, refused in shares)
            yield f"{items}, {classes}", f"{agreement:g}", *cells


def clustering_shares(kind: type, items: int, classes: int, agreement: float, sets: int) -> tuple[float, float]:
    """Return the share of the intervals given that hold the truth, NaN if none is, and the share of sets refused."""
    truth, held = clustering_truths(classes, agreement)[CLUSTER_METRICS.index(kind)], []
    for seed in range(sets):
        generator = torch.Generator().manual_seed(seed)
        labels, clusters = torch.randint(classes, (2, items), generator=generator)
        clusters = torch.where(torch.rand(items, generator=generator) < agreement, labels, clusters)
        if ends := cluster_interval(kind, labels, clusters, seed):
            held.append(ends[0] - 1e-12 <= truth <= ends[1])
    return float(np.mean(held)) if held else math.nan, 1 - len(held) / sets


def cluster_interval(kind: type, labels: Tensor, clusters: Tensor, seed: int) -> tuple[float, float] | None:
    metric = kind()
    metric.update(labels, clusters)
    try:
        _, low, high = metric.interval(replicates=REPLICATES, seed=seed)
    except NotImplementedError:
        return None
    return float(low), float(high)


def strong(sets: int) -> Iterator[Cells]:
    pairs = torch.combinations(torch.arange(5))
    has_strong = (pairs[:, 0] == 0).numpy()
    truth = np.where(has_strong, 400 * math.log10(P_STRONG / (1 - P_STRONG)), 0.0)
    for battles in BATTLES:
        generator, results = torch.Generator().manual_seed(battles), []
        first, second = pairs.repeat(battles // len(pairs), 1).T
        for seed in range(sets):
            won = torch.rand(battles, generator=generator) < torch.where(first == 0, P_STRONG, 0.5)
            metric = Ratings(5)
            metric.update(first, second, won.double())
            table = metric.compare(seed=seed)
            difference = table.columns["difference"]
            held = (difference.low.numpy() <= truth) & (truth <= difference.high.numpy())
            significant = np.array([*map(float, table.columns["corrected p"])]) <= 0.05
            results.append([held[has_strong].mean(), held[~has_strong].mean(), bool(won[first == 0].all()),
                            significant[has_strong].mean(), significant[~has_strong].any()])  # fmt: skip
        yield str(battles), *map(fraction, np.mean(results, 0))


def alike(sets: int) -> Iterator[Cells]:
    """Every other set has equal models, the others models whose difference shrinks as these become alike."""
    target = (torch.arange(2 * RANKED_ITEMS) < RANKED_ITEMS).long()
    for kind in (BinaryAUROC, BinaryAveragePrecision):
        for correlation in CORRELATIONS:
            generator, results = torch.Generator().manual_seed(round(100 * correlation)), []
            distance = 2**0.5 * float(scipy.stats.norm.ppf(AREA))
            distances = distance, distance - 0.75 * (1 - correlation) ** 0.5
            truth = area_of(kind, distances[0]) - area_of(kind, distances[1])
            for seed in range(sets):
                noise = torch.randn(3, len(target), generator=generator, dtype=torch.float64)
                models = [
                    distances[seed % 2 * i] * target
                    + correlation**0.5 * noise[0]
                    + (1 - correlation) ** 0.5 * noise[1 + i]
                    for i in range(2)
                ]
                metrics = kind(), kind()
                for metric, preds in zip(metrics, models, strict=True):
                    metric.update(preds, target)
                result = compare(*metrics, replicates=REPLICATES, seed=seed)
                low, high, p_value = (float(x) for x in (result.low, result.high, result.p_value))
                width, rejects = other_method(kind, torch.stack(models), target, seed)
                results.append([low <= truth * (seed % 2) <= high, p_value <= 0.05, rejects, high - low, width])
            held, significant, others, width, other = np.array(results, dtype=float).T
            shares = held.mean(), significant[::2].mean(), significant[1::2].mean()
            others = f"{fraction(others[::2].mean())}, {fraction(others[1::2].mean())}"
            ratio = f"{width.mean() / other.mean():.2f}"
            yield kind.__name__, f"{correlation:g}", *map(fraction, shares), others, ratio


def area_of(kind: type, distance: float) -> float:
    """Return the score of normal scores, half of them positive."""
    return (
        float(scipy.stats.norm.cdf(distance / 2**0.5)) if kind is BinaryAUROC else average_precision_of(distance, 0.5)
    )


def other_method(kind: type, models: Tensor, target: Tensor, seed: int) -> tuple[float, bool]:
    # models: (2, N)
    """Return width and decision of DeLong's test of areas, of the paired percentile bootstrap of average precision."""
    if kind is BinaryAUROC:
        result = delong(models, target)
        error = float((result.covariance.diag().sum() - 2 * result.covariance[0, 1]).sqrt())
        return 2 * float(scipy.stats.norm.ppf(0.975)) * error, float(result.p_value[0, 1]) <= 0.05
    drawn = np.random.default_rng(seed).multinomial(len(target), np.full(len(target), 1 / len(target)), REPLICATES)
    weights = torch.from_numpy(drawn).double()
    a, b = (binary_average_precision(x.expand(weights.shape), target.expand(weights.shape), weights) for x in models)
    low, high = (a - b).quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return high - low, not low <= 0 <= high


def growing(sets: int) -> Iterator[Cells]:
    """Look after each 15 scores of a population of mean .5."""
    generator = torch.Generator().manual_seed(0)
    item, group = torch.arange(50).repeat(4), torch.arange(40).repeat(10)
    kinds = {
        "50 items, four epochs one after the other": ("ids", item),
        "40 groups of 10 items, interleaved": ("groups", group),
        "40 groups of 10 items, one after the other": ("groups", group.sort().values),
        "400 items": ("ids", torch.arange(400)),
    }
    for kind, (name, units) in kinds.items():
        effects = torch.rand(sets, int(units.max()) + 1, generator=generator, dtype=torch.float64)
        scores = (torch.rand(sets, len(units), generator=generator) < effects[:, units]).double()
        missed, refused, looks = torch.zeros(sets, dtype=torch.bool), 0, range(15, len(units) + 1, 15)
        for look in looks:
            try:
                path = interval(scores[:, :look], bounds=(0, 1), anytime=True, **{name: units[:look]})
            except ValueError:
                refused += 1
                continue
            missed |= (path.low > 0.5) | (path.high < 0.5)
        yield kind, f"{refused} of {len(looks)} looks", fraction(float(missed.double().mean()))


def folded(sets: int) -> Iterator[Cells]:
    """Compare intervals of 1,000 sums of five items each, as made by default, with those of 5,000 items."""
    generator, steps = torch.Generator().manual_seed(0), torch.linspace(0, 1, 2_000_001, dtype=torch.float64)
    chance = steps**1.3
    truth = float((chance * (1 - steps).square() + (1 - chance) * steps.square()).mean())
    kinds: dict[str, Any] = {"1,000 sums of about five items": {}, "weights of each item": {"replicates": 1000}}
    ends = torch.empty(len(kinds), sets, 2, dtype=torch.float64)
    for n in range(sets):
        preds, noise = torch.rand(2, 5000, generator=generator, dtype=torch.float64)
        for of_kind, options in zip(ends, kinds.values(), strict=True):
            metric = BrierScore(**options)
            metric.update(preds, (noise < preds**1.3).long())
            of_kind[n] = torch.stack([*metric.interval()][1:])
    for kind, (low, high) in zip(kinds, ends.mT, strict=True):
        holds = (low <= truth) & (truth <= high)
        yield kind, fraction(float(holds.double().mean())), f"{float((high - low).mean()):.5f}"
