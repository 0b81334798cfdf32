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

from .accuracy_calculator import AccuracyCalculator as AccuracyCalculator
from .average_precision import AveragePrecision as AveragePrecision
from .average_precision import AveragePrecisionAtR as AveragePrecisionAtR
from .average_precision import average_precision as average_precision
from .average_precision import average_precision_at_r as average_precision_at_r
from .centroid import NearestCentroidAccuracy as NearestCentroidAccuracy
from .centroid import nearest_centroid as nearest_centroid
from .cluster_accuracy import ClusterAccuracy as ClusterAccuracy
from .cluster_accuracy import cluster_accuracy as cluster_accuracy
from .contingency import Contingency as Contingency
from .contingency import contingency as contingency
from .faiss_kmeans import FaissKMeans as FaissKMeans
from .faiss_knn import FaissKNN as FaissKNN
from .keops_knn import KeOpsKNN as KeOpsKNN
from .kmeans import TorchKMeans as TorchKMeans
from .knn import TorchKNN as TorchKNN
from .mutual_info import AdjustedMutualInfo as AdjustedMutualInfo
from .mutual_info import Completeness as Completeness
from .mutual_info import Homogeneity as Homogeneity
from .mutual_info import NormalizedMutualInfo as NormalizedMutualInfo
from .mutual_info import VMeasure as VMeasure
from .mutual_info import adjusted_mutual_info as adjusted_mutual_info
from .mutual_info import completeness as completeness
from .mutual_info import expected_mutual_info as expected_mutual_info
from .mutual_info import homogeneity as homogeneity
from .mutual_info import mutual_info as mutual_info
from .mutual_info import normalized_mutual_info as normalized_mutual_info
from .mutual_info import v_measure as v_measure
from .ndcg import NDCG as NDCG
from .ndcg import ndcg as ndcg
from .pair_counts import AdjustedRand as AdjustedRand
from .pair_counts import FowlkesMallows as FowlkesMallows
from .pair_counts import adjusted_rand as adjusted_rand
from .pair_counts import fowlkes_mallows as fowlkes_mallows
from .position import FirstRank as FirstRank
from .position import InverseNegativePenalty as InverseNegativePenalty
from .position import RankingAUROC as RankingAUROC
from .position import first_rank as first_rank
from .position import inverse_negative_penalty as inverse_negative_penalty
from .position import ranking_auroc as ranking_auroc
from .precision import PrecisionAtK as PrecisionAtK
from .precision import RPrecision as RPrecision
from .precision import precision as precision
from .precision import r_precision as r_precision
from .ranks import PositiveRanks as PositiveRanks
from .ranks import count_relevant as count_relevant
from .ranks import positive_ranks as positive_ranks
from .ranks import ranks_of_neighbours as ranks_of_neighbours
from .recall import HitRate as HitRate
from .recall import RecallAtK as RecallAtK
from .recall import hit_rate as hit_rate
from .recall import recall as recall
from .reciprocal_rank import ReciprocalRank as ReciprocalRank
from .reciprocal_rank import reciprocal_rank as reciprocal_rank
from .sharded import ShardedKNN as ShardedKNN
from .uncertainty import Interval as Interval
from .uncertainty import Test as Test
from .uncertainty import bootstrap as bootstrap
from .uncertainty import paired_randomisation as paired_randomisation

# Whatever is imported above: what `import *` brings and the reference shows.
__all__ = [name for name, value in vars().items() if getattr(value, "__module__", "").startswith(__name__)]
