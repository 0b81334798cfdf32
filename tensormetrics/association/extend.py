"""Base classes, registries and types for those who add to `tensormetrics.association`."""

from .embeddings.lookup import PreprocessorArgs
from .embeddings.query import IndexedQuery
from .metrics.base import BaseMetric

__all__ = ["BaseMetric", "IndexedQuery", "PreprocessorArgs"]
