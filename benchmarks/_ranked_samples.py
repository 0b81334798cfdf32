"""Coverage of intervals of ranked scores and of calibration errors, where the truth is known.

Ranked scores are normal, of few positives and negatives; probabilities are too high by a constant.
"""

from typing import NamedTuple

import numpy as np
import scipy.stats
import torch

from tensormetrics.uncertainty import BinaryAUROC, BinaryAveragePrecision, CalibrationError, compare
from tensormetrics.uncertainty.metrics.ranked import RankedMetric

SETS, REPLICATES = 200, 1000
SIZES = (2, 2), (2, 8), (5, 5), (4, 16), (10, 10), (5, 25), (5, 45), (25, 25)
AREAS = 0.76, 0.92
CALIBRATION_SETS = 100
CALIBRATION_SIZES = 100, 200, 1000, 5000
OFFSETS = 0.0, 0.05, 0.1, 0.2
SHARED = 0.5  # variance of a score that two models have in common


class Ranked(NamedTuple):
    """Fractions of sets, and a mean width."""

    coverage: float
    width: float
    significant: float  # p <= .05 of two models of equal area


def average_precision_of(distance: float, positives: float) -> float:
    """Integrate the precision over the recall, of normal scores that are `distance` apart."""
    cuts = np.linspace(-8, 8 + distance, 40_001)
    recall, false = scipy.stats.norm.sf(cuts - distance), scipy.stats.norm.sf(cuts)
    precision = positives * recall / (positives * recall + (1 - positives) * false)
    return float(-((precision[1:] + precision[:-1]) / 2 * np.diff(recall)).sum())


def coverage_of(kind: type[RankedMetric], area: float, size: tuple[int, int], sets: int | None) -> Ranked:
    """Compute the coverage of `sets` simulated pairs of models with `size` positives and negatives."""
    distance, (positives, negatives) = float(scipy.stats.norm.ppf(area)) * 2**0.5, size
    truth = area if kind is BinaryAUROC else average_precision_of(distance, positives / sum(size))
    target = (torch.arange(sum(size)) < positives).long()
    generator = torch.Generator().manual_seed(1000 * positives + negatives)
    results = []
    for seed in range(sets or SETS):
        noise = torch.randn(3, len(target), generator=generator, dtype=torch.float64)
        metrics = kind(), kind()
        for metric, independent_noise in zip(metrics, noise[1:], strict=True):
            metric.update(distance * target + SHARED**0.5 * noise[0] + (1 - SHARED) ** 0.5 * independent_noise, target)
        _, low, high = metrics[0].interval(replicates=REPLICATES, seed=seed)
        p_value = compare(*metrics, replicates=REPLICATES, seed=seed).p_value
        results.append((bool(low <= truth <= high), float(high - low), bool(p_value <= 0.05)))
    return Ranked(*np.mean(results, 0).tolist())


def rows() -> list[tuple[str, type[RankedMetric], float]]:
    """Return the names of the rows of the table, their metrics and areas."""
    metrics = {"AUROC": BinaryAUROC, "average precision": BinaryAveragePrecision}
    return [(f"{name}, normal scores of area {area}", kind, area) for name, kind in metrics.items() for area in AREAS]


def calibration_coverage(norm: str, count: int, offset: float, sets: int | None) -> float:
    """Return the fraction of sets of `count` probabilities in [.2, .8] whose interval holds the error."""
    generator, covered = torch.Generator().manual_seed(count + round(100 * offset)), []
    for seed in range(sets or CALIBRATION_SETS):
        preds = torch.rand(count, generator=generator, dtype=torch.float64) * 0.6 + 0.2
        target = (torch.rand(count, generator=generator, dtype=torch.float64) < preds - offset).long()
        metric = CalibrationError(norm=norm, replicates=500, seed=seed)
        metric.update(preds, target)
        _, low, high = metric.interval()
        covered.append(bool(low <= offset <= high))
    return float(np.mean(covered))
