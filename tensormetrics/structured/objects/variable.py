"""Names that are bound anew in every structure."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Variable:
    """A name that has a meaning inside its own structure only."""

    name: str
