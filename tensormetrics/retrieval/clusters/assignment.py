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

WIDEST = 1024  # maximal number of columns; a program of the kernels holds those of 16 rows
_DISTANCE = DISTANCES["sqeuclidean"]


class CentroidAssignment:
    """Rows (N, D) that are prepared once, at the first use, for several sets of centroids."""

    def __init__(self, rows: Tensor) -> None:
        self.rows, self.memory = rows, budget(None, rows.device)

    def __call__(self, centroids: Tensor, is_near: bool = True) -> tuple[Tensor, Tensor]:
        # centroids: (K, D) float64  is_near: they lie among the rows, see `QueryCache`
        # ->  (N,) int64, the nearest centroid, of equally near ones the first; (N,) float64, squared distances
        x, is_gpu = self.rows, self.rows.device.type != "cpu"
        can_multiply = x.numel() and x.shape[1] <= WIDEST and gpu_kernels.can_use("cluster assignment", x.device)
        if can_multiply and not DirectSearch(x, centroids, None, 1, _DISTANCE, self.memory).can_run:
            from ..search.kernels import assign

            clusters = assign.nearest_centroids(x, centroids, self._queries, self._prepared(centroids, True))
            return clusters, _DISTANCE.of_lists(x, centroids, clusters[:, None], self.memory // 4)[:, 0]
        cache = self._cache if is_near and len(x) else None
        squared, nearest = TorchKNN("sqeuclidean").search(x, 1, centroids, with_distances=is_gpu, query_cache=cache)
        clusters = nearest[:, 0]
        if is_gpu:
            return clusters, squared[:, 0]
        return clusters, squared_distances(x, torch.arange(len(x), device=x.device), centroids, clusters)

    @functools.cached_property
    def _cache(self) -> QueryCache:
        return QueryCache(self.rows, self.memory)

    @functools.cached_property
    def _filter(self) -> Filter:
        return Filter(self.rows, _DISTANCE, torch.float32)

    @functools.cached_property
    def _queries(self) -> Float16Queries:
        return self._prepared(self.rows)

    def _prepared(self, rows: Tensor, is_ordered: bool = False) -> Float16Queries:
        # rows: (N, D), of the same center and scale  is_ordered: as references
        from ..search.kernels import nearest, prepare

        size, width = padded(len(rows), nearest.TILE), padded(rows.shape[1], nearest.DEPTH)
        center, sizes, rounding = self._filter.center, self._filter.sizes, self._filter.rounding
        low, summing = sizes, summing_error(width)  # the low part is for two parts only
        options = _DISTANCE.factor, False, 1, size, width, is_ordered
        return prepare.queries(rows, center, sizes, low, rounding, summing, *options)


def squared_distances(x: Tensor, row: Tensor, centroids: Tensor, column: Tensor) -> Tensor:
    # x: (N, D)  row: (n,) int64  centroids: (K, D) float64  column: (n,) int64  ->  (n,) float64
    # Distances are symmetric: the rows are passed as references, which are not copied.
    return _DISTANCE.of_pairs(centroids, x, column, row, budget(None, x.device) // 4)
