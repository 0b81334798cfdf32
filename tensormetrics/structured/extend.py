"""Base classes, registries and types for those who add to `tensormetrics.structured`."""

from .objects.matching import Hook, Match, Matching, Path
from .objects.metric import StructuredMetric
from .objects.nodes.node import Variable
from .tensors.constraints import Constraint
from .tensors.normalizers import FScore, Jaccard, Normalizer, Precision, Recall
from .tensors.policy import Policy
from .tensors.reduction import CountMetric, OverlapMetric

__all__ = ["CountMetric", "OverlapMetric", "StructuredMetric", "Variable"]
__all__ += ["Constraint", "Policy", "Hook", "Match", "Matching", "Path"]
__all__ += ["Normalizer", "FScore", "Jaccard", "Precision", "Recall"]
