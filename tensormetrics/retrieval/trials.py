"""Trials of the kernels of the search and of ranks."""

import torch
from torch import Tensor

from ..core.native.gpu_kernels import is_equal_on, register_trial, sample_input


def try_canonical_distances(device: torch.device) -> bool:
    from .search.distance import DISTANCES

    def compute(x: Tensor) -> tuple[Tensor, ...]:
        row, column = torch.arange(12, device=x.device).view(2, 6)
        return tuple(distance.of_pairs(x, x, row, column, memory=2**20) for distance in DISTANCES.values())

    return is_equal_on(device, compute, sample_input(12, 20))


def try_search(device: torch.device) -> bool:
    from .search.knn import TorchKNN

    def compute(x: Tensor) -> tuple[Tensor, ...]:
        # Few blocks are read again; all are multiplied again; a sample limits many neighbors.
        few = TorchKNN("ip").indices(x[:5], 10, x[:1024]), TorchKNN("cosine").indices(x[:5], 90, x[:300])
        return TorchKNN().indices(x, 1, x, True), *few

    return is_equal_on(device, compute, sample_input(2304, 16))


def try_direct_search(device: torch.device) -> bool:
    from .search.knn import TorchKNN

    def compute(x: Tensor) -> tuple[Tensor, ...]:
        # Blocks of references, blocks of one, and batches with padding.
        batch, is_row = x[:90].view(3, 30, 20), torch.arange(30, device=x.device).expand(3, -1) < 25
        of_items = TorchKNN("cosine")(batch, 3, batch, query_mask=is_row, reference_mask=is_row)
        return *TorchKNN()(x, 1, x, True), *TorchKNN("ip")(x[:5], 100, x), *of_items

    return is_equal_on(device, compute, sample_input(140, 20))


def try_neighbor_scores(device: torch.device) -> bool:
    from .inputs import RetrievalInputs
    from .ranking.neighbor_ranks import label_ranker
    from .scores.average_precision import average_precision
    from .scores.ndcg import ndcg
    from .scores.query_metric import Classes, means

    def compute(x: Tensor) -> tuple[Tensor, ...]:
        labels = torch.arange(len(x), device=x.device) % 40
        indices = (7 * torch.arange(len(x), device=x.device)[:, None] + torch.arange(9, device=x.device)) % len(x)
        ranks = label_ranker(RetrievalInputs(x, labels, x, labels, len(x)))(slice(0, len(x)), indices)
        classes = [Classes(labels, x[:, 0] > 0, on_lone) for on_lone in ("zero", "exclude")]
        gain, table = (ranks.rank % 3).double(), 1e3 * x.T.double()
        graded = ranks._replace(gain=gain, ideal=gain.sort(descending=True).values)
        scores = [score(y, k) for score in (ndcg, average_precision) for y in (ranks, graded) for k in (1, 5, 9)]
        averages = (means(table, of, by_class) for of in classes for by_class in (False, True))
        return ranks.rank, ranks.relevant, *scores, *averages

    return is_equal_on(device, compute, sample_input(130, 16))


def try_counting(device: torch.device) -> bool:
    from .ranking.positive_ranks import positive_ranks

    def compute(x: Tensor) -> tuple[Tensor, ...]:
        rows = x[torch.arange(len(x), device=x.device) % 70]  # equal ones are undecided
        ranks = positive_ranks(rows, torch.arange(len(x), device=x.device) % 40)
        return ranks.rank, ranks.relevant

    return is_equal_on(device, compute, sample_input(130, 16))


def try_clusters(device: torch.device) -> bool:
    from .clusters.kmeans import TorchKMeans

    def compute(x: Tensor) -> tuple[Tensor, ...]:
        kmeans = TorchKMeans(4, init=x[:140])  # of which two are equal, so that one is empty at first
        return kmeans(x, 140), kmeans.centroids, kmeans.inertia

    return is_equal_on(device, compute, sample_input(300, 16).index_fill(0, torch.arange(2, device="cpu"), 9.0))


def try_clustering_scores(device: torch.device) -> bool:
    from .clusters.mutual_info import adjusted_mutual_info, mutual_info

    def compute(labels: Tensor, clusters: Tensor) -> tuple[Tensor, ...]:
        return mutual_info(labels, clusters), adjusted_mutual_info(labels, clusters)

    labels = torch.arange(400, device="cpu") % 7
    return is_equal_on(device, compute, labels, labels.square() % 5 + labels // 100, rtol=1e-10)


register_trial("canonical distances", "Triton", "TorchKNN and retrieval scores", try_canonical_distances)
register_trial("search", "Triton", "TorchKNN and its users", try_search, ("canonical distances",))
register_trial("preparation", "Triton", "TorchKNN and its users", try_search, ("search", "canonical distances"))
register_trial("direct search", "Triton", "TorchKNN and its users", try_direct_search)
register_trial("neighbor scores", "Triton", "retrieval scores of neighbors", try_neighbor_scores)
register_trial("counting", "Triton", "ranks of all positives", try_counting, ("canonical distances",))
register_trial("cluster sums", "Triton", "TorchKMeans", try_clusters)
register_trial("cluster assignment", "Triton", "TorchKMeans", try_clusters, ("preparation", "canonical distances"))
register_trial("clustering scores", "Triton", "mutual information of clusters", try_clustering_scores)
