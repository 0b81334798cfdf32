"""Nearest-neighbour search, and scores of embeddings by their neighbours and their clusters."""

from .accuracy_calculator import AccuracyCalculator as AccuracyCalculator
from .average_precision import average_precision_at_r as average_precision_at_r
from .cluster_accuracy import ClusterAccuracy as ClusterAccuracy
from .cluster_accuracy import cluster_accuracy as cluster_accuracy
from .kmeans import TorchKMeans as TorchKMeans
from .knn import TorchKNN as TorchKNN
from .precision import precision as precision
from .precision import r_precision as r_precision
from .ranks import PositiveRanks as PositiveRanks
from .ranks import count_relevant as count_relevant
from .ranks import positive_ranks as positive_ranks
from .ranks import ranks_of_neighbours as ranks_of_neighbours
