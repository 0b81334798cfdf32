"""Nearest-neighbour search, and scores of embeddings by their neighbours and their clusters."""

# A map of the files; each line stands on those above it.
#   _embeddings, _relevance: rows with labels, and which references count for a query
#   _canonical, _filter: the order of neighbours, and matrix products that rule most pairs out, within a proven bound
#   _native, _least: the search in C++ on a CPU; _float16, _search_kernels, _canonical_kernels: in Triton on a GPU
#   _nearest, _batch, knn: the search of one set of rows, of a batch of them, and its door
#   _backend, faiss_knn, keops_knn, sharded: searches of the same form
#   _counting, _counting_kernels, ranks, _spread_ranks: ranks of relevant references, also over several processes
#   _embedding_metric, _query_metric: bases of metrics; precision, recall, ndcg, ...: a file for each family of scores
#   contingency, mutual_info, pair_counts, cluster_accuracy, kmeans, faiss_kmeans: clusters; uncertainty: how sure
#   _metric_names, _search, _scoring, _knn_labels, _progress, _door, accuracy_calculator: the calculator

from .calculator.accuracy_calculator import AccuracyCalculator as AccuracyCalculator
from .clusters.cluster_accuracy import ClusterAccuracy as ClusterAccuracy
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
from .ranks.ranks import PositiveRanks as PositiveRanks
from .ranks.ranks import count_relevant as count_relevant
from .ranks.ranks import positive_ranks as positive_ranks
from .ranks.ranks import ranks_of_neighbours as ranks_of_neighbours
from .scores.average_precision import AveragePrecision as AveragePrecision
from .scores.average_precision import AveragePrecisionAtR as AveragePrecisionAtR
from .scores.average_precision import average_precision as average_precision
from .scores.average_precision import average_precision_at_r as average_precision_at_r
from .scores.centroid import NearestCentroidAccuracy as NearestCentroidAccuracy
from .scores.centroid import nearest_centroid as nearest_centroid
from .scores.ndcg import NDCG as NDCG
from .scores.ndcg import ndcg as ndcg
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
from .scores.recall import RecallAtK as RecallAtK
from .scores.recall import hit_rate as hit_rate
from .scores.recall import recall as recall
from .scores.reciprocal_rank import ReciprocalRank as ReciprocalRank
from .scores.reciprocal_rank import reciprocal_rank as reciprocal_rank
from .scores.uncertainty import Interval as Interval
from .scores.uncertainty import Test as Test
from .scores.uncertainty import bootstrap as bootstrap
from .scores.uncertainty import paired_randomisation as paired_randomisation
from .search.backends.faiss_knn import FaissKNN as FaissKNN
from .search.backends.keops_knn import KeOpsKNN as KeOpsKNN
from .search.backends.sharded import ShardedKNN as ShardedKNN
from .search.knn import TorchKNN as TorchKNN

# Whatever is imported above: what `import *` brings and the reference shows.
__all__ = [name for name, value in vars().items() if getattr(value, "__module__", "").startswith(__name__)]
