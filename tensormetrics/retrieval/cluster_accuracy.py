"""Clustering accuracy under the best one-to-one matching of clusters to classes."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .. import _checks
from ..assignment import linear_sum_assignment
from ._embeddings import EmbeddingMetric
from .contingency import Contingency, as_contingency
from .kmeans import TorchKMeans


def cluster_accuracy(labels: Tensor | Contingency, clusters: Tensor | None = None) -> Tensor:
    # labels, clusters: (..., N), or a Contingency alone  ->  (...) float64
    """Fraction of items whose cluster is matched to their class, under the one-to-one matching that maximises it.

    In [0, 1], higher is better; NaN for N = 0. Numbers of classes and clusters may differ. Memory is classes x
    clusters. ValueError as `contingency`. Yang et al., Image Clustering Using Local Discriminant Models and Global
    Integration, 2010, DOI 10.1109/TIP.2010.2049235.
    """
    table = as_contingency(labels, clusters)
    shape = table.row_size.shape[-1], table.col_size.shape[-1]
    dense = table.count.new_zeros(*table.count.shape[:-1], shape[0] * shape[1])
    dense.scatter_add_(-1, table.row * shape[1] + table.col, table.count)
    return linear_sum_assignment(dense.unflatten(-1, shape).double(), maximize=True).cost / table.total


class ClusterAccuracy(EmbeddingMetric):
    """Clusters the queries of all updates and compares with their labels; see `cluster_accuracy`.

    Args:
        n_clusters: default the number of distinct labels.
        kmeans_func: `(x, n_clusters) -> (N,)` integers; default `TorchKMeans()`.
    """

    higher_is_better = True

    def __init__(
        self,
        n_clusters: int | None = None,
        kmeans_func: Callable[[Tensor, int], Tensor] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.n_clusters = None if n_clusters is None else _checks.integer_at_least("n_clusters", n_clusters, 1)
        self.kmeans_func = kmeans_func or TorchKMeans()

    def compute(self) -> Tensor:
        # ->  () float64
        sides = self.kept()
        classes, codes = sides.query_labels.unique(return_inverse=True)
        if not len(codes):
            return sides.query.new_full((), torch.nan, dtype=torch.float64)
        clusters = self.kmeans_func(sides.query, self.n_clusters or len(classes))
        return cluster_accuracy(codes, torch.as_tensor(clusters, device=codes.device))
