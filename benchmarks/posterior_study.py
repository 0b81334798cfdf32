"""Claim: analyses of samples are faster than in prob_conf_mat: summaries of a million values at least twice, densities
30 times, pooling of ten experiments twice, by "beta" 1.5 times, 45 comparisons 20 times for 100 classes and 3 times
for 10.

Agreement is asserted before anything is timed; rivals take turns in one process; times are medians.
"""

import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from itertools import combinations

import numpy as np
import torch
from _common import Table, arguments
from prob_conf_mat import Study as PeerStudy
from prob_conf_mat.experiment_aggregation import get_experiment_aggregator as peer_aggregator
from prob_conf_mat.stats import summarize_posterior
from prob_conf_mat.stats.kde import compute_kde
from prob_conf_mat.utils import RNG

from tensormetrics.compat.prob_conf_mat import Study
from tensormetrics.compat.prob_conf_mat import summarize_posterior as summarize
from tensormetrics.posterior.extend import get_experiment_aggregator
from tensormetrics.uncertainty.statistics.density import kde

NEEDS = ("prob_conf_mat",)
TURNS = 3
Row = tuple[str, ...]


def milliseconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return 1000 * (time.perf_counter() - start)


def row(case: str, ours: Callable[[], object], peer: Callable[[], object], turns: int = TURNS) -> Row:
    times = [(milliseconds(peer), milliseconds(ours)) for _ in range(turns)]
    theirs_ms, ours_ms = (statistics.median(column) for column in zip(*times, strict=True))
    return case, f"{theirs_ms:.1f}", f"{ours_ms:.1f}", f"{theirs_ms / ours_ms:.1f}x"


def summaries(generator: np.random.Generator, size: int) -> Iterator[Row]:
    x = generator.beta(20, 5, size).astype(np.float32)
    samples, wide = torch.from_numpy(x), x.astype(np.float64)
    ours, theirs = summarize(samples, 0.95), summarize_posterior(wide, 0.95)
    for name in "median", "hdi", "skew", "kurtosis":
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-7, err_msg=name)
    density, part = kde(samples[:10_000]), compute_kde(wide[:10_000])
    height = np.interp(density.grid, np.asarray(part.x_vals), np.asarray(part.y_vals))
    np.testing.assert_allclose(density.density, height, atol=0.02 * height.max())
    yield row(f"summary of {size} values", lambda: summarize(samples, 0.95), lambda: summarize_posterior(wide, 0.95))
    yield row(f"density of {size} values at 200 points", lambda: kde(samples), lambda: compute_kde(wide), turns=1)


def pooling(generator: np.random.Generator, size: int) -> Iterator[Row]:
    x = generator.beta(200, 50, (size, 10)) + np.linspace(-0.01, 0.01, 10)
    samples, bounds = torch.from_numpy(x.astype(np.float32)), (0.0, 1.0)
    wide = samples.double().numpy()
    for name in "beta", "gamma", "fe", "re", "hist":
        ours, theirs = get_experiment_aggregator(name), peer_aggregator(name, rng=RNG(0))
        pooled, expected = ours(samples, bounds), theirs.aggregate(wide, bounds=bounds)
        assert abs(pooled.mean() - expected.mean()) < 1e-3 and abs(pooled.std() / expected.std() - 1) < 0.05, name
        yield row(
            f"10 experiments of {size} samples pooled by {name}",
            lambda ours=ours: ours(samples, bounds),
            lambda theirs=theirs: theirs.aggregate(wide, bounds=bounds),
        )


def study(kind: type, classes: int, samples: int) -> Study:
    result = kind(0, samples, 0.95)
    result.add_metric("acc")
    generator = np.random.default_rng(classes)
    for e in range(10):
        counts = generator.integers(0, 5, (classes, classes)) + 50 * np.eye(classes, dtype=int)
        result.add_experiment(f"g{e}/e", counts, prevalence_prior=1, confusion_prior=1)
    return result


def comparisons(classes: int, samples: int) -> Iterator[Row]:
    ours, theirs = (study(kind, classes, samples) for kind in (Study, PeerStudy))

    def singly(source: Study) -> list:
        pairs = combinations([f"g{e}/e" for e in range(10)], 2)
        return [
            source.get_pairwise_comparison("acc", experiment_a=a, experiment_b=b, min_sig_diff=0.01) for a, b in pairs
        ]

    for a, b in zip(singly(ours), singly(theirs), strict=True):  # also fills the caches
        assert abs(float(a.p_rope) - b.p_rope) < 0.1
    case = f"45 comparisons, {classes} classes, {samples} samples at hand"
    yield row(case, lambda: [result.p_rope for result in singly(ours)], lambda: singly(theirs))
    yield row(case + ", as a table", lambda: ours.compare("acc", rope=0.01), lambda: singly(theirs))


def main() -> None:
    options = arguments(__doc__, ("cpu",))
    warnings.simplefilter("ignore")
    torch.set_num_threads(os.cpu_count())
    generator, size = np.random.default_rng(0), 10**5 if options.quick else 10**6
    columns = ("case", "peer ms", "ours ms", "ratio")
    notes = f"Median of {TURNS} runs (density: 1 run)."
    table = Table(options, "Summaries, pooling and comparisons", columns, notes, ("numpy", "prob_conf_mat"))
    table.add(summaries(generator, size))
    table.add(pooling(generator, size))
    table.add(comparisons(10, 10_000))
    if not options.quick:
        table.add(comparisons(100, 1000))
    table.finish()


if __name__ == "__main__":
    main()
