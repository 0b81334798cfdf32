"""Assignment of rows to the nearest of some centroids."""

import functools

import torch
from torch import Tensor

from ...core.native import gpu_kernels
from ..inputs import budget
from ..search.direct_search import DirectSearch
from ..search.distance import DISTANCES
from ..search.fp16_filter import padded, summing_error
from ..search.kernels.tables import Float16Queries
from ..search.knn import QueryCache, TorchKNN
from ..search.product_filter import Filter

_DISTANCE = DISTANCES["sqeuclidean"]


class Assignment:
    """Rows (N, D) that are prepared once, at the first use, for several sets of centroids."""

    def __init__(self, rows: Tensor) -> None:
        self.rows, self.memory = rows, budget(None, rows.device)

    def __call__(self, centroids: Tensor, is_near: bool = True) -> tuple[Tensor, Tensor]:
        # centroids: (K, D) float64  is_near: they lie among the rows, see `QueryCache`
        # ->  (N,) int64, the nearest centroid, of equally near ones the first; (N,) float64, squared distances
        x, is_gpu = self.rows, self.rows.device.type != "cpu"
        if self._has_kernels and not DirectSearch(x, centroids, None, 1, _DISTANCE, self.memory).can_run:
            return self._by_kernels(centroids)
        cache = self._cache if is_near and len(x) else None
        squared, nearest = TorchKNN("sqeuclidean").search(x, 1, centroids, with_distances=is_gpu, query_cache=cache)
        clusters = nearest[:, 0]
        if is_gpu:
            return clusters, squared[:, 0]
        return clusters, squared_distances(x, torch.arange(len(x), device=x.device), centroids, clusters)

    @property
    def _has_kernels(self) -> bool:
        if not len(self.rows) or not gpu_kernels.can_use("cluster assignment", self.rows.device):
            return False
        from ..search.kernels import assign

        return 0 < self.rows.shape[1] <= assign.WIDEST

    @functools.cached_property
    def _cache(self) -> QueryCache:
        return QueryCache(self.rows, self.memory)

    @functools.cached_property
    def _prepared(self) -> tuple[Filter, Float16Queries]:
        from ..search.kernels import nearest, prepare

        filter_, (count, dim) = Filter(self.rows, _DISTANCE, torch.float32), self.rows.shape
        size, width = padded(count, nearest.TILE), padded(dim, nearest.DEPTH)
        normalization = filter_.center, filter_.sizes, filter_.sizes  # the last is for two parts only
        errors = filter_.rounding, summing_error(width)
        return filter_, prepare.queries(self.rows, *normalization, *errors, 2, False, 1, size, width)

    def _by_kernels(self, centroids: Tensor) -> tuple[Tensor, Tensor]:
        from ..search.kernels import assign, prepare

        filter_, queries = self._prepared
        size, width = padded(len(centroids), assign.TILE), queries.rows.shape[1]
        tables = prepare.centroids(centroids, filter_.center, filter_.sizes, filter_.rounding, size, width)
        clusters = assign.nearest_centroids(self.rows, centroids, queries, *tables)
        squared = _DISTANCE.of_lists(self.rows, centroids, clusters[:, None], self.memory // 4)
        return clusters, squared[:, 0]


def squared_distances(x: Tensor, row: Tensor, centroids: Tensor, column: Tensor) -> Tensor:
    # x: (N, D)  row: (n,) int64  centroids: (K, D) float64  column: (n,) int64  ->  (n,) float64
    # Distances are symmetric: the rows are passed as references, which are not copied.
    return _DISTANCE.of_pairs(centroids, x, column, row, budget(None, x.device) // 4)
