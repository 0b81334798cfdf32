"""Clustering scores from pairs of items that share a class and cluster, only one of them, or neither."""

import torch
from torch import Tensor

from ...core.arguments.checks import takes_arrays
from .contingency import ClusteringMetric, Contingency, as_contingency


@takes_arrays
def adjusted_rand(labels: Tensor | Contingency, clusters: Tensor | None = None) -> Tensor:
    """Compute the fraction of pairs on which class and cluster agree, adjusted for chance.

    Shapes: labels, clusters: (..., N), or a Contingency alone -> (...) float64.

    In [-0.5, 1], higher is better: 1 for equal partitions (also N < 2), about 0 for independent ones. ValueError as
    `contingency`. Hubert and Arabie, Comparing Partitions, 1985, DOI 10.1007/BF01908075.

    >>> labels, clusters = torch.tensor([0, 0, 1, 1, 1]), torch.tensor([5, 5, 7, 7, 5])
    >>> adjusted_rand(labels, clusters)
    tensor(0.1667, dtype=torch.float64)
    """
    table = as_contingency(labels, clusters)
    same_both, same_class, same_cluster = _ordered_pairs(table)
    only_class, only_cluster = same_class - same_both, same_cluster - same_both
    apart = table.total * (table.total - 1) - same_both - only_class - only_cluster
    chance = same_class * (only_class + apart) + same_cluster * (only_cluster + apart)
    value = 2 * (same_both * apart - only_class * only_cluster) / chance
    return torch.where(only_class + only_cluster == 0, 1.0, value)


@takes_arrays
def fowlkes_mallows(labels: Tensor | Contingency, clusters: Tensor | None = None) -> Tensor:
    """Compute the geometric mean of precision and recall over pairs: TP / sqrt((TP + FP) (TP + FN)).

    Shapes: labels, clusters: (..., N), or a Contingency alone -> (...) float64.

    In [0, 1], higher is better; 0 if no pair shares both class and cluster. ValueError as `contingency`. Fowlkes and
    Mallows, A Method for Comparing Two Hierarchical Clusterings, 1983, DOI 10.1080/01621459.1983.10478008.

    >>> labels, clusters = torch.tensor([0, 0, 1, 1, 1]), torch.tensor([5, 5, 7, 7, 5])
    >>> fowlkes_mallows(labels, clusters)
    tensor(0.5000, dtype=torch.float64)
    """
    same_both, same_class, same_cluster = _ordered_pairs(as_contingency(labels, clusters))
    mean = (same_both.clamp(min=0) / same_class).sqrt() * (same_both.clamp(min=0) / same_cluster).sqrt()
    return torch.where(same_both > 0, mean, 0.0)


class AdjustedRand(ClusteringMetric):
    """Adjusted Rand index (ARI) of a clustering: 1 for equal partitions, about 0 by chance.

    Formula: `adjusted_rand`.
    """

    plot_lower_bound = None  # negative if partitions agree less than by chance

    def value_range(self) -> tuple[float, float]:
        return -0.5, 1.0  # Chacón & Rastrojo 2023, doi:10.1007/s11634-022-00491-w

    function = staticmethod(adjusted_rand)


class FowlkesMallows(ClusteringMetric):
    """Fowlkes-Mallows index (FMI): geometric mean of precision and recall over pairs of items, in [0, 1].

    Formula: `fowlkes_mallows`.
    """

    function = staticmethod(fowlkes_mallows)


def _ordered_pairs(table: Contingency) -> list[Tensor]:
    # ->  (...) float64 each: pairs of one class and cluster, of one class, of one cluster; (i, j) and (j, i) both count
    # Counted as integers; the products of these counts would overflow them from about 55,000 items.
    # The mean square of a random weight is 2, so that the pair of a weighted item with itself is subtracted as 2.
    self_pairs = 2 if table.count.is_floating_point() else 1
    return [(size * (size - self_pairs)).sum(-1).double() for size in (table.count, table.row_size, table.col_size)]
