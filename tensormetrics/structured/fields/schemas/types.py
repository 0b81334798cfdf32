"""The schema tree that readers of classes and of JSON Schemas build.

Null is no case of a union: a type that allows it is `nullable`. Every place of the tree has `Scoring`, what an
annotation says of it. A recursive type refers to itself by `Reference(name)`; `Schema.definitions` holds what it means.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from ..comparators.base import Comparator

LeafKind = Literal[
    "boolean",
    "integer",
    "number",
    "string",
    "decimal",
    "date",
    "datetime",
    "time",
    "uuid",
    "bytes",
    "enum",
    "null",
    "instance",
]


@dataclass(frozen=True)
class Scoring:
    """What the annotations of one place say: its comparator (None: exact), its weight, whether it is left out."""

    comparator: Comparator | None = None
    weight: float = 1.0
    ignore: bool = False


@dataclass(frozen=True)
class Leaf:
    """A scalar of one kind.

    `values` are the members of an enum or Literal, by their JSON values, `classes` the type of an "instance" (checked
    by isinstance), `base64` says that the text of bytes is encoded.
    """

    kind: LeafKind
    values: tuple[Any, ...] = ()
    base64: bool = False
    classes: tuple[type, ...] = ()
    nullable: bool = False
    scoring: Scoring = field(default_factory=Scoring)


@dataclass(frozen=True)
class Field:
    """One key of a record: its name in paths, its type, the keys that a document may write, whether one must be there.

    `keys` is empty if the name is the only key. `attribute` is read from an instance of the record's class.
    `default` makes the value of a missing key (read with `defaults=True` only).
    """

    name: str
    type: Type
    keys: tuple[str, ...] = ()
    required: bool = False
    attribute: str | None = None
    default: Callable[[], Any] | None = None


@dataclass(frozen=True)
class Record:
    """An object with known keys; `closed` if other keys make a document not valid.

    `extra` is the type of other keys where a schema names one; they are free keys at `path.*`. `instance_of` is the
    class whose instances are read by their attributes.
    """

    fields: tuple[Field, ...]
    closed: bool = False
    extra: Type | None = None
    instance_of: type | None = None
    nullable: bool = False
    scoring: Scoring = field(default_factory=Scoring)


@dataclass(frozen=True)
class Items:
    """A list, or a set if `unique`; `ordered` matches in order, `by` pairs items with equal values of that key.

    `match` is the least similarity of a matched pair (None: the option of the whole evaluation).
    """

    item: Type
    unique: bool = False
    ordered: bool = False
    by: str | None = None
    match: float | None = None
    nullable: bool = False
    scoring: Scoring = field(default_factory=Scoring)


@dataclass(frozen=True)
class Fixed:
    """A tuple of that many positions, each with its type."""

    positions: tuple[Type, ...]
    nullable: bool = False
    scoring: Scoring = field(default_factory=Scoring)


@dataclass(frozen=True)
class FreeKeys:
    """An object with any keys, whose values have one type."""

    value: Type
    nullable: bool = False
    scoring: Scoring = field(default_factory=Scoring)


@dataclass(frozen=True)
class Union:
    """One of several cases in declared order, chosen by content; none is a union or null."""

    cases: tuple[Type, ...]
    nullable: bool = False
    scoring: Scoring = field(default_factory=Scoring)


@dataclass(frozen=True)
class Anything:
    """Any JSON value, compared by the kind that the reference has there."""

    nullable: bool = True
    scoring: Scoring = field(default_factory=Scoring)


@dataclass(frozen=True)
class Reference:
    """A type of `Schema.definitions`, by name."""

    name: str
    nullable: bool = False
    scoring: Scoring = field(default_factory=Scoring)


Type: TypeAlias = Leaf | Record | Items | Fixed | FreeKeys | Union | Anything | Reference


@dataclass(frozen=True)
class Schema:
    """The type of a document and what its references mean."""

    root: Type
    definitions: dict[str, Type] = field(default_factory=dict)

    def resolved(self, node: Type) -> Type:
        """Return the type that a reference means, or the type itself."""
        while isinstance(node, Reference):
            node = self.definitions[node.name]
        return node
