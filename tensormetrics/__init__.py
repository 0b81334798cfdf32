"""Evaluation metrics as torch modules over batched tensors: one sub-package per domain.

Every score is a number with an interval (`interval`, `Estimate`), two of them can be compared (`compare`,
`Comparison`), and several make a table (`Table`).
"""

from ._version import __version__ as __version__
from .core.arguments.lazy import attach

# A domain is imported when it is first named, so that one domain never costs the import of another.
__getattr__, __dir__ = attach(__name__, __file__)
__all__ = ["interval", "compare", "Estimate", "Comparison", "Table"]
__all__ += ["assignment", "association", "compat", "posterior", "retrieval", "structured", "uncertainty"]
