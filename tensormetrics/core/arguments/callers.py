"""The line of a caller's program at which a warning points."""

import sys

_LIBRARY_PACKAGES = "tensormetrics", "torch", "torchmetrics", "contextlib", "functools"


def level_of_caller() -> int:
    """Return the stacklevel, for `warnings.warn` in the calling function, of the first line outside of the library."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in _LIBRARY_PACKAGES:
        level, frame = level + 1, frame.f_back
    return level
