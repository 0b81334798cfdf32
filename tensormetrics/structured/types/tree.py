"""The schema tree, built from classes or JSON Schemas.

Null is no case of a union: a type that allows it is `nullable`. Every node of the tree has `Scoring`, the content of
its annotations. A recursive type refers to itself by `Reference(name)`, a key of `Schema.definitions`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
    "anything",
    "instance",
]


@dataclass(frozen=True)
class NodeScoring:
    """Content of the annotations of one node: its comparator (None: exact), its weight, whether it is ignored."""

    comparator: Comparator | None = None
    weight: float = 1.0
    ignore: bool = False


@dataclass(frozen=True, kw_only=True)
class TypeNode:
    """Base of the types: whether null is allowed, and the content of the annotations."""

    nullable: bool = False
    scoring: NodeScoring = field(default_factory=NodeScoring)


@dataclass(frozen=True)
class Leaf(TypeNode):
    """Scalar of one kind.

    `values` are the members of an enum or Literal, by their JSON values, `classes` the type of an "instance" (checked
    by isinstance); `base64` means that the text of bytes is encoded; "anything" is the kind where no
    reference has a value.
    """

    kind: LeafKind
    values: tuple[Any, ...] = ()
    base64: bool = False
    classes: tuple[type, ...] = ()


@dataclass(frozen=True)
class Field:
    """Field of a record: its name in paths, its type, the keys allowed in a document, and whether it is required.

    `keys` is empty if the name is the only key. `default` returns the value of a missing key (only used with
    `defaults=True`).
    """

    name: str
    type: Type
    keys: tuple[str | int, ...] = ()
    required: bool = False
    default: Callable[[], Any] | None = None


@dataclass(frozen=True)
class Record(TypeNode):
    """Object with known keys; `closed` if other keys make a document invalid.

    `extra` is the type of other keys if the schema defines one; they are free keys at `path.*`. `instance_of` is the
    class of instances that are read by their attributes. `is_tuple`: the values are arrays, see `tuple_of`.
    """

    fields: tuple[Field, ...]
    closed: bool = False
    extra: Type | None = None
    instance_of: type | None = None
    is_tuple: bool = False


def tuple_of(positions: Iterable[Type]) -> Record:
    """Return the type of arrays of fixed length, whose fields are their positions."""
    fields = (Field(f"[{n}]", tp, (n,), required=True) for n, tp in enumerate(positions))
    return Record(tuple(fields), is_tuple=True)


@dataclass(frozen=True)
class ItemList(TypeNode):
    """List, or set if `unique`; `ordered` matches in order, `by` pairs items with equal values of that key.

    `match` is the smallest similarity of a matched pair (None: the option of the evaluation).
    """

    item: Type
    unique: bool = False
    ordered: bool = False
    by: str | None = None
    match: float | None = None


@dataclass(frozen=True)
class FreeKeys(TypeNode):
    """Object with any keys and values of one type."""

    value: Type


@dataclass(frozen=True)
class Union(TypeNode):
    """Union of cases in declared order, selected by content; no case is a union or null."""

    cases: tuple[Type, ...]


@dataclass(frozen=True)
class Anything(TypeNode):
    """Any JSON value, compared by the kind of the reference."""

    nullable: bool = field(default=True, kw_only=True)


@dataclass(frozen=True)
class Reference(TypeNode):
    """Reference to a type of `Schema.definitions` by name."""

    name: str


Type: TypeAlias = Leaf | Record | ItemList | FreeKeys | Union | Anything | Reference


@dataclass(frozen=True)
class Schema:
    """Type of a document and the definitions of its references."""

    root: Type
    definitions: dict[str, Type] = field(default_factory=dict)

    def resolved(self, node: Type) -> Type:
        """Return the target of a reference, or the type itself."""
        while isinstance(node, Reference):
            node = self.definitions[node.name]
        return node
