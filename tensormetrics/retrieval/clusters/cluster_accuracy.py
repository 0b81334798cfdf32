"""Clustering accuracy under the best one-to-one matching of clusters to classes."""

import functools
import math
from collections.abc import Callable

import torch
from torch import Tensor
from typing_extensions import Unpack

from ...assignment import linear_sum_assignment
from ...core.arguments import checks
from ...core.arguments.checks import takes_arrays
from ...core.metric.base import Options
from ...core.numbers.exact_sums import scatter_add
from ..deterministic import distinct
from ..inputs import budget, check_budget
from ..scores.embedding_metric import EmbeddingMetric
from .contingency import ClusteringMetric, Contingency, as_contingency, items_of
from .kmeans import TorchKMeans, sharded_clusters

MAX_BIAS = 0.3  # of resampled scores, in their standard deviations, where the score has an interval


@takes_arrays
def cluster_accuracy(
    labels: Tensor | Contingency, clusters: Tensor | None = None, *, memory_budget: int | None = None
) -> Tensor:
    """Compute the fraction of items in the cluster matched to their class, by the best one-to-one matching.

    Shapes: labels, clusters: (..., N), or a Contingency alone -> (...) float64.

    In [0, 1], higher is better; NaN for N = 0. Numbers of classes and clusters may differ. The matching needs a dense
    table of 4 bytes a cell (8 from 4 million items). If the table of all classes and clusters exceeds `memory_budget`
    (default 256 MiB on a CPU, 1 GiB on a GPU), each connected component of classes and clusters with shared items gets
    a separate table; ValueError if one of these still exceeds it, and as `contingency`. Yang et al., Image Clustering
    Using Local Discriminant Models and Global Integration, 2010, DOI 10.1109/TIP.2010.2049235.

    >>> labels, clusters = torch.tensor([0, 0, 1, 1, 1]), torch.tensor([5, 5, 7, 7, 5])
    >>> cluster_accuracy(labels, clusters)
    tensor(0.8000, dtype=torch.float64)
    """
    table = as_contingency(labels, clusters)
    memory = budget(memory_budget, table.count.device)
    shape = table.row_size.shape[-1], table.col_size.shape[-1]
    dense = (*table.count.shape[:-1], shape[0] * shape[1])
    dtype = _dtype(table)
    if dtype.itemsize * math.prod(dense) > memory:
        return _match_components(table, memory) / table.total
    counts = torch.zeros(dense, dtype=dtype, device=table.count.device)
    counts.scatter_add_(-1, table.row * shape[1] + table.col, table.count.to(dtype))
    return linear_sum_assignment(counts.unflatten(-1, shape), maximize=True).cost / table.total


def _check_bias(name: str, bias: Tensor, deviation: Tensor) -> None:
    bias = bias.abs() / deviation
    if bool((bias > MAX_BIAS).any()):
        raise NotImplementedError(
            f"{name}: samples of these items match other clusters, which raises the score by {float(bias.max()):.1f} "
            f"standard deviations; above {MAX_BIAS} agreement is hardly told from chance and there is no interval, "
            "take AdjustedRand"
        )


class ClusterAccuracy(ClusteringMetric):
    """Fraction of items in the cluster matched one-to-one to their class, in [0, 1]; see `cluster_accuracy`.

    For embeddings: `EmbeddingClusterAccuracy`. `interval` raises NotImplementedError where agreement is hardly more
    than chance, so that other samples match other clusters.

    Args:
        memory_budget: Maximal bytes of a table of classes and clusters, by default 256 MiB on a CPU, 1 GiB on a GPU.
    """

    is_biased, check_bias = True, staticmethod(_check_bias)

    def __init__(self, memory_budget: int | None = None, **kwargs: Unpack[Options]) -> None:
        super().__init__(**kwargs)
        self.memory_budget = check_budget(memory_budget)

    def score(self, table: Contingency) -> Tensor:
        # ->  (...) float64
        return cluster_accuracy(table, memory_budget=self.memory_budget)


class EmbeddingClusterAccuracy(EmbeddingMetric):
    """Cluster accuracy of a k-means clustering of the queries of all updates; see `cluster_accuracy`.

    Args:
        n_clusters: Number of clusters, by default that of distinct labels.
        kmeans_func: `(x, n_clusters) -> (N,)` integers, by default `TorchKMeans()`.
        memory_budget: as in `cluster_accuracy`.

    >>> x, labels = torch.tensor([[0.0], [0.1], [5.0], [5.1], [0.3]]), torch.tensor([0, 0, 1, 1, 1])
    >>> metric = EmbeddingClusterAccuracy()
    >>> metric.update(x, labels)
    >>> metric.compute()
    tensor(0.8000, dtype=torch.float64)
    """

    higher_is_better = True
    plot_lower_bound, plot_upper_bound = 0.0, 1.0

    def __init__(
        self,
        n_clusters: int | None = None,
        kmeans_func: Callable[[Tensor, int], Tensor] | None = None,
        memory_budget: int | None = None,
        **kwargs: Unpack[Options],
    ) -> None:
        super().__init__(**kwargs)
        self.n_clusters = None if n_clusters is None else checks.check_int("n_clusters", n_clusters, 1)
        checks.check_type("kmeans_func", kmeans_func, Callable | None, "a function")
        self.kmeans_func = kmeans_func or TorchKMeans()
        self.memory_budget = check_budget(memory_budget)

    def rows_may_stay(self) -> bool:
        return type(self.kmeans_func) is TorchKMeans and self.kmeans_func.spreads

    def compute(self) -> Tensor:
        # ->  () float64
        inputs, queries = self.stored_inputs()
        classes, codes = inputs.query_labels.unique(return_inverse=True)
        if not len(codes):
            return inputs.query.new_full((), torch.nan, dtype=torch.float64)
        n_clusters = self.n_clusters or len(classes)
        if inputs.layout is not None:
            clusters = sharded_clusters(self.kmeans_func, inputs, n_clusters)
        else:
            clusters = torch.as_tensor(self.kmeans_func(inputs.query, n_clusters), device=codes.device)
        score = functools.partial(cluster_accuracy, memory_budget=self.memory_budget)
        arguments = codes, clusters, queries.names, score
        self._items = functools.partial(items_of, *arguments, biased=type(self).__name__, check_bias=_check_bias)
        return cluster_accuracy(codes, clusters, memory_budget=self.memory_budget)


def _dtype(table: Contingency) -> torch.dtype:
    # Sums of counts along a path of the solver are at most a few times the number of items: exact up to 2^24.
    return torch.float32 if table.total < 2**22 else torch.float64


def _match_components(table: Contingency, memory: int) -> Tensor:
    # ->  (...) float64: matched items, solved separately for each connected component of classes and clusters
    batch_shape, cells = table.count.shape[:-1], table.count.shape[-1]
    counts = table.count.reshape(-1, cells)
    item, cell = counts.nonzero(as_tuple=True)
    counts = counts[item, cell].to(_dtype(table))
    row = item * table.row_size.shape[-1] + table.row.reshape(-1, cells)[item, cell]
    col = item * table.col_size.shape[-1] + table.col.reshape(-1, cells)[item, cell]
    part = _connected_components(row, col)
    (row, heights), (col, widths) = _index_nodes(part, row), _index_nodes(part, col)
    largest = int((heights * widths).argmax())
    height, width = int(heights[largest]), int(widths[largest])
    needed = counts.itemsize * height * width
    if needed > memory:
        raise ValueError(
            f"memory_budget: {height} classes and {width} clusters are linked by shared items and need a table of "
            f"{needed} bytes, got {memory}; pass a larger memory_budget"
        )
    matched = torch.zeros(len(heights), dtype=torch.float64, device=counts.device)
    # Components of similar size, by powers of two, are padded to a common size and solved together.
    size = torch.stack([heights, widths], 1).sub(1).double().frexp().exponent
    _, kinds = size.unique(dim=0, return_inverse=True)
    for kind in range(int(kinds.max()) + 1):
        members = (kinds == kind).nonzero()[:, 0]
        bound = counts.itemsize * int(heights[members].max()) * int(widths[members].max())
        for batch in members.split(max(memory // bound, 1)):
            slot = torch.full_like(heights, -1).index_copy_(0, batch, torch.arange(len(batch), device=batch.device))
            is_member = slot[part] >= 0
            shape = len(batch), int(heights[batch].max()), int(widths[batch].max())
            dense = counts.new_zeros(shape)
            dense[slot[part[is_member]], row[is_member], col[is_member]] = counts[is_member]
            solution = linear_sum_assignment(
                dense, maximize=True, row_lengths=heights[batch], col_lengths=widths[batch]
            )
            matched[batch] = solution.cost
    owner = torch.zeros_like(heights).scatter_(0, part, item)
    return scatter_add(matched.new_zeros(math.prod(batch_shape)), owner, matched).view(batch_shape)


def _connected_components(row: Tensor, col: Tensor) -> Tensor:
    # row, col: (Z,) nodes of each cell  ->  (Z,) int64, 0, 1, ...: connected component of each cell
    lowest = torch.arange(int(row.max()) + 1, device=row.device)  # lowest row found so far in the component
    while True:
        of_col = torch.full((int(col.max()) + 1,), len(lowest), device=row.device)
        of_col.scatter_reduce_(0, col, lowest[row], "amin")
        lower = lowest.scatter_reduce(0, row, of_col[col], "amin")
        lower = lower[lower]  # path halving
        if torch.equal(lower, lowest):
            return distinct(lowest[row])[2]
        lowest = lower


def _index_nodes(part: Tensor, node: Tensor) -> tuple[Tensor, Tensor]:
    # part, node: (Z,)  ->  (Z,) index of the node of each cell within its component, (P,) number of nodes of each one
    nodes = node.max() + 1
    key, _, index = distinct(part * nodes + node)
    sizes = torch.bincount(key // nodes)
    return index - (sizes.cumsum(0) - sizes)[part], sizes
