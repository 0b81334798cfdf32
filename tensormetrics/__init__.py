"""Evaluation metrics as torch modules over batched tensors: one sub-package per domain.

Every score is a number with an interval (`interval`, `Estimate`), two of them can be compared (`compare`,
`Comparison`), and several make a table (`Table`).
"""

from ._version import __version__ as __version__
from .core.arguments.lazy import attach

# A domain is imported when it is first named, so that one domain never costs the import of another.
__getattr__, __dir__, __all__ = attach(__name__, __file__)
