"""Evaluation metrics as torch modules over batched tensors: one sub-package per domain.

Every score is a number with an interval (`interval`, `Estimate`), two of them can be compared (`compare`,
`Comparison`), and several make a table (`Table`).
"""

from typing import TYPE_CHECKING

from ._version import __version__ as __version__

if TYPE_CHECKING:
    from . import assignment, association, posterior, retrieval, structured, uncertainty
    from .uncertainty import Comparison, Estimate, Table, compare, interval

__all__ = [
    "Comparison",
    "Estimate",
    "Table",
    "assignment",
    "association",
    "compare",
    "interval",
    "posterior",
    "retrieval",
    "structured",
    "uncertainty",
]
_DOMAINS = "assignment", "association", "posterior", "retrieval", "structured", "uncertainty"

if not TYPE_CHECKING:  # a type checker would take every name for one that exists

    def __getattr__(name: str) -> object:
        # A domain is imported when it is first named, so that one domain never costs the import of another.
        if name in __all__:
            from importlib import import_module

            if name in _DOMAINS:
                return import_module(f"{__name__}.{name}")
            value = globals()[name] = getattr(import_module(f"{__name__}.uncertainty"), name)
            return value
        raise AttributeError(f"module 'tensormetrics' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
