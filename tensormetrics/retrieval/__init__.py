"""Nearest-neighbor search, and scores of embeddings by their neighbors and their clusters."""

# The subpackages; each depends only on those above it.
#   deterministic, relevance: exact sums, and the relevant references of a query
#   sources, inputs: files of rows that are read in blocks, and rows with labels
#   search: nearest-neighbor search
#   ranking: the ranks of relevant references, also over several processes
#   scores: precision, recall, ...: a file for each family, with intervals
#   clusters: k-means, and scores of clusterings
#   calculator: many scores by name from one search
#   runs: ranked lists of documents in files of TREC and BEIR, scored against judgements
from . import extend as extend
from . import functional as functional
from . import trials  # noqa: F401  it registers the trials of the GPU kernels
from .calculator.calculator import AccuracyCalculator
from .clusters.cluster_accuracy import ClusterAccuracy, EmbeddingClusterAccuracy
from .clusters.faiss_kmeans import FaissKMeans
from .clusters.kmeans import TorchKMeans
from .clusters.mutual_info import AdjustedMutualInfo, Completeness, Homogeneity, NormalizedMutualInfo, VMeasure
from .clusters.pair_counts import AdjustedRand, FowlkesMallows
from .runs.evaluate import RunScores, evaluate_run
from .runs.pairs import Qrels, Run
from .runs.run_metric import RunMetric
from .scores.average_precision import AveragePrecision, AveragePrecisionAtR
from .scores.centroid import NearestCentroidAccuracy
from .scores.ndcg import NDCG
from .scores.pair_metrics import EqualErrorRate, PairwiseAUROC, PairwiseROC, TARAtFAR
from .scores.position import FirstRank, InverseNegativePenalty, RankingAUROC
from .scores.precision import PrecisionAtK, RPrecision
from .scores.recall import HitRate, RecallAtK
from .scores.reciprocal_rank import ReciprocalRank
from .search.backends.faiss_knn import FaissKNN
from .search.backends.keops_knn import KeOpsKNN
from .search.backends.sharded import ShardedKNN
from .search.backends.stored import StoredKNN
from .search.knn import TorchKNN
from .sources.files import open_embeddings

__all__ = ["AccuracyCalculator", "FaissKNN", "KeOpsKNN", "ShardedKNN", "StoredKNN", "TorchKNN", "open_embeddings"]
__all__ += ["AveragePrecision", "AveragePrecisionAtR", "FirstRank", "HitRate", "InverseNegativePenalty", "NDCG"]
__all__ += ["NearestCentroidAccuracy", "PrecisionAtK", "RPrecision", "RankingAUROC", "RecallAtK", "ReciprocalRank"]
__all__ += ["EqualErrorRate", "PairwiseAUROC", "PairwiseROC", "TARAtFAR"]
__all__ += ["FaissKMeans", "TorchKMeans", "AdjustedMutualInfo", "AdjustedRand", "ClusterAccuracy", "Completeness"]
__all__ += ["EmbeddingClusterAccuracy", "FowlkesMallows", "Homogeneity", "NormalizedMutualInfo", "VMeasure"]
__all__ += ["Qrels", "Run", "RunMetric", "RunScores", "evaluate_run"]


def __dir__() -> list[str]:
    return [*__all__, "extend", "functional", *(name for name in globals() if name.startswith("__"))]
