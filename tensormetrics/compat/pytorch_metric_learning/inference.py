"""Names of the module of this name: searches and k-means, with the arguments and the distances of that package."""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any

from torch import Tensor

from ...retrieval.clusters import faiss_kmeans
from ...retrieval.search.backends import faiss_knn
from ...retrieval.search.knn import TorchKNN


class CustomKNN(TorchKNN):
    """k nearest neighbors by a function of rows; see `retrieval.TorchKNN`.

    `distance` is a distance of that package, or a function `(Q, D), (R, D) -> (Q, R)`. Blocks are as large as the
    memory budget allows, for any `batch_size`.
    """

    def __init__(self, distance: Callable[[Tensor, Tensor], Tensor], batch_size: int | None = None) -> None:
        super().__init__(distance)
        self.batch_size = batch_size


class FaissKNN(faiss_knn.FaissKNN):
    """k nearest neighbors by faiss; see `retrieval.FaissKNN`. Distances are those of its index: L2 is squared."""

    def __init__(
        self,
        reset_before: bool = True,
        reset_after: bool = True,
        index_init_fn: Callable[[int], Any] | None = None,
        gpus: Sequence[int] | None = None,
    ) -> None:
        super().__init__(reset_before, reset_after, index_init_fn, gpus, distance="sqeuclidean")

    def save(self, filename: str | PathLike) -> None:
        super().save(filename)

    def load(self, filename: str | PathLike) -> None:
        super().load(filename)

    def _checked(self, index: Any) -> Any:
        from faiss import METRIC_INNER_PRODUCT

        self.distance = "ip" if index.metric_type == METRIC_INNER_PRODUCT else "sqeuclidean"
        return super()._checked(index)


class FaissKMeans(faiss_kmeans.FaissKMeans):
    """k-means of FAISS; see `retrieval.FaissKMeans`. Its options and their defaults are those of `faiss.Kmeans`."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"niter": 25, **kwargs})

    def __call__(self, x: Any, nmb_clusters: int) -> Tensor:
        # x: (N, D)  ->  (N,) int64
        return super().__call__(x, nmb_clusters)
