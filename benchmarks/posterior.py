"""Claim: twelve metrics of a posterior are sampled at least 3 times as fast as prob_conf_mat does for 2 and for 10
classes, 5 times for 100, in under 500 MB; 1,000 classes, for which that library needs 240 GB, fit in 4 GB.

Equal values of the observed matrix and equal means of the samples (within 5 standard errors) are asserted before
anything is timed; rivals take turns in one process; times are medians. Memory is the peak of a separate process.

Under the priors perks and balanced most of 1,000 classes were never mistaken for each other: such cells are drawn in
groups. The means of their sums are asserted first, within 5 standard errors (tests/posterior/test_stick_breaking.py
tests the full distribution); the ragged table has classes with 0 to 2,000 items.
"""

import multiprocessing
import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from _common import Table, arguments

from tensormetrics.posterior.functional import dirichlet_prior, sample_metrics, sample_sums

NEEDS = ("prob_conf_mat",)
METRICS = "acc ba mcc kappa f1 f1@macro f1@weighted ppv@macro tpr@macro p4@macro jaccard@macro log_dor@macro".split()
DIAGONAL = ["acc", "ba", "tpr"]
CASES = (2, 10**6), (10, 10**5), (100, 10**4)  # classes, samples
PRIORS = {"prevalence_prior": 1, "confusion_prior": 1}
TURNS = 5


def counts_of(classes: int) -> np.ndarray:
    """Return a matrix with 50 observations per row, most of them on the diagonal."""
    generator = np.random.default_rng(classes)
    chances = np.eye(classes) * 3 * classes + generator.random((classes, classes))
    return np.stack([generator.multinomial(50, row / row.sum()) for row in chances])


def ours(counts: np.ndarray, samples: int, method: str = "posterior", metrics: list[str] = METRICS) -> list[np.ndarray]:
    values = sample_metrics(torch.from_numpy(counts), metrics, samples, method=method, **PRIORS)
    return [x[:, 0].numpy() for x in values]


def sums_only(counts: np.ndarray, samples: int) -> None:
    sample_sums(torch.from_numpy(counts), samples, **PRIORS)


def peer(counts: np.ndarray, samples: int, method: str = "posterior") -> list[np.ndarray]:
    from prob_conf_mat.experiment import Experiment
    from prob_conf_mat.metrics import MetricCollection
    from prob_conf_mat.utils import RNG

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        experiment = Experiment("e", RNG(0), counts, *PRIORS.values())
        results = experiment.sample_metrics(MetricCollection(METRICS), method, samples)
    values = {metric.name: result.values for metric, result in results.items()}
    return [values[metric] for metric in METRICS]


def assert_agreement(counts: np.ndarray) -> None:
    for metric, a, b in zip(METRICS, ours(counts, 1, "input"), peer(counts, 1, "input"), strict=True):
        finite = np.isfinite(b)  # x / 0 is nan in prob_conf_mat and inf in tensormetrics
        np.testing.assert_allclose(a[finite], b[finite], rtol=1e-9, err_msg=metric)
    for metric, a, b in zip(METRICS, ours(counts, 4000), peer(counts, 4000), strict=True):
        error = np.sqrt((a.astype(np.float64).var(0) + b.var(0)) / 4000)
        assert (abs(a.mean(0, dtype=np.float64) - b.mean(0)) <= 5 * error).all(), metric


def seconds(rivals: dict[str, Callable[[], object]], turns: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in rivals}
    for _ in range(turns):
        for name, run in rivals.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def _isolated(run: Callable[..., object], arguments: tuple, answers: multiprocessing.SimpleQueue) -> None:
    start = time.perf_counter()
    run(*arguments)
    took = time.perf_counter() - start
    status = Path("/proc/self/status").read_text()  # getrusage would start at the parent's peak
    answers.put((took, int(status.partition("VmHWM:")[2].split()[0]) / 1024))


def isolated(run: Callable[..., object], *arguments: object) -> tuple[float, float]:
    """Return seconds and peak MB, imported libraries included, of one call in a separate process."""
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    process = context.Process(target=_isolated, args=(run, arguments, answers))
    process.start()
    process.join()
    return answers.get()


def against_peer(classes: int, samples: int) -> Iterator[list[str]]:
    counts = counts_of(classes)
    assert_agreement(counts)
    took = seconds(
        {
            "peer": lambda: peer(counts, samples),
            "ours": lambda: ours(counts, samples),
            "sums": lambda: sums_only(counts, samples),
        },
        TURNS,
    )
    times = f"{took['peer']:.3f}", f"{took['ours']:.3f}", f"{took['peer'] / took['ours']:.1f}x", f"{took['sums']:.3f}"
    memory = (f"{isolated(run, counts, samples)[1]:.0f}" for run in (peer, ours))
    yield [f"{classes} classes, {samples} samples, 12 metrics", *times, *memory]


def ragged_counts(classes: int) -> np.ndarray:
    """Return counts of classes with 0 to 2,000 items; all items of a few classes are assigned to one other class."""
    generator = np.random.default_rng(classes)
    items = np.minimum(generator.pareto(0.7, classes).astype(int), 2000)
    chances = np.eye(classes) * 3 * classes + generator.random((classes, classes)) ** 8
    counts = np.stack([generator.multinomial(n, row / row.sum()) for n, row in zip(items, chances, strict=True)])
    counts[:5] = 0
    counts[:5, 7] = 30
    return counts


def assert_law(counts: np.ndarray, prior: str, samples: int = 1000) -> None:
    """Assert that means of sums of at least three items are those of the Dirichlet model, to 5 standard errors."""
    priors = {"prevalence_prior": "perks", "confusion_prior": prior}
    sums = sample_sums(torch.from_numpy(counts), samples, dtype=torch.float64, **priors)
    C = len(counts)
    rows = counts + dirichlet_prior(prior, (C, C)).numpy()
    prevalence = counts.sum(1) + 1 / C
    cells = (prevalence / prevalence.sum() / rows.sum(1))[:, None] * rows
    right = np.diag(cells)
    expected = np.array([right.sum()]), right, cells.sum(0) - right, cells.sum(1) - right
    sampled = [sums.tp[:, 0].sum(-1, keepdim=True), *(x[:, 0] for x in (sums.tp, sums.fp, sums.fn))]
    for x, mean in zip(sampled, expected, strict=True):
        often = mean * counts.sum() >= 3  # means of rarer masses are not normal
        apart = abs(x.mean(0).numpy() - mean) > 5 * x.std(0).numpy() / samples**0.5
        assert not apart[often].any(), (prior, apart.mean())


def groups_of_cells(classes: int, samples: int) -> Iterator[list[str]]:
    tables = ("", counts_of(classes)), (" (ragged)", ragged_counts(classes))
    for prior in "perks", "balanced":
        for kind, counts in tables:
            assert_law(counts, prior)
            table, priors = torch.from_numpy(counts), {"prevalence_prior": "perks", "confusion_prior": prior}
            took = seconds(
                {
                    "ours": lambda table=table, priors=priors: sample_metrics(table, METRICS, samples, **priors),
                    "sums": lambda table=table, priors=priors: sample_sums(table, samples, **priors),
                },
                TURNS,
            )
            times = "", f"{took['ours']:.2f}", "", f"{took['sums']:.2f}", "", ""
            yield [f"{classes} classes{kind}, {samples} samples, 12 metrics, prior {prior}", *times]


def thousand_classes() -> Iterator[list[str]]:
    counts = counts_of(1000)
    for name, metrics in ("acc, ba, tpr", DIAGONAL), ("12 metrics", METRICS):
        took, peak = isolated(ours, counts, 10_000, "posterior", metrics)
        yield [f"1000 classes, 10000 samples, {name}", "", f"{took:.2f}", "", "", "", f"{peak:.0f}"]


def main() -> None:
    options = arguments(__doc__, ("cpu",))
    torch.set_num_threads(os.cpu_count())
    columns = ("case", "peer s", "ours s", "ratio", "of it sums s", "peer MB", "ours MB")
    notes = "Peak memory includes the imported libraries."
    table = Table(options, "Posterior sampling", columns, notes, ("numpy", "prob_conf_mat"))
    for case in [(10, 10**3)] if options.quick else CASES:
        table.add(against_peer(*case))
    if not options.quick:
        table.add(thousand_classes())
    table.add(groups_of_cells(*((100, 1000) if options.quick else (1000, 10_000))))
    table.finish()


if __name__ == "__main__":
    main()
