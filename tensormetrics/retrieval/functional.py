"""Functions behind the classes of `tensormetrics.retrieval`, and the types of tensors that they take."""

from .clusters.cluster_accuracy import cluster_accuracy
from .clusters.contingency import Contingency, contingency
from .clusters.mutual_info import (
    adjusted_mutual_info,
    completeness,
    expected_mutual_info,
    homogeneity,
    mutual_info,
    normalized_mutual_info,
    v_measure,
)
from .clusters.pair_counts import adjusted_rand, fowlkes_mallows
from .ranking.positive_ranks import PositiveRanks, count_relevant, positive_ranks, ranks_of_neighbors
from .scores.average_precision import average_precision, average_precision_at_r
from .scores.centroid import nearest_centroid
from .scores.ndcg import ndcg
from .scores.position import first_rank, inverse_negative_penalty, ranking_auroc
from .scores.precision import precision, r_precision
from .scores.recall import cmc, hit_rate, recall
from .scores.reciprocal_rank import reciprocal_rank
from .scores.verification import equal_error_rate, pairwise_auroc, pairwise_roc, tar_at_far

__all__ = ["PositiveRanks", "positive_ranks", "ranks_of_neighbors", "count_relevant"]
__all__ += ["average_precision", "average_precision_at_r", "first_rank", "inverse_negative_penalty", "nearest_centroid"]
__all__ += ["ndcg"]
__all__ += ["cmc", "hit_rate", "precision", "r_precision", "ranking_auroc", "recall", "reciprocal_rank"]
__all__ += ["equal_error_rate", "pairwise_auroc", "pairwise_roc", "tar_at_far"]
__all__ += ["Contingency", "contingency", "adjusted_mutual_info", "expected_mutual_info", "mutual_info"]
__all__ += ["normalized_mutual_info"]
__all__ += ["adjusted_rand", "cluster_accuracy", "completeness", "fowlkes_mallows", "homogeneity", "v_measure"]
