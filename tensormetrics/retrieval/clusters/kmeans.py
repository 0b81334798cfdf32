"""k-means clustering, with results that depend neither on the order of the rows nor on the device."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.arguments.checks import takes_arrays
from ...core.arguments.repr import ConstructorRepr
from ...core.native import gpu_kernels
from ...core.numbers.exact_sums import COARSE, cumulative_mass, parts, total, unit_of
from ..deterministic import class_parts, largest_of_columns, row_norms
from ..inputs import RetrievalInputs, as_embeddings, check_finite, check_squares
from .assignment import CentroidAssignment, squared_distances
from .communicator import LOCAL, Communicator, GroupCommunicator

EMPTY, MOVED = 1, 2  # bits of the status of a kernel: a cluster has no row, a row has another cluster


class Update(NamedTuple):
    """Rows of each cluster (K,) and their sums (K, D), whether all have some, and whether a row changed its cluster."""

    counts: Tensor
    sums: Tensor
    is_full: bool
    is_changed: bool


class TorchKMeans(ConstructorRepr):
    """Lloyd's k-means: `kmeans(x, n_clusters)` returns the cluster of every row, (N,) int64.

    Rows are assigned to the nearest centroid, ties to the lower cluster; centroids are float64 means. An empty cluster
    takes the row that is farthest from its centroid (ties by content) from a cluster of more than one row. Random draws
    are made from the rows ordered by their content, and sums are exact: any permutation of the rows gives each row the
    same cluster, bit for bit. A call sets `centroids` (K, D) float64, `inertia` () float64 (sum of squared distances)
    and `n_iter`. ValueError for NaN and infinity. Lloyd, 1982, DOI 10.1109/TIT.1982.1056489; k-means++: Arthur and
    Vassilvitskii, 2007.

    Args:
        niter: maximum number of centroid updates; it stops earlier if no row changes its cluster.
        init: "random" (K distinct rows), "k-means++", or the first centroids (K, D).
        seed: seed of all random draws; these are made on the CPU and are the same for every device.
        n_init: number of runs from different draws; the one of smallest inertia is kept. Time is proportional to it.
            With the default, 1, scores of clusters vary with the seed; with 10 several times less.
        tol: also stop if an update changes the inertia by less than this fraction.
        max_points_per_centroid: compute centroids from a random sample of at most this many rows per cluster; all rows
            are assigned. None: from all rows.
        spherical: rows and centroids are scaled to unit length; Dhillon and Modha, 2001, DOI 10.1023/A:1007612920971.

    >>> x = torch.tensor([[0.0], [0.1], [5.0], [5.1]])
    >>> TorchKMeans()(x, 2)
    tensor([1, 1, 0, 0])
    """

    def __init__(
        self,
        niter: int = 20,
        *,
        init: Literal["random", "k-means++"] | Tensor = "random",
        seed: int = 1234,
        n_init: int = 1,
        tol: float = 0.0,
        max_points_per_centroid: int | None = None,
        spherical: bool = False,
    ) -> None:
        init = checks.array_as_tensor(init)
        if not isinstance(init, Tensor):
            checks.check_choice("init", init, ("random", "k-means++"))
        self.niter = checks.check_int("niter", niter, 1)
        self.init = init
        self.seed = checks.check_int("seed", seed, 0)
        self.n_init = checks.check_int("n_init", n_init, 1)
        if not tol >= 0:
            raise ValueError(f"tol: got {tol!r}, wanted a number >= 0")
        self.tol = tol
        if max_points_per_centroid is not None:
            checks.check_int("max_points_per_centroid", max_points_per_centroid, 1)
        self.max_points_per_centroid = max_points_per_centroid
        self.spherical = spherical

    @takes_arrays
    @torch.no_grad()
    def __call__(self, x: Tensor, n_clusters: int) -> Tensor:
        # x: (N, D)  ->  (N,) int64
        x = as_embeddings("x", x)
        check_finite(x=x)
        check_squares(x=x)
        return self.clusters(x, n_clusters)

    @torch.no_grad()
    def clusters(self, x: Tensor, n_clusters: int, comm: Communicator = LOCAL) -> Tensor:
        """Cluster checked rows; `comm` may be of several processes if `spreads` is true.

        Shapes: x: (N, D) -> (N,) int64.
        """
        n_clusters = checks.check_int("n_clusters", n_clusters, 1)
        count = comm.num_rows(x)
        if n_clusters > count:
            raise ValueError(f"n_clusters: got {n_clusters}, wanted at most the number of rows of x, {count}")
        if self.spherical:
            x = _unit(x)
        generator = torch.Generator().manual_seed(self.seed)
        order = comm.content_order(x)
        sample = self._sample(x, order, n_clusters, generator)
        order = order if sample is x else torch.arange(len(sample), device=x.device)
        starts = (self._first_centroids(sample, order, n_clusters, generator, comm) for _ in range(self.n_init))
        units = unit_of(comm.all_reduce_max(largest_of_columns(sample)))
        assign = CentroidAssignment(sample)
        runs = (self._run(assign, order, units, start, comm) for start in starts)
        clusters, self.centroids, self.inertia, self.n_iter = min(runs, key=lambda run: run[2])
        if sample is not x:
            clusters, squared = CentroidAssignment(x)(self.centroids, is_near=False)
            self.inertia = _inertia(squared.double(), comm)
        return clusters

    @property
    def spreads(self) -> bool:
        """True if rows may stay on several processes; other initializations need all of them in one order."""
        return self.max_points_per_centroid is None and (isinstance(self.init, Tensor) or self.init == "random")

    def _sample(self, x: Tensor, order: Tensor, n_clusters: int, generator: torch.Generator) -> Tensor:
        # x: (N, D)  order: (N,) int64 by content  ->  (M, D), in this order, or x itself
        rows = len(x) if self.max_points_per_centroid is None else self.max_points_per_centroid * n_clusters
        if rows >= len(x):
            return x
        return x[order[torch.randperm(len(x), generator=generator, device="cpu")[:rows].sort().values.to(x.device)]]

    def _run(
        self,
        assign: CentroidAssignment,
        order: Tensor,
        units: Tensor,
        centroids: Tensor,
        comm: Communicator = LOCAL,
    ) -> tuple[Tensor, Tensor, Tensor, int]:
        # order: (N,) int64, the rows by content  units: (D,), see `class_parts`
        # centroids: (K, D) float64  ->  clusters (N,), centroids (K, D), inertia (), number of updates
        # The user's initial centroids may lie far from the rows.
        x = assign.rows
        clusters, squared = assign(centroids, is_near=not isinstance(self.init, Tensor))
        options = units, len(centroids), comm
        update = self._update(x, clusters, None, *options)
        for n_iter in range(1, self.niter + 1):  # noqa: B007
            previous, before = clusters, squared
            if not update.is_full:
                all_clusters = _fill_empty(comm.all_gather(clusters), comm.all_gather(squared), order, len(centroids))
                update = self._update(x, all_clusters[comm.local_rows], None, *options)
            centroids = update.sums / update.counts[:, None]
            if self.spherical:
                centroids = _unit(centroids)
            clusters, squared = assign(centroids)
            if n_iter == self.niter:
                break
            if self.tol:
                inertia = _inertia(before, comm)
                if (_inertia(squared, comm) - inertia).abs() < self.tol * inertia:
                    break
            update = self._update(x, clusters, previous, *options)
            if not update.is_changed:
                break
        return clusters, centroids, _inertia(squared, comm), n_iter

    @staticmethod
    def _update(
        x: Tensor, clusters: Tensor, previous: Tensor | None, units: Tensor, n_clusters: int, comm: Communicator
    ) -> Update:
        # x: (N, D)  clusters, previous: (N,) int64, None: unknown  units: (D,); synchronizes with the device once
        if comm is LOCAL and gpu_kernels.can_use("cluster sums", x.device):
            from ..search.kernels import clusters as kernels

            before = clusters if previous is None else previous
            counts, sums, status = kernels.cluster_sums(x, clusters, before, units, n_clusters, (EMPTY, MOVED))
            word = int(status)
            return Update(counts, total(sums), not word & EMPTY, bool(word & MOVED))
        if previous is not None and comm.all_true(torch.equal(clusters, previous)):
            return Update(clusters, clusters, True, False)  # the last one, of which no sums are read
        counts = torch.bincount(clusters, minlength=n_clusters)
        counts, sums = comm.all_reduce_sum(counts, class_parts(x, clusters, n_clusters, units))
        return Update(counts, total(sums), bool(counts.all()), True)

    def _first_centroids(
        self, x: Tensor, order: Tensor, n_clusters: int, generator: torch.Generator, comm: Communicator = LOCAL
    ) -> Tensor:
        # x: (N, D)  order: (N,) int64 by content  ->  (K, D) float64
        if isinstance(self.init, Tensor):
            checks.shape("init", self.init, n_clusters, x.shape[1])
            checks.same_device(x=x, init=self.init)
            return _unit(self.init.double()) if self.spherical else self.init.double()
        if self.init == "random":
            first = order[torch.randperm(len(order), generator=generator, device="cpu")[:n_clusters].to(x.device)]
            return comm.gather_rows(x, first).double()
        draws = torch.rand(n_clusters, generator=generator, dtype=torch.float64, device="cpu").to(x.device)
        weight = x.new_ones(len(x), dtype=torch.float64)  # in the order by content
        centroids, first = [], torch.zeros_like(order)
        for draw in draws:
            mass = cumulative_mass(weight)
            position = torch.searchsorted(mass, draw * mass[-1:], right=True).clamp(max=len(x) - 1)
            centroids.append(x[order[position]].double())
            squared = squared_distances(x, order, centroids[-1], first)
            weight = squared if len(centroids) == 1 else torch.minimum(weight, squared)
        return torch.cat(centroids)


def sharded_clusters(kmeans: Callable, inputs: RetrievalInputs, n_clusters: int) -> Tensor:
    # ->  (Q,) int64
    """Return the clusters of the queries of all processes, without gathering the rows."""
    assert isinstance(kmeans, TorchKMeans) and inputs.layout is not None  # else rows are gathered
    comm = GroupCommunicator(inputs.layout)
    return comm.all_gather(kmeans.clusters(inputs.query, n_clusters, comm))


def _unit(rows: Tensor) -> Tensor:
    # rows: (N, D)  ->  (N, D) of length 1; zeros stay zeros
    rows = rows.to(torch.promote_types(rows.dtype, torch.float32))
    norm = row_norms(rows.double())[:, None].to(rows.dtype)  # same bits at any position of the row
    return rows / torch.where(norm > 0, norm, 1.0)


def _inertia(squared: Tensor, comm: Communicator) -> Tensor:
    # squared: (N,) float64  ->  ()
    """Sum squared distances over all processes, with the result of `exact_sum`."""
    largest = squared.abs().amax() if len(squared) else squared.new_zeros(())
    unit = unit_of(comm.all_reduce_max(largest))
    return total(comm.all_reduce_sum(torch.stack([part.sum() for part in parts(squared, unit, COARSE)]))[0])


def _fill_empty(clusters: Tensor, squared: Tensor, order: Tensor, n_clusters: int) -> Tensor:
    # clusters, squared: (N,)  order: (N,) int64 by content  ->  (N,), every cluster with at least one row
    empty = (torch.bincount(clusters, minlength=n_clusters) == 0).nonzero()[:, 0]
    if not len(empty):
        return clusters
    farthest = order[squared[order].argsort(descending=True, stable=True)]
    owner, position = clusters[farthest], torch.arange(len(clusters), device=clusters.device)
    last = position.new_full((n_clusters,), -1).scatter_reduce(0, owner, position, "amax")
    movable = farthest[position != last[owner]]  # the row nearest to each centroid stays
    return clusters.index_copy(0, movable[: len(empty)], empty)
