"""Names and arguments of pytorch-metric-learning 2.9.0: the calculator, its functions, searches and k-means.

Distances, testers and models for inference are those of that package: searches and calculators from here take them, or
are taken by them.
"""

from importlib import import_module
from typing import Any

from . import accuracy_calculator as accuracy_calculator
from . import inference as inference
from .accuracy_calculator import EQUALITY as EQUALITY
from .accuracy_calculator import AccuracyCalculator as AccuracyCalculator
from .accuracy_calculator import get_label_match_counts as get_label_match_counts
from .accuracy_calculator import get_lone_query_labels as get_lone_query_labels
from .accuracy_calculator import get_relevance_mask as get_relevance_mask
from .accuracy_calculator import get_unique_labels as get_unique_labels
from .accuracy_calculator import maybe_get_avg_of_avgs as maybe_get_avg_of_avgs
from .accuracy_calculator import mean_average_precision as mean_average_precision
from .accuracy_calculator import mean_reciprocal_rank as mean_reciprocal_rank
from .accuracy_calculator import nan_accuracy as nan_accuracy
from .accuracy_calculator import precision_at_k as precision_at_k
from .accuracy_calculator import r_precision as r_precision
from .accuracy_calculator import try_getting_not_lone_labels as try_getting_not_lone_labels
from .inference import CustomKNN as CustomKNN
from .inference import FaissKMeans as FaissKMeans
from .inference import FaissKNN as FaissKNN

OF_PACKAGE = {  # module of the package -> its names
    "distances": "BaseDistance BatchedDistance CosineSimilarity DotProductSimilarity LpDistance SNRDistance",
    "testers": "BaseTester GlobalEmbeddingSpaceTester GlobalTwoStreamEmbeddingSpaceTester WithSameParentLabelTester",
    "utils.inference": "InferenceModel MatchFinder",
}


def __getattr__(name: str) -> Any:
    module = next((module for module, names in OF_PACKAGE.items() if name in (module, *names.split())), None)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        found = import_module(f"pytorch_metric_learning.{module}")
    except ModuleNotFoundError as error:
        raise ImportError(f"{name} is in that package: pip install pytorch-metric-learning") from error
    return found if name == module else getattr(found, name)
