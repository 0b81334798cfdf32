"""Evaluation metrics as torch modules over batched tensors: one sub-package per domain."""

from importlib import import_module
from typing import Any

__all__ = ["assignment", "association", "posterior", "retrieval", "structured"]


def __getattr__(name: str) -> Any:
    # A domain is imported when it is first named, so that one domain never costs the import of another.
    if name in __all__:
        return import_module(f"tensormetrics.{name}")
    raise AttributeError(f"module 'tensormetrics' has no attribute {name!r}; its domains are {', '.join(__all__)}")
