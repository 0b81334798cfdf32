"""Base classes, registries and types for those who add to `tensormetrics.retrieval`."""

from .sources.source import EmbeddingSource

__all__ = ["EmbeddingSource"]
