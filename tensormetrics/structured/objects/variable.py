"""Names that are local to a structure."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Variable:
    """Name that has a meaning only within its structure, such as a variable of a graph."""

    name: str
