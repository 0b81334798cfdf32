"""Names of the module of this name in pytorch-metric-learning, for subclasses that change only their import."""

from .calculator import AccuracyCalculator as AccuracyCalculator
from .knn_labels import EQUALITY as EQUALITY
from .knn_labels import get_label_match_counts as get_label_match_counts
from .knn_labels import get_lone_query_labels as get_lone_query_labels
from .knn_labels import get_unique_labels as get_unique_labels
from .knn_labels import mean_average_precision as mean_average_precision
from .knn_labels import mean_reciprocal_rank as mean_reciprocal_rank
from .knn_labels import precision_at_k as precision_at_k
from .knn_labels import r_precision as r_precision
