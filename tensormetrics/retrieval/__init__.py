"""Nearest-neighbor search, and scores of embeddings by their neighbors and their clusters."""

from types import ModuleType as _ModuleType

# The subpackages; each depends only on those above it.
#   deterministic, relevance: exact sums, and the relevant references of a query
#   sources, inputs: files of rows that are read in blocks, and rows with labels
#   search: nearest-neighbor search
#   ranking: the ranks of relevant references, also over several processes
#   scores: precision, recall, ...: a file for each family, with intervals
#   clusters: k-means, and scores of clusterings
#   calculator: many scores by name from one search
#   runs: ranked lists of documents in files of TREC and BEIR, scored against judgements
from . import trials  # noqa: F401  it registers the trials of the GPU kernels
from .calculator.calculator import AccuracyCalculator as AccuracyCalculator
from .clusters.cluster_accuracy import ClusterAccuracy as ClusterAccuracy
from .clusters.cluster_accuracy import EmbeddingClusterAccuracy as EmbeddingClusterAccuracy
from .clusters.cluster_accuracy import cluster_accuracy as cluster_accuracy
from .clusters.contingency import Contingency as Contingency
from .clusters.contingency import contingency as contingency
from .clusters.faiss_kmeans import FaissKMeans as FaissKMeans
from .clusters.kmeans import TorchKMeans as TorchKMeans
from .clusters.mutual_info import AdjustedMutualInfo as AdjustedMutualInfo
from .clusters.mutual_info import Completeness as Completeness
from .clusters.mutual_info import Homogeneity as Homogeneity
from .clusters.mutual_info import NormalizedMutualInfo as NormalizedMutualInfo
from .clusters.mutual_info import VMeasure as VMeasure
from .clusters.mutual_info import adjusted_mutual_info as adjusted_mutual_info
from .clusters.mutual_info import completeness as completeness
from .clusters.mutual_info import expected_mutual_info as expected_mutual_info
from .clusters.mutual_info import homogeneity as homogeneity
from .clusters.mutual_info import mutual_info as mutual_info
from .clusters.mutual_info import normalized_mutual_info as normalized_mutual_info
from .clusters.mutual_info import v_measure as v_measure
from .clusters.pair_counts import AdjustedRand as AdjustedRand
from .clusters.pair_counts import FowlkesMallows as FowlkesMallows
from .clusters.pair_counts import adjusted_rand as adjusted_rand
from .clusters.pair_counts import fowlkes_mallows as fowlkes_mallows
from .ranking.positive_ranks import PositiveRanks as PositiveRanks
from .ranking.positive_ranks import count_relevant as count_relevant
from .ranking.positive_ranks import positive_ranks as positive_ranks
from .ranking.positive_ranks import ranks_of_neighbors as ranks_of_neighbors
from .runs.evaluate import RunScores as RunScores
from .runs.evaluate import evaluate_run as evaluate_run
from .runs.pairs import Qrels as Qrels
from .runs.pairs import Run as Run
from .runs.run_metric import RunMetric as RunMetric
from .scores.average_precision import AveragePrecision as AveragePrecision
from .scores.average_precision import AveragePrecisionAtR as AveragePrecisionAtR
from .scores.average_precision import average_precision as average_precision
from .scores.average_precision import average_precision_at_r as average_precision_at_r
from .scores.centroid import NearestCentroidAccuracy as NearestCentroidAccuracy
from .scores.centroid import nearest_centroid as nearest_centroid
from .scores.ndcg import NDCG as NDCG
from .scores.ndcg import ndcg as ndcg
from .scores.pair_metrics import EqualErrorRate as EqualErrorRate
from .scores.pair_metrics import PairwiseAUROC as PairwiseAUROC
from .scores.pair_metrics import PairwiseROC as PairwiseROC
from .scores.pair_metrics import TARAtFAR as TARAtFAR
from .scores.position import FirstRank as FirstRank
from .scores.position import InverseNegativePenalty as InverseNegativePenalty
from .scores.position import RankingAUROC as RankingAUROC
from .scores.position import first_rank as first_rank
from .scores.position import inverse_negative_penalty as inverse_negative_penalty
from .scores.position import ranking_auroc as ranking_auroc
from .scores.precision import PrecisionAtK as PrecisionAtK
from .scores.precision import RPrecision as RPrecision
from .scores.precision import precision as precision
from .scores.precision import r_precision as r_precision
from .scores.recall import HitRate as HitRate
from .scores.recall import MetricLearningRecall as MetricLearningRecall
from .scores.recall import RecallAtK as RecallAtK
from .scores.recall import cmc as cmc
from .scores.recall import hit_rate as hit_rate
from .scores.recall import recall as recall
from .scores.reciprocal_rank import ReciprocalRank as ReciprocalRank
from .scores.reciprocal_rank import reciprocal_rank as reciprocal_rank
from .scores.verification import OperatingPoints as OperatingPoints
from .scores.verification import equal_error_rate as equal_error_rate
from .scores.verification import pairwise_auroc as pairwise_auroc
from .scores.verification import pairwise_roc as pairwise_roc
from .scores.verification import tar_at_far as tar_at_far
from .search.backends.faiss_knn import FaissKNN as FaissKNN
from .search.backends.keops_knn import KeOpsKNN as KeOpsKNN
from .search.backends.sharded import ShardedKNN as ShardedKNN
from .search.backends.stored import StoredKNN as StoredKNN
from .search.knn import TorchKNN as TorchKNN
from .sources.files import open_embeddings as open_embeddings
from .sources.source import EmbeddingSource as EmbeddingSource

__all__ = sorted(name for name in globals() if name[0] != "_" and not isinstance(globals()[name], _ModuleType))


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
