"""Claim: what follows sampling is faster than in prob_conf_mat: summaries of a million values at least twice, densities
30 times, pooling of ten experiments twice, but by "beta" 1.5 times, 45 comparisons 20 times for 100 classes and 3 times
for 10.

    python benchmarks/posterior_study.py [table.md]

Agreement is asserted before anything is timed; rivals take turns in one process; times are medians.
"""

import datetime
import os
import platform
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from itertools import combinations
from pathlib import Path

import numpy as np
import torch
from prob_conf_mat import Study as PeerStudy
from prob_conf_mat.experiment_aggregation import get_experiment_aggregator as peer_aggregator
from prob_conf_mat.stats import summarize_posterior
from prob_conf_mat.stats.kde import compute_kde
from prob_conf_mat.utils import RNG

from tensormetrics.posterior import Study, get_experiment_aggregator, kde, summarize

SAMPLES = 10**6
TURNS = 3


def milliseconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return 1000 * (time.perf_counter() - start)


def row(case: str, ours: Callable[[], object], peer: Callable[[], object], turns: int = TURNS) -> str:
    times = [(milliseconds(peer), milliseconds(ours)) for _ in range(turns)]
    theirs, own = (statistics.median(column) for column in zip(*times, strict=True))
    line = f"| {case} | {theirs:.1f} | {own:.1f} | {theirs / own:.1f}x |"
    print(line, flush=True)
    return line


def summaries(generator: np.random.Generator) -> list[str]:
    x = generator.beta(20, 5, SAMPLES).astype(np.float32)
    samples, wide = torch.from_numpy(x), x.astype(np.float64)
    ours, theirs = summarize(samples), summarize_posterior(wide, 0.95)
    for name in "median", "hdi", "skew", "kurtosis":
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-7, err_msg=name)
    density, part = kde(samples[:10_000]), compute_kde(wide[:10_000])
    height = np.interp(density.grid, np.asarray(part.x_vals), np.asarray(part.y_vals))
    np.testing.assert_allclose(density.density, height, atol=0.02 * height.max())
    return [
        row(f"summary of {SAMPLES} values", lambda: summarize(samples), lambda: summarize_posterior(wide, 0.95)),
        row(f"density of {SAMPLES} values at 200 points", lambda: kde(samples), lambda: compute_kde(wide), turns=1),
    ]


def pooling(generator: np.random.Generator) -> list[str]:
    x = generator.beta(200, 50, (SAMPLES, 10)) + np.linspace(-0.01, 0.01, 10)
    samples, bounds = torch.from_numpy(x.astype(np.float32)), (0.0, 1.0)
    wide = samples.double().numpy()
    lines = []
    for name in "beta", "gamma", "fe", "re", "hist":
        ours, theirs = get_experiment_aggregator(name), peer_aggregator(name, rng=RNG(0))
        found, known = ours(samples, bounds), theirs.aggregate(wide, bounds=bounds)
        assert abs(found.mean() - known.mean()) < 1e-3 and abs(found.std() / known.std() - 1) < 0.05, name
        lines.append(
            row(
                f"10 experiments of {SAMPLES} samples pooled by {name}",
                lambda ours=ours: ours(samples, bounds),
                lambda theirs=theirs: theirs.aggregate(wide, bounds=bounds),
            )
        )
    return lines


def study(kind: type, classes: int, samples: int) -> Study:
    found = kind(seed=0, num_samples=samples, ci_probability=0.95)
    found.add_metric("acc")
    generator = np.random.default_rng(classes)
    for e in range(10):
        counts = generator.integers(0, 5, (classes, classes)) + 50 * np.eye(classes, dtype=int)
        found.add_experiment(f"g{e}/e", counts, prevalence_prior=1, confusion_prior=1)
    return found


def comparisons(classes: int, samples: int) -> list[str]:
    ours, theirs = (study(kind, classes, samples) for kind in (Study, PeerStudy))

    def singly(found: Study) -> list:
        pairs = combinations([f"g{e}/e" for e in range(10)], 2)
        return [
            found.get_pairwise_comparison("acc", experiment_a=a, experiment_b=b, min_sig_diff=0.01) for a, b in pairs
        ]

    together = ours.compare_all_pairs("acc", min_sig_diff=0.01)
    for k, (a, b) in enumerate(zip(singly(ours), singly(theirs), strict=True)):  # which fills the caches too
        assert a.p_rope == together.p_rope[k] and abs(float(a.p_rope) - b.p_rope) < 0.1
    case = f"45 comparisons, {classes} classes, {samples} samples at hand"
    return [
        row(case, lambda: singly(ours), lambda: singly(theirs)),
        row(case + ", in one call", lambda: ours.compare_all_pairs("acc", min_sig_diff=0.01), lambda: singly(theirs)),
    ]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(os.cpu_count())
    generator = np.random.default_rng(0)
    rows = [*summaries(generator), *pooling(generator), *comparisons(100, 1000), *comparisons(10, 10_000)]
    machine = f"{os.cpu_count()} cores, {torch.backends.cpu.get_cpu_capability()}, {platform.machine()}"
    table = "\n".join(
        [
            f"# Summaries, pooling and comparisons, {machine}",
            "",
            f"{datetime.date.today()}; torch {torch.__version__}, numpy {np.__version__}, "
            f"prob_conf_mat {version('prob_conf_mat')}.",
            f"Times: medians of {TURNS} turns, of the density one.",
            "",
            "| case | peer ms | ours ms | ratio |",
            "| --- | --- | --- | --- |",
            *rows,
            "",
        ]
    )
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(table)
