"""Evaluation metrics as torch modules over batched tensors: one sub-package per domain."""

from typing import TYPE_CHECKING

from ._version import __version__ as __version__

if TYPE_CHECKING:
    from . import assignment, association, posterior, retrieval, structured, uncertainty

__all__ = ["assignment", "association", "posterior", "retrieval", "structured", "uncertainty"]

if not TYPE_CHECKING:  # a type checker would take every name for one that exists

    def __getattr__(name: str) -> object:
        # A domain is imported when it is first named, so that one domain never costs the import of another.
        if name in __all__:
            from importlib import import_module

            return import_module(f"tensormetrics.{name}")
        raise AttributeError(f"module 'tensormetrics' has no attribute {name!r}; its domains are {', '.join(__all__)}")


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
