"""Names and arguments of pytorch-metric-learning 2.9.0: the calculator, its functions, searches and k-means.

Distances, testers and models for inference are those of that package: searches and calculators from here take them, or
are taken by them.
"""

from importlib import import_module
from typing import Any

from . import accuracy_calculator as accuracy_calculator
from . import inference as inference
from .accuracy_calculator import *  # noqa: F403
from .inference import *  # noqa: F403

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
