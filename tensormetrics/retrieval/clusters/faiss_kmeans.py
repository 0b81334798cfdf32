"""k-means by FAISS, for values that are comparable with those of other packages."""

from typing import Any

import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.arguments.checks import takes_arrays
from ...core.arguments.repr import ConstructorRepr
from ..inputs import as_embeddings, check_finite


class FaissKMeans(ConstructorRepr):
    """k-means of FAISS, `faiss.Kmeans(D, n_clusters, **options)`: `kmeans(x, n_clusters)` returns (N,) int64.

    The options are those of FAISS (seed=1234, max_points_per_centroid=256, gpu=False, ...); the default of `niter` is
    20 instead of 25, as in the calculator of pytorch-metric-learning. Clusters depend on the order of the rows. Rows
    are passed in float32 through the host; the result is on the device of `x`. A call sets `centroids` (K, D).
    ValueError for NaN and infinity, ImportError without faiss. Johnson, Douze and Jégou, 2019, DOI
    10.1109/TBDATA.2019.2921572.

    >>> x = torch.tensor([[0.0], [0.1], [5.0], [5.1]])
    >>> FaissKMeans(min_points_per_centroid=1)(x, 2)
    tensor([1, 1, 0, 0])
    """

    def __init__(self, **options: Any) -> None:
        try:
            import faiss
        except ImportError as error:
            raise ImportError("FaissKMeans needs faiss: pip install 'tensormetrics[faiss]'") from error
        self.options = {"niter": 20} | options
        self._kmeans = faiss.Kmeans

    @takes_arrays
    def __call__(self, x: Tensor, n_clusters: int) -> Tensor:
        # x: (N, D)  ->  (N,) int64
        check_finite(x=x)
        rows = as_embeddings("x", x).detach().float().cpu().contiguous().numpy()
        n_clusters = checks.check_int("n_clusters", n_clusters, 1)
        if n_clusters > len(x):
            raise ValueError(f"n_clusters: got {n_clusters}, wanted at most the number of rows of x, {len(x)}")
        kmeans = self._kmeans(x.shape[1], n_clusters, **self.options)
        kmeans.train(rows)
        self.centroids = torch.from_numpy(kmeans.centroids).to(x.device)
        return torch.from_numpy(kmeans.index.search(rows, 1)[1][:, 0]).to(x.device)
