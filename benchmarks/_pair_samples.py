"""Coverage of intervals of scores of all pairs, cluster accuracy and adjusted mutual information of a known truth.

Embeddings are normal around the centers of their classes; the truth is the score of 10,000 other items.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tensormetrics.core.numbers.quantiles import equal_tailed_interval
from tensormetrics.core.resampling.draws import delete_one_jackknife, scaled_draws
from tensormetrics.retrieval import ClusterAccuracy, EqualErrorRate, PairwiseAUROC, TARAtFAR
from tensormetrics.retrieval.functional import contingency, expected_mutual_info

SETS, REPLICATES, TRUTH_ITEMS, DIMENSIONS = 200, 500, 10_000, 8
METRICS: dict[str, Callable[[], Any]] = {
    "area": PairwiseAUROC,
    "equal error rate": EqualErrorRate,
    "TAR at FAR .1": lambda: TARAtFAR(0.1),
    "TAR at FAR .01": lambda: TARAtFAR(0.01),
}
PARTITION_SIZES = tuple((items, clusters) for items in (30, 100, 500) for clusters in (3, 10))
DEPENDENCES = 0.0, 0.5, 0.9
MATCHED_SIZES = (100, 3), (300, 5), (1000, 5), (1000, 10), (1600, 20), (4800, 20), (10_000, 50)
AGREEMENTS = 0.0, 0.05, 0.1, 0.2, 0.5


class Classes(NamedTuple):
    """Numbers of items and of equally probable classes, and the standard deviation of the centers."""

    items: int
    classes: int
    distance: float


ROWS = (
    Classes(20, 4, 1.0),
    Classes(50, 5, 3.0),
    Classes(100, 20, 1.5),
    Classes(200, 10, 1.0),
    Classes(500, 10, 1.0),
    Classes(500, 100, 1.5),
)


def embeddings(row: Classes, items: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return items and their classes."""
    centers = torch.randn(row.classes, DIMENSIONS, generator=torch.Generator().manual_seed(1)) * row.distance
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(row.classes, (items,), generator=generator)
    return torch.randn(items, DIMENSIONS, generator=generator) + centers[labels], labels


def pair_coverage(name: str, row: Classes, sets: int | None) -> tuple[float, float]:
    """Return the fraction of sets whose interval holds the score of the population, and the mean width."""
    results = []
    reference = METRICS[name]()
    reference.update(*embeddings(row, TRUTH_ITEMS, 10**6))
    truth = reference.compute()
    for seed in range(sets or SETS):
        metric = METRICS[name]()
        metric.update(*embeddings(row, row.items, seed))
        _, low, high = metric.interval(replicates=REPLICATES, seed=seed)
        results.append((bool(low <= truth <= high), float(high - low)))
    covered, width = np.mean(results, 0).tolist()
    return covered, width


def accuracy_coverage(items: int, classes: int, agreement: float, sets: int | None) -> tuple[float, float]:
    """Return the fractions of sets that are refused, and whose interval of cluster accuracy does not hold the truth.

    A cluster is the class with probability `agreement`, else any.
    """
    truth, missed = agreement + (1 - agreement) / classes, []
    for seed in range(sets or SETS):
        generator = torch.Generator().manual_seed(seed)
        labels, clusters = torch.randint(classes, (2, items), generator=generator)
        metric = ClusterAccuracy()
        metric.update(labels, torch.where(torch.rand(items, generator=generator) < agreement, labels, clusters))
        try:
            _, low, high = metric.interval(replicates=REPLICATES, seed=seed)
            missed.append(not low <= truth <= high)
        except NotImplementedError:
            continue
    return 1 - len(missed) / (sets or SETS), sum(missed) / (sets or SETS)


def entropies(tables: Tensor) -> tuple[Tensor, Tensor]:
    # tables: (..., K, K) weights  ->  (...) each, mutual information and the mean entropy of both partitions
    fractions = tables / tables.sum((-2, -1), keepdim=True)
    rows, columns, cells = (
        -(part * part.clamp(min=1e-300).log()).sum(-1)
        for part in (fractions.sum(-1), fractions.sum(-2), fractions.flatten(-2))
    )
    return rows + columns - cells, (rows + columns) / 2


def partition_coverage(items: int, clusters: int, dependence: float, sets: int | None) -> float:
    """Return the coverage of the draws J of adjusted mutual information with the chance term of integer counts.

    A cluster is the class with probability `dependence`, else any.
    """
    fractions = np.full((clusters, clusters), (1 - dependence) / clusters**2) + np.eye(clusters) * dependence / clusters
    truth = float((fractions * np.log(fractions.clip(1e-300) * clusters**2)).sum() / np.log(clusters))
    covered = []
    for seed in range(sets or SETS):
        random = np.random.default_rng(seed)
        cell = torch.from_numpy(random.choice(clusters**2, items, p=fractions.ravel()))
        weights = torch.from_numpy(random.exponential(size=(REPLICATES, items)))

        def tables(weights: Tensor, cell: Tensor = cell) -> Tensor:
            sums = torch.zeros(len(weights), clusters**2, dtype=torch.float64).index_add_(1, cell, weights)
            return sums.view(-1, clusters, clusters)

        def adjusted(counts: Tensor, mask: Tensor, cell: Tensor = cell) -> Tensor:
            chance = expected_mutual_info(contingency(cell[mask] // clusters, cell[mask] % clusters))
            information, mean_entropy = entropies(counts)
            return (information - chance) / (mean_entropy - chance)

        everything = torch.ones(items, dtype=torch.bool)
        value = adjusted(tables(torch.ones(1, items, dtype=torch.float64)), everything)
        of_cells = {}
        for item in range(items):
            if int(cell[item]) not in of_cells:
                mask = everything.clone()
                mask[item] = False
                of_cells[int(cell[item])] = adjusted(tables(mask.double()[None]), mask)
        without = torch.stack([of_cells[int(index)] for index in cell])
        jackknife = delete_one_jackknife(value, without, torch.ones(items, dtype=torch.float64))
        draws = scaled_draws(value, adjusted(tables(weights), everything)[:, None], jackknife.standard_error, 1.0)
        low, high = equal_tailed_interval(draws.clamp(-1, 1), 0.95)
        covered.append(bool(min(low, value) <= truth <= max(high, value)))
    return float(np.mean(covered))
